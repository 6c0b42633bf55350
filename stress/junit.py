"""JUnit XML of a campaign, for the test pages of CI systems.

One test case for each lifecycle rule, one for the facts outside those rules, and one each for
crashes, progress, determinism and reach. A case fails with the text of the failures that concern
it; reach is skipped where a campaign is too small to be judged by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from onearena.stress.report import RULES, failure_text
from onearena.stress.summary import EXIT_NOTHING

if TYPE_CHECKING:
    from onearena.stress.run import RunResult
    from onearena.stress.summary import Summary

TEXTS_MAX: Final = 5
"""Failures told in full in one case; the others are counted."""
# XML 1.0 has no way to write these, not even as references.
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(summary: Summary) -> str:
    """The report: one `testsuite`, UTF-8 text, ends with a newline."""
    cases = [*_rule_cases(summary), *_run_cases(summary)]
    failed = sum("<failure" in case for case in cases)
    errors = sum("<error" in case for case in cases)
    skipped = sum("<skipped" in case for case in cases)
    name = f"onearena stress {summary.system}"
    head = (
        f'<testsuite name="{_text(name)}" tests="{len(cases)}" failures="{failed}" '
        f'errors="{errors}" skipped="{skipped}" time="{summary.seconds:.3f}">'
    )
    properties = {
        "first_seed": summary.first,
        "next_seed": summary.next_seed,
        "schedules": summary.schedules,
        "steps": summary.step_total,
        "exit_code": summary.exit_code(),
    }
    rows = [f'<property name="{key}" value="{value}"/>' for key, value in properties.items()]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            "<testsuites>",
            head,
            "<properties>",
            *rows,
            "</properties>",
            *cases,
            "</testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _rule_cases(summary: Summary) -> list[str]:
    """One case a rule; a failure counts for the rule of its first report."""
    broken: dict[str, list[RunResult]] = {}
    for result in summary.failures:
        if result.violations:
            rule = result.violations[0].rule
            broken.setdefault(rule if rule in RULES else "other", []).append(result)
    names = {rule: f"rule {rule}: {words}" for rule, words in RULES.items()}
    names["other"] = "facts outside the numbered rules: geometry, sums, answers, cost"
    return [
        _case(summary, "rules", name, _failures(broken.get(rule, ())))
        for rule, name in names.items()
    ]


def _run_cases(summary: Summary) -> list[str]:
    crashes = [result for result in summary.failures if result.verdict == "crash"]
    stuck = [result for result in summary.failures if result.verdict == "stuck"]
    differ = ", ".join(str(seed) for seed in summary.nondeterministic)
    code = summary.exit_code()
    reach = ""
    if summary.missing:
        listed = _text(", ".join(summary.vacuous or summary.missing))
        reach = f'<skipped message="never reached: {listed}; {summary.vacuity_text()}"/>'
        if summary.vacuous:
            reach = f'<failure type="vacuity" message="never reached: {listed}"/>'
    finished = ""
    if code == EXIT_NOTHING:
        finished = '<error type="budget" message="no schedule finished"/>'
    nondeterminism = f'<failure type="nondeterminism" message="two runs differ: {differ}"/>'
    return [
        _case(summary, "runs", "the system never crashes", _failures(crashes, tag="error")),
        _case(summary, "runs", "everything drains in the end", _failures(stuck)),
        _case(summary, "runs", "equal seeds give equal traces", nondeterminism if differ else ""),
        _case(summary, "runs", "every planned situation was reached", reach),
        _case(summary, "runs", "a schedule finished", finished),
    ]


def _case(summary: Summary, group: str, name: str, body: str) -> str:
    place = f"onearena.stress.{summary.system}.{group}"
    head = f'<testcase classname="{_text(place)}" name="{_text(name)}" time="0"'
    return f"{head}>\n{body}\n</testcase>" if body else f"{head}/>"


def _failures(results: Sequence[RunResult], *, tag: str = "failure") -> str:
    if not results:
        return ""
    first = results[0]
    said = first.crash.strip().splitlines()[-1:] or [first.verdict]
    message = said[0]
    if first.violations:
        violation = first.violations[0]
        message = f"{violation.oracle}: {violation.message}"
    texts = [failure_text(result) for result in results[:TEXTS_MAX]]
    if len(results) > TEXTS_MAX:
        texts.append(f"and {len(results) - TEXTS_MAX} more")
    body = _text("\n\n".join(texts))
    return f'<{tag} type="{first.verdict}" message="{_text(message)}">{body}</{tag}>'


def _text(words: str) -> str:
    """Safe inside an element or a quoted attribute."""
    return escape(_UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", words), quote=True)
