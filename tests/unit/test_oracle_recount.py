"""The recount oracle: numbers of a snapshot that its own sums cannot check, and host units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onearena.core.rules import UseKind
from onearena.core.snapshot import Snapshot, UseSnapshot
from onearena.stress.oracles.recount import slack_bytes
from onearena.stress.oracles.script import BANDS, FULL, STATE, WINDOW, Script

A, B = 101, 102


def begun() -> tuple[Script, Snapshot]:
    """A pinned unit, one under a send, a forward not ended; and the snapshot that says so."""
    script = Script()
    script.grant({A: (STATE, 1), B: (FULL, 20)})
    forward = script.forward(1, writes=[A])
    script.process(forward)
    script.call("pin", (A,), True)
    send = script.transfer(UseKind.SEND, [B])
    seen = script.snapshot({STATE: (1, "L"), FULL: (20, "L")})
    state, window, full = seen.bands
    script.violations.clear()
    uses = (
        UseSnapshot(forward.use.serial, UseKind.FORWARD, 1, 1, True, (), ((STATE, 1),)),
        UseSnapshot(send.use.serial, UseKind.SEND, -1, 1, False, ((FULL, 20),), ()),
    )
    bands = (replace(state, pinned_units=1), window, replace(full, transfer_units=1))
    return script, replace(seen, bands=bands, uses=uses)


def judged(script: Script, seen: Snapshot) -> list[str]:
    script.call("snapshot", True, answer=seen)
    return [one.message for one in script.violations if one.oracle == "recount"]


def test_a_snapshot_that_says_what_the_calls_left_is_right() -> None:
    assert judged(*begun()) == []


@pytest.mark.parametrize(
    ("band", "field", "count"),
    [(STATE, "pinned_units", 0), (FULL, "transfer_units", 2), (WINDOW, "quarantined_units", 1)],
)
def test_a_count_that_the_calls_did_not_leave(band: int, field: str, count: int) -> None:
    script, seen = begun()
    bands = list(seen.bands)
    wrong: dict[str, Any] = {field: count}
    bands[band] = replace(bands[band], **wrong)
    (message,) = judged(script, replace(seen, bands=tuple(bands)))
    assert f"{field} is {count}" in message


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, "is not shown"),
        ({"processed": False}, "shown as processed=False"),
        ({"writes": ((STATE, 2),)}, "with other units"),
    ],
)
def test_a_use_that_is_shown_wrongly(wrong: dict[str, Any] | None, words: str) -> None:
    script, seen = begun()
    first, second = seen.uses
    uses = (second,) if wrong is None else (replace(first, **wrong), second)
    (message,) = judged(script, replace(seen, uses=uses))
    assert words in message


def test_slack_is_what_no_layout_can_use() -> None:
    script, seen = begun()
    assert judged(script, replace(seen, slack_bytes=8)) == ["slack is 8 bytes, a recount says 0."]
    # A float of 96 bytes begins at 64 behind one low unit; 16 + 192 bytes on, no unit is left over.
    middle = replace(BANDS[WINDOW], unit_bytes=96, origin_bytes=-16)
    bands = (BANDS[STATE], middle, replace(BANDS[FULL], unit_bytes=48))
    assert slack_bytes(bands, 512, (0, 0, 0)) == 512 % 48
    assert slack_bytes(bands, 512, (1, 2, 1)) == 16 + (512 - 48 - 64 - 16 - 192) % 48


def test_host_units_refused_though_enough_are_free() -> None:
    script = Script()
    script.call("reserve_host", FULL, 3, answer=(1, 2, 3))
    script.call("reserve_host", FULL, 2, answer=())
    assert not [one for one in script.violations if one.oracle == "recount"]
    script.call("free_host", (1, 2))
    script.call("reserve_host", FULL, 2, answer=())
    (found,) = [one for one in script.violations if one.oracle == "recount"]
    assert "at least 3 are held and used by nobody" in found.message
