"""Virtual ids: one positive int64, ``generation << 36 | arena << 31 | band << 26 | index``.

Pure integers, for error texts, tests and oracles; the hot path does the same in `kernels`.
A generation is never used twice for one index, so an id that was freed stays invalid for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from onearena.core.words import (
    ARENAS_MAX,
    BANDS_MAX,
    ID_ARENA_SHIFT,
    ID_BAND_SHIFT,
    ID_GENERATION_LAST,
    ID_GENERATION_SHIFT,
    ID_INDEX_MASK,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdFields:
    """What a virtual id says: which arena and band, which index, which life of that index."""

    generation: int
    arena: int
    band: int
    index: int

    def pack(self) -> int:
        """The id as one int64. Asserts every field's range."""
        assert 0 <= self.generation <= ID_GENERATION_LAST, f"generation {self.generation}"
        assert 0 <= self.arena < ARENAS_MAX, f"arena {self.arena}"
        assert 0 <= self.band < BANDS_MAX, f"band {self.band}"
        assert 0 <= self.index <= ID_INDEX_MASK, f"index {self.index}"
        return (
            self.generation << ID_GENERATION_SHIFT
            | self.arena << ID_ARENA_SHIFT
            | self.band << ID_BAND_SHIFT
            | self.index
        )


def unpack_id(vid: int) -> IdFields:
    """Fields of a non-negative id; says nothing about whether it is live."""
    assert vid >= 0, f"id {vid} is negative"
    return IdFields(
        generation=vid >> ID_GENERATION_SHIFT,
        arena=vid >> ID_ARENA_SHIFT & (ARENAS_MAX - 1),
        band=vid >> ID_BAND_SHIFT & (BANDS_MAX - 1),
        index=vid & ID_INDEX_MASK,
    )


def sink_id(*, arena: int, band: int) -> int:
    """Id of a band's padding sink: index 0, generation 0; it resolves to physical unit 0."""
    return IdFields(generation=0, arena=arena, band=band, index=0).pack()


def describe_id(vid: int) -> str:
    """An id for an error text: the number and what it says."""
    if vid < 0:
        return f"id {vid}"
    fields = unpack_id(vid)
    return (
        f"id {vid} (arena {fields.arena}, band {fields.band}, index {fields.index}, "
        f"generation {fields.generation})"
    )
