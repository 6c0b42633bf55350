"""What an observer hears, call by call: durations and move lists are made of nothing else."""

from __future__ import annotations

from hazard_rig import Rig

from onearena.core.rules import UseKind


class Heard:
    """Notes every call, arrays as lists."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> object:
        def note(*arguments: object) -> None:
            plain = [getattr(each, "tolist", lambda each=each: each)() for each in arguments]
            self.calls.append((name, *plain))

        return note

    def since(self) -> list[tuple[object, ...]]:
        """What was heard since the last time."""
        heard, self.calls = self.calls, []
        return heard


def test_an_observer_hears_frees_plans_moves_and_ends_in_order() -> None:
    rig = Rig(16 * 12, 16, 16)
    low = rig.take(6, 0)[0]
    rig.finish(rig.forward(writes=low))
    units = [rig.place(vid) for vid in low]
    heard = Heard()
    rig.arena.observe(heard)

    reader = rig.forward(reads=low[:2])
    calls = heard.since()
    assert [call[0] for call in calls] == ["launched", "waited", "launched"]  # its translation
    assert calls[-1] == ("launched", reader[0].serial, UseKind.FORWARD, rig.forwards, 2, 0)
    rig.arena.free(low[:3])
    assert heard.since() == [("freed", 0, units[:2], 1)]
    rig.run()
    rig.retire(reader)
    calls = heard.since()
    assert ("retired", reader[0].serial) in calls
    assert ("reusable", 0, units[:2]) in calls

    rig.take(0, 9)
    calls = heard.since()
    assert calls[:2] == [("planning",), ("planned", "compact")]
    sources, targets = sorted(units[3:]), sorted(units[:3])
    moved = [call for call in calls if call[0] == "moved"]
    assert [(name, band, sorted(old), sorted(new)) for name, band, old, new in moved] == [
        ("moved", 0, sources, targets)
    ]
    freed = [call for call in calls if call[0] == "freed"]
    assert [(band, sorted(waiting), ready) for _, band, waiting, ready in freed] == [
        (0, sources, 0)
    ]


def test_an_observer_hears_a_refusal_and_a_transfer() -> None:
    rig = Rig(16 * 4, 16, 16)
    low = rig.take(3, 0)[0]
    rig.finish(rig.forward(writes=low))
    heard = Heard()
    rig.arena.observe(heard)
    rig.arena.allocate((0, 2), writer=UseKind.FORWARD, stream=rig.forwards)
    assert heard.since() == [("planning",), ("planned", "refused")]
    sent = rig.publish(UseKind.SEND, low[:1])
    assert heard.since()[-1] == ("launched", sent[0].serial, UseKind.SEND, -1, 0, 0)
    rig.arena.free(low[:1])
    assert heard.since() == [("freed", 0, [rig.geometry.bands[0].grid.first_unit], 0)]
    rig.run()
    rig.end(sent)
    calls = heard.since()
    assert ("retired", sent[0].serial) in calls
    assert ("reusable", 0, [rig.geometry.bands[0].grid.first_unit]) in calls
