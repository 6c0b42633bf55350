"""The typed errors: one line that names the field and the fix, whatever the value is."""

from __future__ import annotations

import copy

import pytest

from onearena.core.errors import DeviceError, MisuseError, OneArenaError, UsageError


def test_usage_error_names_field_value_and_fix():
    error = UsageError("--bytes", -5, "give a size above 0, such as 100GiB")
    assert str(error) == "--bytes: -5 is not accepted; give a size above 0, such as 100GiB"
    assert (error.field, error.value) == ("--bytes", -5)
    assert isinstance(error, OneArenaError)


@pytest.mark.parametrize("value", ["a\nb", "\x1b[31mred", "x" * 100_000, {"k": ["\u2028"] * 500}])
def test_usage_error_stays_one_short_printable_line(value):
    message = str(UsageError("layers", value, "give a list"))
    assert message.isprintable()
    assert len(message) < 250


@pytest.mark.parametrize(
    "error",
    [
        UsageError("--seed", "x", "give a number"),
        MisuseError("id 7 was freed before", argument="ids", unit=7),
        DeviceError("stream 3 does not advance"),
    ],
)
def test_errors_survive_a_copy_between_processes(error):
    # multiprocessing rebuilds an exception from __reduce__, and so does copy.
    twin = copy.copy(error)
    assert type(twin) is type(error)
    assert vars(twin) == vars(error)
    assert str(twin) == str(error)
