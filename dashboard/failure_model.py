"""What the Failure page says of a failure's document. Pure; the timeline is drawn as SVG text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from onearena.dashboard.checked import Checked, SourceError, kind_of
from onearena.dashboard.frame import Frame, parse_frame
from onearena.dashboard.map_model import Window
from onearena.dashboard.view_model import Table

FAILURE_VERSION: Final = 1
ROWS_MAX: Final = 512
PICTURES_MAX: Final = 128
LANE_WIDTH: Final = 178
ROW_HEIGHT: Final = 26
LEFT: Final = 64
TOP: Final = 34
LANE_TEXT_MAX: Final = 24


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that happened; `mark` is A, B or X for the events of the report."""

    order: int
    step: int
    actor: str
    kind: str
    number: int
    text: str
    mark: str


@dataclass(frozen=True, slots=True)
class Side:
    """An event of the report and who enqueued it."""

    mark: str
    row: int
    title: str
    where: str
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """One failure, checked: what broke, what happened in order, and the arena after its steps."""

    seed: int
    system: str
    model: str
    verdict: str
    step: int
    rule: str
    rule_text: str
    oracle: str
    message: str
    text: str
    minimal: bool
    edge: str
    fix: str
    bytes: Window | None
    rows: tuple[Row, ...]
    sides: tuple[Side, ...]
    labels: tuple[str, ...]
    repro: tuple[str, ...]
    left_out: int
    pictures: tuple[Frame, ...]

    @property
    def title(self) -> str:
        """`Rule 6 broken: seed 12 of arena`."""
        what = f"Rule {self.rule} broken" if self.rule else self.verdict
        small = ", made small" if self.minimal else ""
        return f"{what}: seed {self.seed} of {self.system}{small}"

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that can be looked at, in order."""
        found = {row.step for row in self.rows} | {picture.step for picture in self.pictures}
        return tuple(sorted(step for step in found if step >= 0))

    def label(self, step: int) -> str:
        """What a step did."""
        return self.labels[step] if 0 <= step < len(self.labels) else "drain"

    def picture(self, step: int) -> Frame | None:
        """The arena after a step, or after the last one before it that was kept."""
        earlier = [picture for picture in self.pictures if picture.step <= step]
        return earlier[-1] if earlier else (self.pictures[0] if self.pictures else None)


def parse_failure(value: object, where: str) -> Failure:
    """The failure in a document; `SourceError` names the first field that cannot be."""
    doc = Checked(value, where)
    if doc.value.get("version") != FAILURE_VERSION:
        raise SourceError(
            f"{where}: failures of version {FAILURE_VERSION} are understood, and this one is "
            f"{kind_of(doc.value.get('version'))}"
        )
    rows = tuple(_row(row) for row in doc.objects("rows", most=ROWS_MAX))
    sides = tuple(_side(side, len(rows)) for side in doc.objects("sides", most=4))
    extent: Window | None = None
    if "bytes" in doc:
        numbers = doc.integers("bytes", most=2)
        if len(numbers) != 2 or not numbers[0] <= numbers[1]:
            raise doc.wrong("bytes", "a start and an end")
        extent = (numbers[0], numbers[1])
    pictures = doc.items("pictures", most=PICTURES_MAX)
    return Failure(
        seed=doc.integer("seed"),
        system=doc.text("system", most=128),
        model=doc.text("model", most=128),
        verdict=doc.text("verdict", most=64),
        step=doc.integer("step"),
        rule=doc.text("rule", most=64),
        rule_text=doc.text("rule_text"),
        oracle=doc.text("oracle", most=128),
        message=doc.text("message"),
        text=doc.text("text"),
        minimal=doc.flag("minimal"),
        edge=doc.text("edge"),
        fix=doc.text("fix"),
        bytes=extent,
        rows=rows,
        sides=sides,
        labels=_texts(doc, "labels", most=4096),
        repro=_texts(doc, "repro", most=8),
        left_out=doc.integer("left_out"),
        pictures=tuple(parse_frame(p, f"{where}.pictures[{at}]") for at, p in enumerate(pictures)),
    )


def _texts(doc: Checked, name: str, *, most: int) -> tuple[str, ...]:
    found = doc.items(name, most=most)
    if not all(isinstance(text, str) for text in found):
        raise doc.wrong(name, "a list of texts")
    return tuple(found)


def _row(row: Checked) -> Row:
    return Row(
        row.integer("order", least=-1),
        row.integer("step", least=-1),
        row.text("actor", most=128),
        row.text("kind", most=32),
        row.integer("number", least=-1),
        row.text("text", most=4096),
        row.text("mark", most=2),
    )


def _side(side: Checked, rows: int) -> Side:
    return Side(
        side.text("mark", most=2),
        side.integer("row", most=max(0, rows - 1)),
        side.text("title", most=4096),
        side.text("where", most=1024),
        _texts(side, "stack", most=64),
    )


def event_table(failure: Failure) -> Table:
    """Everything in words, in order."""
    rows = [
        (
            row.step,
            failure.label(row.step),
            f"#{row.order}" if row.order >= 0 else "",
            row.mark,
            row.actor,
            row.text,
        )
        for row in failure.rows
    ]
    return Table(("step", "what the step did", "order", "mark", "actor", "what"), tuple(rows))


# -- the picture
def timeline_svg(failure: Failure, step: int) -> str:
    """Actors side by side, later is lower; events after `step` are pale, the missing edge dashed.

    Grey curves join an event's record to whoever waited for it or saw it. Colours are the page's
    own ink and one red that has contrast on light and dark.
    """
    actors = list(dict.fromkeys(row.actor for row in failure.rows))
    lanes = [actor for actor in actors if actor == "host"]
    lanes += sorted(actor for actor in actors if actor not in ("host", "transfers"))
    lanes += [actor for actor in actors if actor == "transfers"]
    x = {actor: LEFT + LANE_WIDTH * place + 10 for place, actor in enumerate(lanes)}
    width = LEFT + LANE_WIDTH * max(1, len(lanes))
    height = TOP + ROW_HEIGHT * len(failure.rows) + 10
    words = f"Timeline of {len(failure.rows)} events on {len(lanes)} lanes. {failure.edge}"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    look = f'aria-label="{_t(words)}" style="font: 12px sans-serif; color: inherit"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {look}>']
    for actor in lanes:
        at = x[actor]
        parts.append(_text(at - 5, 16, actor, weight=600))
        parts.append(
            f'<line x1="{at}" y1="24" x2="{at}" y2="{height}" stroke="currentColor" opacity=".3"/>'
        )
    parts += _edges(failure, x)
    shown = -1
    for index, row in enumerate(failure.rows):
        pale = ' opacity=".35"' if row.step > step else ""
        y = _y(index)
        parts.append(f"<g{pale}>")
        if row.step != shown:
            shown = row.step
            parts.append(_text(0, y + 4, f"step {row.step}"))
        fill = RED if row.mark else "currentColor"
        parts.append(
            f'<circle cx="{x[row.actor]}" cy="{y}" r="{6 if row.mark else 3}" fill="{fill}">'
            f"<title>{_t(row.text)}</title></circle>"
        )
        text = f"{row.mark}: {row.text}" if row.mark else row.text
        text = text if len(text) <= LANE_TEXT_MAX else text[: LANE_TEXT_MAX - 1] + "…"
        parts.append(_text(x[row.actor] + 10, y + 4, text, weight=600 if row.mark else 400))
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


RED: Final = "#d1495b"


def _t(words: object) -> str:
    return escape(str(words), quote=True)


def _text(x: int, y: int, words: str, *, weight: int = 400) -> str:
    return f'<text x="{x}" y="{y}" fill="currentColor" font-weight="{weight}">{_t(words)}</text>'


def _y(index: int) -> int:
    return TOP + ROW_HEIGHT * index + ROW_HEIGHT // 2


def _edges(failure: Failure, x: Mapping[str, int]) -> list[str]:
    parts: list[str] = []
    starts: dict[tuple[str, int], tuple[int, int]] = {}
    sources = {"record": "event", "begin": "transfer"}
    targets = {"wait": "event", "observe": "event", "end": "transfer"}
    for index, row in enumerate(failure.rows):
        at = (x[row.actor], _y(index))
        if row.kind in sources:
            starts[sources[row.kind], row.number] = at
        start = starts.get((targets.get(row.kind, ""), row.number))
        if start is not None:
            parts.append(_curve(start, at, 'stroke="currentColor" opacity=".45"'))
    marked = [index for index, row in enumerate(failure.rows) if row.mark]
    if failure.edge and len(marked) == 2:
        first, last = ((x[failure.rows[at].actor], _y(at)) for at in marked)
        style = f'class="missing" stroke="{RED}" stroke-width="2.5" stroke-dasharray="6 5"'
        parts.append(_curve(first, last, style))
    return parts


def _curve(start: tuple[int, int], end: tuple[int, int], style: str) -> str:
    (x1, y1), (x2, y2) = start, end
    bend = 40 if x1 == x2 else 0
    middle = (y1 + y2) // 2
    path = f"M{x1},{y1} C{x1 - bend},{middle} {x2 - bend},{middle} {x2},{y2}"
    return f'<path d="{path}" fill="none" {style}/>'
