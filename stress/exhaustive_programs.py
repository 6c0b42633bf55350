"""Twenty host programs of eight calls, searched in full: every order in which their ends are seen.

Each is the situation that its name says. Units are a, b, c, ... in the order handed out, uses 1, 2,
3, ... in the order launched. Where the ends come late a call may be refused; the program goes on.
"""

from __future__ import annotations

from typing import Final

from onearena.stress.exhaustive_world import Step

_FOUR: Final[Step] = ("allocate", 0, 4)
_ONE: Final[Step] = ("allocate", 0, 1)

NAMED: Final[dict[str, tuple[str, tuple[Step, ...]]]] = {
    "reuse after settling": (
        "one",
        (
            _FOUR,
            ("launch", 0, "writes", "a"),
            ("launch", 1, "reads", "a"),
            ("free", "a"),
            ("settle", 1),
            ("settle", 2),
            _ONE,
            ("launch", 0, "writes", "e"),
        ),
    ),
    "reuse after processing": (
        "one",
        (
            _FOUR,
            ("launch", 0, "writes", "a"),
            ("launch", 1, "reads", "a"),
            ("free", "a"),
            ("process", 1),
            ("process", 2),
            _ONE,
            ("launch", 0, "writes", "e"),
        ),
    ),
    "only the latest use is settled": (
        "one",
        (
            _FOUR,
            ("launch", 0, "writes", "a"),
            ("launch", 1, "reads", "a"),
            ("launch", 0, "reads", "a"),
            ("free", "a"),
            ("settle", 3),
            _ONE,
            ("launch", 0, "writes", "e"),
        ),
    ),
    "two freed under one forward": (
        "one",
        (
            _FOUR,
            ("launch", 0, "writes", "all"),
            ("free", "a"),
            ("free", "d"),
            ("process", 1),
            ("allocate", 0, 2),
            ("launch", 1, "writes", "e"),
            ("launch", 1, "writes", "f"),
        ),
    ),
    "a reader stays on a moved source": (
        "one",
        (
            ("allocate", 0, 2),
            ("launch", 0, "writes", "all"),
            ("launch", 1, "reads", "b"),
            ("free", "a"),
            ("move", "b"),
            ("launch", 0, "reads", "b"),
            ("allocate", 0, 3),
            ("launch", 0, "writes", "all"),
        ),
    ),
    "a move waits for its writer": (
        "one",
        (
            ("allocate", 0, 2),
            ("launch", 0, "writes", "b"),
            ("free", "a"),
            ("move", "b"),
            ("launch", 1, "reads", "b"),
            _ONE,
            ("launch", 1, "writes", "c"),
            ("free", "b"),
        ),
    ),
    "a vacated unit is handed out": (
        "one",
        (
            ("allocate", 0, 2),
            ("launch", 0, "writes", "b"),
            ("free", "a"),
            ("move", "b"),
            ("allocate", 0, 3),
            ("launch", 1, "writes", "c"),
            ("launch", 1, "reads", "b"),
            ("launch", 0, "writes", "e"),
        ),
    ),
    "moved and moved back": (
        "one",
        (
            ("allocate", 0, 2),
            ("launch", 0, "writes", "all"),
            ("free", "a"),
            ("move", "b"),
            ("allocate", 0, 3),
            ("launch", 1, "writes", "e"),
            ("free", "b"),
            ("move", "e"),
        ),
    ),
    "freed under a send": (
        "one",
        (
            _FOUR,
            ("launch", 0, "writes", "a"),
            ("publish", "send", "a"),
            ("free", "a"),
            ("process", 1),
            _ONE,
            ("launch", 1, "writes", "e"),
            ("launch", 0, "reads", "e"),
        ),
    ),
    "received over an old reader": (
        "one",
        (
            _FOUR,
            ("launch", 0, "writes", "a"),
            ("launch", 1, "reads", "a"),
            ("free", "a"),
            ("settle", 2),
            _ONE,
            ("publish", "receive", "e"),
            ("launch", 0, "reads", "e"),
        ),
    ),
    "received, read, sent on": (
        "one",
        (
            ("allocate", 0, 2),
            ("publish", "receive", "a"),
            ("launch", 0, "reads", "a"),
            ("publish", "send", "a"),
            ("launch", 1, "writes", "a"),
            ("free", "a"),
            ("allocate", 0, 3),
            ("launch", 1, "writes", "all"),
        ),
    ),
    "two receives into one unit": (
        "one",
        (
            _ONE,
            ("publish", "receive", "a"),
            ("publish", "receive", "a"),
            ("launch", 0, "writes", "a"),
            ("publish", "receive", "a"),
            ("free", "a"),
            _FOUR,
            ("launch", 1, "writes", "all"),
        ),
    ),
    "a backup outlives its unit": (
        "one",
        (
            _FOUR,
            ("launch", 0, "writes", "a"),
            ("copy", "backup", "a"),
            ("free", "a"),
            ("settle", 1),
            _ONE,
            ("launch", 1, "writes", "e"),
            ("copy", "load", "e", 0),
        ),
    ),
    "loaded over an old reader": (
        "one",
        (
            ("allocate", 0, 2),
            ("launch", 0, "writes", "all"),
            ("process", 1),
            ("copy", "backup", "a"),
            ("launch", 1, "reads", "b"),
            ("settle", 3),
            ("copy", "load", "b", 0),
            ("free", "b"),
        ),
    ),
    "loaded, moved, read": (
        "one",
        (
            ("allocate", 0, 2),
            ("launch", 0, "writes", "a"),
            ("copy", "backup", "a"),
            ("free", "a"),
            ("copy", "load", "b", 0),
            ("move", "b"),
            ("launch", 1, "reads", "b"),
            _ONE,
        ),
    ),
    "the neighbour grows over a fence": (
        "two",
        (
            ("allocate", 1, 2),
            ("launch", 0, "writes", "all"),
            ("free", "a"),
            ("free", "b"),
            ("process", 1),
            _FOUR,
            ("launch", 1, "writes", "all"),
            ("free", "c"),
        ),
    ),
    "a fence is overgrown in parts": (
        "two",
        (
            ("allocate", 1, 2),
            ("launch", 0, "writes", "all"),
            ("free", "b"),
            ("free", "a"),
            ("settle", 1),
            _ONE,
            ("allocate", 0, 3),
            ("launch", 1, "writes", "all"),
        ),
    ),
    "a fence grows back": (
        "two",
        (
            _FOUR,
            ("launch", 0, "writes", "all"),
            ("free", "d"),
            ("free", "c"),
            ("settle", 1),
            ("allocate", 1, 1),
            ("launch", 1, "writes", "e"),
            ("launch", 0, "reads", "a"),
        ),
    ),
    "room is made by a move": (
        "two",
        (
            _FOUR,
            ("launch", 0, "writes", "all"),
            ("free", "a"),
            ("free", "b"),
            ("settle", 1),
            ("allocate", 1, 1),
            ("launch", 1, "writes", "e"),
            ("launch", 1, "reads", "d"),
        ),
    ),
    "no room past a transfer": (
        "two",
        (
            _FOUR,
            ("launch", 0, "writes", "d"),
            ("publish", "send", "d"),
            ("free", "d"),
            ("free", "c"),
            ("process", 1),
            ("allocate", 1, 1),
            ("launch", 1, "writes", "e"),
        ),
    ),
}
