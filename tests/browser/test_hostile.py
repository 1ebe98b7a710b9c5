"""Names are other people's: markup and scripts in every one of them stay text, on the page and in what it exports."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.browser.views import hottest, opened, served, settled
from tests.render.told import Names, told, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ATTACK = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
HOSTILE = Names(
    host=f"host{ATTACK}", comm=f"{ATTACK}comm", cgroup=f"/system.slice/{ATTACK}.service", unit=f"{ATTACK}.service",
    device="eth0", symbol=f"</title></svg><svg onload=alert(3)>{ATTACK}\x1b[31m\u202e", message=f"{ATTACK} TX q 5 is paused",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = write(tmp_path_factory.mktemp("hostile") / "recording", told(names=HOSTILE))
    with served(path) as address:
        yield address


def strangers(page: "Page") -> int:
    """Elements that only a name can have made: none of the page's own."""
    return page.locator("img, iframe, object, embed, svg, script:not([src='main.js']), [onerror], [onload]").count()


def test_names_with_markup_are_shown_as_they_are_and_do_nothing(page: "Page", hostile: str, tmp_path: Path) -> None:
    opened(page, hostile, "sel=700060-700066&cores=39")
    names = hottest(page)
    assert any("<img src=x onerror=alert(1)>" in name for name in names)
    assert not any("\u202e" in name or "\x1b" in name for name in names)
    box = page.locator("canvas.flame-canvas").bounding_box()
    assert box is not None
    for row in (1.5, 2.5, 3.5, 4.5):
        page.mouse.move(box["x"] + 200, box["y"] + 18 * row)
    for key in ("Home", "ArrowDown", "Enter", "m", "Escape"):
        page.keyboard.press(key)
    page.keyboard.press("m")
    page.get_by_role("menuitem", name="Search for this name").click()
    page.get_by_label("compare with").select_option("auto")
    for by in ("thread", "cgroup", "core"):
        page.get_by_label("group by").select_option(by)
        settled(page)
    page.locator(".verdict details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert strangers(page) == 0
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as svg:
        page.get_by_role("button", name="Flame graph as SVG").click()
    svg.value.save_as(tmp_path / "flame.svg")
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(tmp_path / "flame.svg").iter()}
    assert tags <= {"svg", "g", "rect", "text", "title"}


def test_a_hostile_link_does_nothing(page: "Page", hostile: str) -> None:
    attack = "%3Cscript%3Ealert(1)%3C/script%3E"
    opened(
        page,
        hostile,
        f"zoom={attack}&hide={attack}&search={attack}&judged={attack}&base={attack}&by={attack}&root={attack}&side={attack}",
    )
    assert strangers(page) == 0
    assert page.locator(".flame-matched").inner_text() != ""
