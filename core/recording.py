"""Recording uses: resolve ids, order the use, enter it in the ledger, enqueue it, and end it.

Free functions over `ArenaState`; `core/arena.py` is the public face. Control thread only; none
blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onearena.core.answers import Blocked, Blocker, BlockReason
from onearena.core.arena_state import TABLE_KEY_MASK, ArenaState
from onearena.core.device.interface import (
    Access,
    OpKind,
    Space,
    TransferStatus,
    Work,
    buffer_access,
    table_access,
)
from onearena.core.errors import MisuseError
from onearena.core.ledger import Touch, Units, UseRecord
from onearena.core.rules import TRANSFER_KINDS, UseKind
from onearena.core.uses import Use

ENDED = {
    "done": (TransferStatus.DONE,),
    "failed": (TransferStatus.FAILED,),
    "cancelled": (TransferStatus.CANCELLED,),
}
RECORDED_BY_CALLERS = (UseKind.FORWARD, UseKind.BACKUP, UseKind.LOAD)


def record(
    state: ArenaState,
    kind: UseKind,
    stream: int,
    reads: Sequence[int],
    writes: Sequence[int],
    host_reads: Sequence[int],
    host_writes: Sequence[int],
) -> Use | Blocked:
    """Rules 6, 8, 9, 11: one stream-ordered use of a caller, ready to be launched."""
    if kind not in RECORDED_BY_CALLERS:
        raise MisuseError(
            f"kind {kind.name} is not recorded by callers; publish transfers, and let the arena "
            "move, fork and zero",
            argument="kind",
        )
    state.ledger.require_stream(stream)
    read_units, write_units = _resolve(state, kind, reads, writes)
    host = state.host
    places = [host.locate(hid) for hid in (*host_reads, *host_writes)]
    for hid in host_reads:
        if hid in host.undefined:
            raise _undefined(hid, "host_reads")
    in_reads = (
        *state.by_band(reads, read_units),
        *_host_touches(state, places[: len(host_reads)]),
    )
    in_writes = (
        *state.by_band(writes, write_units),
        *_host_touches(state, places[len(host_reads) :]),
    )
    ledger = state.ledger
    needs = ledger.needs(kind, stream, in_reads, in_writes)
    if needs.blockers:
        return blocked(needs.blockers)
    buffer = -1
    if kind is UseKind.FORWARD:
        buffer = _translate(state, (*reads, *writes))
        in_reads = (*in_reads, (state.buffer_domain, np.array([buffer], np.int64)))
        needs = ledger.needs(kind, stream, in_reads, in_writes)
    state.make_waits(stream, needs.waits, kind)
    use = ledger.open(kind, stream, in_reads, in_writes)
    for domain, units in in_writes:
        if domain < state.band_count:
            state.store.mark_written(domain, units)
    host.undefined.difference_update(host_writes)
    spans = (
        state.spans(reads, read_units),
        state.spans(writes, write_units),
        tuple(host.span(hid) for hid in host_reads),
        tuple(host.span(hid) for hid in host_writes),
    )
    accesses = (
        *(Access(Space.ARENA, start, end, False) for _, start, end in spans[0]),
        *(Access(Space.ARENA, start, end, True) for _, start, end in spans[1]),
        *(Access(Space.HOST, start, end, False) for _, start, end in spans[2]),
        *(Access(Space.HOST, start, end, True) for _, start, end in spans[3]),
    )
    if buffer >= 0:
        accesses = (*accesses, buffer_access(buffer, writes=False))
    state.counters[f"uses/{kind.name.lower()}"] += 1
    return Use(use.serial, kind, stream, *spans, buffer, accesses)


def _resolve(
    state: ArenaState, kind: UseKind, reads: Sequence[int], writes: Sequence[int]
) -> tuple[Units, Units]:
    read_units = state.store.resolve(reads)  # type: ignore[arg-type]
    write_units = state.store.resolve(writes)  # type: ignore[arg-type]
    for vid in reads:
        if vid in state.undefined:
            raise _undefined(vid, "reads")
    if len(writes):
        holders = state.store.references(writes)  # type: ignore[arg-type]
        if (holders > 1).any():
            shared = writes[int(np.argmax(holders > 1))]
            raise MisuseError(
                f"id {shared} has {int(holders.max())} holders and would be written by a "
                f"{kind.name.lower()}; fork it first",
                argument="writes",
                unit=shared,
            )
    return read_units, write_units


def _undefined(vid: int, argument: str) -> MisuseError:
    return MisuseError(
        f"id {vid} has undefined content: the load or receive that should have filled it failed; "
        "free it",
        argument=argument,
        unit=vid,
    )


def _host_touches(state: ArenaState, places: Sequence[tuple[int, int]]) -> tuple[Touch, ...]:
    bands: dict[int, list[int]] = {}
    for band, slot in places:
        bands.setdefault(band, []).append(slot)
    return tuple(
        (state.band_count + band, np.array(slots, np.int64)) for band, slots in bands.items()
    )


def blocked(blockers: Sequence[tuple[int, int, BlockReason]]) -> Blocked:
    """Blockers by domain and unit: a host unit stands under its band plus the number of bands."""
    return Blocked(tuple(Blocker(*found) for found in sorted(set(blockers))))


def _translate(state: ArenaState, ids: Sequence[int]) -> int:
    """Rule 9: fill a buffer slot with the byte ranges of `ids`, on the stream that updates the
    table.

    The slot is a recorded use: it is written again only after the forward that read it. Returns
    the slot.
    """
    slot = _free_slot(state)
    touch = (state.buffer_domain, np.array([slot], np.int64))
    needs = state.ledger.needs(UseKind.FORWARD, state.schedule, (), (touch,))
    state.make_waits(state.schedule, needs.waits, UseKind.FORWARD)
    if state.dirty:
        entries = tuple(state.dirty.items())
        state.dirty.clear()
        accesses = tuple(table_access(key, writes=True) for key, _ in entries)
        state.device.launch(
            state.schedule,
            Work(OpKind.TABLE_UPDATE, accesses, label="table", entries=entries),
        )
    keys = tuple(vid & TABLE_KEY_MASK for vid in ids)
    accesses = (
        *(table_access(key, writes=False) for key in dict.fromkeys(keys)),
        buffer_access(slot, writes=True),
    )
    use = state.ledger.open(UseKind.FORWARD, state.schedule, (), (touch,))
    state.enqueue(use, Work(OpKind.TRANSLATE, accesses, label="translate", buffer=slot, keys=keys))
    state.own_uses[use.serial] = use
    return slot


def _free_slot(state: ArenaState) -> int:
    """The slot unused for longest: round robin. Its last forward is waited for, if need be."""
    state.next_slot = (state.next_slot + 1) % state.options.buffer_slots
    return state.next_slot


def publish(state: ArenaState, kind: UseKind, ids: Sequence[int], peer: int) -> Use | Blocked:
    """Rule 7: record a transfer whose units no local work touches in a way it forbids."""
    if kind not in TRANSFER_KINDS:
        raise MisuseError(
            f"kind {kind.name} is not a transfer; publish SEND or RECEIVE", argument="kind"
        )
    if not len(ids):
        raise MisuseError("ids is empty; a transfer names at least one unit", argument="ids")
    sending = kind is UseKind.SEND
    read_units, write_units = _resolve(state, kind, ids if sending else (), () if sending else ids)
    units = read_units if sending else write_units
    touches = state.by_band(ids, units)
    reads, writes = (touches, ()) if sending else ((), touches)
    needs = state.ledger.needs(kind, -1, reads, writes)
    if needs.blockers:
        return blocked(needs.blockers)
    use = state.ledger.open_transfer(kind, reads, writes)
    for band, band_units in touches:
        state.store.add_transfers(band, band_units, 1)
        if not sending:
            state.store.mark_written(band, band_units)
    spans = state.spans(ids, units)
    accesses = tuple(Access(Space.ARENA, start, end, not sending) for _, start, end in spans)
    state.counters[f"uses/{kind.name.lower()}"] += 1
    state.peers[use.serial] = peer
    state.received[use.serial] = () if sending else tuple(ids)
    empty = ()
    return Use(
        use.serial,
        kind,
        -1,
        spans if sending else empty,
        empty if sending else spans,
        accesses=accesses,
        peer=peer,
    )


def launch(state: ArenaState, use: Use, work: Work) -> int:
    """Enqueue the open use; returns its event, or the device's number of a transfer."""
    record_ = state.ledger.open_use
    if record_ is None or record_.serial != use.serial:
        raise MisuseError(
            f"use {use.serial} is not the one just recorded; launch a use right after its record",
            argument="use",
        )
    if record_.kind in TRANSFER_KINDS:
        state.ledger.close_transfer(record_, state.device.begin_transfer(work))
        state.outstanding(record_)
    else:
        state.enqueue(record_, work)
    assert record_.event is not None, record_
    return record_.event


def known_use(state: ArenaState, use: Use, call: str) -> UseRecord:
    """The ledger's record of an outstanding use."""
    found = state.uses.get(use.serial)
    if found is None:
        raise MisuseError(
            f"{call}: use {use.serial} is not outstanding; it ended already or was never launched",
            argument="use",
        )
    return found


def process(state: ArenaState, use: Use) -> None:
    """The host has processed a forward's result: its pending units may be handed out again."""
    if use.kind is not UseKind.FORWARD:
        raise MisuseError(f"{use.kind.name} is not processed; retire it", argument="use")
    found = state.uses.get(use.serial)
    if found is not None:
        state.released(state.ledger.process(found))


def settle(state: ArenaState, found: UseRecord) -> None:
    """The schedule stream waits on the use, unless an earlier wait implies it."""
    ledger = state.ledger
    if found.stream < 0:
        raise MisuseError("a transfer cannot be settled; its end has to be seen", argument="use")
    known = ledger.known[state.schedule][found.stream]
    if found.stream == state.schedule:
        ledger.settle(found)
    elif found.ticket > known:
        state.device.wait(
            state.schedule, ledger.note_wait(state.schedule, found.stream, found.ticket)
        )
        state.counters["settles"] += 1
    state.released(ledger.settled_units())


def retire(state: ArenaState, use: Use, *, failed: bool) -> None:
    """The host has seen the event: the use is over for everybody, and its fences go."""
    found = known_use(state, use, "retire")
    if found.kind in TRANSFER_KINDS:
        raise MisuseError(f"{use.kind.name}: report its end with end_transfer", argument="use")
    if failed and found.kind not in (UseKind.LOAD, UseKind.BACKUP):
        raise MisuseError(f"a {use.kind.name} cannot fail alone", argument="failed")
    assert found.event is not None, found
    if not state.device.query(found.event):
        raise MisuseError(
            f"use {use.serial} is not finished as far as the host has seen; query its event first",
            argument="use",
        )
    if failed:
        state.undefined.update(vid for vid, _, _ in use.writes if _is_live(state, vid))
        state.host.undefined.update(hid for hid, _, _ in use.host_writes if _is_held(state, hid))
    _end(state, found)
    _retire_own(state)


def _end(state: ArenaState, found: UseRecord) -> None:
    assert found.event is not None, found
    state.ended(found)
    state.own_uses.pop(found.serial, None)
    released = state.ledger.retire(found)
    state.device.release(found.event)
    state.released(released)


def _retire_own(state: ArenaState) -> None:
    """Uses of the arena's own end when what callers observed implies their end; no event is asked.

    So retirement of moves, zeroing and translations follows from the sequence of calls alone (rule
    10).
    """
    seen = state.ledger.host_known
    for use in [use for use in state.own_uses.values() if use.ticket <= seen[use.stream]]:
        _end(state, use)


def _is_live(state: ArenaState, vid: int) -> bool:
    return bool(state.store.references([vid])[0] > 0)  # type: ignore[arg-type]


def _is_held(state: ArenaState, hid: int) -> bool:
    try:
        state.host.locate(hid)
    except MisuseError:
        return False
    return True


def end_transfer(state: ArenaState, use: Use, outcome: str) -> None:
    """The host has seen the transfer end, or gives up on a peer: then its units are quarantined."""
    found = known_use(state, use, "end_transfer")
    assert found.event is not None, found
    status = state.device.transfer_status(found.event)
    if outcome == "lost":
        if status is not TransferStatus.UNKNOWN:
            raise MisuseError(f"transfer is {status.name}, not lost", argument="outcome")
        for band, units in (*found.reads, *found.writes):
            state.store.quarantine(band, units, on=True)
        state.lost.add(use.serial)
        return
    if outcome not in ENDED or status not in ENDED[outcome]:
        raise MisuseError(
            f"outcome {outcome!r}: the device shows {status.name}; report what it shows "
            "(done, failed, cancelled, lost)",
            argument="outcome",
        )
    _finish_transfer(state, found, failed=outcome != "done")


def _finish_transfer(state: ArenaState, found: UseRecord, *, failed: bool) -> None:
    state.ended(found)
    state.peers.pop(found.serial)
    ids = state.received.pop(found.serial)
    if failed:
        state.undefined.update(vid for vid in ids if _is_live(state, vid))
    state.ledger.end_transfer(found)
    state.transfer_ended((*found.reads, *found.writes))


def disconnect(state: ArenaState, peer: int) -> None:
    """The connection is down: its transfers touch nothing more; quarantined units return."""
    state.device.disconnect(peer)
    for serial in [serial for serial, other in state.peers.items() if other == peer]:
        found = state.uses[serial]
        if serial in state.lost:
            state.lost.discard(serial)
            # While the transfer count still stands: clearing the flag cannot make a hole yet.
            for band, units in (*found.reads, *found.writes):
                state.store.quarantine(band, _not_lost(state, band, units), on=False)
        # Whether its peer was done before is what only this rank's device could say (rule 10).
        _finish_transfer(state, found, failed=True)


def _not_lost(state: ArenaState, band: int, units: Units) -> Units:
    """The units that no lost transfer holds any more: several peers may have been sent one unit."""
    users = state.ledger.transfer_units
    return units[
        [
            not any(use.serial in state.lost for use in users[(band, unit)])
            for unit in units.tolist()
        ]
    ]
