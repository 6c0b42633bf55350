"""Text pictures of a storage plan: tables, one entry and the bands at true scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from onearena.core.geometry import pack
from onearena.core.layout import EntryLayout, Lane
from onearena.core.models import KNOWN_DRAFTS, KNOWN_MODELS
from onearena.core.requests import RequestClass, fit_mix, largest_request

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from onearena.core.plan import StoragePlan, SubPoolPlan

_BAR_COLUMNS = 96
_PADDING = "."
_STYLES = ("cyan", "magenta", "green", "yellow", "blue", "red")


def size_text(size_bytes: int) -> str:
    """Bytes for people: exact below 10 KiB, else three or more digits and a binary unit."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 10_240:
            break
        value, unit = value / 1024, larger
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def show_models(console: Console) -> None:
    """Print the known models and drafts with their bytes per token and per slot."""
    table = _table("model", ">layers", ">B/token, by lifetime", ">B/slot", "Hugging Face id")
    for model in (*KNOWN_MODELS, *KNOWN_DRAFTS):
        declaration = model.declaration()
        per_token: list[str] = []
        per_slot = ""
        for lifetime in declaration.lifetimes():
            payload = declaration.payload_bytes(lifetime)
            if lifetime.per_token:
                per_token.append(f"{payload:,} {lifetime.text}")
            else:
                per_slot = f"{payload:,}"
        table.add_row(
            model.name, f"{len(declaration.layers)}", "\n".join(per_token), per_slot, model.hf_id
        )
    console.print(table)


def show_plan(
    plan: StoragePlan,
    mix: Sequence[RequestClass],
    console: Console,
    *,
    every_lane: bool = False,
) -> None:
    """Print the whole plan, at most 100 columns wide; ``every_lane`` lists lanes one by one."""
    _show_head(plan, console)
    _show_sub_pools(plan, console)
    _show_lanes(plan, console, every_lane=every_lane)
    _show_outside(plan, console)
    _show_fits(plan, mix, console)
    _show_entries(plan, console)
    _show_bands(plan, mix, console)


def _show_head(plan: StoragePlan, console: Console) -> None:
    declaration = plan.declaration
    draft = f" with draft {plan.draft.name}" if plan.draft else ""
    console.print(f"{declaration.name}{draft}", style="bold")
    kinds = len(plan.sub_pools)
    console.print(
        f"{len(declaration.layers)} layers, {kinds} sub-pool{'s' * (kinds > 1)}, "
        f"page size {plan.page_size}; arena S = {plan.arena_bytes:,} bytes "
        f"({size_text(plan.arena_bytes)})"
    )


def _table(*columns: str) -> Table:
    """A plain table; a column whose name starts with ``>`` is set to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left")
    return table


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold")


def _show_sub_pools(plan: StoragePlan, console: Console) -> None:
    _heading(console, "Sub-pools, in chain order from address 0 up to S")
    table = _table(
        "band", "lifetime", "place", ">entry B", ">of it padding", ">entries/unit", ">unit B",
        ">capacity units",
    )  # fmt: skip
    for pool, band in zip(plan.sub_pools, plan.geometry.bands, strict=True):
        table.add_row(
            pool.name,
            pool.lifetime.text,
            pool.placement.value.replace("_", " "),
            f"{pool.entry.entry_bytes:,}",
            f"{pool.entry.padding_bytes:,}",
            f"{pool.page_size:,}",
            f"{pool.unit_bytes:,}",
            f"{band.grid.capacity_units:,}",
        )
    console.print(table)
    for pool in plan.sub_pools:
        zeroed = "; zeroed on hand-out" * pool.entry.zero_on_hand_out
        console.print(f"  {pool.name}: {pool.reason}{zeroed}")


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Equal lanes of several layers: the first one, and the distance between neighbours.

    ``stride_bytes`` is 0 for a single lane and None when the distances differ.
    """

    lane: Lane
    layers: tuple[int, ...]
    stride_bytes: int | None

    @property
    def layers_text(self) -> str:
        """``layers 0-11``, ``layers 3-31 step 4``, ``layers 0-4, 6-10, ..., 60-64``."""
        draft = "draft " if self.lane.draft else ""
        if len(self.layers) == 1:
            return f"{draft}layer {self.layers[0]}"
        steps = {b - a for a, b in pairwise(self.layers)}
        if len(steps) == 1 and steps != {1} and len(self.layers) > 2:
            return f"{draft}layers {self.layers[0]}-{self.layers[-1]} step {steps.pop()}"
        runs: list[list[int]] = []
        for layer in self.layers:
            if runs and layer == runs[-1][1] + 1:
                runs[-1][1] = layer
            else:
                runs.append([layer, layer])
        texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
        if len(texts) > 4:
            texts[2:-1] = ["..."]
        return f"{draft}layers {', '.join(texts)}"


def lane_groups(entry: EntryLayout) -> list[LaneGroup]:
    """Lanes that differ only in layer and offset, together; in order of first appearance.

    Two lanes are alike only if their layers are: the same parts at the same distances.
    """
    layers: dict[tuple[bool, int], list[Lane]] = {}
    for lane in entry.lanes:
        layers.setdefault((lane.draft, lane.layer), []).append(lane)
    alike: dict[tuple[object, ...], list[list[Lane]]] = {}
    for (draft, _), lanes in layers.items():
        base = lanes[0].offset_bytes
        key = tuple(
            (x.part, x.shape, x.dtype, x.zero, x.ring, x.offset_bytes - base) for x in lanes
        )
        alike.setdefault((draft, *key), []).append(lanes)
    groups: list[LaneGroup] = []
    for members in alike.values():
        strides = {b[0].offset_bytes - a[0].offset_bytes for a, b in pairwise(members)}
        stride = 0 if not strides else strides.pop() if len(strides) == 1 else None
        numbers = tuple(lanes[0].layer for lanes in members)
        groups += [LaneGroup(lane, numbers, stride) for lane in members[0]]
    return groups


def _show_lanes(plan: StoragePlan, console: Console, *, every_lane: bool) -> None:
    _heading(console, "Lanes of an entry")
    uneven = False
    table = _table("band", "layers", "part", "shape", "dtype", ">bytes", ">offset", ">then every")
    for pool in plan.sub_pools:
        groups = lane_groups(pool.entry)
        if every_lane:
            groups = [LaneGroup(lane, (lane.layer,), 0) for lane in pool.entry.lanes]
        for group in groups:
            lane = group.lane
            marks = "".join(f" ({m})" for m in ("zero", "ring") if getattr(lane, m))
            uneven |= group.stride_bytes is None
            stride = "" if group.stride_bytes == 0 else "uneven"
            table.add_row(
                pool.name,
                group.layers_text,
                lane.part + marks,
                "x".join(str(size) for size in lane.shape),
                lane.dtype.value,
                f"{lane.size_bytes:,}",
                f"{lane.offset_bytes:,}",
                f"{group.stride_bytes:,}" if group.stride_bytes else stride,
            )
    console.print(table)
    if uneven:
        console.print("  uneven: other layers lie between; --lanes lists every lane's offset")


def _show_outside(plan: StoragePlan, console: Console) -> None:
    _heading(console, "Budget")
    table = _table("item", ">bytes", "why")
    settings = plan.settings
    assert settings is not None, "a plan built from a budget has settings"
    table.add_row("arena", f"{plan.arena_bytes:,}", "S: bands and gaps")
    for item in plan.outside:
        table.add_row(item.name.replace("_", " "), f"{item.size_bytes:,}", item.why)
    table.add_row("unused", f"{plan.unused_bytes:,}", "rounding of S")
    why = "all of the above"
    if settings.static_bytes != settings.budget_bytes:
        share = settings.mem_fraction_static_ppm / 10_000
        why = f"{share:g}% of {settings.budget_bytes:,} less {settings.weights_bytes:,} of weights"
    table.add_row("budget", f"{settings.static_bytes:,}", why)
    console.print(table)
    console.print(
        f"  slack: at most {plan.slack_bound_bytes:,} arena bytes that no layout can use "
        "(grids of floating bands, and less than the smallest unit)"
    )
    for index, pool in enumerate(plan.sub_pools):
        start, end = plan.geometry.sink_range(index)
        console.print(f"  sink of {pool.name}: addresses {start:,} to {end:,}")


def _show_fits(plan: StoragePlan, mix: Sequence[RequestClass], console: Console) -> None:
    _heading(console, "What fits an empty arena")
    largest = largest_request(plan)
    context = plan.declaration.max_context_tokens
    if largest is None:
        console.print("  largest request: any length (every part is bounded)")
    else:
        note = f"the model's context of {context:,} fits"
        if largest < context:
            note = f"of the model's {context:,}; longer ones are clipped"
        console.print(f"  largest request: {largest:,} tokens ({note})")
    if not mix:
        return
    fit = fit_mix(plan, mix)
    settings = plan.settings
    limit = settings.max_running_requests if settings else fit.requests
    note = f"; max running requests is {limit:,}" if fit.requests > limit else ""
    console.print(f"  request mix: {fit.requests:,} requests at once{note}")
    for request, number in zip(mix, fit.per_class, strict=True):
        console.print(
            f"    {number:,} of {request.input_tokens:,} input + {request.output_tokens:,} output "
            f"tokens (weight {request.weight})"
        )


def lane_symbols(entry: EntryLayout) -> dict[tuple[bool, str], str]:
    """One letter for each part name: small for target lanes, capital for draft lanes."""
    symbols: dict[tuple[bool, str], str] = {}
    for lane in entry.lanes:
        key = (lane.draft, lane.part)
        if key in symbols:
            continue
        letters = lane.part.lower().replace("_", "") + "abcdefghijklmnopqrstuvwxyz"
        options = [c.upper() if lane.draft else c for c in letters if c.isalpha()]
        taken = set(symbols.values())
        symbols[key] = next((c for c in options if c not in taken), "#")
    return symbols


def entry_bar(entry: EntryLayout, columns: int) -> str:
    """One entry at true scale: column c shows the lane at its middle byte, ``.`` padding."""
    symbols = lane_symbols(entry)
    bar: list[str] = []
    position = 0
    for column in range(columns):
        byte = (2 * column + 1) * entry.entry_bytes // (2 * columns)
        while position + 1 < len(entry.lanes) and entry.lanes[position + 1].offset_bytes <= byte:
            position += 1
        lane = entry.lanes[position]
        inside = byte < lane.offset_bytes + lane.size_bytes
        bar.append(symbols[lane.draft, lane.part] if inside else _PADDING)
    return "".join(bar)


def _show_entries(plan: StoragePlan, console: Console) -> None:
    _heading(console, "One entry of each sub-pool, at its own scale")
    for pool in plan.sub_pools:
        what = "token" if pool.lifetime.per_token else "request"
        column = pool.entry.entry_bytes / _BAR_COLUMNS
        console.print(
            f"{pool.name}: one {what}, {pool.entry.entry_bytes:,} bytes; "
            f"a column is {size_text(int(column))}"
        )
        console.print(f"|{entry_bar(pool.entry, _BAR_COLUMNS)}|")
        legend = [
            f"{symbol} {'draft ' if draft else ''}{part}"
            for (draft, part), symbol in lane_symbols(pool.entry).items()
        ]
        if pool.entry.padding_bytes:
            legend.append(f"{_PADDING} padding")
        console.print("  " + ", ".join(legend))
        if len(pool.entry.lanes) > _BAR_COLUMNS // 4:
            _show_zoom(pool.entry, console)


def _show_zoom(entry: EntryLayout, console: Console) -> None:
    """The first layer alone: in an entry of many lanes the small ones are too thin to see."""
    first = entry.lanes[0]
    lanes = [x for x in entry.lanes if (x.draft, x.layer) == (first.draft, first.layer)]
    end = max(lane.offset_bytes + lane.size_bytes for lane in lanes)
    symbols = lane_symbols(entry)
    spans = [(lane.offset_bytes, lane.offset_bytes + lane.size_bytes) for lane in lanes]
    bar = scaled_columns(spans, end, _BAR_COLUMNS)
    for index, lane in enumerate(lanes):
        bar = bar.replace(_DIGITS[index % len(_DIGITS)], symbols[lane.draft, lane.part].upper())
    console.print(f"  layer {first.layer} of it, {end:,} bytes:")
    console.print(f"|{bar.lower()}|")


def scaled_columns(spans: Sequence[tuple[int, int]], total: int, columns: int) -> str:
    """Address axis at true scale: column c shows the span at its middle byte, ``.`` for none.

    Span i is drawn with digit i. A span too thin for a column's middle shows in the column it
    starts in, which becomes ``+`` if another span is there: nothing that exists is invisible.
    """
    bar = ["."] * columns
    thin: list[tuple[int, int]] = []
    for index, (start, end) in enumerate(spans):
        if start >= end:
            continue
        first = -(-(2 * columns * start - total) // (2 * total))
        last = -(-(2 * columns * end - total) // (2 * total))
        if first == last:
            thin.append((columns * start // total, index))
        for column in range(first, last):
            bar[column] = _digit(index)
    for column, index in thin:
        bar[column] = _digit(index) if bar[column] == "." else "+"
    return "".join(bar)


_DIGITS = "0123456789abcdefghijklmnopqrstuv"


def _digit(index: int) -> str:
    return _DIGITS[index % len(_DIGITS)]


def _show_bands(plan: StoragePlan, mix: Sequence[RequestClass], console: Console) -> None:
    from rich.text import Text

    largest = max(pool.unit_bytes for pool in plan.sub_pools)
    _heading(console, "One unit of each band, all to one scale")
    for index, pool in enumerate(plan.sub_pools):
        bar = scaled_columns([(0, pool.unit_bytes)], largest, _BAR_COLUMNS).rstrip(".")
        console.print(f"|{bar.replace('0', _digit(index))}|")
        size = size_text(pool.unit_bytes)
        console.print(f"  {_digit(index)} one {pool.unit_word} of {pool.name}, {size}")
    if mix:
        counts = fit_mix(plan, mix).counts
        _heading(console, "Bands when the arena is full of that mix, packed, at true scale")
    else:
        tokens = largest_request(plan)
        tokens = plan.declaration.max_context_tokens if tokens is None else tokens
        shown = min(tokens, plan.declaration.max_context_tokens)
        counts = plan.peak_demand(shown)
        _heading(console, f"Bands while one request of {shown:,} tokens runs, at true scale")
    packing = pack(plan.geometry, counts)
    spans = list(zip(packing.starts, packing.ends, strict=True))
    line = Text("|")
    for mark in scaled_columns(spans, plan.arena_bytes, _BAR_COLUMNS):
        style = _STYLES[_DIGITS.index(mark) % len(_STYLES)] if mark in _DIGITS else "dim"
        line.append(mark, style=style)
    console.print(line.append("|"))
    if "+" in line.plain:
        console.print("  + bands too thin for a column of their own")
    edge = f"{plan.arena_bytes:,}"
    console.print("0" + edge.rjust(_BAR_COLUMNS + 1))
    for index, (pool, count) in enumerate(zip(plan.sub_pools, counts, strict=True)):
        console.print(f"  {_digit(index)} {_band_line(pool, count)}")
    console.print(
        f"  . gap {packing.gap_bytes:,} bytes, slack {packing.slack_bytes:,} bytes; "
        f"a column is {size_text(plan.arena_bytes // _BAR_COLUMNS)}"
    )


def _band_line(pool: SubPoolPlan, count: int) -> str:
    plural = "s" * (count != 1)
    size = size_text(count * pool.unit_bytes)
    return f"{pool.name}: {count:,} {pool.unit_word}{plural}, {size}"
