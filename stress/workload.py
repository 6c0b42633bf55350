"""What one schedule is made of: its arena, its rates, its requests. All drawn from the choices.

`draw_options` is swarm testing: each run turns some kinds of step off and others up, so that a run
which must be deep in one corner is not diluted by the rest. The drawn options are part of the
recording and of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from onearena.stress.arrivals import PREFIX_BLOCK_TOKENS, Arrival
from onearena.stress.choices import Choices
from onearena.stress.strategies.portfolio import DRAWN
from onearena.stress.sut import Capabilities, PlanFacts

# Base weight of every kind of world step, and the chance in per mille that a run leaves it out.
STEP_KINDS: Final[dict[str, tuple[int, int]]] = {
    "device": (120, 0),
    "admit": (30, 0),
    "forward": (60, 0),
    "process": (30, 0),
    "settle": (10, 150),
    "poll": (30, 0),
    "finish": (8, 0),
    "abort": (3, 150),
    "retract": (3, 250),
    "window": (12, 0),
    "cache": (5, 200),
    "evict": (3, 100),
    "trim": (4, 300),
    "backup": (7, 200),
    "backup_start": (10, 0),
    "backup_cancel": (1, 200),
    "load": (12, 200),
    "drop_host": (1, 100),
    "send": (4, 200),
    "receive": (8, 200),
    "publish": (16, 0),
    "hasty": (24, 200),
    "poll_transfer": (14, 0),
    "cancel_transfer": (2, 300),
    "disconnect": (2, 0),
    "move": (12, 150),
    "compact": (8, 250),
    "pin": (3, 300),
    "unpin": (4, 0),
    "fork": (3, 300),
    "price": (3, 200),
    "choose_victims": (9, 150),
    "boot": (1, 300),
    "snapshot": (2, 200),
    "ask": (3, 200),
    "misuse": (2, 300),
}

THEMES: Final[tuple[tuple[str, ...], ...]] = (
    ("backup", "backup_start", "load"),
    ("receive", "publish", "hasty"),
    ("send", "publish"),
    ("move", "compact"),
    ("fork",),
    ("abort", "window", "cancel_transfer"),
    ("backup", "backup_start", "load", "abort", "receive", "publish"),
)
"""Kinds of step that make the same kind of use. Some runs are about two of these: a hazard between
two kinds of use shows only where both are frequent, and an even mix seldom makes it.
"""
THEME_FACTOR: Final = 6

FAULTS: Final[dict[str, tuple[int, ...]]] = {
    "query_false": (0, 0, 100, 400),  # an event is complete, and the host is told it is not
    "mid_snapshot": (0, 0, 50, 200),  # statistics are taken between record and launch
    "zero_demand": (0, 0, 200, 500),  # a demand of no unit at all
    "evict_veto": (0, 300, 700),  # the cache keeps one of the chosen victims
    "transfer_stall": (0, 0, 100, 300),  # a transfer stands still until everything drains
    "refuse_rung": (0, 0, 300, 1000),  # the caller does not want what needs moves
    "process_batch": (0, 0, 200, 500),  # results of forwards are processed late, several at once
    "read_only": (0, 0, 200, 500),  # a forward that writes nothing, beside the others
    "publish_at_once": (0, 0, 300, 1000),  # a peer is told of units the moment they are named
}
"""Faults of the world that a correct system takes, and the rates in per mille a run draws from."""

PROFILES: Final = ("default", "demo")


@dataclass(frozen=True, slots=True)
class Options:
    """The rates and limits of one run; every field is drawn. Units are units of a band, not
    bytes.
    """

    steps: int
    weights: dict[str, int]
    requests_max: int
    batch_max: int
    forwards_max: int
    uses_max: int
    prompt_units_max: int
    output_units_max: int
    chunk_units_max: int
    window_units: int
    chunk_window_units: int
    cache_max: int
    share_per_mille: int
    speculate_per_mille: int
    side_stream_per_mille: int
    copy_failure_per_mille: int
    eager_per_mille: int
    blind_per_mille: int
    survey_every_steps: int
    make_room_per_mille: int
    pieces: int
    passes: int
    reads_max: int
    strategy: str = "random"
    faults: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Plain form for reports."""
        return asdict(self)


def draw_options(
    choices: Choices, facts: PlanFacts, capabilities: Capabilities, *, steps: int = 0
) -> Options:
    """Draw the options of one run; `steps` 0 draws the length too."""
    factors = (1, 1, 2, 4)
    weights: dict[str, int] = {}
    for kind, (weight, off) in STEP_KINDS.items():
        on = not (off and choices.chance("swarm.off", off))
        weights[kind] = weight * factors[choices.pick("swarm.factor", 4)] if on else 0
    # Device work must neither starve (everything blocks) nor race ahead (nothing is ever in
    # flight).
    weights["device"] = (60, 100, 160, 300)[choices.pick("swarm.device", 4)]
    if choices.chance("swarm.themed", 650):
        for theme in (THEMES[choices.pick("swarm.theme", len(THEMES))] for _ in range(2)):
            for kind in theme:
                weights[kind] = max(weights[kind], THEME_FACTOR * STEP_KINDS[kind][0])
    _disable(weights, capabilities)
    fitting, share = _request_room(facts)
    requests_max = max(2, min(12, fitting + choices.pick("swarm.requests", 5) - 1))
    return Options(
        steps=steps or choices.between("swarm.steps", 200, 240),
        weights=weights,
        requests_max=requests_max,
        batch_max=choices.between("swarm.batch", 1, 3),
        forwards_max=choices.between("swarm.forwards", 3, 8),
        uses_max=choices.between("swarm.uses", 8, 20),
        prompt_units_max=max(1, min(12, share)) if choices.pick("swarm.short", 3) else 2,
        output_units_max=max(1, min(8, share)),
        chunk_units_max=choices.between("swarm.chunk", 1, 4),
        window_units=choices.between("swarm.window", 1, 4),
        chunk_window_units=choices.between("swarm.chunk_window", 1, 3),
        cache_max=choices.between("swarm.cache", 1, 6),
        share_per_mille=(0, 300, 700)[choices.pick("swarm.share", 3)],
        speculate_per_mille=(0, 0, 300)[choices.pick("swarm.speculate", 3)],
        side_stream_per_mille=(0, 200, 500)[choices.pick("swarm.side", 3)],
        copy_failure_per_mille=(0, 50, 300)[choices.pick("swarm.copy_failure", 3)],
        eager_per_mille=(0, 500, 1000)[choices.pick("swarm.eager", 3)],
        blind_per_mille=(0, 300, 1000)[choices.pick("swarm.blind", 3)],
        make_room_per_mille=(0, 500, 1000)[choices.pick("swarm.make_room", 3)],
        # What shows in a snapshot only, shows for a moment only: some runs look after each step.
        survey_every_steps=(1, 4, 4, 16, 16, 64, 64, 64, 64, 64)[choices.pick("swarm.survey", 10)],
        pieces=choices.between("swarm.pieces", 1, 3),
        passes=choices.between("swarm.passes", 1, 3),
        reads_max=choices.between("swarm.reads", 4, 10),
        strategy=DRAWN[choices.pick("swarm.strategy", len(DRAWN))],
        faults={
            "transfer_fail": (0, 100, 300)[choices.pick("swarm.transfer_fail", 3)],
            "peer_dies": (0, 100, 300)[choices.pick("swarm.peer_dies", 3)],
            **{
                name: rates[choices.later(f"swarm.{name}", len(rates))]
                for name, rates in FAULTS.items()
            },
        },
    )


def _disable(weights: dict[str, int], capabilities: Capabilities) -> None:
    """Leave out what the system under test cannot do."""
    gone: list[str] = []
    if not capabilities.moves:
        gone += ["move", "compact", "pin", "unpin"]
    if not capabilities.transfers:
        gone += ["send", "receive", "publish", "poll_transfer", "cancel_transfer", "disconnect"]
        gone += ["hasty"]
    if not capabilities.host_tier:
        gone += ["backup", "backup_start", "backup_cancel", "load", "drop_host"]
    if not capabilities.sharing:
        gone += ["cache", "evict", "trim", "fork"]
    for kind in gone:
        weights[kind] = 0


def _request_room(facts: PlanFacts) -> tuple[int, int]:
    """How many requests of about six context units the arena holds, and the context units for
    each.
    """
    fixed = context = 0
    for band in facts.bands:
        if band.lifetime == "context":
            context += band.unit_bytes
        else:
            fixed += band.unit_bytes * (1 if band.lifetime == "request" else 3)
    context = context or min(band.unit_bytes for band in facts.bands)
    fitting = max(1, facts.arena_bytes // (fixed + 6 * context))
    return fitting, max(1, (facts.arena_bytes // fitting - fixed) // context)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a request wants: tokens in, tokens out, prefix block ids."""

    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = ()


class RequestSource:
    """Draws requests, or takes them from a trace with lengths scaled to the arena's units."""

    __slots__ = ("_arrivals", "_choices", "_next", "_options", "_page", "_scale")

    def __init__(
        self, choices: Choices, options: Options, facts: PlanFacts, arrivals: Sequence[Arrival]
    ) -> None:
        self._choices = choices
        self._options = options
        self._page = facts.page_size
        self._arrivals = arrivals
        self._next = 0
        # A trace's tokens shrink by one factor, so that the longest prompts fill what a drawn one
        # may fill.
        longest = max((row.prompt_tokens for row in arrivals), default=1)
        self._scale = max(1, longest // (options.prompt_units_max * facts.page_size))

    def take(self) -> Draft:
        """The next request."""
        options, choices, page = self._options, self._choices, self._page
        if self._arrivals:
            row = self._arrivals[self._next % len(self._arrivals)]
            self._next += 1
            return Draft(
                max(1, row.prompt_tokens // self._scale),
                max(1, min(row.output_tokens // self._scale, options.output_units_max * page)),
                row.prefix,
            )
        units = choices.pick("request.prompt_units", options.prompt_units_max)
        prompt = units * page + 1 + choices.pick("request.prompt_rest", page)
        units = choices.pick("request.output_units", options.output_units_max)
        output = units * page + 1 + choices.pick("request.output_rest", page)
        return Draft(prompt, output)

    def prefix_tokens(self, blocks: int) -> int:
        """Tokens (scaled) that `blocks` equal prefix blocks stand for."""
        return blocks * PREFIX_BLOCK_TOKENS // self._scale
