"""Choices files: a recorded schedule as JSON, versioned, read with suspicion.

The file holds the seed, what ran, and every step with its decisions by name. Lines are one step
each, so that two recordings can be compared with a text diff. Files of version 1 replay as long as
the format's major is 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onearena.core.errors import UsageError
from onearena.stress.arrivals import Arrival
from onearena.stress.choices import BOUND_MAX, StepRecord
from onearena.stress.run import RunResult, RunSpec
from onearena.stress.systems import DEVICES, check_system

VERSION: Final = 1
FILE_BYTES_MAX: Final = 64 << 20
STEPS_MAX: Final = 100_000
NAME_CHARACTERS_MAX: Final = 120
ARRIVALS_MAX: Final = 4096


def dump_recording(spec: RunSpec, result: RunResult) -> str:
    """The choices file of a finished run, as text."""
    head = {
        "onearena_choices": VERSION,
        "seed": spec.seed,
        "system": spec.system,
        "model": spec.model,
        "device": spec.device,
        "step_limit": spec.steps,
        "arrivals": [
            [row.at_us, row.prompt_tokens, row.output_tokens, list(row.prefix)]
            for row in spec.arrivals
        ],
        "verdict": result.verdict,
        "digest": result.digest,
        "violations": [violation.to_json() for violation in result.violations],
    }
    lines = [
        json.dumps([step.label, {name: list(v) for name, v in step.decisions.items()}])
        for step in result.recording
    ]
    text = json.dumps(head, indent=1)
    return text[:-2] + ',\n "steps": [\n' + ",\n".join(lines) + "\n]}\n"


def load_recording(path: str | Path) -> tuple[RunSpec, dict[str, Any]]:
    """The spec to replay and the file's head. Raises `UsageError` naming the field at fault."""
    source = Path(path)
    try:
        size = source.stat().st_size
        if size > FILE_BYTES_MAX:
            raise UsageError("FILE", str(path), f"give a choices file below {FILE_BYTES_MAX} bytes")
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError("FILE", str(path), "give a choices file (UTF-8 JSON)") from None
    except (OSError, ValueError) as error:
        raise UsageError("FILE", str(path), f"give a readable choices file ({error})") from None
    return parse_recording(text, where=str(path))


def parse_recording(
    text: str, *, where: str = "FILE", to_run: bool = True
) -> tuple[RunSpec, dict[str, Any]]:
    """`load_recording` of a text. Not `to_run`, its system need be neither trusted nor there."""
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise UsageError("FILE", where, f"give a choices file in JSON ({reason})") from None
    if not isinstance(document, dict):
        raise UsageError(where, type(document).__name__, "give a choices file (a JSON object)")
    if document.get("onearena_choices") != VERSION or isinstance(
        document.get("onearena_choices"), bool
    ):
        raise UsageError(
            f"{where} onearena_choices", document.get("onearena_choices"), f"give version {VERSION}"
        )
    seed = _integer(f"{where} seed", document.get("seed"), (1 << 64) - 1)
    limit = _integer(f"{where} step_limit", document.get("step_limit", 0), STEPS_MAX)
    system = _name(f"{where} system", document.get("system"))
    if to_run:
        check_system(system, f"{where} system")
    model = _name(f"{where} model", document.get("model"))
    device = _name(f"{where} device", document.get("device", "modeled"))
    if device not in DEVICES:
        raise UsageError(f"{where} device", device, f"give one of {', '.join(DEVICES)}")
    arrivals = _arrivals(where, document.get("arrivals", []))
    steps = _steps(where, document.get("steps"))
    spec = RunSpec(seed, system, model, limit, arrivals, steps, device=device)
    return spec, document


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _integer(field: str, value: object, highest: int) -> int:
    if type(value) is not int or not 0 <= value <= highest:
        raise UsageError(field, value, f"give a whole number from 0 to {highest}")
    return value


def _name(field: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise UsageError(field, value, f"give a name of 1 to {NAME_CHARACTERS_MAX} characters")
    if not value.isprintable() or not value.isascii():
        raise UsageError(field, value, "use printable ASCII characters")
    return value


def _arrivals(where: str, rows: object) -> tuple[Arrival, ...]:
    if not isinstance(rows, list) or len(rows) > ARRIVALS_MAX:
        raise UsageError(f"{where} arrivals", rows, f"give a list of at most {ARRIVALS_MAX} rows")
    found: list[Arrival] = []
    for index, row in enumerate(rows):
        field = f"{where} arrivals[{index}]"
        if not isinstance(row, list) or len(row) != 4 or not isinstance(row[3], list):
            raise UsageError(field, row, "give [at_us, prompt, output, [prefix ids]]")
        numbers = [_integer(field, value, 1 << 62) for value in [*row[:3], *row[3]]]
        found.append(Arrival(numbers[0], numbers[1], numbers[2], tuple(numbers[3:])))
    return tuple(found)


def _steps(where: str, rows: object) -> tuple[StepRecord, ...]:
    if not isinstance(rows, list) or not 0 < len(rows) <= STEPS_MAX:
        raise UsageError(f"{where} steps", rows, f"give a list of 1 to {STEPS_MAX} steps")
    steps: list[StepRecord] = []
    for index, row in enumerate(rows):
        field = f"{where} steps[{index}]"
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], dict):
            raise UsageError(field, row, "give [label, {decision name: [values]}]")
        label = _name(field, row[0])
        if not index and label != "setup":
            raise UsageError(field, label, 'start with the "setup" step')
        decisions: dict[str, tuple[int, ...]] = {}
        for name, values in row[1].items():
            _name(f"{field} decision", name)
            if not isinstance(values, list):
                raise UsageError(f"{field} {name}", values, "give a list of whole numbers")
            decisions[name] = tuple(
                _integer(f"{field} {name}", value, BOUND_MAX) for value in values
            )
        steps.append(StepRecord(label, decisions))
    return tuple(steps)


def same_failure(head: Mapping[str, Any], result: RunResult) -> bool:
    """Whether a replay broke the rule that the file says was broken."""
    if head.get("verdict") != result.verdict:
        return False
    recorded = head.get("violations")
    if not isinstance(recorded, list) or not recorded:
        return not result.violations
    first = recorded[0]
    if not isinstance(first, dict) or not result.violations:
        return False
    now = result.violations[0]
    return (first.get("oracle"), first.get("rule")) == (now.oracle, now.rule)
