"""The typed errors of onearena.

Capacity answers ("it does not fit") are values, not exceptions: see `docs/design.md`, section 3.
Exceptions are for a bad argument (`UsageError`), a call that breaks the rules (`MisuseError`) and
a device that failed (`DeviceError`).
"""

from __future__ import annotations


class OneArenaError(Exception):
    """Base of all errors that onearena raises on purpose.

    `message` is one line that names the argument, its value and what to try instead.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class UsageError(OneArenaError):
    """A bad argument, flag, file or declaration; the command line prints it and exits with 2.

    `field` names the argument as the user wrote it (`--bytes`, `layers[3].dtype`), `value` is
    what was given and `fix` says in the imperative what to give instead.
    """

    def __init__(self, field: str, value: object, fix: str) -> None:
        # None: nothing was given, or the null of a file.
        wrong = "nothing is given" if value is None else f"{_shown(value)} is not accepted"
        super().__init__(f"{field}: {wrong}; {fix}")
        self.field = field
        self.value = value
        self.fix = fix

    def __reduce__(self) -> tuple[type[UsageError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.fix)


class MisuseError(OneArenaError):
    """A call that the rules forbid: a double free, a stale id, a move under a transfer.

    The call changed nothing. `argument` names the argument at fault and `unit` the unit or id
    concerned (None when the argument names no unit).
    """

    def __init__(self, message: str, *, argument: str, unit: int | None = None) -> None:
        super().__init__(message)
        self.argument = argument
        self.unit = unit

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments survive pickling (multiprocessing) only through the state.
        return _rebuild_misuse, (type(self), self.message, self.argument, self.unit)


class DeviceError(OneArenaError):
    """The device failed, a stream is stuck, or the arena was stopped because of either."""


_SHOWN_CHARACTERS_MAX = 120


def _shown(value: object) -> str:
    """`repr` on one line and of bounded length: a value may come from a hostile file."""
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = f"{text[:_SHOWN_CHARACTERS_MAX]}... ({len(text)} characters)"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _rebuild_misuse(
    kind: type[MisuseError], message: str, argument: str, unit: int | None
) -> MisuseError:
    return kind(message, argument=argument, unit=unit)
