"""What the arena says that its own work touches: devices and oracles believe it."""

from __future__ import annotations

import pytest
from hazard_rig import Rig

from onearena.core.device.interface import Space
from onearena.core.errors import MisuseError
from onearena.core.rules import UseKind


def test_a_translation_only_reads_the_table_and_only_writes_its_buffer() -> None:
    rig = Rig(16 * 8, 16, 16)
    ids = rig.take(3, 2)
    rig.forward(reads=ids[0], writes=ids[1])
    (translation,) = [work for work in rig.work if work.label == "translate"]
    touched = [(access.space, access.writes) for access in translation.accesses]
    assert touched == [(Space.TABLE, False)] * 5 + [(Space.BUFFER, True)]


def test_a_failed_backup_leaves_no_mark_on_host_units_that_were_freed_meanwhile() -> None:
    rig = Rig(16 * 8, 16, 16, host_units=4)
    ids = rig.take(2, 0)[0]
    rig.finish(rig.forward(writes=ids))
    kept, freed = rig.arena.reserve_host(0, 2)
    use, _ = rig.backup(ids, (kept, freed))
    rig.arena.free_host((freed,))
    rig.run()
    rig.arena.retire(use, failed=True)
    assert rig.arena._state.host.undefined == {kept}


def test_a_write_of_a_shared_unit_is_refused_and_named() -> None:
    rig = Rig(16 * 8, 16, 16)
    ids = rig.take(4, 0)[0]
    rig.arena.share(ids[2:3])
    before = rig.arena.snapshot()
    with pytest.raises(MisuseError) as refused:
        rig.arena.record(UseKind.FORWARD, rig.forwards, writes=ids)
    assert refused.value.unit == ids[2]
    assert rig.arena.snapshot() == before
    rig.arena.free(ids[2:3])
    rig.forward(writes=ids)


def test_the_device_forgets_the_events_of_retired_uses() -> None:
    rig = Rig(16 * 8, 16, 16)
    ids = rig.take(3, 0)[0]
    launched = rig.forward(writes=ids)
    rig.finish(launched)
    with pytest.raises(MisuseError, match="event"):
        rig.device.query(launched[1])


def test_only_a_transfer_names_a_peer_and_only_others_a_stream() -> None:
    rig = Rig(16 * 8, 16, 16)
    ids = rig.take(3, 0)[0]
    forward = rig.forward(writes=ids)
    rig.finish(forward)
    sent = rig.publish(UseKind.SEND, ids[:1], peer=5)
    assert (forward[0].stream, forward[0].peer) == (rig.forwards, -1)
    assert (sent[0].stream, sent[0].peer, sent[0].buffer) == (-1, 5, -1)
