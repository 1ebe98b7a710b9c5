"""A perf.data in the browser: cores and heat map are there while it is imported, flame graph and verdict then."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.views import served
from tests.imports import made_perf as made

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

SECOND = 1_000_000_000
KERNEL = 0xFFFFFFFF81000000


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "perf.data"
    samples = (
        made.sample(7, 5 * SECOND + at * SECOND // 500, at % 2, kernel=(KERNEL + 9,) if at % 2 else (), user=(at % 9 + 1,))
        for at in range(4000)
        if at // 500 % 2
    )
    path.write_bytes(made.file(made.comm(7, b"worker", 1) + b"".join(samples), [made.Attr(period=250)]))
    return path


def test_the_heat_map_is_there_before_the_import_is_done(page: "Page", capture: Path) -> None:
    held = True

    def answer(route: "Route") -> None:
        if held:
            told = {"not_yet": "perf.data is still being imported: 40%", "share": 0.4}
            route.fulfill(status=202, body=json.dumps(told), content_type="application/json")
        else:
            route.continue_()

    for path in ("flame", "verdict"):
        page.route(f"**/api/{path}*", answer)
    with served(capture) as address:
        page.goto(address)
        page.locator("#status", has_text="perf.data is still being imported: 40%").wait_for()
        page.wait_for_function(
            "() => ['heat', 'lanes'].every((id) => document.getElementById(id).getAttribute('aria-busy') === 'false')"
        )
        assert "most: 10 samples in 20 ms" in (page.locator("#heat canvas").first.get_attribute("aria-label") or "")
        assert page.locator("#flame[aria-busy]").count() == 1
        assert page.locator("canvas.flame-canvas[data-drawn]").count() == 0
        held = False
        page.locator("canvas.flame-canvas[data-drawn]").wait_for()
        page.locator(".verdict:not([aria-busy]) .verdict-headline").wait_for()
        assert page.locator("#status").inner_text() == ""


def test_the_first_answer_is_asked_for_once_and_ahead_of_the_modules(page: "Page", capture: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    with served(capture) as address:
        page.goto(address)
        page.wait_for_function("() => document.getElementById('lanes').getAttribute('aria-busy') === 'false'")
    assert asked.count("first") == 1
    assert asked.index("first") < asked.index("upper.js")
    assert asked.index("heat.js") < asked.index("upper.js")  # what the first picture takes comes first
