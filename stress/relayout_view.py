"""`onearena demo relayout`: figure 4 drawn from a live arena, before and after, with its moves."""

from __future__ import annotations

from onearena.core.answers import Fits
from onearena.stress.figure4 import ARENA_BYTES, DEMAND, FULL, FULL_BYTES, Figure4, Stage

COLUMNS_PER_PAGE = 3
LETTERS = ("S", "W", "F")


def story() -> list[str]:
    """The whole demonstration as lines of at most 100 columns."""
    figure = Figure4()
    before = figure.stage("before")
    counts = figure.arena.fit_units()[FULL]
    answer = figure.ask()
    assert isinstance(answer, Fits), answer
    lines = [
        f"One arena of {ARENA_BYTES} bytes: S state (low end), W window (floats), F full (high).",
        "A window page is two full pages wide. Dots are holes, spaces a gap.",
        "",
        *draw(before),
        "",
        f"A demand for {DEMAND[FULL]} full pages:",
        f"  in place, {counts[0]} fit: the band's own holes; there is no room at its frontier.",
        f"  with the end bands compacted, {counts[1]} fit: the holes become a gap, no byte more.",
        f"  with the window moved as well, {counts[2]} fit: rung {answer.rung.name.lower()}.",
        "",
    ]
    figure.realise()
    after = figure.stage("after")
    moved = {
        vid: (before.at[vid], after.at[vid]) for vid in before.at if before.at[vid] != after.at[vid]
    }
    lines += draw(after)
    lines.append("")
    for vid, ((old, _), (new, end)) in moved.items():
        lines.append(f"One copy of {end - new} bytes: id {vid} from byte {old} to byte {new}.")
    left = figure.arena.fit_units()[FULL][0]
    lines.append(f"{DEMAND[FULL]} pages were handed out, {left} more fits without a move.")
    return lines


def draw(stage: Stage) -> list[str]:
    """One line of units at true scale, and a ruler of frontiers."""
    cells = [" "] * (ARENA_BYTES // FULL_BYTES * COLUMNS_PER_PAGE)
    rulers = [[" "] * (len(cells) + 8) for _ in range(2)]
    for letter, band in zip(LETTERS, stage.snapshot.bands, strict=True):
        width = band.unit_bytes // FULL_BYTES * COLUMNS_PER_PAGE
        for place, state in enumerate(band.states):
            start = band.origin_bytes + (band.low_unit + place) * band.unit_bytes
            at = start // FULL_BYTES * COLUMNS_PER_PAGE
            inner = (letter if state == 2 else ".") * (width - 1)
            cells[at : at + width] = [*inner, "|"]
        for byte in (band.start_bytes, band.end_bytes):
            _write(rulers, byte // FULL_BYTES * COLUMNS_PER_PAGE, str(byte))
    lines = [f"{stage.title:>7} |{''.join(cells)}"]
    return lines + [f"        {text}" for ruler in rulers if (text := "".join(ruler).rstrip())]


def _write(rulers: list[list[str]], at: int, label: str) -> None:
    """Put `label` on the first ruler that has room for it there, once."""
    for ruler in rulers:
        there = "".join(ruler[max(0, at - 1) : at + len(label) + 1]).strip()
        if there in ("", label):
            ruler[at : at + len(label)] = label
            return
