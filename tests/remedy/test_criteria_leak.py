"""Leaks that come in heaps, groups that go late, and limits that are to be true: a silence proves only what would have come."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import SourceState
from exhume.remedy import proof_live
from exhume.remedy.criteria_count import zombie_count
from exhume.remedy.criteria_leak import by_events, leak_rate
from exhume.remedy.criteria_statistics import abrupt, dispersion
from exhume.remedy.proof import prove
from exhume.remedy.proof_live import Kept, LeakWatch
from tests.incidents.scene import Scene
from tests.remedy.made_proof import DOCKER, Made, _events, node

LIMITS = Thresholds()
OFF = ("samples",)


def in_heaps(seconds: float, at: Sequence[float], size: int, zombies: int = 300) -> Recording:
    """So many at once at each of these seconds, as a job of cron leaves them."""
    scene = Scene(cpus=2, seconds=seconds, busy=0.3, hz=19, seed=3, off=OFF)
    for number, (second, i) in enumerate((second, i) for second in at for i in range(size)):
        _events(scene, 90_000 + number, f"{DOCKER}/{number:064x}", (second + i * 0.02, "rmdir"))
    for second in range(int(seconds) + 1):
        dying = zombies + size * sum(one <= second for one in at)
        scene.row(
            "memcg", time=scene.at(second), path="/", live=240, dying=dying, total=240 + dying, method="proc-cgroups",
            scope="node", complete=1,
        )  # fmt: skip
    return scene.whole()


@pytest.mark.parametrize(
    ("before_s", "at", "size", "after_s"),
    [(1080, (100, 400, 700, 1000), 40, 240), (1190, (600,), 200, 600)],
    ids=["every five minutes", "hourly"],
)
def test_a_silence_between_two_heaps_is_no_proof(before_s: float, at: tuple[int, ...], size: int, after_s: float) -> None:
    before, after = in_heaps(before_s, at, size), in_heaps(after_s, (), size, 300 + size * len(at))
    rate = leak_rate(before, after, LIMITS)
    assert rate.status == "too-little"
    heap = re.search(r"because about (\d+) came at once before", rate.because)
    assert heap is not None
    assert int(heap[1]) == pytest.approx(size, rel=0.05)
    assert (rate.needed_s or 0) > 2 * after_s
    assert zombie_count(before, after, LIMITS).status == "too-little"
    assert prove(before, after, LIMITS).passed is None


def test_a_silence_of_many_heaps_is_one() -> None:
    before = in_heaps(1080, range(20, 1080, 20), 5)
    needed = leak_rate(before, in_heaps(60, (), 5), LIMITS).needed_s
    assert needed is not None
    for seconds, status in ((needed + 1, "passed"), (needed / 2, "too-little")):
        after = in_heaps(math.ceil(seconds), (), 5, 600)
        assert leak_rate(before, after, LIMITS).status == status
        assert zombie_count(before, after, LIMITS).status == status


def test_a_leak_that_begins_in_the_middle_comes_in_no_heaps() -> None:
    begins = [0] * 30 + [25] * 30
    assert dispersion(begins) > 10
    assert abrupt(begins) == 1
    assert abrupt([0, 0, 40, 0, 0, 0, 0, 0] * 5) == pytest.approx(40, rel=0.3)
    assert abrupt([3]) == abrupt([0, 0]) == 1


def let_go(seconds: float, a_minute: float, lag_s: float, seed: int) -> Recording:
    """Ordinary containers where it leaked before: all of them go, some seconds after their directory."""
    generator = np.random.default_rng(seed)
    scene = Scene(cpus=2, seconds=seconds, busy=0.3, hz=19, seed=3, off=OFF)
    for number, at in enumerate(np.sort(generator.uniform(0, 600, generator.poisson(a_minute * 10))).tolist()):
        end = at + generator.gamma(4, lag_s / 4)
        if at < seconds:
            went = [(end, "release")] if end < seconds else []
            _events(scene, 90_000 + number, f"{DOCKER}/{number:064x}", (at, "rmdir"), *went)
    return scene.whole()


SICK = node(replace(Made(1), seconds=60, leak=140, walk_s=0, off=("samples", "processes")))


@pytest.mark.ci
@pytest.mark.parametrize(("a_minute", "lag_s"), [(20, 5), (20, 10), (10, 20)])
def test_what_goes_after_some_seconds_ends_nothing_early(a_minute: float, lag_s: float) -> None:
    watch = LeakWatch(SICK, LIMITS)
    assert watch.places == [f"{DOCKER}/<id>"]
    early = [any(watch.goes_on(let_go(end, a_minute, lag_s, seed)) for end in range(8, 120, 8)) for seed in range(12)]
    assert sum(early) <= 1
    assert LeakWatch(SICK, LIMITS).goes_on(node(replace(Made(7), seconds=20, leak=140, walk_s=0, off=OFF)))


def test_what_is_younger_than_those_that_went_is_not_counted_as_come() -> None:
    after = let_go(150, 20, 15, 4)
    now = by_events(after)
    assert now is not None
    assert len(now.at()) > 3
    rate = leak_rate(SICK, after, LIMITS)
    assert rate.status != "failed"
    assert now.older(now.lag_ns(f"{DOCKER}/<id>")).seconds < now.seconds - 10


def test_the_few_that_went_from_a_leak_do_not_shorten_the_time() -> None:
    leaking = node(replace(Made(7), seconds=120, leak=140, walk_s=0, off=OFF))
    first = leaking["cgroup_events"]
    number = next(int(row["id"]) for row in first.rows() if row["kind"] == "rmdir")
    first.add(leaking.window[0] + 100 * 10**9, "release", 9, number, 2, f"{DOCKER}/{0:064x}", 31, "runc")
    now = by_events(leaking)
    assert now is not None
    assert now.lag_ns(f"{DOCKER}/<id>") == 60 * 10**9
    assert now.usual_lag_ns(f"{DOCKER}/<id>") == 10**9
    assert leak_rate(SICK, leaking, LIMITS).status == "failed"


@pytest.mark.parametrize("before", [SICK, None])
def test_who_waits_as_long_as_was_said_has_waited_long_enough(before: Recording | None) -> None:
    slow = node(replace(Made(1), seconds=240, walk_s=0)) if before is not None else None
    found = prove(slow, node(Made(9, seconds=100, leak=0, walk_s=0)), LIMITS)
    assert found.passed is None
    minutes = int(found.summary.rpartition("about ")[2].split()[0])
    longer = prove(slow, node(Made(9, seconds=60 * minutes, leak=0, walk_s=0)), LIMITS)
    assert longer.passed, longer.summary


def test_a_rate_of_nothing_is_never_proven_and_is_no_crash() -> None:
    nothing = Thresholds(leak_per_minute=0.0)
    quiet = node(Made(9, seconds=100, leak=0, walk_s=0))
    for judge in (leak_rate, zombie_count):
        found = judge(None, quiet, nothing)
        assert (found.status, found.needed_s) == ("too-little", None)
    assert leak_rate(None, node(Made(9, leak=60, walk_s=0)), nothing).status == "failed"


def test_a_failure_shows_what_it_was_held_against() -> None:
    fast = node(replace(Made(2), leak=300, walk_s=0))
    failed = leak_rate(fast, node(replace(Made(3), seconds=600, leak=3, walk_s=0)), LIMITS)
    assert failed.status == "failed"
    assert (failed.after or 0) > (failed.limit or 0) == LIMITS.leak_per_minute
    passed = leak_rate(fast, node(replace(Made(3), seconds=600, leak=0, walk_s=0)), LIMITS)
    assert (passed.limit or 0) > 10


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [((1, 4), 60, "passed"), ((20, 197), 75, "passed"), ((900, 9000), 960, "passed"), ((20, 197), 1200, "failed")],
)
def test_after_a_reboot_nothing_can_be_left(before: tuple[int, int], after: int, status: str) -> None:
    then = in_heaps(60, (30,), before[1] - before[0], before[0])
    now = in_heaps(240, (), 0, after)
    object.__setattr__(now.node, "boot_id", "another")
    found = zombie_count(then, now, LIMITS)
    assert found.status == status, found
    assert "left of" not in found.because


def test_after_a_storm_no_event_is_trusted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept of a storm has directories that went, and not that they were let go."""
    monkeypatch.setattr(proof_live, "_MOST_EVENTS", 100)
    node = Node("n", "b", "k", "", 2)
    kept = Kept(node)
    for second, kind in ((1, "rmdir"), (2, "release"), (3, ""), (4, "rmdir")):
        rows = Recording(node)
        rows.count(second * 10**9, "cgroup_events_lost", 0)
        if second == 1:
            rows.add_source(second * 10**9, "cgroup-events", SourceState("on"))
        for number in range(90 if kind else 0):
            rows["cgroup_events"].add(second * 10**9, kind, 9, number, 2, f"/docker/{number:064x}", 31, "runc")
        kept.append(rows)
        assert (by_events(kept.recording) is None) == (second > 1)
    assert len(kept.recording["cgroup_events"]) == 90
    lost = kept.recording.counter("cgroup_events_lost")
    assert lost is not None
    assert lost.last == 180
