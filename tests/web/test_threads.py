"""Filters by thread, and samples of which nobody wrote down the core."""

from pathlib import Path

import pytest

from exhume.recording.recording import Recording
from tests.recording.made import BEGIN, NODE, SECOND, writer
from tests.web.serving import Browser, browser, decoded, view

SAMPLES = 100


@pytest.fixture(scope="module")
def someone(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A process with two threads, one of them on a core that is not known."""
    path: Path = tmp_path_factory.mktemp("threads") / "r"
    writing = writer(path)
    rows = Recording(NODE)
    rows["frames"].add(0, "walk", "[kernel]", "kernel", -1)
    rows["stacks"].add(0, "system", (0,))
    for number, tid in enumerate((700, 701)):
        rows["threads"].add(number, 700, tid, 0, f"thread{tid}", "walker", "/", "", "", "")
    for at in range(SAMPLES):
        time = BEGIN + at * 10_000_000
        rows["anchors"].add(time, time, time, time, 100)
        rows["samples"].add(time, -1 if at % 4 == 0 else 1, int(at % 4 == 0), 0)
    writing.append(rows)
    writing.close()
    return browser(view(str(path)))


def test_a_thread_is_chosen_by_its_own_number(someone: Browser) -> None:
    assert someone.api("flame", pid=700)["total"] == SAMPLES
    assert someone.api("flame", pid=701)["total"] == 0
    assert someone.api("flame", tid=700)["total"] == SAMPLES * 3 // 4
    assert someone.api("flame", tid="701,9")["total"] == someone.api("flame", tid=701, pid=700)["total"] == SAMPLES // 4
    assert someone.api("heat", tid=9)["most"] == 0
    assert someone.api("heat", tid=701)["most"] == 1
    csv = someone.get("/api/export", {"format": "csv", "tid": 701})
    assert len(csv.content.splitlines()) == 1 + SAMPLES // 4


def test_a_core_that_is_not_known_can_be_chosen(someone: Browser) -> None:
    assert -1 in [core["core"] for core in someone.api("lanes", columns=2)["cores"]]
    assert someone.api("flame", cores="-1")["total"] == SAMPLES // 4
    assert someone.api("flame", cores="-1,0-1")["total"] == SAMPLES
    heat = someone.api("heat", cores="-1")
    assert decoded(heat["cells"]).any()
    assert someone.get("/api/heat", {"cores": "-2"}).status == 400


def test_another_second_is_not_compared_with_itself(someone: Browser) -> None:
    flame = someone.api("flame", cores="-1", from_=BEGIN, to=BEGIN + SECOND // 2, base="auto")
    assert flame["baseline"] is None  # its one core was held all the time
