"""The flame graph by keys, menu and mouse; very many frames; what it is exported as."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.browser.views import hottest, opened, settled, spoken

pytestmark = pytest.mark.ci

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Route

HELD = "sel=700061-700065&cores=39"
FRAMES = 30_000
ROWS = 30


def press(page: "Page", *keys: str) -> None:
    page.locator("canvas.flame-canvas").focus()
    for key in keys:
        page.keyboard.press(key)


def test_a_frame_is_hidden_with_all_it_calls_and_shown_again(page: "Page", incident: str) -> None:
    opened(page, incident, f"{HELD}&idle=1")
    whole = page.locator(".flame-note").inner_text()
    press(page, "Home", "ArrowDown")
    name = spoken(page).split(",")[0]
    page.keyboard.press("h")
    settled(page)
    assert name not in hottest(page)
    page.wait_for_timeout(400)
    assert "hide=" in page.url
    page.get_by_role("button", name="show what is hidden").click()
    settled(page)
    assert page.locator(".flame-note").inner_text() == whole


def test_names_and_stacks_are_copied(page: "Page", context: "BrowserContext", incident: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page, incident, HELD)
    names = hottest(page)
    page.keyboard.press("c")
    page.get_by_text("Copied the name.").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == names[-1]
    page.keyboard.press("Shift+C")
    page.get_by_text(f"Copied the stack of {len(names) - 1} frames.").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()").split("\n") == names[1:]


def test_the_menu_of_a_frame_works_by_mouse_and_by_keys(page: "Page", incident: str) -> None:
    opened(page, incident, HELD)
    canvas = page.locator("canvas.flame-canvas")
    canvas.click(button="right", position={"x": 300, "y": 18 * 4.5})
    menu = page.get_by_role("menu")
    assert menu.get_by_role("menuitem").count() >= 5
    menu.get_by_role("menuitem", name="Search for this name").click()
    assert "100.0% matched in 1 frame" in page.locator(".flame-matched").inner_text()
    press(page, "Home", "ArrowDown", "m")
    assert menu.get_attribute("aria-label") == "frame kubelet"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert menu.count() == 0
    page.keyboard.press("m")
    page.keyboard.press("Enter")
    settled(page)
    assert page.locator(".flame-path").inner_text().split() == ["all", "kubelet"]


def test_the_root_may_be_below_and_the_arrows_follow(page: "Page", incident: str) -> None:
    opened(page, incident, f"{HELD}&root=bottom")
    assert page.get_by_role("button", name="root below").get_attribute("aria-pressed") == "true"
    press(page, "Home", "ArrowUp")
    assert spoken(page).startswith("kubelet")
    page.keyboard.press("ArrowDown")
    assert spoken(page).startswith("all")
    page.get_by_role("button", name="reverse").click()
    settled(page)
    press(page, "Home", "ArrowUp", "ArrowUp")
    assert spoken(page).startswith("mem_cgroup_nr_lru_pages"), "reversed, it begins at the functions that ran"


@pytest.mark.parametrize(
    ("by", "first"), [("thread", "kubelet 42"), ("core", "core 39"), ("cgroup", "/"), ("none", "main.main")]
)
def test_frames_are_grouped_by_whoever_ran(page: "Page", incident: str, by: str, first: str) -> None:
    opened(page, incident, HELD)
    page.get_by_label("group by").select_option(by)
    settled(page)
    assert hottest(page)[1].startswith(first)


def test_the_pointer_tells_what_a_frame_is(page: "Page", incident: str) -> None:
    opened(page, incident, HELD)
    page.locator("canvas.flame-canvas").scroll_into_view_if_needed()
    box = page.locator("canvas.flame-canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 18 * 4.5)
    tip = page.locator(".flame-tip").inner_text()
    assert tip.startswith("do_syscall_64\nkernel")
    assert "% of all" in tip
    page.mouse.move(box["x"] + 200, 2)
    assert page.locator(".flame-tip").is_hidden()


def many() -> dict[str, Any]:
    """30,000 frames that can all be seen: 1,000 side by side, 30 deep."""
    columns = FRAMES // ROWS
    nodes = range(FRAMES)
    return {
        "total": columns * 3, "base_total": 0, "left_out": 0, "modules": ["[kernel]"],
        "names": [f"function_{i}_of_the_kernel" for i in range(5000)],
        "depth": [node % ROWS for node in nodes], "name": [node * 7 % 5000 for node in nodes], "module": [0] * FRAMES,
        "kind": "ku" * (FRAMES // 2), "value": [3] * FRAMES, "base": [0] * FRAMES,
    }  # fmt: skip


def test_thirty_thousand_frames_are_all_drawn(page: "Page", incident: str) -> None:
    """How fast they move: bench/run view-frames."""
    body = json.dumps(many())

    def answer(route: "Route") -> None:
        route.fulfill(body=body, content_type="application/json")

    page.route("**/api/flame*", answer)
    opened(page, incident)
    assert int(page.locator("canvas.flame-canvas").get_attribute("data-drawn") or 0) > FRAMES


def test_the_picture_is_exported_as_svg_and_png(page: "Page", incident: str, tmp_path: Path) -> None:
    opened(page, incident, HELD)
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as svg:
        page.get_by_role("button", name="Flame graph as SVG").click()
    svg.value.save_as(tmp_path / "flame.svg")
    root = ElementTree.parse(tmp_path / "flame.svg").getroot()
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("mem_cgroup_nr_lru_pages\nkernel") for title in titles)
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as png:
        page.get_by_role("button", name="Flame graph as PNG").click()
    png.value.save_as(tmp_path / "flame.png")
    assert (tmp_path / "flame.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("name", ["pprof", "speedscope", "Perfetto", "Firefox Profiler", "folded stacks", "samples as CSV"])
def test_the_selection_is_exported_for_other_tools(page: "Page", incident: str, tmp_path: Path, name: str) -> None:
    opened(page, incident, HELD)
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("link", name=name).click()
    download.value.save_as(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    assert len(content) > 100
    if name == "folded stacks":
        lines = content.decode().splitlines()
        assert any(line.startswith("kubelet;main.main;") for line in lines)
        assert not any("idle" in line for line in lines), "as on the screen: without idle samples"


def test_light_and_dark_are_drawn_anew(page: "Page", incident: str) -> None:
    opened(page, incident, HELD)
    corner = "() => [...document.querySelector('canvas.flame-canvas').getContext('2d').getImageData(60, 40, 1, 1).data]"
    light = page.evaluate(corner)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    dark = page.evaluate(corner)
    assert sum(dark[:3]) < sum(light[:3])
    page.get_by_role("button", name="Light or dark").click()  # from what the system has to light
    page.wait_for_timeout(200)
    assert page.evaluate(corner) == light


def test_whoever_wants_no_motion_gets_none(page: "Page", incident: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    opened(page, incident, HELD)
    press(page, "Home", "ArrowDown", "ArrowDown", "Enter")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    pixels = "() => document.querySelector('canvas.flame-canvas').toDataURL()"
    at_once = page.evaluate(pixels)
    page.wait_for_timeout(400)
    assert page.evaluate(pixels) == at_once
