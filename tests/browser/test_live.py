"""A recording that is still being written grows on the screen."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from exhume.recording.writer import Writer
from tests.browser.views import served, settled
from tests.recording.made import ABOUT, NODE, second

pytestmark = pytest.mark.ci

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def growing(browser: "Browser", tmp_path: Path) -> Iterator[str]:
    """A second of a small node is written every second."""
    writer = Writer(str(tmp_path), NODE, ABOUT, budget_bytes=1 << 28, segment_ns=5_000_000_000)
    for at in range(12):
        writer.append(second(at, names=at == 0))
    over = threading.Event()

    def write() -> None:
        at = 12
        while not over.wait(1.0):
            writer.append(second(at))
            at += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield str(tmp_path)
    finally:
        over.set()
        thread.join()
        writer.close()


def counted(page: "Page") -> int:
    found = re.search(r"([\d,]+) samples", page.locator(".flame-note").inner_text())
    return int(found[1].replace(",", "")) if found else 0


def test_a_live_recording_grows_on_the_screen(page: "Page", growing: str) -> None:
    with served(growing) as address:
        page.goto(address)
        settled(page)
        assert page.locator("#toolbar .live").is_visible()
        before, shown = counted(page), page.locator("#toolbar .shown").inner_text()
        end = time.monotonic() + 120
        while counted(page) <= before and time.monotonic() < end:
            page.wait_for_timeout(500)
        assert counted(page) > before
        while page.locator("#toolbar .shown").inner_text() == shown and time.monotonic() < end:  # it follows the counts
            page.wait_for_timeout(100)
        assert page.locator("#toolbar .shown").inner_text() != shown


def test_a_selection_stays_where_it_is_while_the_recording_grows(page: "Page", growing: str) -> None:
    with served(growing) as address:
        page.goto(f"{address}#sel=5002-5004&idle=1")
        settled(page)
        before = counted(page)
        assert before > 0
        page.wait_for_timeout(5000)
        assert counted(page) == before
        assert "sel=5002-5004" in page.url


def test_a_flame_graph_that_takes_longer_than_the_recording_takes_to_grow_appears(page: "Page", growing: str) -> None:
    page.add_init_script("""
        const asked = window.fetch;
        window.slow = {ended: 0};
        window.fetch = async (address, options) => {
          if (/^.api.(flame|heat)/.test(address)) {
            await new Promise((done, failed) => {
              setTimeout(done, 3000);
              options.signal.addEventListener('abort', () => (window.slow.ended++, failed(options.signal.reason)));
            });
          }
          return asked(address, options);
        };
    """)
    with served(growing) as address:
        page.goto(address)
        page.locator("canvas.flame-canvas[data-drawn]").wait_for()
        before, ended, end = counted(page), page.evaluate("window.slow.ended"), time.monotonic() + 120
        while counted(page) <= before and time.monotonic() < end:
            page.wait_for_timeout(500)
        assert counted(page) > before > 0
        assert page.evaluate("window.slow.ended") == ended
