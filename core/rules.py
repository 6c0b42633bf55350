"""The two tables of lifecycle rule 6 and the facts derived from them, as data.

Everything that decides who waits for whom reads this file; nothing repeats it. Changing one cell
changes the product.
"""

from __future__ import annotations

import enum
from typing import Final


class UseKind(enum.IntEnum):
    """What a recorded use does with bytes. The order is part of the stored form: append only."""

    FORWARD = 0
    BACKUP = 1  # D2H host copy: reads device units, writes host units
    LOAD = 2  # H2D host copy: reads host units, writes device units
    MOVE = 3
    FORK = 4
    ZEROING = 5
    SEND = 6  # a peer reads our units
    RECEIVE = 7  # a peer writes our units


class Wait(enum.IntEnum):
    """What the next user of the bytes has to wait for."""

    NOTHING = 0
    EVENT = 1  # nothing on the same stream, else that stream waits on the event
    HOST = 2  # the host has seen it end


TRANSFER_KINDS: Final = (UseKind.SEND, UseKind.RECEIVE)


def _row(ordered: Wait, transfer: Wait) -> dict[UseKind, Wait]:
    return {kind: transfer if kind in TRANSFER_KINDS else ordered for kind in UseKind}


# next writer -> earlier use (reading or writing) -> what the writer waits for.
# A backup writes host units, so it has a row: host units live under the same table.
WRITER_WAITS: Final[dict[UseKind, dict[UseKind, Wait]]] = {
    UseKind.FORWARD: _row(Wait.EVENT, Wait.HOST),
    UseKind.BACKUP: _row(Wait.EVENT, Wait.HOST),
    UseKind.LOAD: _row(Wait.EVENT, Wait.HOST),
    UseKind.MOVE: _row(Wait.EVENT, Wait.HOST),
    UseKind.FORK: _row(Wait.EVENT, Wait.HOST),
    UseKind.ZEROING: _row(Wait.EVENT, Wait.HOST),
    UseKind.RECEIVE: _row(Wait.HOST, Wait.HOST),  # rule 7: retired before the range is published
}

# reader -> earlier write it reads -> what the reader waits for.
READER_WAITS: Final[dict[UseKind, dict[UseKind, Wait]]] = {
    UseKind.FORWARD: _row(Wait.EVENT, Wait.HOST),
    UseKind.BACKUP: _row(Wait.EVENT, Wait.HOST),
    UseKind.LOAD: _row(Wait.EVENT, Wait.HOST),
    UseKind.MOVE: _row(Wait.EVENT, Wait.HOST),
    UseKind.FORK: _row(Wait.EVENT, Wait.HOST),
    UseKind.SEND: _row(Wait.HOST, Wait.HOST),
}
