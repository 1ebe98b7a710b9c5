"""The page in a real browser: a server on a recording, and what people read off the screen."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def served(path: str | Path) -> Iterator[str]:
    """`exhume view` on a recording; gives the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "exhume", "view", str(path), "--no-open"],
        cwd=ROOT / "src",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        yield address
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


def opened(page: "Page", address: str, fragment: str = "") -> None:
    """The page, with its flame graph drawn and its verdict there."""
    page.goto(f"{address}#{fragment}" if fragment else address)
    settled(page)
    page.locator(".verdict:not([aria-busy]) .verdict-headline").wait_for()


def settled(page: "Page") -> None:
    """Until the flame graph is drawn, and nothing more is asked for."""
    page.locator("canvas.flame-canvas[data-drawn]").wait_for()
    page.wait_for_timeout(300)
    page.locator("#flame:not([aria-busy])").wait_for()
    page.wait_for_timeout(250)  # an animated zoom takes 150 ms


def spoken(page: "Page") -> str:
    """What a screen reader would say of the frame that the keys are at."""
    return page.locator("#flame .flame-unseen").inner_text()


def hottest(page: "Page") -> list[str]:
    """The names from the root along the widest frame of each row, by the arrow keys."""
    page.locator("canvas.flame-canvas").focus()
    page.keyboard.press("Home")
    names = [spoken(page).split(",")[0]]
    for _ in range(200):
        before = spoken(page)
        page.keyboard.press("ArrowDown")
        if spoken(page) == before:
            return names
        names.append(spoken(page).split(",")[0])
    raise AssertionError("a stack without an end")


def selection(page: "Page") -> tuple[float, float]:
    """Seconds on the recording's clock, as the address has them."""
    page.wait_for_timeout(400)  # the address follows after a pause
    found = re.search(r"sel=([\d.]+)-([\d.]+)", page.url)
    assert found is not None, page.url
    return float(found[1]), float(found[2])


def select_on_heat_map(page: "Page", second: float, length: float) -> None:
    """A drag upwards inside one column: a column is a second, its height what happens in it. `second` is from the begin."""
    about = page.evaluate("async () => (await fetch('api/about')).json()")
    columns = page.evaluate("() => new URLSearchParams(location.hash.slice(1)).get('from')")
    start = int(about["start_ns"]) / 1e9
    window = (float(columns) - start, _end(page) - start) if columns is not None else (0.0, about["duration_us"] / 1e6)
    canvas = page.locator("#heat canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    left, right = _plot(page)
    whole = int(second)
    x = box["x"] + left + (whole + 0.5 - window[0]) / (window[1] - window[0]) * (right - left)
    offset = second - whole
    low, high = (box["y"] + 4 + 200 * (1 - share) - 2 for share in (offset, offset + length - 0.02))
    page.mouse.move(x, low)
    page.mouse.down()
    page.mouse.move(x, (low + high) / 2, steps=3)
    page.mouse.move(x, high, steps=3)
    page.mouse.up()


def _end(page: "Page") -> float:
    found = page.evaluate("() => new URLSearchParams(location.hash.slice(1)).get('to')")
    return float(found)


def _plot(page: "Page") -> tuple[float, float]:
    """From where to where the heat map has its columns, as the page itself says."""
    found = page.evaluate(
        """async () => {
          const {plotOf} = await import('./axis.js');
          const place = plotOf(document.querySelector('#heat canvas').getBoundingClientRect().width);
          return [place.left, place.left + place.width];
        }"""
    )
    return float(found[0]), float(found[1])
