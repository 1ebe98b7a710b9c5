"""What people do with the page: find the incident, select it, see who did it, compare, search, send the link."""

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.views import hottest, opened, select_on_heat_map, selection, settled, spoken

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

WALKER = "mem_cgroup_nr_lru_pages"
HELD = 60.0
"""When core 39 begins to be held, seconds from the begin."""
BEGIN = 700_000.0


def at_the_incident(page: "Page", address: str) -> None:
    """By hand: the list of incidents, the core, 300 ms on the heat map."""
    opened(page, address)
    page.locator("#overview .incidents button").first.click()
    page.get_by_label("Cores", exact=True).fill("39")
    page.keyboard.press("Enter")
    settled(page)
    select_on_heat_map(page, HELD + 3.2, 0.3)
    settled(page)


def test_three_hundred_milliseconds_on_one_core_show_the_walker_on_top(page: "Page", incident: str) -> None:
    at_the_incident(page, incident)
    first, last = selection(page)
    assert first == pytest.approx(BEGIN + HELD + 3.2, abs=0.021)
    assert last - first == pytest.approx(0.3, abs=0.021)
    assert "cores=39" in page.url
    names = hottest(page)
    assert names[:2] == ["all", "kubelet"]
    assert names[-1] == WALKER
    assert "100% of all" in spoken(page)
    assert "kernel" in spoken(page)


def test_the_automatic_baseline_shows_what_grew(page: "Page", incident: str) -> None:
    at_the_incident(page, incident)
    page.get_by_label("compare with").select_option("auto")
    settled(page)
    assert "compared with" in page.locator(".flame-note").inner_text()
    assert page.locator(".flame-legend").inner_text().startswith("less than in the base")
    assert hottest(page)[-1] == WALKER
    assert re.search(r"not there in the base|: \+\d", spoken(page)), spoken(page)


def test_frames_of_one_side_only_are_shown_by_the_widths_of_that_side(page: "Page", incident: str) -> None:
    during = f"sel={BEGIN + HELD + 2}-{BEGIN + HELD + 5}&cores=39&base={BEGIN + 10}-{BEGIN + 20}"
    opened(page, incident, during)
    assert hottest(page)[-1] == WALKER
    assert spoken(page).endswith("not there in the base")
    page.get_by_label("widths").select_option("base")
    settled(page)
    assert WALKER not in hottest(page)
    page.get_by_label("widths").select_option("both")
    settled(page)
    assert WALKER in hottest(page)


def test_the_selection_itself_can_be_what_is_compared_with(page: "Page", incident: str) -> None:
    opened(page, incident, f"sel={BEGIN + 10}-{BEGIN + 16}")
    page.get_by_label("compare with").select_option("this")
    settled(page)
    assert "base=700010-700016" in page.url
    page.locator("#overview .incidents button").first.click()
    settled(page)
    assert "compared with" in page.locator(".flame-note").inner_text()


def test_a_search_tells_the_share_that_matches(page: "Page", incident: str) -> None:
    at_the_incident(page, incident)
    page.keyboard.press("/")
    page.keyboard.type("mem_cgroup|numa_stat")
    assert page.locator(".flame-matched").inner_text() == "100.0% matched in 2 frames"
    page.locator(".flame-pattern").fill("(")
    assert "not a regular expression" in page.locator(".flame-matched").inner_text()
    assert page.locator(".flame-pattern").get_attribute("aria-invalid") == "true"
    page.locator(".flame-pattern").fill("no such function")
    assert page.locator(".flame-matched").inner_text() == "nothing matches"


def test_whoever_opens_the_link_sees_the_same(page: "Page", context: "BrowserContext", incident: str) -> None:
    at_the_incident(page, incident)
    page.locator(".flame-pattern").fill("seq_read")
    page.get_by_label("group by").select_option("core")
    settled(page)
    page.locator("canvas.flame-canvas").focus()
    for key in ("Home", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.locator(".flame-pattern").focus()
    settled(page)
    selection(page)
    second = context.new_page()
    opened(second, incident, page.url.partition("#")[2])
    assert second.url.partition("#")[2] == page.url.partition("#")[2]
    for what in (".flame-note", ".flame-path", ".flame-matched", ".verdict-headline", "#toolbar .shown"):
        assert second.locator(what).inner_text() == page.locator(what).inner_text(), what
    pixels = "() => document.querySelector('canvas.flame-canvas').toDataURL()"
    assert second.evaluate(pixels) == page.evaluate(pixels)


def test_a_link_of_the_chain_leads_to_its_evidence_and_back(page: "Page", incident: str) -> None:
    opened(page, incident)
    headline = page.locator(".verdict-headline").inner_text()
    before = page.url
    page.locator(".verdict-chain .verdict-link", has_text="kubelet [4242] walked memory cgroups for").first.click()
    settled(page)
    first, last = selection(page)
    assert BEGIN + HELD - 1 <= first < last <= BEGIN + HELD + 8
    assert "cores=39" in page.url
    assert page.locator(".verdict-headline").inner_text() == headline, "the verdict stays while its links are followed"
    assert hottest(page)[-1] == WALKER
    page.go_back()
    settled(page)
    assert page.url == before
    page.go_forward()
    settled(page)
    page.get_by_role("button", name="Judge the selection").click()
    page.locator(".verdict-when", has_text="Verdict of the selection").wait_for()
    assert "sel=" in page.url


def test_a_zoom_is_undone_by_the_back_button_and_by_escape(page: "Page", incident: str) -> None:
    at_the_incident(page, incident)
    canvas = page.locator("canvas.flame-canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] / 2, "y": 18 * 2.5})
    settled(page)
    crumbs = page.locator(".flame-path").inner_text().split()
    assert crumbs[:3] == ["all", "kubelet", "main.main"]
    page.go_back()
    settled(page)
    assert page.locator(".flame-path").inner_text().split() == ["all"]
    canvas.click(position={"x": box["width"] / 2, "y": 18 * 3.5})
    settled(page)
    page.keyboard.press("Escape")
    settled(page)
    assert page.locator(".flame-path").inner_text().split() == ["all"]
    assert "sel=" in page.url, "Escape in the flame graph leaves the selection alone"
