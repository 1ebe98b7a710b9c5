"""Waits and restarts stay on the lanes however closely they are looked at."""

from pathlib import Path

import pytest

from exhume.recording.recording import Recording, labels
from tests.recording.made import BEGIN, NODE, SECOND, writer
from tests.web.serving import Browser, browser, view

US = 1_000_000
LONG = 900
"""Longer than what is read as it was recorded."""


def _stall(rows: Recording, began: int, now: int, over: bool) -> None:
    told = labels(what="softirq", cpu=1, start_ns=BEGIN + began * SECOND, us=(now - began) * US)
    rows["events"].add(BEGIN + now * SECOND, "stall" if over else "stall-begins", "core 1", "warning", "late", told)


@pytest.fixture(scope="module")
def someone(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A wait from the 100th to the 140th second, one from the 300th on of which the end was never seen, and a unit that is
    started again every minute, read every ten seconds."""
    path: Path = tmp_path_factory.mktemp("marks") / "r"
    writing = writer(path, segment_ns=60 * SECOND)
    for at in range(LONG):
        rows = Recording(NODE)
        time = BEGIN + at * SECOND
        rows["anchors"].add(time, time, time, time, 100)
        if at % 10 == 5:
            rows["units"].add(time, "ecs.service", "active", "running", at // 60, "", "", 1, "", "")
        if at in (101, 301):
            _stall(rows, at - 1, at, over=False)
        if at == 140:
            _stall(rows, 100, at, over=True)
        writing.append(rows)
    writing.close()
    return browser(view(str(path)))


def _lanes(someone: Browser, first: int, last: int) -> tuple[list[list[int]], list[int]]:
    lanes = someone.api("lanes", columns=10, from_=BEGIN + first * SECOND, to=BEGIN + last * SECOND)
    spans = [span[:2] for lane in lanes["bars"] for span in lane["spans"]]
    return [[start // US, end // US] for start, end in spans], [one["t"] // US for one in lanes["restarts"]]


def test_a_wait_is_there_wherever_one_looks_inside_of_it(someone: Browser) -> None:
    for first, last in ((95, 105), (100, 101), (110, 130), (135, 145), (139, 140)):
        assert _lanes(someone, first, last)[0] == [[100, 140]]
    assert _lanes(someone, 141, 150)[0] == _lanes(someone, 90, 100)[0] == []


def test_a_wait_of_which_the_end_was_not_seen_lasts_as_long_as_it_was_seen(someone: Browser) -> None:
    assert _lanes(someone, 295, 400)[0] == _lanes(someone, 300, 301)[0] == [[300, 301]]
    assert _lanes(someone, 310, 320)[0] == []


def test_a_restart_is_there_when_the_reading_before_it_is_not(someone: Browser) -> None:
    assert _lanes(someone, 121, 130)[1] == [125]
    assert _lanes(someone, 125, 126)[1] == [125]
    assert _lanes(someone, 126, 184)[1] == []


def test_it_is_the_same_from_afar(someone: Browser) -> None:
    bars, restarts = _lanes(someone, 0, LONG)
    assert [100, 140] in bars
    assert [300, 301] in bars
    assert restarts == list(range(65, LONG, 60))
