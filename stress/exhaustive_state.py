"""A moment of a running system, kept so that it can be had again: in place, all objects the same.

The exhaustive search runs many programs that begin alike. It runs the beginning once, keeps the
moment, and goes on from there as often as there are ways to go on. Nothing of a system needs to
know: a moment is a walk over everything that is reachable from one object, with a copy of the
content of everything that can change. Going back writes the copies into the very same objects.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import struct
import types
from collections import deque
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

_ATOM, _FIXED, _LIST, _DICT, _SET, _DEQUE, _BYTES, _ARRAY, _VIEW, _METHOD, _FUNCTION, _PARTIAL = (
    range(12)
)
_FROZEN, _OBJECT = 12, 13

_MISSING: Final = object()
_WORD_BYTES: Final = struct.calcsize("P")

_ATOMS: Final = (
    *(bool, int, float, complex, str, bytes, range, slice, type(None), type(Ellipsis), type),
    *(types.ModuleType, types.CodeType, struct.Struct, np.dtype, np.generic, enum.Enum),
    *(BaseException, type(hashlib.blake2b())),
)
"""What nobody changes, and the hash over a trace, which nobody asks for in a search."""

_KINDS: Final[tuple[tuple[tuple[type, ...], int], ...]] = (
    (_ATOMS, _ATOM),
    ((tuple, frozenset), _FIXED),
    ((list,), _LIST),
    ((dict,), _DICT),
    ((set,), _SET),
    ((deque,), _DEQUE),
    ((bytearray,), _BYTES),
    ((np.ndarray,), _ARRAY),
    ((memoryview,), _VIEW),
    ((types.MethodType, types.BuiltinMethodType, types.MethodWrapperType), _METHOD),
    ((types.FunctionType,), _FUNCTION),
    ((functools.partial,), _PARTIAL),
)


class _How(NamedTuple):
    """How to keep objects of a type: as what, and which attributes besides."""

    kind: int
    slots: tuple[str, ...]
    has_dict: bool


_known: dict[type, _How] = {}


def _how_to_keep(kind: type) -> _How:
    """Raises `TypeError` for a type whose objects hold more than Python code can reach."""
    slots: list[str] = []
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__", ())
        slots += [names] if isinstance(names, str) else names
    found = tuple(name for name in slots if name not in ("__dict__", "__weakref__"))
    has_dict = kind.__dictoffset__ != 0
    for types_, how in _KINDS:
        if issubclass(kind, types_):
            # A subclass of a container may have attributes of its own besides.
            own = how in (_LIST, _DICT, _SET, _DEQUE) and kind not in types_
            return _How(how, found if own else (), has_dict and own)
    words = len(found) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    hidden = kind.__basicsize__ - object.__basicsize__ - _WORD_BYTES * words
    if hidden > 0:
        raise TypeError(f"objects of {kind} cannot be kept: {hidden} bytes are out of reach")
    frozen = dataclasses.is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen  # noqa: B009
    return _How(_FROZEN if frozen else _OBJECT, found, has_dict)


def _add(kept: tuple[list[Any], list[Any]], one: object, copy: object) -> None:
    kept[0].append(one)
    kept[1].append(copy)


class Moment:
    """What everything reachable from `root` holds now. O(objects), about 1 us each.

    Not kept, because it is not the system's: global variables, and the hash over the trace. An
    object that comes into being later is simply let go by `again`.
    """

    __slots__ = ("_arrays", "_bytes", "_deques", "_dicts", "_empty", "_lists", "_sets", "_slots")

    def __init__(self, root: object) -> None:
        # Objects, and in the same order copies of their content.
        self._lists: tuple[list[Any], list[Any]] = ([], [])
        self._dicts: tuple[list[Any], list[Any]] = ([], [])
        self._sets: tuple[list[Any], list[Any]] = ([], [])
        self._deques: tuple[list[Any], list[Any]] = ([], [])
        self._bytes: tuple[list[Any], list[Any]] = ([], [])
        self._arrays: tuple[list[Any], list[Any]] = ([], [])
        self._slots: tuple[list[object], list[str], list[object]] = ([], [], [])
        self._empty: list[tuple[object, str]] = []
        seen: set[int] = set()
        # Everything in `todo` is held by what is kept: no number of `id` comes back meanwhile.
        todo = [root]
        while todo:
            one = todo.pop()
            kind = type(one)
            how = _known.get(kind)
            if how is None:
                how = _known[kind] = _how_to_keep(kind)
            if how.kind == _ATOM or id(one) in seen:
                continue
            seen.add(id(one))
            self._keep(one, how, todo)

    def _keep(self, one: Any, how: _How, todo: list[Any]) -> None:
        kind = how.kind
        if kind == _FIXED:
            todo += one
        elif kind == _LIST:
            _add(self._lists, one, one[:])
            todo += one
        elif kind == _DICT:
            self._keep_dict(one, todo)
        elif kind == _SET:
            _add(self._sets, one, [*one])
            todo += one
        elif kind == _DEQUE:
            _add(self._deques, one, [*one])
            todo += one
        elif kind == _BYTES:
            _add(self._bytes, one, bytes(one))
        elif kind == _ARRAY:
            self._keep_array(one, todo)
        elif kind == _VIEW:
            todo.append(one.obj)
        elif kind == _METHOD:
            todo.append(one.__self__)
        elif kind == _FUNCTION:
            for cell in one.__closure__ or ():
                # A cell is a slot: what it holds may be changed by the function.
                self._keep_slot(cell, "cell_contents", cell.cell_contents)
                todo.append(cell.cell_contents)
        elif kind == _PARTIAL:
            todo += [one.func, one.args, one.keywords]
        self._keep_attributes(one, how, todo)

    def _keep_dict(self, one: dict[Any, Any], todo: list[Any]) -> None:
        _add(self._dicts, one, {**one})
        todo += one
        todo += one.values()

    def _keep_array(self, one: Any, todo: list[Any]) -> None:
        if isinstance(one.base, np.ndarray):
            todo.append(one.base)
            return
        assert one.base is None, f"an array over {type(one.base)}"
        assert not one.dtype.hasobject, f"an array of {one.dtype}"
        _add(self._arrays, one, one.copy())

    def _keep_attributes(self, one: Any, how: _How, todo: list[Any]) -> None:
        frozen = how.kind == _FROZEN
        for name in how.slots:
            value = getattr(one, name, _MISSING)
            if value is _MISSING:
                self._empty.append((one, name))
                continue
            todo.append(value)
            if not frozen:
                self._keep_slot(one, name, value)
        if how.has_dict:
            if frozen:
                todo += vars(one).values()
            else:
                self._keep_dict(vars(one), todo)

    def _keep_slot(self, one: object, name: str, value: object) -> None:
        ones, names, values = self._slots
        ones.append(one)
        names.append(name)
        values.append(value)

    def again(self) -> None:
        """Make everything as it was. Takes about 0.05 us for each object kept."""
        # Loops that run in C: a search goes back a million times.
        run = deque[object](maxlen=0).extend
        lists, were = self._lists
        run(map(list.__setitem__, lists, repeat(slice(None)), were))
        tables, had = self._dicts
        run(map(dict.clear, tables))
        run(map(dict.update, tables, had))
        groups, held = self._sets
        run(map(set.clear, groups))
        run(map(set.update, groups, held))
        queues, waited = self._deques
        run(map(deque.clear, queues))
        run(map(deque.extend, queues, waited))
        run(map(bytearray.__setitem__, self._bytes[0], repeat(slice(None)), self._bytes[1]))
        run(map(np.copyto, *self._arrays))
        run(map(setattr, *self._slots))
        for one, name in self._empty:
            if hasattr(one, name):
                delattr(one, name)
