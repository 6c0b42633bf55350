"""`Store`: the units and ids of all bands of one arena, over one int64 array.

The store is the data plane: which unit is in which state, which id maps to it, where the
frontiers are. It knows nothing of streams; a ledger tells it through use counts which released
units have to wait. The arena object owns it: only that calls what changes units.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.band import READ_ID, READ_STATE, READ_WORD, Band, Int64s
from onearena.core.errors import MisuseError
from onearena.core.geometry import ArenaGeometry
from onearena.core.ids import describe_id
from onearena.core.store_answers import (
    ID_TEXTS,
    UNIT_TEXTS,
    Freed,
    FrozenView,
    Handout,
    Retreat,
    decode_retreats,
)
from onearena.core.words import (
    A_DEMAND,
    A_EPOCH,
    A_ERROR_DETAIL,
    A_ERROR_INDEX,
    A_RESULT,
    A_RETREAT_LOG,
    A_RETREATS,
    BAND_HEADER_WORDS,
    BAND_HEADERS,
    FREE_LOG,
    UNIT_PINNED,
    UNIT_QUARANTINED,
    UNIT_TRANSFERS_MASK,
    UNIT_TRANSFERS_SHIFT,
    UNIT_USES_MASK,
    UNIT_USES_SHIFT,
    UNIT_WRITTEN,
    Code,
    Words,
    create_words,
)

__all__ = ["Freed", "FrozenView", "Handout", "Retreat", "Store"]

_INT64 = np.dtype(np.int64)
_empty = np.empty


class Store:
    """All bands of one arena. One control thread; no call waits, none synchronises a device.

    Calls are atomic: they do all they say, or raise `MisuseError` (or answer None where the
    demand does not fit) with nothing changed. Ids and units go in and out as int64 arrays; any
    other sequence of integers is copied into one first.
    """

    __slots__ = (
        "_capacity_units",
        "_cells",
        "_free_tail_words",
        "_pack_demand",
        "arena",
        "bands",
        "geometry",
        "words",
    )

    def __init__(self, geometry: ArenaGeometry, *, arena: int = 0) -> None:
        self.geometry = geometry
        self.arena = arena
        self.words: Words = create_words(geometry, arena=arena)
        self._cells = self.words.data
        self.bands = tuple(
            Band(self.words, band, index) for index, band in enumerate(geometry.bands)
        )
        self._pack_demand = struct.Struct(f"={len(self.bands)}q").pack_into
        self._capacity_units = sum(band.grid.capacity_units for band in geometry.bands)
        self._free_tail_words = FREE_LOG + 6 * len(self.bands)

    @property
    def epoch(self) -> int:
        """Grows with every call that changed the store."""
        return int(self._cells[A_EPOCH])

    # --- demand ------------------------------------------------------------------------------

    def _write_demand(self, demand: Sequence[int]) -> int:
        """Put the demand where kernels read it; its sum, or -1 if it exceeds all capacity.

        The kernel checks it band by band; here only what would make writing it impossible.
        """
        try:
            self._pack_demand(self._cells, 8 * A_DEMAND, *demand)
            total = sum(demand)
        except struct.error:
            total = -1
        if 0 <= total <= self._capacity_units:
            return total
        return self._odd_demand(demand)

    def _odd_demand(self, demand: Sequence[int]) -> int:
        """Name what is wrong with a demand, or answer -1 if it is only far too large."""
        shown = tuple(demand)
        if len(shown) != len(self.bands):
            fix = f"give one number for each of the {len(self.bands)} bands, in chain order"
        elif not all(isinstance(units, int | np.integer) for units in shown):
            fix = "give whole numbers of units"
        elif any(units < 0 for units in shown):
            fix = "give no negative number; units are handed back with free()"
        else:
            return -1
        raise MisuseError(f"demand {shown}: {fix}", argument="demand")

    def fits_in_place(self, demand: Sequence[int]) -> bool:
        """Whether `allocate` would succeed now without a move. O(bands), changes nothing."""
        if self._write_demand(demand) < 0:
            return False
        return not self._refused(kernels.check_demand(self.words), demand)

    def allocate(self, demand: Sequence[int]) -> Handout | None:
        """Hand out ``demand[i]`` units of every band i, all or nothing, without a move.

        Takes holes nearest the band's origin end first, then grows. None if that has no room
        (another layout may have: ask `fit`). O(units taken + bands).

        Raises:
            MisuseError: wrong number of bands, or a negative number.
        """
        total = self._write_demand(demand)
        if total < 0:
            return None
        out = _empty(2 * total, _INT64)
        code = kernels.allocate(self.words, out)
        if code != 0 and self._refused(code, demand):
            return None
        return Handout(out, total)

    @staticmethod
    def _refused(code: int, demand: Sequence[int]) -> bool:
        """Whether the kernel answered that there is no room; a bad demand raises."""
        if code == Code.BAD_DEMAND:
            raise MisuseError(
                f"demand {tuple(demand)}: give no negative number; units go back with free()",
                argument="demand",
            )
        return code != 0

    def extend(
        self,
        held_entries: Sequence[int],
        wanted_entries: Sequence[int],
        *,
        entries_per_unit: Sequence[int],
    ) -> Handout | None:
        """Hand out what an owner of ``held_entries`` needs to hold ``wanted_entries`` per band.

        A last unit that is only partly filled is used up first, so band i gets
        ``ceil(wanted / per_unit) - ceil(held / per_unit)`` more units. Otherwise as `allocate`.

        Raises:
            MisuseError: as `allocate`; ``wanted < held``; a page size below 1.
        """
        demand = []
        rows = zip(held_entries, wanted_entries, entries_per_unit, strict=True)
        for band, (held, wanted, per_unit) in enumerate(rows):
            if not (0 <= held <= wanted and per_unit >= 1):
                raise MisuseError(
                    f"band {band}: cannot extend from {held} to {wanted} entries of "
                    f"{per_unit} per unit; entries only grow, and a unit holds at least one",
                    argument="wanted_entries",
                )
            demand.append(-(-wanted // per_unit) - -(-held // per_unit))
        return self.allocate(demand)

    # --- ids ---------------------------------------------------------------------------------

    def free(self, ids: Int64s) -> Freed:
        """Drop one reference per id; the last one frees the unit logically. O(ids + bands).

        A unit with uses, transfers or a quarantine becomes pending, any other a hole; holes at
        a frontier go back to the gap at once (`Freed.retreats`: the caller fences those bytes).

        Raises:
            MisuseError: an id that is not live here, or named more often than it has references.
        """
        ids = self._vector(ids, "ids")
        n = ids.size
        out = _empty(2 * n + self._free_tail_words, _INT64)
        code = kernels.free(self.words, ids, out)
        if code != 0:
            raise self._id_error(code, "free")
        return Freed(out, n)

    def share(self, ids: Int64s) -> None:
        """Add one reference per id (an id named twice gets two). O(ids).

        Raises:
            MisuseError: an id that is not live here.
        """
        code = kernels.share(self.words, self._vector(ids, "ids"))
        if code != 0:
            raise self._id_error(code, "share")

    def resolve(self, ids: Int64s, *, sinks: bool = False) -> Int64s:
        """int64[n]: physical unit of every id. With `sinks`, a sink id gives unit 0. O(ids).

        Raises:
            MisuseError: an id that is not live here.
        """
        ids = self._vector(ids, "ids")
        out = np.empty(ids.size, dtype=_INT64)
        code = kernels.resolve(self.words, ids, sinks, out)
        if code != 0:
            raise self._id_error(code, "resolve")
        return out

    def references(self, ids: Int64s) -> Int64s:
        """int64[n]: reference count of every id, 0 for one that is not live. O(ids)."""
        ids = self._vector(ids, "ids")
        out = np.empty(ids.size, dtype=_INT64)
        kernels.references(self.words, ids, out)
        return out

    # --- units -------------------------------------------------------------------------------

    def states(self, band: int, units: Int64s) -> Int64s:
        """int64[n]: state (`words.UnitState`) of units of one band. O(units)."""
        return self._read(band, units, READ_STATE)

    def unit_words(self, band: int, units: Int64s) -> Int64s:
        """int64[n]: state, flags and counts of units of one band; 0 beyond. O(units)."""
        return self._read(band, units, READ_WORD)

    def ids_of(self, band: int, units: Int64s) -> Int64s:
        """int64[n]: virtual id of every live unit, 0 for any other. O(units)."""
        return self._read(band, units, READ_ID)

    def add_uses(self, band: int, units: Int64s, delta: int) -> int:
        """Add +1 or -1 to the use count of each unit; answers how many units became holes.

        While a count is above 0 a freed unit stays pending and a moved source vacated; the
        call that takes the last blocker away makes it a hole (see `retreats`). A unit named
        twice counts twice. O(units).

        Raises:
            MisuseError: a unit that is a hole or beyond, or a count that would pass 0.
        """
        return self._count(band, units, UNIT_USES_SHIFT, UNIT_USES_MASK, delta)

    def add_transfers(self, band: int, units: Int64s, delta: int) -> int:
        """As `add_uses` for transfers: while above 0 the unit is fixed as well."""
        return self._count(band, units, UNIT_TRANSFERS_SHIFT, UNIT_TRANSFERS_MASK, delta)

    def settle(self, band: int, units: Int64s) -> None:
        """Make pending or vacated units holes, whatever uses they still count. O(units).

        Raises:
            MisuseError: a unit in another state, repeated, under a transfer or quarantined.
        """
        code = kernels.settle(self.words, band, self._vector(units, "units"))
        if code != 0:
            raise self._unit_error(code, band, "settle")

    def pin(self, band: int, units: Int64s, *, on: bool) -> None:
        """Set or clear the pin of live units: a pinned unit does not move. O(units)."""
        self._flag(band, units, UNIT_PINNED, on=on)

    def quarantine(self, band: int, units: Int64s, *, on: bool) -> int:
        """Take units out of capacity, fixed, freed or not; or return them.

        Answers how many freed units became holes by it. O(units).
        """
        return self._flag(band, units, UNIT_QUARANTINED, on=on)

    def mark_written(self, band: int, units: Int64s) -> None:
        """Note that units were written in this life, so a move has to copy them. O(units)."""
        self._flag(band, units, UNIT_WRITTEN, on=True)

    # --- moves -------------------------------------------------------------------------------

    def move(
        self, bands: Int64s, sources: Int64s, targets: Int64s, *, uses: int = 0
    ) -> tuple[Retreat, ...]:
        """Rebind the ids of live units to other units, as one batch; the bookkeeping of a move.

        Pair k moves unit ``sources[k]`` to ``targets[k]`` within band ``bands[k]``. A target is
        a hole, or beyond a frontier as far as the neighbours leave room: the band grows over it
        and units passed over become holes. References follow the id. ``uses=1`` counts the copy
        on both units; a source with uses is vacated until they end, any other becomes a hole.
        A source is live and a target free, so a batch never reads what it writes.
        O(pairs * bands + units passed over). Answers the retreats.

        Raises:
            MisuseError: a source not live, pinned, quarantined or under a transfer; a target
                not free or out of room; a unit named twice.
        """
        return self._move(bands, sources, targets, uses=uses, unwritten=False)

    def remap(self, bands: Int64s, sources: Int64s, targets: Int64s) -> tuple[Retreat, ...]:
        """`move` for units not yet written in this life: there are no bytes to copy.

        Raises:
            MisuseError: as `move`, and for a source that was written.
        """
        return self._move(bands, sources, targets, uses=0, unwritten=True)

    def _move(
        self, bands: Int64s, sources: Int64s, targets: Int64s, *, uses: int, unwritten: bool
    ) -> tuple[Retreat, ...]:
        bands = self._vector(bands, "bands")
        sources = self._vector(sources, "sources")
        targets = self._vector(targets, "targets")
        if not bands.size == sources.size == targets.size:
            raise MisuseError(
                f"{bands.size} bands, {sources.size} sources and {targets.size} targets; "
                "give one of each per move",
                argument="targets",
            )
        code = kernels.move(self.words, bands, sources, targets, uses, unwritten)
        if code != 0:
            band = int(bands[self._cells[A_ERROR_INDEX]]) if bands.size else -1
            at_target = self._cells[A_RESULT] == 1
            raise self._unit_error(code, band, "move", "targets" if at_target else "sources")
        return self.retreats()

    # --- views -------------------------------------------------------------------------------

    def retreats(self) -> tuple[Retreat, ...]:
        """Ranges that left a band in the last call that changed units; at most two a band."""
        count = 3 * self._cells[A_RETREATS]
        return decode_retreats(self._cells[A_RETREAT_LOG : A_RETREAT_LOG + count].tolist())

    def view(self) -> FrozenView:
        """Counts and frontiers of now, for pure planning; O(bands)."""
        headers = self.words[: BAND_HEADERS + BAND_HEADER_WORDS * len(self.bands)].copy()
        headers.flags.writeable = False
        return FrozenView(
            epoch=self.epoch, geometry=self.geometry, headers=headers, words=self.words
        )

    def digest(self) -> str:
        """Hash of all that later calls depend on; equal states give equal digests. O(pool).

        Left out are the epoch, scratch, and the stale words beyond frontiers.
        """
        state = hashlib.blake2b(digest_size=16)
        for band in self.bands:
            state.update(band.state_words().tobytes())
        return state.hexdigest()

    # --- helpers -----------------------------------------------------------------------------

    def _vector(self, values: Int64s | Sequence[int], argument: str) -> Int64s:
        """The argument as a contiguous writable int64 vector; kernels are compiled for that."""
        if (
            values.__class__ is np.ndarray
            and values.dtype is _INT64
            and values.ndim == 1
            and values.flags.carray
        ):
            return values
        return _coerce(values, argument)

    def _read(self, band: int, units: Int64s, which: int) -> Int64s:
        units = self._vector(units, "units")
        out = np.empty(units.size, dtype=_INT64)
        code = kernels.read_units(self.words, band, units, which, out)
        if code != 0:
            raise self._unit_error(code, band, "read")
        return out

    def _count(self, band: int, units: Int64s, shift: int, mask: int, delta: int) -> int:
        units = self._vector(units, "units")
        code = kernels.count_units(self.words, band, units, shift, mask, delta)
        if code != 0:
            raise self._unit_error(code, band, "count")
        return int(self._cells[A_RESULT])

    def _flag(self, band: int, units: Int64s, flag: int, *, on: bool) -> int:
        code = kernels.set_flag(self.words, band, self._vector(units, "units"), flag, on)
        if code != 0:
            raise self._unit_error(code, band, "flag")
        return int(self._cells[A_RESULT])

    def _id_error(self, code: int, call: str) -> MisuseError:
        position, vid = self._cells[A_ERROR_INDEX], self._cells[A_ERROR_DETAIL]
        return MisuseError(
            f"{call}: ids[{position}]: {describe_id(vid)} {ID_TEXTS[Code(code)]}",
            argument="ids",
            unit=vid,
        )

    def _unit_error(self, code: int, band: int, call: str, argument: str = "units") -> MisuseError:
        position, unit = self._cells[A_ERROR_INDEX], self._cells[A_ERROR_DETAIL]
        return MisuseError(
            f"{call}: {argument}[{position}]: unit {unit} of band {band} {UNIT_TEXTS[Code(code)]}",
            argument=argument,
            unit=unit,
        )


def _coerce(values: Int64s | Sequence[int], argument: str) -> Int64s:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, dtype=_INT64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise MisuseError(
            f"{argument}: {array.dtype} array of shape {array.shape} is not a vector of integers; "
            "give int64",
            argument=argument,
        )
    if array.dtype.kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise MisuseError(
            f"{argument}: {int(array.max())} does not fit an int64", argument=argument
        )
    result: NDArray[np.int64] = np.array(array, dtype=_INT64, order="C")
    return result
