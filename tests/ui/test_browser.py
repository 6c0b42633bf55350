"""A real browser on the application: pixels, hover, pause, scrub, a source that dies, axe.

Every wait is for a condition. What the pixels have to be is worked out here from the snapshot and
from where the map says that addresses lie, not from what the map was sent.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter

import pytest
from ui_case import seeded_snapshot
from ui_server import ROOT, Shown, running_app

from onearena.dashboard.map_model import LAYOUT, LINES
from onearena.dashboard.palette import DARK, LIGHT
from onearena.metrics.frames import Moment, frame_document, unit_fields
from onearena.metrics.record import RecordWriter
from onearena.metrics.source import columns_of

sync = pytest.importorskip("playwright.sync_api", reason="needs the browser extra")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(280),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
WIDE = {"width": 2300, "height": 1200}
LONG_MS = 60_000
STEPS = 6


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """A record whose every frame is another seeded arena."""
    path = tmp_path_factory.mktemp("records") / "steps.jsonl"
    writer = RecordWriter(path)
    for step in range(STEPS):
        snapshot = seeded_snapshot(20 + step, units=400, epoch=step + 1)
        told = [
            columns_of(snapshot, at, band.low_unit, band.high_unit - band.low_unit)
            for at, band in enumerate(snapshot.bands)
        ]
        head = {"kind": "frame", "taken_s": 1000.0 + step, "schedule": 3, "step": step}
        document = frame_document(snapshot, Moment(taken_s=1000.0 + step, serial=step))
        states = tuple(band.states for band in snapshot.bands)
        writer.frame({**head, "label": "x", **document, **unit_fields(states, told)})
    writer.close()
    return path


@pytest.fixture(scope="module")
def shown():
    server = Shown(seeded_snapshot(1, epoch=1))
    yield server
    server.close()


@pytest.fixture(scope="module")
def app(shown, record):
    with running_app([shown.url], folder=record.parent) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    with sync.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@contextlib.contextmanager
def page_of(browser, url, *, dark=False, viewport=WIDE):
    """A page on the application; afterwards there was no error on its console."""
    context = browser.new_context(
        viewport=viewport, color_scheme="dark" if dark else "light", device_scale_factor=1
    )
    page = context.new_page()
    page.set_default_timeout(LONG_MS)
    errors = []
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    assert errors == []


def drawn(page, *, epoch=None, other_than=None):
    """The map, once it shows the snapshot of that epoch."""
    page.wait_for_selector("canvas[data-key]")
    page.wait_for_function(
        """([epoch, not]) => {
          const find = (root) => root.querySelector("canvas[data-key]")
            || [...root.querySelectorAll("*")].map((e) => e.shadowRoot && find(e.shadowRoot))
              .find(Boolean);
          const canvas = find(document);
          const now = canvas && canvas.dataset.key.split("/")[2];
          return now && (epoch === null || now === epoch) && now !== not;
        }""",
        arg=[
            None if epoch is None else str(epoch),
            None if other_than is None else str(other_than),
        ],
    )
    return page.locator("canvas[data-key]")


def pixels_of(canvas):
    """The picture on the screen as rows of (r, g, b)."""
    from PIL import Image

    canvas.evaluate("(e) => e.scrollIntoView({block: 'center'})")
    return Image.open(io.BytesIO(canvas.screenshot())).convert("RGB")


def rgb(colour):
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def spans_of(start, end, *, wide, wrap):
    """Where bytes lie: (x from, x to, line), by the address axis alone."""
    axis = wide - LAYOUT.left - LAYOUT.right
    for line in range(LINES):
        low, high = max(start, line * wrap), min(end, (line + 1) * wrap)
        if low < high:
            scale = axis / wrap
            at = LAYOUT.left
            yield at + (low - line * wrap) * scale, at + (high - line * wrap) * scale, line


def seen_state(image, x0, x1, line, palette):
    """The state whose fill most pixels well inside this place have."""
    top = LAYOUT.lines_top + line * (LAYOUT.line_height + LAYOUT.line_gap)
    left, right = int(x0) + 2, int(x1) - 2
    if right <= left:
        left, right = int((x0 + x1) / 2), int((x0 + x1) / 2) + 1
    counts = Counter(
        image.getpixel((x, y))
        for x in range(left, right)
        for y in range(top + 6, top + LAYOUT.line_height - 4)
    )
    fills = {rgb(colour): state for state, colour in enumerate(palette.fills)}
    known = Counter()
    for colour, count in counts.items():
        if colour in fills:
            known[fills[colour]] += count
    assert known, f"no pixel at {left}-{right}, line {line} has a fill: {counts.most_common(3)}"
    return known.most_common(1)[0][0]


def wrong_units(image, canvas, snapshot, palette):
    """Units and fences whose pixels are not those of their state, and how many were looked at."""
    wrap = int(canvas.get_attribute("data-line-bytes"))
    wide = image.size[0]
    wrong, looked = [], Counter()
    for band in snapshot.bands:
        for at, state in enumerate(band.states):
            start = band.origin_bytes + (band.low_unit + at) * band.unit_bytes
            for x0, x1, line in spans_of(start, start + band.unit_bytes, wide=wide, wrap=wrap):
                if x1 - x0 < 4:
                    continue  # the end of a unit that goes on in the next line
                looked[state] += 1
                found = seen_state(image, x0, x1, line, palette)
                if found != state:
                    wrong.append((band.name, band.low_unit + at, state, found))
    for fence in snapshot.fences:
        for x0, x1, line in spans_of(fence.start_bytes, fence.end_bytes, wide=wide, wrap=wrap):
            looked[5] += 1
            if seen_state(image, x0, x1, line, palette) != 5:
                wrong.append(("fence", fence.start_bytes))
    return wrong, looked


@pytest.mark.parametrize("dark", [False, True])
def test_pixels_of_a_thousand_units_equal_the_snapshot(browser, app, shown, dark):
    snapshot = seeded_snapshot(1, epoch=1)
    shown.show(snapshot)
    palette = DARK if dark else LIGHT
    with page_of(browser, app, dark=dark) as page:
        canvas = drawn(page, epoch=1)
        page.wait_for_function("() => !document.querySelector('[data-testid=stSkeleton]')")
        image = pixels_of(canvas)
        assert canvas.get_attribute("data-theme") == ("dark" if dark else "light")
        assert canvas.get_attribute("data-detail") == "units"
        wrong, looked = wrong_units(image, canvas, snapshot, palette)
        assert wrong == []
        assert sum(looked.values()) >= 1000
        assert all(looked[state] >= 2 for state in (1, 2, 3, 4, 5)), looked
        # The same look at another snapshot's units finds that they differ: it can see.
        other, _ = wrong_units(image, canvas, seeded_snapshot(2, epoch=1), palette)
        assert len(other) > 200


def test_hover_shows_the_unit_and_a_click_keeps_it(browser, app, shown):
    snapshot = seeded_snapshot(1, epoch=2)
    shown.show(snapshot)
    band = snapshot.bands[1]
    at = next(at for at, state in enumerate(band.states) if state == 2 and at > 10)
    unit = band.low_unit + at
    with page_of(browser, app) as page:
        canvas = drawn(page, epoch=2)
        wrap = int(canvas.get_attribute("data-line-bytes"))
        start = band.origin_bytes + unit * band.unit_bytes
        canvas.evaluate("(e) => e.scrollIntoView({block: 'center'})")
        box = canvas.bounding_box()
        x0, x1, line = next(spans_of(start, start + 128, wide=box["width"], wrap=wrap))
        y = LAYOUT.lines_top + line * (LAYOUT.line_height + LAYOUT.line_gap) + 10
        page.mouse.move(box["x"] + (x0 + x1) / 2, box["y"] + y)
        tip = page.locator(".om-tip")
        tip.wait_for(state="visible")
        words = tip.inner_text()
        assert f"window_4096 unit {unit}: live" in words
        assert f"id {band.ids[at]}, generation {band.ids[at] >> 36}, 1 holder" in words
        assert f"bytes {start:,} to {start + 128:,}" in words
        page.mouse.click(box["x"] + (x0 + x1) / 2, box["y"] + y)
        page.wait_for_url(re.compile(r"[?&]pick="))
        picked = int(re.search(r"pick=(\d+)", page.url)[1])
        assert start <= picked < start + 128
        # The keyboard reaches the next unit, and says so.
        canvas.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            """() => {
              const host = [...document.querySelectorAll("*")].find(
                (e) => e.shadowRoot && e.shadowRoot.querySelector(".om-say"));
              return host.shadowRoot.querySelector(".om-say").textContent.includes("state unit");
            }"""
        )


def test_zoom_pause_and_links(browser, app, shown):
    shown.show(seeded_snapshot(1, epoch=3))
    with page_of(browser, app) as page:
        canvas = drawn(page, epoch=3)
        page.get_by_role("button", name="Zoom in").click()
        page.wait_for_url(re.compile(r"[?&]view=\d+-\d+"))
        start, end = map(int, re.search(r"view=(\d+)-(\d+)", page.url).groups())
        assert abs((end - start) * 2 - seeded_snapshot(1).arena_bytes) <= 2
        page.get_by_text("Pause", exact=True).click()
        page.wait_for_selector("text=/paused/")
        shown.show(seeded_snapshot(1, epoch=4))
        page.wait_for_selector("text=/paused, [2-9]/")  # two seconds of redrawing later
        assert canvas.get_attribute("data-key").split("/")[2] == "3"
        link = page.url
        page.get_by_text("Pause", exact=True).click()
        drawn(page, epoch=4)
    with page_of(browser, link) as page:
        canvas = drawn(page, epoch=4)
        page.wait_for_function(
            """(wanted) => {
              const host = [...document.querySelectorAll("*")].find(
                (e) => e.shadowRoot && e.shadowRoot.querySelector("canvas[data-key]"));
              return host.shadowRoot.querySelector("canvas").dataset.window === wanted;
            }""",
            arg=f"{start}-{end}",
        )


def test_a_second_that_passes_runs_no_script(browser, app, shown):
    """What changes on the live page comes by itself: nothing of it makes the page be redrawn."""
    shown.show(seeded_snapshot(1, epoch=6))
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    page.set_default_timeout(LONG_MS)
    messages = []

    def opened(socket):
        socket.on("framereceived", lambda _: messages.append(socket.url))

    page.on("websocket", opened)
    try:
        page.goto(app)
        drawn(page, epoch=6)
        page.wait_for_function("() => !document.querySelector('[data-testid=stSkeleton]')")
        page.wait_for_timeout(2000)  # what a page does once, when it opens, is over
        assert messages, "pages talk to the application by a socket"
        messages.clear()
        for epoch in (7, 8):
            shown.show(seeded_snapshot(1, epoch=epoch))
            drawn(page, epoch=epoch)
        page.route("**/onearena/arena?*", lambda route: route.abort())
        page.wait_for_selector("text=/disconnected: the dashboard itself/")
        page.unroute("**/onearena/arena?*")
        page.wait_for_selector("text=/live, /")
        assert messages == []
        page.get_by_text("Pause", exact=True).click()
        page.wait_for_selector("text=/paused, /")
        assert messages  # and a script that runs is seen here
    finally:
        context.close()


def test_scrubbing_shows_the_recorded_step(browser, app):
    with page_of(browser, f"{app}/?source=steps.jsonl") as page:
        drawn(page, epoch=STEPS)
        page.get_by_role("link", name="History").click()
        page.get_by_role("button", name="First moment").click()
        for step in range(2):
            canvas = drawn(page, epoch=step + 1)
            snapshot = seeded_snapshot(20 + step, units=400, epoch=step + 1)
            wrong, looked = wrong_units(pixels_of(canvas), canvas, snapshot, LIGHT)
            assert wrong == []
            assert sum(looked.values()) >= 400
            page.get_by_role("button", name="Step forward").click()
        drawn(page, epoch=3)
        assert "step=1002000" in page.url


def serious(page):
    """What axe finds serious or worse, as text.

    What is being redrawn is pale for a moment, on a busy machine for a long one: only what is
    found in every one of several looks is a finding.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra")
    found = None
    for _ in range(4):
        rows = {
            (each["id"], node["html"][:200])
            for each in axe.Axe().run(page).response["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        }
        found = rows if found is None else found & rows
        if not found:
            break
    return found


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious_on_any_page(browser, app, shown, dark):
    shown.show(seeded_snapshot(1, epoch=5))
    with page_of(browser, app, dark=dark, viewport={"width": 1280, "height": 1000}) as page:
        drawn(page, epoch=5)
        for name in ("Arena", "History", "Campaign", "Failure", "Plan"):
            page.get_by_role("link", name=name, exact=True).click()
            page.get_by_role("heading", name=name, exact=True, level=1).wait_for()
            page.wait_for_function("() => !document.querySelector('[data-testid=stSkeleton]')")
            assert serious(page) == set(), name


def test_a_live_campaign_that_is_killed_is_disconnected(browser, tmp_path):
    command = [sys.executable, "-m", "onearena.stress.cli", "stress", "--jobs", "1"]
    campaign = subprocess.Popen(
        [*command, "--metrics-port", "0", "--out", str(tmp_path / "run"), "--keep-going"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
        env=dict(os.environ) | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        url = campaign.stderr.readline().split()[-1].removesuffix("/metrics")
        with running_app([url]) as app, page_of(browser, app) as page:
            canvas = drawn(page)
            first = canvas.get_attribute("data-key")
            page.wait_for_selector("text=/live, /")
            drawn(page, other_than=first.split("/")[2])
            os.killpg(campaign.pid, signal.SIGKILL)
            page.wait_for_selector("text=/disconnected, /")
            assert page.locator("canvas[data-key]").count() == 1  # the last arena is still there
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(campaign.pid, signal.SIGKILL)
        campaign.communicate()
