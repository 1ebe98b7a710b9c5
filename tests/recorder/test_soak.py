"""A soak: what it reads, that it ends when somebody has seen enough, and that what it keeps is bounded."""

from pathlib import Path

import pytest

from exhume.host.root import Root
from exhume.recorder import profiles
from exhume.recorder.profiles import MOMENTS
from exhume.recorder.soak import drop_released, soak
from exhume.recording.recording import Recording
from exhume.sources.cgroup_events import lives
from tests.diagnosis.findings import made
from tests.diagnosis.findings.lives import life
from tests.diagnosis.findings.made import SECOND
from tests.trees import Tree, cgroup_stat


def test_counts_and_what_each_source_said_are_there(tmp_path: Path) -> None:
    Tree(tmp_path).facts().v2({"/": cgroup_stat(10, 7, memory=True)})
    parts: list[float] = []
    recording = soak(Root(str(tmp_path)), 2 * SECOND, parts.append, strict=True)
    assert recording.node.hostname == "node-7"
    assert {row["dying"] for row in recording["memcg"].rows()} == {7}
    assert len(recording["memcg"]) >= 2
    sources = recording.sources()
    assert set(sources) == {"cgroup-events", "memcg", "zombies", "units", "journal", "processes", "clock"}
    assert sources["cgroup-events"].state.state == "off"
    assert "another" in sources["journal"].state.reason
    assert parts == sorted(parts)
    assert parts[-1] == 1.0
    start, end = recording.window
    assert end - start >= 2 * SECOND


def test_it_ends_when_enough_was_seen_and_what_is_asked_sees_what_was_read_since(tmp_path: Path) -> None:
    Tree(tmp_path).facts().v2({"/": cgroup_stat(10, 7, memory=True)})
    windows: list[tuple[int, int]] = []

    def enough(recording: Recording) -> bool:
        windows.append(recording.derived("cgroup_events", lambda same: same.window))
        return len(windows) >= 2

    soak(Root(str(tmp_path)), 100 * SECOND, enough=enough)
    assert len(windows) == 2
    assert windows[1][1] > windows[0][1]  # nothing that was worked out before is taken for today's


def test_a_longer_soak_reads_less_often() -> None:
    hour, week = (profiles.soak(length * 3600 * SECOND).intervals for length in (1, 168))
    assert hour["memcg"] == 6 * SECOND
    assert hour["units"] == 3600 * SECOND // MOMENTS
    assert week["memcg"] == 168 * hour["memcg"]
    assert "cgroup-events" not in {*hour, *week}  # the kernel's rings are small: they keep the reader's own interval


@pytest.mark.parametrize("zombies", [0, 3, 40])
def test_of_too_many_events_those_go_first_that_left_nothing_behind(zombies: int) -> None:
    recording = made.recording()
    for number in range(zombies):
        life(recording, f"/z{number}", number, number + 1, number)
    for number in range(100):
        life(recording, f"/g{number}", 100 + number, 101 + number, 1_000 + number, released=102 + number)
    drop_released(recording, most=1_000)
    assert len(lives(recording["cgroup_events"])) == 100 + zombies
    drop_released(recording, most=200)
    left = lives(recording["cgroup_events"])
    assert len(recording["cgroup_events"]) <= 100
    assert sum(one.zombie(1_000 * SECOND) for one in left) == zombies
    whole = [one for one in left if one.released >= 0]
    assert whole[-1].path == "/g99"  # the youngest stay
    assert sum(one.made < 0 for one in whole) <= 1  # where it was cut


def test_a_number_that_is_used_again_keeps_the_zombie_that_has_it_now() -> None:
    recording = made.recording()
    for number in range(50):
        life(recording, f"/g{number}", number, number + 0.5, 7, released=number + 0.9)
    life(recording, "/z", 60, 61, 7)
    drop_released(recording, most=20)
    assert len(recording["cgroup_events"]) <= 10
    assert [one.path for one in lives(recording["cgroup_events"]) if one.zombie(1_000 * SECOND)] == ["/z"]
