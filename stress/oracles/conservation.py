"""The conservation oracle: no byte is lost, none is counted twice, in any snapshot.

live + pending + vacated + hole = the band's bytes        counters = a recount of the states
free + fenced = the gap's bytes                           fenced = a recount of the fences
bands + gaps = S, end to end
"""

from __future__ import annotations

from typing import Final

from onearena.core.snapshot import BandSnapshot, GapSnapshot, Snapshot
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, Violation
from onearena.stress.oracles.geometry import snapshot_of

# State byte of a unit -> the counter it belongs to.
COUNTERS: Final = {
    1: "hole_units",
    2: "live_units",
    3: "pending_units",
    4: "vacated_units",
}
SUBSETS: Final = ("transfer_units", "pinned_units", "quarantined_units")


class ConservationOracle:
    """Sums of every snapshot. Cost: bands, gaps, fences, and one pass over the state bytes."""

    name = "conservation"

    def __init__(self) -> None:
        self._found: list[Violation] = []
        self._last: tuple[BandSnapshot, ...] = ()

    def feed(self, record: object) -> tuple[Violation, ...]:
        """Judge a `Snapshot`, or the answer of a `snapshot` call; ignore all else."""
        snapshot = snapshot_of(record)
        if snapshot is None:
            return NO_VIOLATIONS
        last = self._last
        for index, band in enumerate(snapshot.bands):
            # The very object that was found in order before, and cannot change, is so still.
            if index >= len(last) or last[index] is not band:
                self._judge_band(band)
        self._last = () if self._found else snapshot.bands
        self._judge_gaps(snapshot)
        self._judge_fences(snapshot)
        if not self._found:
            return NO_VIOLATIONS
        found, self._found = tuple(self._found), []
        return found

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _judge_band(self, band: BandSnapshot) -> None:
        counts = (band.hole_units, band.live_units, band.pending_units, band.vacated_units)
        units = band.high_unit - band.low_unit
        if sum(counts) != units or min(counts) < 0:
            named = zip(counts, COUNTERS.values(), strict=True)
            terms = " + ".join(f"{count} {name}" for count, name in named)
            self._say(f"{band.name}: {terms} are not the {units} units of the band", band)
        for name in SUBSETS:
            if not 0 <= getattr(band, name) <= units:
                self._say(f"{band.name}: {getattr(band, name)} {name} of {units} units", band)
        if not band.states:
            return
        if len(band.states) != units:
            self._say(f"{band.name}: {len(band.states)} unit states for {units} units", band)
        recount_of = band.states.count
        for (state, name), count in zip(COUNTERS.items(), counts, strict=True):
            recount = recount_of(state)
            if recount != count:
                self._say(f"{band.name}: {name} is {count}, a recount says {recount}", band)

    def _judge_gaps(self, snapshot: Snapshot) -> None:
        """Bands and gaps, end to end, are [0, S); each gap's parts add up."""
        pieces = [(b.start_bytes, b.end_bytes, b.name) for b in snapshot.bands if b.has_units]
        for gap in snapshot.gaps:
            size = gap.end_bytes - gap.start_bytes
            if (
                gap.free_bytes + gap.fenced_bytes != size
                or min(gap.free_bytes, gap.fenced_bytes, size) < 0
            ):
                self._say_gap(f"{gap.free_bytes} free + {gap.fenced_bytes} fenced bytes", gap)
            if size:
                pieces.append((gap.start_bytes, gap.end_bytes, "a gap"))
        at, last = 0, "the arena's start"
        for start, end, what in [*sorted(pieces), (snapshot.arena_bytes, 0, "the arena's end")]:
            if start != at:
                verb = "are counted by nobody" if start > at else "are counted twice"
                extent = ByteRange("arena", min(at, start), max(at, start))
                self._report(f"{extent}, between {last} and {what}, {verb}", extent)
            at, last = max(at, end), what

    def _judge_fences(self, snapshot: Snapshot) -> None:
        """Fenced bytes of a gap are the fences in it; a fence without a use should be gone."""
        fences = snapshot.fences
        for gap in snapshot.gaps:
            fenced = 0
            for fence in fences:
                end = min(fence.end_bytes, gap.end_bytes)
                fenced += max(0, end - max(fence.start_bytes, gap.start_bytes))
            if fenced != gap.fenced_bytes:
                self._say_gap(f"{gap.fenced_bytes} bytes are fenced, a recount says {fenced}", gap)
        for fence in fences:
            if not fence.uses:
                extent = ByteRange("arena", fence.start_bytes, fence.end_bytes)
                self._report(f"the fence {extent} outlived its last use", extent, rule="5")

    def _say(self, message: str, band: BandSnapshot) -> None:
        self._report(message, ByteRange("arena", band.start_bytes, band.end_bytes))

    def _say_gap(self, message: str, gap: GapSnapshot) -> None:
        extent = ByteRange("arena", gap.start_bytes, gap.end_bytes)
        self._report(f"gap {extent}: {message}", extent)

    def _report(self, message: str, extent: ByteRange, *, rule: str = "conservation") -> None:
        self._found.append(
            Violation(oracle=self.name, rule=rule, message=f"{message}.", bytes=extent)
        )
