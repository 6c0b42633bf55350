"""Parts, lanes and entries: what one layer keeps, and where it lies inside one entry.

Knows integers and names only. ``core/buffer.py`` turns a lane into a strided torch view.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onearena.core.errors import UsageError
from onearena.core.geometry import ALIGN_BYTES, round_up

MAX_LENGTH = 1 << 40
"""Largest window, chunk, dimension and lane size: far above any model, far below 2^63."""


class Dtype(enum.Enum):
    """Element types a lane may have. ``FP4X2`` is two packed FP4 values in one byte."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    INT8 = "int8"
    UINT8 = "uint8"
    FP4X2 = "fp4x2"

    @property
    def size_bytes(self) -> int:
        """Bytes of one element (of ``FP4X2``: of one packed pair)."""
        return _SIZE_BYTES[self]


_SIZE_BYTES: Mapping[Dtype, int] = {
    Dtype.BF16: 2,
    Dtype.FP16: 2,
    Dtype.FP32: 4,
    Dtype.FP8_E4M3: 1,
    Dtype.FP8_E5M2: 1,
    Dtype.INT8: 1,
    Dtype.UINT8: 1,
    Dtype.FP4X2: 1,
}

# Spellings of torch and of Hugging Face configs.
_DTYPE_ALIASES: Mapping[str, Dtype] = {
    "bfloat16": Dtype.BF16,
    "float16": Dtype.FP16,
    "half": Dtype.FP16,
    "float32": Dtype.FP32,
    "float": Dtype.FP32,
    "float8_e4m3fn": Dtype.FP8_E4M3,
    "float8_e5m2": Dtype.FP8_E5M2,
    "float4_e2m1fn_x2": Dtype.FP4X2,
}


def dtype_named(name: object, *, field: str) -> Dtype:
    """The dtype of that name or alias (``torch.bfloat16`` too); ``UsageError`` names ``field``."""
    if isinstance(name, str):
        short = name.removeprefix("torch.")
        for dtype in Dtype:
            if dtype.value == short:
                return dtype
        if short in _DTYPE_ALIASES:
            return _DTYPE_ALIASES[short]
    known = ", ".join(dtype.value for dtype in Dtype)
    raise UsageError(field, name, f"use one of {known}")


class LifetimeKind(enum.Enum):
    """How long a part is kept."""

    CONTEXT = "context"
    WINDOW = "window"
    CHUNK = "chunk"
    REQUEST = "request"


_LIFETIME_TEXT = re.compile(r"(window|chunk)\(([0-9]{1,15})\)")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A lifetime and, for ``window`` and ``chunk``, its length in tokens (else 0).

    ``window(n)``: the last n tokens. ``chunk(n)``: tokens of the current chunk of n; a chunk
    retires whole when the next one begins. Two lengths are two lifetimes, so two sub-pools.
    """

    kind: LifetimeKind
    length: int = 0

    def __post_init__(self) -> None:
        bounded = self.kind in (LifetimeKind.WINDOW, LifetimeKind.CHUNK)
        low, high = (1, MAX_LENGTH) if bounded else (0, 0)
        assert low <= self.length <= high, f"{self.kind.value} length {self.length}"

    @property
    def per_token(self) -> bool:
        """True if an entry is one token; False if it is one request's state slot."""
        return self.kind is not LifetimeKind.REQUEST

    @property
    def text(self) -> str:
        """``context``, ``window(4096)``, ``chunk(8192)`` or ``request``."""
        return f"{self.kind.value}({self.length})" if self.length else self.kind.value

    @property
    def sub_pool_name(self) -> str:
        """Name of the sub-pool that holds parts of this lifetime; safe as a metric label."""
        if self.kind is LifetimeKind.CONTEXT:
            return "full"
        if self.kind is LifetimeKind.REQUEST:
            return "state"
        return f"{self.kind.value}_{self.length}"

    @classmethod
    def parse(cls, text: object, *, field: str) -> Lifetime:
        """Inverse of ``text``; ``UsageError`` names ``field``."""
        if text == "context":
            return CONTEXT
        if text == "request":
            return REQUEST
        match = _LIFETIME_TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None or not 1 <= int(match[2]) <= MAX_LENGTH:
            fix = f'use "context", "window(N)", "chunk(N)" (N from 1 to {MAX_LENGTH}) or "request"'
            raise UsageError(field, text, fix)
        return cls(LifetimeKind(match[1]), int(match[2]))


CONTEXT = Lifetime(LifetimeKind.CONTEXT)
REQUEST = Lifetime(LifetimeKind.REQUEST)


def window(length: int) -> Lifetime:
    """Lifetime of the last ``length`` tokens."""
    return Lifetime(LifetimeKind.WINDOW, length)


def chunk(length: int) -> Lifetime:
    """Lifetime of the current chunk of ``length`` tokens."""
    return Lifetime(LifetimeKind.CHUNK, length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one layer keeps for one token (or one request): a shape, a dtype, a lifetime.

    ``zero``: a unit that holds this part is zeroed when it is handed out.
    ``ring``: a replay ring ``[W, ...]`` of a state entry; its lifetime is ``request``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    lifetime: Lifetime
    zero: bool = False
    ring: bool = False

    def __post_init__(self) -> None:
        assert self.shape, f"part {self.name} has no dimension"
        assert all(size >= 1 for size in self.shape), f"shape {self.shape}"
        assert not self.ring or not self.lifetime.per_token, f"ring {self.name} per token"

    @property
    def size_bytes(self) -> int:
        """Bytes of the part, without padding."""
        return math.prod(self.shape) * self.dtype.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One part's place in an entry: ``[offset_bytes, offset_bytes + size_bytes)``.

    ``layer`` counts from 0 within the target or, when ``draft``, within the draft.
    """

    name: str
    layer: int
    part: str
    shape: tuple[int, ...]
    dtype: Dtype
    offset_bytes: int
    size_bytes: int
    draft: bool = False
    zero: bool = False
    ring: bool = False

    def __post_init__(self) -> None:
        assert self.offset_bytes % ALIGN_BYTES == 0, f"lane {self.name} at {self.offset_bytes}"
        assert self.size_bytes == math.prod(self.shape) * self.dtype.size_bytes, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLayout:
    """All lanes of one entry, ascending and disjoint; ``entry_bytes`` is a multiple of 16."""

    lanes: tuple[Lane, ...]
    entry_bytes: int

    def __post_init__(self) -> None:
        assert self.lanes, "an entry needs at least one lane"
        assert self.entry_bytes % ALIGN_BYTES == 0, f"entry_bytes {self.entry_bytes} % 16"
        end = 0
        for lane in self.lanes:
            assert lane.offset_bytes >= end, f"lane {lane.name} overlaps the one before"
            end = lane.offset_bytes + lane.size_bytes
        assert end <= self.entry_bytes, f"lanes end at {end}, entry at {self.entry_bytes}"

    @property
    def payload_bytes(self) -> int:
        """Bytes of all lanes without padding."""
        return sum(lane.size_bytes for lane in self.lanes)

    @property
    def padding_bytes(self) -> int:
        """Bytes of an entry that belong to no lane."""
        return self.entry_bytes - self.payload_bytes

    @property
    def zero_on_hand_out(self) -> bool:
        """True if some lane asks that its unit be zeroed when handed out."""
        return any(lane.zero for lane in self.lanes)

    def lane(self, name: str) -> Lane:
        """The lane of that name; ``KeyError`` if there is none. O(lanes)."""
        for lane in self.lanes:
            if lane.name == name:
                return lane
        raise KeyError(f"no lane {name!r}; there are {len(self.lanes)} lanes")

    @classmethod
    def of_parts(cls, parts: Iterable[tuple[int, Part, bool]]) -> EntryLayout:
        """Pack ``(layer, part, draft)`` in the order given, each at the next multiple of 16.

        16 bytes is a multiple of every dtype's size, so one rule aligns a lane for both.
        """
        lanes: list[Lane] = []
        offset = 0
        for layer, part, draft in parts:
            prefix = "draft." if draft else ""
            lanes.append(
                Lane(
                    name=f"{prefix}layers.{layer}.{part.name}",
                    layer=layer,
                    part=part.name,
                    shape=part.shape,
                    dtype=part.dtype,
                    offset_bytes=offset,
                    size_bytes=part.size_bytes,
                    draft=draft,
                    zero=part.zero,
                    ring=part.ring,
                )
            )
            offset = round_up(offset + part.size_bytes, ALIGN_BYTES)
        return cls(lanes=tuple(lanes), entry_bytes=offset)
