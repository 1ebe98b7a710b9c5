"""Times of day where the clock on the wall was set during a recording: the page goes by the nearest reading it is told."""

from pathlib import Path
from typing import Any

import pytest

from exhume.recording.folder import Folder
from exhume.recording.recording import Node, Recording
from exhume.recording.writer import Writer
from exhume.web.clock import Clock
from tests.web.serving import browser, view

SECOND = 1_000_000_000
BEGIN = 40 * SECOND
REAL = 1_760_000_000 * SECOND
HOUR = 3_600 * SECOND
NODE = Node("n", "boot", "6.18", "v2", 2)


def written(writer: Writer, first: int, last: int, later: Any) -> None:
    for at in range(first, last):
        rows = Recording(NODE)
        time = BEGIN + at * SECOND
        rows["anchors"].add(time, time, time, REAL + time + later(at), 1)
        rows["cpu"].add(time, 0, *([at] * 10))
        writer.append(rows)
        writer.keep_pace()


def recorded(path: Path, seconds: int, later: Any) -> str:
    writer = Writer(str(path), NODE, {"hz": 0}, budget_bytes=1 << 30, segment_ns=20 * SECOND)
    written(writer, 0, seconds, later)
    writer.close()
    return str(path)


def nearest(clock: list[list[float]], us: float) -> float:
    """As the page has it, ms."""
    at, ms = min(clock, key=lambda one: abs(one[0] - us))
    return ms + (us - at) / 1_000


@pytest.mark.parametrize("set_by", [HOUR, -HOUR, SECOND // 5])
def test_a_clock_that_was_set_is_told_on_both_sides(tmp_path: Path, set_by: int) -> None:
    path = recorded(tmp_path / "r", 300, lambda at: set_by if at >= 77 else 0)
    about = browser(view(path)).api("about")
    folder = Folder(path)
    assert about["clock"][0] == [0, about["real_start_ms"]]
    assert len(about["clock"]) == 3
    for at in (0, 30, 76, 78, 200, 299):
        told = nearest(about["clock"], at * 1_000_000)
        assert told == pytest.approx(folder.real_ns(BEGIN + at * SECOND) / 1e6, abs=1)


def test_one_that_was_not_set_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(tmp_path / "r", 60, lambda at: at * 1_000)
    shown, asked, real_ns = view(path), [], Folder.real_ns

    def counted(folder: Folder, time: int) -> int:
        asked.append(time)
        return real_ns(folder, time)

    monkeypatch.setattr(Folder, "real_ns", counted)
    for _ in range(3):
        about = browser(shown).api("about")
        assert about["clock"] == [[0, about["real_start_ms"]]]
    assert len(asked) == 3 + 2


def test_one_that_drifts_is_told_now_and_then(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r", 400, lambda at: at * 1_000_000)
    told = Clock().readings(Folder(path), BEGIN, BEGIN + 400 * SECOND)
    assert 5 < len(told) < 30
    for at in range(0, 400, 7):
        _, later = min(told, key=lambda one: abs(one[0] - BEGIN - at * SECOND))
        assert abs(later - REAL - at * 1_000_000) < 60_000_000


def test_one_that_is_set_while_it_is_shown(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / "r"), NODE, {"hz": 0}, budget_bytes=1 << 30, segment_ns=20 * SECOND)
    clock = Clock()
    for until in range(20, 500, 20):
        written(writer, until - 20, until, lambda at: HOUR if at >= 133 else 0)
        folder = Folder(str(tmp_path / "r"))
        told = clock.readings(folder, BEGIN, folder.window[1])
    writer.close()
    assert [round((later - REAL) / HOUR) for _, later in told] == [0, 0, 1]
    assert (told[1][0] + told[2][0]) / 2 == pytest.approx(BEGIN + 132.5 * SECOND, abs=SECOND)


def test_without_a_time_of_day_there_is_none(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r", 10, lambda at: -REAL)
    about = browser(view(path)).api("about")
    assert (about["has_wall"], about["clock"]) == (False, [[0, 0]])
