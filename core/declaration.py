"""What a model keeps, as plain data: layers, their parts, and the JSON and TOML forms.

A new combination of state is a new declaration. ``docs/plan.md`` describes the file format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from onearena.core.errors import UsageError
from onearena.core.layout import MAX_LENGTH, Lifetime, Part, dtype_named
from onearena.core.plain import Fields, integer, parse_text, read_text

DECLARATION_FORMAT = "onearena.declaration"
DECLARATION_VERSION = 1

_LAYERS_MAX = 4096
_KINDS_MAX = 256
_PARTS_MAX = 64
_DIMENSIONS_MAX = 8
_PART_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDeclaration:
    """One layer: the name of its kind (for people) and its parts, in lane order; may be empty."""

    kind: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeclaration:
    """Everything one model (or draft) keeps. Layers count from 0; a layer may keep nothing.

    ``max_context_tokens`` is the longest context the model was made for.
    """

    name: str
    max_context_tokens: int
    layers: tuple[LayerDeclaration, ...]

    def __post_init__(self) -> None:
        assert self.max_context_tokens >= 1, f"max_context_tokens {self.max_context_tokens}"
        for index, layer in enumerate(self.layers):
            names = [part.name for part in layer.parts]
            assert len(set(names)) == len(names), f"layer {index} names a part twice: {names}"

    def lifetimes(self) -> tuple[Lifetime, ...]:
        """Distinct lifetimes, in order of first appearance."""
        seen: dict[Lifetime, None] = {}
        for layer in self.layers:
            for part in layer.parts:
                seen.setdefault(part.lifetime)
        return tuple(seen)

    def parts_of(self, lifetime: Lifetime) -> Iterator[tuple[int, Part]]:
        """``(layer, part)`` of that lifetime, in declaration order."""
        for index, layer in enumerate(self.layers):
            for part in layer.parts:
                if part.lifetime == lifetime:
                    yield index, part

    def payload_bytes(self, lifetime: Lifetime) -> int:
        """Bytes of all parts of that lifetime, for one token or one slot, without padding."""
        return sum(part.size_bytes for _, part in self.parts_of(lifetime))

    def to_plain(self) -> dict[str, object]:
        """The JSON form: each distinct layer once under ``kinds``, then the order of layers."""
        kinds: dict[str, tuple[Part, ...]] = {}
        order: list[object] = []
        for layer in self.layers:
            name, number = layer.kind, 2
            while kinds.setdefault(name, layer.parts) != layer.parts:
                name, number = f"{layer.kind}_{number}", number + 1
            order.append(name)
        return {
            "format": DECLARATION_FORMAT,
            "version": DECLARATION_VERSION,
            "name": self.name,
            "max_context_tokens": self.max_context_tokens,
            "kinds": {name: [_part_plain(part) for part in parts] for name, parts in kinds.items()},
            "layers": order,
        }

    @classmethod
    def from_plain(cls, value: object, *, source: str) -> ModelDeclaration:
        """Inverse of ``to_plain`` for data nobody vouches for; ``UsageError`` names the field."""
        fields = Fields(value, f"{source}:")
        declared = fields.text("format", default=DECLARATION_FORMAT)
        if declared != DECLARATION_FORMAT:
            raise UsageError(fields.path("format"), declared, f'use "{DECLARATION_FORMAT}"')
        fields.integer("version", minimum=1, maximum=DECLARATION_VERSION)
        name = fields.text("name")
        context = fields.integer("max_context_tokens", minimum=1, maximum=MAX_LENGTH)
        kind_fields = fields.table("kinds")
        kinds: dict[str, tuple[Part, ...]] = {}
        for kind in kind_fields.names():
            if len(kinds) == _KINDS_MAX:
                raise UsageError(fields.path("kinds"), kind, f"use at most {_KINDS_MAX} kinds")
            parts = kind_fields.items(kind, limit=_PARTS_MAX)
            path = kind_fields.path(kind)
            kinds[kind] = _parts(parts, path)
        layers: list[LayerDeclaration] = []
        path = fields.path("layers")
        for index, item in enumerate(fields.items("layers", limit=_LAYERS_MAX)):
            for kind in _layer_kinds(item, f"{path}[{index}]"):
                if kind not in kinds:
                    known = ", ".join(sorted(kinds)[:8])
                    raise UsageError(f"{path}[{index}]", kind, f"use a kind you declared: {known}")
                layers.append(LayerDeclaration(kind=kind, parts=kinds[kind]))
            if len(layers) > _LAYERS_MAX:
                raise UsageError(path, len(layers), f"use at most {_LAYERS_MAX} layers")
        fields.done()
        if not any(layer.parts for layer in layers):
            raise UsageError(path, len(layers), "give at least one layer that keeps a part")
        return cls(name=name, max_context_tokens=context, layers=tuple(layers))


def _part_plain(part: Part) -> dict[str, object]:
    plain: dict[str, object] = {
        "name": part.name,
        "shape": list(part.shape),
        "dtype": part.dtype.value,
        "lifetime": part.lifetime.text,
    }
    if part.zero:
        plain["zero"] = True
    if part.ring:
        plain["ring"] = True
    return plain


def _parts(values: list[object], path: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for index, value in enumerate(values):
        part = _part(Fields(value, f"{path}[{index}]"))
        if any(part.name == other.name for other in parts):
            raise UsageError(f"{path}[{index}].name", part.name, "give each part its own name")
        parts.append(part)
    return tuple(parts)


def _part(fields: Fields) -> Part:
    name = fields.text("name")
    if _PART_NAME.fullmatch(name) is None:
        fix = "use a letter, then up to 63 letters, digits or underscores"
        raise UsageError(fields.path("name"), name, fix)
    sizes = fields.items("shape", limit=_DIMENSIONS_MAX)
    if not sizes:
        raise UsageError(fields.path("shape"), sizes, "give at least one dimension")
    shape = tuple(
        integer(size, field=f"{fields.path('shape')}[{axis}]", minimum=1, maximum=MAX_LENGTH)
        for axis, size in enumerate(sizes)
    )
    lifetime = Lifetime.parse(fields.raw("lifetime"), field=fields.path("lifetime"))
    ring = fields.boolean("ring", default=False)
    if ring and lifetime.per_token:
        fix = 'use lifetime "request": a replay ring belongs to a state slot'
        raise UsageError(fields.path("lifetime"), lifetime.text, fix)
    dtype = dtype_named(fields.raw("dtype"), field=fields.path("dtype"))
    zero = fields.boolean("zero", default=False)
    fields.done()
    part = Part(name=name, shape=shape, dtype=dtype, lifetime=lifetime, zero=zero, ring=ring)
    if part.size_bytes > MAX_LENGTH:
        fix = f"make the part smaller: it takes {part.size_bytes} bytes, at most {MAX_LENGTH} fit"
        raise UsageError(fields.path("shape"), list(shape), fix)
    return part


def _layer_kinds(item: object, path: str) -> list[str]:
    """Kinds of one item of ``layers``: a kind's name, or a pattern of kinds and a count."""
    if isinstance(item, str):
        return [item]
    fields = Fields(item, path)
    pattern = fields.items("kinds", limit=_LAYERS_MAX)
    for index, kind in enumerate(pattern):
        if not isinstance(kind, str):
            raise UsageError(f"{fields.path('kinds')}[{index}]", kind, "use the name of a kind")
    count = fields.integer("count", minimum=1, maximum=_LAYERS_MAX, default=1)
    fields.done()
    if len(pattern) * count > _LAYERS_MAX:
        raise UsageError(fields.path("count"), count, f"use at most {_LAYERS_MAX} layers in all")
    return [str(kind) for kind in pattern] * count


def load_plain(path: str, *, field: str) -> object:
    """Parsed content of a ``.toml`` or (any other name) JSON file."""
    text = read_text(path, field=field)
    return parse_text(text, source=path, toml=path.endswith(".toml"))
