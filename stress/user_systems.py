"""Systems that other people bring: named `module:factory` or `path/to/file.py:factory`.

To build one is to run its code with the rights of whoever runs `onearena`. So a name alone imports
nothing: it has to be trusted first, which giving it on the command line does, for that process and
those it starts. A name that comes out of a file (a recorded schedule, a kept campaign) is refused
until the variable `ONEARENA_SYSTEM` holds the very same name.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from onearena.core.errors import UsageError
from onearena.stress.choices import Choices
from onearena.stress.sut import SystemUnderTest

VARIABLE: Final = "ONEARENA_SYSTEM"
NAME_CHARACTERS_MAX: Final = 120
OURS: Final = ("arena", "toy")

Factory = Callable[[Choices], SystemUnderTest]
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_loaded: dict[str, Factory] = {}
_given: dict[str, Factory] = {}


def is_user_system(name: str) -> bool:
    """Whether `name` has the form of somebody's own system; says nothing of whether it exists."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not attribute.isidentifier() or len(name) > NAME_CHARACTERS_MAX:
        return False
    if place.endswith(".py"):
        return place.isprintable() and place.isascii()
    return place not in OURS and _MODULE.fullmatch(place) is not None


def trust(name: str) -> None:
    """The user named it: this process and its children may run it."""
    assert is_user_system(name), f"{name!r} is no user system"
    os.environ[VARIABLE] = name


def check_trusted(name: str, field: str) -> None:
    """Raise `UsageError` unless the user named this very system, here or in the environment."""
    if os.environ.get(VARIABLE) != name:
        fix = f"if you trust that code, set {VARIABLE}={name} and run this again"
        raise UsageError(field, name, fix)


def trusting(name: str) -> str:
    """What to put before a command that reads this system's name from a file; "" for our own."""
    return f"{VARIABLE}={shlex.quote(name)} " if is_user_system(name) else ""


@contextmanager
def given(factory: Factory) -> Iterator[str]:
    """A name for a factory that is here already, in this process and until the block ends.

    The name is that of its module and its own; a factory inside a function runs under it too, but
    no other process can build it from that name.
    """
    module = str(getattr(factory, "__module__", "")) or "here"
    own = str(getattr(factory, "__name__", "factory"))
    name = f"{module}:{own if own.isidentifier() else 'factory'}"
    if not is_user_system(name):
        name = "here:factory"
    before = _given.get(name)
    _given[name] = factory
    try:
        yield name
    finally:
        del _given[name]
        if before is not None:
            _given[name] = before


def load_factory(name: str, field: str = "--system") -> Factory:
    """The factory of a trusted name. Runs the module's code; once a process.

    Raises `UsageError` for a module that is not there or cannot be imported, and for an attribute
    that is none.
    """
    if name in _given:
        return _given[name]
    check_trusted(name, field)
    known = _loaded.get(name)
    if known is not None:
        return known
    place, _, attribute = name.rpartition(":")
    try:
        module = _file(place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:  # whatever the user's own code raises on import
        reason = f"{type(error).__name__}: {error}"
        fix = f"give module:factory or file.py:factory that can be imported ({reason})"
        raise UsageError(field, name, fix) from error
    factory: Factory | None = getattr(module, attribute, None)
    if not callable(factory):
        fix = f"name a callable of {place} that takes the choices and gives a system"
        raise UsageError(field, name, fix)
    _loaded[name] = factory
    return factory


def _file(place: str) -> ModuleType:
    """Import a file under a name of its own, so that it hides no module."""
    path = Path(place).resolve()
    title = hashlib.blake2b(str(path).encode(), digest_size=6).hexdigest()
    title = f"onearena_user_{path.stem}_{title}"
    if title in sys.modules:
        return sys.modules[title]
    spec = importlib.util.spec_from_file_location(title, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no file {place}")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickled errors look their module up while it is made.
    sys.modules[title] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[title]
        raise
    return module
