"""exhume view in Chromium: the first heat map, a selection, very many frames, and a long recording of many cores."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.imports import EXHUME, _capture, _samples, _timed
from bench.measure import ENVIRONMENT, Row
from bench.record import _family, _memory_mb
from bench.store import SECOND, MadeNode, _directory
from exhume.recording.layout import sealed_name
from exhume.recording.writer import Writer
from tests.render.told import told, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
RUNS = 3
SELECTIONS = 10
SELECTION_US = 300_000
FRAMES, ROWS = 30_000, 30
PICTURE_MS = 1000 / 30
HOURS, CORES = 12, 96
PATIENCE_S = 180

# How much of the recording the latest answers knew, since long windows fill little by little, and what share of the columns
# of the cores is there (255 stands for one that is not): a picture without any is none.
_READY = """
window.ready = {};
window.known = 0;
const ask = window.fetch;
window.fetch = async (...given) => {
  const answer = await ask(...given);
  const name = new URL(answer.url).pathname.split('/api/').pop();
  if (name === 'heat' || name === 'lanes') answer.clone().json().then((told) => {
    window.ready[name] = told.ready ?? 1;
    if (!told.cores?.length) return;
    const columns = atob(told.cores[0].system);
    window.known = [...columns].filter((column) => column !== '\\xff').length / columns.length;
  });
  return answer;
};
"""
# Told by the page itself when the picture is on the screen: a timer that is set in a frame runs after that was drawn. To ask
# the page again and again would load what does so into it first, which takes as long as much of what is measured.
_TELL = """
new PerformanceObserver((seen) => {
  if (!seen.getEntriesByName('exhume:heat').length) return;
  requestAnimationFrame(() => setTimeout(() => console.log('exhume:heat'), 0));
}).observe({type: 'mark', buffered: true});
"""
# What a browser takes to make an empty page goes on after it has one.
_SETTLE_MS = 700
_HEAT = """() => performance.getEntriesByName('exhume:heat').length > 0
  && document.getElementById('heat').getAttribute('aria-busy') === 'false'"""
_LANES = "() => window.known > 0 && document.getElementById('lanes').getAttribute('aria-busy') === 'false'"
_SEARCHED = "async () => (await (await fetch('api/overview?columns=100')).json()).incidents_ready"
# From the new fragment until the canvas was drawn with its answer; a timer that is set before the paint runs after it.
_SELECT = """(fragment) => new Promise((done, failed) => {
  const host = document.getElementById('flame'), canvas = host.querySelector('canvas.flame-canvas');
  let asked = false;
  const watch = new MutationObserver((seen) => {
    const busy = host.hasAttribute('aria-busy');
    if (busy) asked = true;
    else if (asked && seen.some((one) => one.attributeName === 'data-drawn')) {
      watch.disconnect();
      setTimeout(() => done(performance.now() - began), 0);
    }
  });
  watch.observe(host, {attributes: true, subtree: true, attributeFilter: ['aria-busy', 'data-drawn']});
  setTimeout(() => failed(new Error('no flame graph was drawn for ' + fragment)), 20000);
  const began = performance.now();
  location.hash = fragment;
})"""
# When pictures came while a zoom moves (it takes 150 ms), a list for each key.
_WATCH = """() => {
  window.zooms = [];
  const tick = (now) => {
    const last = window.zooms.at(-1);
    if (last && now - last[0] < 150) last.push(now);
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
  addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === 'Escape') window.zooms.push([performance.now()]);
  }, true);
}"""
# The keys go along a row of all frames, a step a picture, and every step draws all of them.
_WALK = """() => new Promise((done) => {
  const canvas = document.querySelector('canvas.flame-canvas'), moments = [];
  const step = (now) => {
    moments.push(now);
    if (moments.length > 60) done(moments.slice(1).map((moment, i) => moment - moments[i]));
    else {
      canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true, cancelable: true}));
      requestAnimationFrame(step);
    }
  };
  requestAnimationFrame(step);
})"""


@contextmanager
def _chromium() -> Iterator["Browser"]:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise RuntimeError("Playwright is not installed") from None
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise RuntimeError("there is no Chromium (Debian: chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _page(browser: "Browser") -> Iterator["Page"]:
    context = browser.new_context(viewport={"width": 1400, "height": 1500}, color_scheme="light")
    context.set_default_timeout(PATIENCE_S * 1000)
    context.add_init_script(_READY)
    page = context.new_page()
    try:
        yield page
    finally:
        context.close()


@contextmanager
def _served(path: str | Path) -> Iterator[tuple[str, int]]:
    """The address that the command prints, and its process."""
    process = subprocess.Popen(
        [*EXHUME, "view", str(path), "--no-open"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"exhume view of {path} printed no address")
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def view_first(samples: int = 500_000) -> Iterator[Row]:
    """perf.data from the command to the first heat map on the screen, against perf script alone. A browser that runs already,
    with an empty page, opens the address as soon as it is printed: what it takes to load the page is counted, its own start
    is not."""
    with _chromium() as browser, _capture(samples) as path:
        count = _samples(path)
        printed, firsts, wholes, scripts = [], [], [], []
        for _ in range(RUNS):
            scripts.append(_timed(f"perf script -i {path} 2>/dev/null")[0])
            with _page(browser) as page:
                page.context.add_init_script(_TELL)
                page.wait_for_timeout(_SETTLE_MS)
                start = time.perf_counter()
                with _served(path) as (address, _):
                    printed.append(time.perf_counter() - start)
                    with page.expect_console_message(lambda told: told.text == "exhume:heat"):
                        page.goto(address, wait_until="commit")
                    firsts.append(time.perf_counter() - start)
                    page.locator("canvas.flame-canvas[data-drawn]").wait_for()
                    wholes.append(time.perf_counter() - start)
        script = statistics.median(scripts)
        yield Row(f"perf.data, {count:,} samples: to the first heat map, or perf script",
                  statistics.median(firsts), script, "s", 1 / 5)  # fmt: skip
        yield Row(f"  worst of {RUNS}", max(firsts), script, "s")
        yield Row("  of that until the address is printed", statistics.median(printed), script, "s")
        yield Row("  until it is imported, and its flame graph drawn", statistics.median(wholes), script, "s")


def view_selection(samples: int = 500_000) -> Iterator[Row]:
    """From a selection of 300 ms on one core to its flame graph on the screen, against what perf takes to print it."""
    with _chromium() as browser, _capture(samples) as path, _page(browser) as page, _served(path) as (address, _):
        page.goto(address)
        page.locator("canvas.flame-canvas[data-drawn]").wait_for()
        _rest(page)
        about = page.evaluate("async () => (await fetch('api/about')).json()")
        begin, length = int(about["start_ns"]) // 1000, int(about["duration_us"])
        cores = os.cpu_count() or 1
        waits, prints = [], []
        for i in range(SELECTIONS):
            at, core = begin + length * (i + 1) // (SELECTIONS + 2), i % cores
            span = [f"{moment // 1_000_000}.{moment % 1_000_000:06d}" for moment in (at, at + SELECTION_US)]
            waits.append(float(page.evaluate(_SELECT, f"sel={span[0]}-{span[1]}&cores={core}")))
            _rest(page)
            if i < RUNS:
                prints.append(1e3 * _timed(f"perf script -i {path} -C {core} --time {span[0]},{span[1]} 2>/dev/null")[0])
        folded, _ = _timed(f"perf script report stackcollapse -i {path} 2>/dev/null")
        wait = statistics.median(waits)
        yield Row(f"300 ms of a core to its flame graph, median of {SELECTIONS}", wait, None, "ms", 150.0)
        yield Row("  worst", max(waits), None, "ms", 150.0)
        yield Row("  median, against perf script of that core and time", wait, statistics.median(prints), "ms")
        yield Row("  median, against perf script report stackcollapse of all", wait, 1e3 * folded, "ms")


def _rest(page: "Page") -> None:
    """Until the verdict, too, has been told, so that each selection is asked of a server that rests."""
    page.locator("#flame:not([aria-busy])").wait_for()
    page.wait_for_timeout(500)
    page.locator(".verdict:not([aria-busy]) .verdict-headline").wait_for()
    page.wait_for_timeout(500)


def _many() -> dict[str, Any]:
    """30,000 frames that can all be seen: 1,000 side by side, 30 deep."""
    nodes = range(FRAMES)
    return {
        "total": FRAMES // ROWS * 3, "base_total": 0, "left_out": 0, "modules": ["[kernel]"],
        "names": [f"function_{i}_of_the_kernel" for i in range(5000)],
        "depth": [node % ROWS for node in nodes], "name": [node * 7 % 5000 for node in nodes], "module": [0] * FRAMES,
        "kind": "ku" * (FRAMES // 2), "value": [3] * FRAMES, "base": [0] * FRAMES,
    }  # fmt: skip


def view_frames() -> Iterator[Row]:
    """30,000 frames of a flame graph: how long a picture takes while it zooms, and while all of them are drawn."""
    body = json.dumps(_many())

    def answer(route: "Route") -> None:
        route.fulfill(body=body, content_type="application/json")

    with tempfile.TemporaryDirectory() as place:
        path = write(Path(place) / "recording", told())
        with _chromium() as browser, _page(browser) as page, _served(path) as (address, _):
            page.route("**/api/flame*", answer)
            page.goto(address)
            canvas = page.locator("canvas.flame-canvas[data-drawn]")
            canvas.wait_for()
            _rest(page)
            drawn = int(canvas.get_attribute("data-drawn") or 0)
            canvas.focus()
            for key in ("Home", "ArrowDown"):
                page.keyboard.press(key)
            walked = sorted(page.evaluate(_WALK))
            page.evaluate(_WATCH)
            for key in ("Enter", "Escape") * SELECTIONS:
                page.keyboard.press(key)
                page.wait_for_timeout(300)
            zooms: list[list[float]] = page.evaluate("() => window.zooms")
    between = [[now - last for last, now in pairwise(zoom[1:])] for zoom in zooms]  # the first is when the key was pressed
    gaps = [gap for each in between for gap in each]
    means = [statistics.mean(each) for each in between if each]
    if drawn <= FRAMES or len(means) < SELECTIONS:
        raise RuntimeError(f"{drawn} frames were drawn, and {len(means)} zooms seen")
    told_ = f"{FRAMES:,} frames, {len(means)} zooms: a picture every (bar: 30 a second)"
    yield Row(told_, statistics.mean(gaps), None, "ms", PICTURE_MS)
    yield Row("  the slowest zoom", max(means), None, "ms", PICTURE_MS)
    yield Row("  the longest wait for one picture", max(gaps), None, "ms")
    yield Row("  all frames drawn at each picture: median", statistics.median(walked), None, "ms", PICTURE_MS)
    yield Row("  nine of ten within", walked[len(walked) * 9 // 10], None, "ms")


def view_long() -> Iterator[Row]:
    """96 cores, 12 hours: from the command to the first lanes, and memory; EXHUME_BENCH_LONG=DIR takes one that is there."""
    with _chromium() as browser, _long() as path, _page(browser) as page:
        page.wait_for_timeout(_SETTLE_MS)
        start = time.perf_counter()
        with _served(path) as (address, process):
            page.goto(address, wait_until="commit")
            page.wait_for_function(_LANES)
            first, known = time.perf_counter() - start, float(page.evaluate("() => window.known"))
            page.wait_for_function(_HEAT)
            heat, opened = time.perf_counter() - start, _height_mb(process)
            together = _memory_mb(*_family(process))
            whole = None
            while time.perf_counter() - start < PATIENCE_S:
                together = max(together, _memory_mb(*_family(process)))
                if whole is None and page.evaluate("() => window.ready.lanes") == 1:
                    whole = time.perf_counter() - start
                if whole is not None and page.evaluate(_SEARCHED):
                    break
                page.wait_for_timeout(250)
            searched, height = time.perf_counter() - start, _height_mb(process)
    yield Row(f"{CORES} cores, {HOURS} h: to the first lanes", first, None, "s", 2.0)
    yield Row("  share of its columns that they show", known, None, "")
    yield Row("  to the first heat map", heat, None, "s")
    yield Row("  until the lanes have no gaps", whole or float("inf"), None, "s")
    yield Row("  until incidents were looked for everywhere", searched, None, "s")
    yield Row("  memory at its height: the server, first pictures", opened, None, "MB", 500.0)
    yield Row("  the server, in the end", height, None, "MB", 500.0)
    yield Row("  with the search for incidents, shared pages counted once", together, None, "MB", 500.0)


def _height_mb(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM:")) / 1024


@contextmanager
def _long() -> Iterator[str]:
    given = os.environ.get("EXHUME_BENCH_LONG")
    if given:
        yield given
        return
    with _directory() as path:
        _write_long(path, HOURS * 60)
        yield path


def _write_long(path: str, minutes: int) -> None:
    """A minute that was written as always, then copies of it with their times moved on. Of the samples a copy has a twentieth;
    what the outline is made from, the summaries and counters, is whole."""
    import pyarrow.parquet as parquet

    made = MadeNode(CORES, 97, stacks=5_000, idle=0.6, new=0.0, jitter_ns=200_000)
    about: dict[str, str | int | bool] = {"hz": 97, "event": "cpu-clock"}
    writer = Writer(path, made.node, about, budget_bytes=64 << 30, segment_ns=600 * SECOND)
    for at in range(60):
        writer.append(made.second(at, writer.chapter))
    writer.close()
    sealed = next(Path(path).glob("*Z/0*-*"))
    first, last = (int(part) for part in sealed.name.split("-"))
    tables = {file.name: parquet.read_table(file) for file in sealed.glob("*.parquet")}
    samples = tables["samples.parquet"]
    tables["samples.parquet"] = samples.slice(0, samples.num_rows // 20)
    for minute in range(1, minutes):
        place = sealed.with_name(sealed_name(first + minute * 60_000, last + minute * 60_000))
        place.mkdir()
        for name, table in tables.items():
            moved = _moved(table, minute * 60 * SECOND)
            parquet.write_table(
                moved, place / name, compression="zstd", compression_level=1, row_group_size=50_000, store_schema=False
            )


def _moved(table: Any, by_ns: int) -> Any:
    import pyarrow

    for place, name in enumerate(table.column_names):
        if name in ("time", "real"):
            field = table.schema.field(place)
            times = np.asarray(table[name].to_numpy()) + by_ns
            table = table.set_column(place, field, pyarrow.chunked_array([pyarrow.array(times, field.type)]))
    return table
