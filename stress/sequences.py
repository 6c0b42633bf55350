"""Token sequences and the units they hold: requests, cache entries, host copies."""

from __future__ import annotations

from onearena.stress.workload import Draft


class Held:
    """The units of one token sequence: per band the ids held, and the index of the first of them.

    `whole`: nothing was taken out of it, so its content can be continued, saved or sent.
    """

    __slots__ = ("base", "ids", "length", "prefix", "whole")

    def __init__(self, bands: int) -> None:
        self.ids: list[list[int]] = [[] for _ in range(bands)]
        self.base = [0] * bands
        self.length = 0
        self.prefix: tuple[int, ...] = ()
        self.whole = True

    def all_ids(self) -> list[int]:
        """All ids, in band order."""
        return [name for band in self.ids for name in band]

    def copy(self) -> Held:
        """The same ids in lists of their own."""
        other = Held(len(self.ids))
        other.ids = [list(band) for band in self.ids]
        other.base = list(self.base)
        other.length = self.length
        other.prefix = self.prefix
        other.whole = self.whole
        return other


class Request(Held):
    """One request. `goal` is its final length; `draft` tokens are not verified yet; `ready` is
    False while a load or a receive has to end first.
    """

    __slots__ = ("draft", "goal", "gone", "in_flight", "prompt", "ready", "serial", "wanted")

    def __init__(self, bands: int, serial: int, wanted: Draft) -> None:
        super().__init__(bands)
        self.serial = serial
        self.wanted = wanted
        self.prompt = wanted.prompt_tokens
        self.goal = wanted.prompt_tokens + wanted.output_tokens
        self.draft = 0
        self.in_flight = 0
        self.ready = True
        self.gone = False
