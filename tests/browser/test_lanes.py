"""The overview, the lanes and the verdict: what they say without a picture, and what they show of what is not known."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from exhume.recording.recording import Recording
from tests.browser.views import hottest, opened, selection, served, settled, spoken
from tests.recording.made import BEGIN, NODE, REAL, dictionaries, writer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

FIRST = 700_000.0
"""When the incident's recording begins, seconds of its clock."""
PIXEL = """([selector, x, y]) => {
  const canvas = document.querySelector(selector), ratio = canvas.width / canvas.clientWidth;
  const [red, green, blue] = canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data;
  return `#${[red, green, blue].map((part) => part.toString(16).padStart(2, '0')).join('')}`;
}"""
UNKNOWN = "() => getComputedStyle(document.documentElement).getPropertyValue('--unknown').trim()"


def changed(page: "Page", path: str, change: Any) -> None:
    """Answers of a path as the server gives them, but for what `change` does to them."""

    def answer(route: "Route") -> None:
        response = route.fetch()
        document = response.json()
        change(document)
        route.fulfill(response=response, json=document)

    page.route(f"**{path}*", answer)


def test_log_lines_waits_and_restarts_are_a_list_for_the_keyboard(page: "Page", incident: str) -> None:
    opened(page, incident, f"from={FIRST + 55}&to={FIRST + 75}")
    summary = page.locator("#lanes .happened summary")
    summary.focus()
    page.keyboard.press("Enter")
    paused = page.locator("#lanes .happened button", has_text="is paused for too long")
    paused.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('.happened li') !== null")
    paused.focus()
    page.keyboard.press("Enter")
    first, last = selection(page)
    assert first <= FIRST + 66.6 <= last
    assert last - first == pytest.approx(1.0, abs=0.01)
    assert page.evaluate("() => document.activeElement.textContent").find("is paused") > 0, "the focus stays where it is"


def test_samples_are_filtered_by_thread(page: "Page", incident: str) -> None:
    opened(page, incident)
    page.get_by_label("Thread", exact=True).fill("4250")
    page.keyboard.press("Enter")
    settled(page)
    page.locator("#heat .note", has_text="Only thread 4250").wait_for()
    assert "tid=4250" in page.url
    assert hottest(page)[:2] == ["all", "kubelet"]
    assert "100% of all" in spoken(page)


def test_an_incident_that_was_not_judged_is_listed_and_counted(page: "Page", incident: str) -> None:
    def change(overview: dict[str, Any]) -> None:
        for one in overview["incidents"]:
            one.update(judged=False, cause=None)
        overview.update(incidents_more=3)

    changed(page, "/api/overview", change)
    opened(page, incident)
    assert "not judged yet" in page.locator("#overview .incidents button").first.inner_text()
    assert "4 incidents were found" in page.locator("#overview .note").inner_text()


def test_that_incidents_could_not_be_looked_for_is_said(page: "Page", incident: str) -> None:
    changed(page, "/api/overview", lambda one: one.update(incidents=[], incidents_ready=True, incidents_failed=True))
    opened(page, incident)
    told = "Incidents could not be looked for in this recording."
    assert page.locator("#overview .note").inner_text() == told
    page.keyboard.press("n")
    page.locator("#status", has_text=told).wait_for()


def test_evidence_from_before_the_recording_is_no_link(page: "Page", incident: str) -> None:
    def change(report: dict[str, Any]) -> None:
        for finding in report["findings"]:
            finding.update(spans=[[-9_000_000, -3_000_000, None]])

    changed(page, "/api/verdict", change)
    opened(page, incident)
    assert page.locator(".verdict-link").count() == 0
    assert "(before the recording began)" in page.locator(".verdict-chain").inner_text()


def test_what_was_not_fetched_yet_does_not_look_idle(page: "Page", incident: str) -> None:
    opened(page, incident, f"from={FIRST}&to={FIRST + 10}")
    grey = page.evaluate(UNKNOWN)
    places = (["#lanes canvas", 600, 30], ["#heat canvas", 600, 100])
    assert all(page.evaluate(PIXEL, place) != grey for place in places)
    for path in ("lanes", "heat"):
        page.route(f"**/api/{path}*", lambda _: None)  # never answered
    page.locator("#lanes canvas").focus()
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    page.wait_for_timeout(300)
    assert [page.evaluate(PIXEL, place) for place in places] == [grey, grey]


def test_a_selection_inside_of_a_second_is_a_box_on_the_heat_map(page: "Page", incident: str) -> None:
    opened(page, incident, f"from={FIRST + 60}&to={FIRST + 70}&sel={FIRST + 63.2}-{FIRST + 63.5}&cores=39")
    x = page.evaluate(
        """async () => {
          const {plotOf} = await import('./axis.js');
          const {left, width} = plotOf(document.querySelector('#heat canvas').clientWidth);
          return left + 0.3 * width;
        }"""
    )
    line = page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--select').trim()")
    beside, above = (
        [page.evaluate(PIXEL, ["#heat canvas", x + by, 4 + 200 * (1 - at)]) for by in (-1, 0, 1)] for at in (0.35, 0.8)
    )
    assert line in beside
    assert line not in above


def test_an_export_that_fails_says_why(context: "BrowserContext", incident: str) -> None:
    page = context.new_page()  # a browser tells its console of a request that failed
    opened(page, incident, f"sel={FIRST + 60}-{FIRST + 66}")
    why = "that is too much for a download: choose a shorter window"
    page.route("**/api/export*", lambda route: route.fulfill(status=413, json={"error": why, "parameter": "to"}))
    page.get_by_text("Export", exact=True).click()
    page.get_by_role("link", name="speedscope").click()
    page.locator("#status.bad", has_text=why).wait_for()


@pytest.fixture
def single(browser: "Browser", tmp_path: Path) -> Iterator[str]:
    """A recording of one sample."""
    rows = Recording(NODE)
    dictionaries(rows)
    rows["anchors"].add(BEGIN, 1, 2, REAL + BEGIN, 100)
    rows["samples"].add(BEGIN, 0, 1, 1)
    store = writer(tmp_path)
    store.append(rows)
    store.close()
    with served(tmp_path) as address:
        yield address


@pytest.mark.ci
def test_a_recording_of_one_sample_is_shown(page: "Page", single: str) -> None:
    page.goto(single)
    settled(page)
    assert page.locator(".flame-note").inner_text().startswith("1 sample of")
    assert "core" in (page.locator("#lanes canvas").get_attribute("aria-label") or "")
    assert page.locator("#status.bad").count() == 0
    for key in ("0", "+", "-", "ArrowRight"):
        page.keyboard.press(key)
    settled(page)
    assert page.locator("#status.bad").count() == 0
