"""Each criterion by itself, on made nodes: what passes it, what fails it, and when it says that it cannot say."""

from dataclasses import replace

import numpy as np
import pytest

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.recording.source_state import SourceState
from exhume.remedy.criteria import Criterion, Status
from exhume.remedy.criteria_cores import Held, bursts, reduced, walks
from exhume.remedy.criteria_count import zombie_count
from exhume.remedy.criteria_leak import BLOCK_NS, COUNT, EVENTS, Leaks, by_count, by_events, leak_rate
from exhume.remedy.criteria_rare import rare
from exhume.remedy.criteria_signs import late_polls, network_stalls, reclaims, restarts, throttling
from exhume.remedy.proof import Judge
from exhume.remedy.proof_live import LeakWatch
from tests.diagnosis.findings import made as findings
from tests.incidents.scene import Scene
from tests.remedy.made_proof import Made, node

LIMITS = Thresholds()
SICK = Made(1, seconds=300)
CURED = Made(2, seconds=300, leak=0, walk_s=0, zombies=60)


@pytest.fixture(scope="module")
def sick() -> Recording:
    return node(SICK)


@pytest.fixture(scope="module")
def cured() -> Recording:
    return node(CURED)


@pytest.mark.parametrize(
    ("after", "status"),
    [
        (CURED, "passed"),
        (replace(CURED, others=6), "passed"),
        (replace(CURED, leak=0.2), "passed"),
        (replace(SICK, seed=5), "failed"),
        (replace(SICK, seed=5, leak=2.5), "failed"),
        (replace(SICK, seed=5, off=("cgroup-events",)), "failed"),
        (replace(CURED, off=("cgroup-events",)), "passed"),
        (replace(CURED, seconds=40), "too-little"),
        (replace(CURED, seconds=9), "too-little"),
        (replace(CURED, off=("cgroup-events", "memcg")), "not-seen"),
    ],
)
def test_the_rate_of_the_leak(sick: Recording, after: Made, status: Status) -> None:
    found = leak_rate(sick, node(after), LIMITS)
    assert found.status == status, found
    assert (found.needed_s is not None) == (status == "too-little")
    if status == "too-little":
        longer = leak_rate(sick, node(replace(after, seconds=(found.needed_s or 0) + 15)), LIMITS)
        assert longer.status == "passed"


@pytest.mark.parametrize(("after", "status"), [(CURED, "passed"), (SICK, "failed"), (replace(CURED, seconds=60), "too-little")])
def test_without_a_before_the_harmless_rate_is_the_limit(after: Made, status: Status) -> None:
    found = leak_rate(None, node(after), LIMITS)
    assert (found.status, found.before, found.limit) == (status, None, LIMITS.leak_per_minute)


def test_a_fast_leak_that_stopped_is_proved_within_a_minute() -> None:
    before, after = node(replace(SICK, leak=300, seconds=60)), node(replace(CURED, seconds=40))
    found = leak_rate(before, after, LIMITS)
    assert found.status == "passed"
    assert found.limit is not None
    assert found.limit > LIMITS.leak_per_minute
    assert leak_rate(before, node(replace(SICK, leak=6, seconds=60)), LIMITS).status == "failed", "a part of it goes on"


def test_a_leak_in_another_place_fails_although_the_first_is_over(sick: Recording) -> None:
    after = node(CURED)
    for i in range(40):
        after["cgroup_events"].add(after.window[0] + i * 7_000_000_000, "rmdir", 9, 500 + i, 3, f"/ci/job/{i:064x}", 31, "runc")
    found = leak_rate(sick, after, LIMITS)
    assert found.status == "failed"
    assert "elsewhere in /ci/job" in found.because


def test_hundreds_that_come_at_once_are_no_rate(sick: Recording) -> None:
    """A deployment is removed: thirty containers of one kind within a second, whose pages go later."""
    after = node(CURED)
    for i in range(30):
        after["cgroup_events"].add(after.window[0] + 100_000_000_000, "rmdir", 9, 500 + i, 3, f"/pods/{i:064x}", 31, "runc")
    assert leak_rate(None, after, LIMITS).status == "too-little"
    assert leak_rate(sick, after, LIMITS).status == "passed"
    for i in range(30, 60):
        after["cgroup_events"].add(after.window[0] + 120_000_000_000, "rmdir", 9, 500 + i, 3, f"/pods/{i:064x}", 31, "runc")
    assert leak_rate(None, after, LIMITS).status == "too-little"
    assert leak_rate(sick, after, LIMITS).status == "passed"
    assert LeakWatch(None, LIMITS).goes_on(after) == ""


def test_lost_events_are_made_up_for_by_the_count(sick: Recording) -> None:
    after = node(CURED)
    after.count(after.window[1], "cgroup_events_lost", 12)
    assert by_events(after) is None
    found = leak_rate(sick, after, LIMITS)
    assert found.status == "passed"
    assert COUNT in found.because


def counted(*counts: int) -> Recording:
    """A count every five seconds."""
    scene = Scene(cpus=1, seconds=5.0 * (len(counts) - 1))
    for i, dying in enumerate(counts):
        scene.row(
            "memcg", time=scene.at(5.0 * i), path="/", live=100, dying=dying, total=100 + dying, method="proc-cgroups",
            scope="node", complete=1,
        )  # fmt: skip
    return scene.whole()


@pytest.mark.parametrize(
    ("counts", "came"),
    [
        ((100, 100, 100), 0),
        ((100, 101, 102, 103), 3),
        ((100, 105, 101, 100), 0),
        ((100, 105, 101, 104), 4),
        ((5000, 5002, 60, 60, 61), 3),
        ((5000, 5002, 60, 60, 60), 2),
    ],
)
def test_what_the_count_grew_by(counts: tuple[int, ...], came: int) -> None:
    found = by_count(counted(*counts))
    assert found is not None
    assert len(found.at()) == came


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (None, (100,) * 38, "passed"),
        (None, (100,) * 20, "too-little"),
        (None, tuple(range(100, 160, 3)), "failed"),
        (None, (100, 130, 99, 120, 101, 128, 100, 125, 100, 131, 101, 122) * 4, "passed"),
        ((40, 400, 800, 1200), (60,) * 20, "passed"),
        ((40, 400, 800, 1200), (600,) * 20, "failed"),
        ((60_000, 60_100, 60_200), (700,) * 20, "passed"),
        ((60_000, 60_100, 60_200), (3000,) * 20, "failed"),
        ((60_000, 60_100, 60_200), (60_200,) * 38, "passed"),
        ((40, 400), (40, 40), "too-little"),
    ],
)
def test_the_number_of_zombies(before: tuple[int, ...] | None, after: tuple[int, ...], status: Status) -> None:
    found = zombie_count(counted(*before) if before is not None else None, counted(*after), LIMITS)
    assert found.status == status, found


def test_zombies_that_remain_are_told_with_what_to_do() -> None:
    assert "exhume zombies purge" in zombie_count(None, counted(*(60_200,) * 38), LIMITS).because


def test_after_a_reboot_the_count_must_be_small() -> None:
    rebooted = node(replace(CURED, boot="another", zombies=19_900))
    assert zombie_count(node(SICK), rebooted, LIMITS).status == "failed"


def test_heaps_widen_the_bounds() -> None:
    spread = np.arange(30, dtype=np.int64) * BLOCK_NS
    heap = np.full(30, 5 * BLOCK_NS, dtype=np.int64)
    wide, narrow = (Leaks(0, 300.0, EVENTS, {"/a": times}) for times in (heap, spread))
    assert wide.bounds(heap)[1] > 3 * narrow.bounds(spread)[1]
    assert wide.leaking(1.0) == []
    assert narrow.leaking(1.0) == ["/a"]


@pytest.mark.parametrize("judge", [walks, bursts])
def test_a_walk_that_is_over_and_one_that_is_not(judge: Judge, sick: Recording, cured: Recording) -> None:
    assert judge(sick, cured, LIMITS).status == "passed"
    assert judge(sick, node(replace(SICK, seed=8)), LIMITS).status == "failed"
    assert judge(None, sick, LIMITS).status == "failed"
    assert judge(None, cured, LIMITS).status == "passed"
    assert judge(sick, node(replace(CURED, seconds=10)), LIMITS).status == "too-little"


def test_bursts_of_something_else_are_another_matter(cured: Recording) -> None:
    """A machine that copies all day was no better before the fix."""
    before = node(replace(SICK, walk_s=0, copies=300))
    same = bursts(before, node(replace(CURED, copies=300)), LIMITS)
    assert same.status == "passed"
    assert "another matter" in same.because
    assert bursts(cured, node(replace(CURED, copies=300)), LIMITS).status == "failed", "worse than before"


def test_without_stacks_the_walk_stays_open_and_the_bursts_decide(sick: Recording) -> None:
    blind = node(replace(CURED, off=("samples",)))
    assert walks(sick, blind, LIMITS).status == "too-little"
    assert walks(None, blind, LIMITS).status == "not-seen"
    assert bursts(sick, blind, LIMITS).status == "passed"


def test_less_that_may_be_chance_is_no_pass() -> None:
    then = Held(np.array([0.0, 2.0, 0.0, 2.0, 0.0, 2.0] * 4))
    assert reduced(then, Held(np.array([0.0, 2.0, 0.0, 0.0, 0.0]))).status == "too-little"
    assert reduced(then, Held(np.zeros(24))).status == "passed"
    assert reduced(then, Held(then.windows)).status == "failed"
    assert reduced(then, Held(np.zeros(2))).status == "too-little"


def test_a_failure_is_as_sure_as_its_test_and_three_windows_are_none() -> None:
    then = Held(np.array([0.0, 2.0, 0.0, 2.0, 0.0, 2.0] * 4))
    goes_on = reduced(then, Held(then.windows))
    assert goes_on.confidence is not None
    assert 0.95 <= goes_on.confidence <= 1
    few = reduced(Held(np.full(24, 2.0)), Held(np.full(3, 2.0)))
    assert (few.status, few.confidence) == ("too-little", None)
    assert few.needed_s == 30.0
    once = reduced(then, Held(np.array([9.0] + [0.0] * 9)))
    assert once.status == "too-little", "one window of ten may be anything"


def test_how_often_chance_fails_what_is_over() -> None:
    """Of nodes on which a quarter is left, which is over, hardly more than one in twenty may fail."""
    generator = np.random.default_rng(5)

    def windows(many: int, length: float) -> Held:
        return Held(np.where(generator.random(many) < 0.4, length * generator.uniform(0.5, 1.5, many), 0.0))

    failed = sum(reduced(windows(60, 2.0), windows(12, 0.5)).status == "failed" for _ in range(200))
    assert failed <= 14
    assert sum(reduced(windows(60, 2.0), windows(60, 2.0)).status == "failed" for _ in range(50)) >= 48


def test_what_was_not_tested_has_no_confidence(sick: Recording) -> None:
    no_growth = zombie_count(None, counted(*(100,) * 38), LIMITS)
    assert (no_growth.status, no_growth.confidence) == ("passed", None)
    stopped = zombie_count(sick, node(replace(CURED, zombies=20_040)), LIMITS)
    assert stopped.status == "passed"
    assert stopped.confidence is not None, "it would have grown by twenty"
    before = node(replace(SICK, walk_s=0, copies=300))
    assert bursts(before, node(replace(CURED, copies=300)), LIMITS).confidence is None, "no more than before"
    few = node(replace(SICK, seed=8, off=("memcg",)))
    few["memcg"].add(few.window[0], "/", 90, 10, 100, "proc-cgroups", "node", 1)
    left = walks(sick, few, LIMITS)
    assert (left.status, left.confidence, left.because) == ("passed", None, "what is left is of no length")
    long = network_stalls(None, stalled(700.0), LIMITS)
    assert (long.status, long.confidence) == ("failed", None), "one that is long, and no rate"


def test_heaps_are_less_sure_than_as_many_one_by_one() -> None:
    spread, heaps = node(replace(CURED, seconds=600)), node(replace(CURED, seconds=600))
    for i in range(60):
        for made, second in ((spread, 5 + i * 9.7), (heaps, 5 + i // 10 * 97)):
            moment = made.window[0] + round(second * 1e9)
            made["cgroup_events"].add(moment, "rmdir", 9, 500 + i, 3, f"/ci/job/{i:064x}", 31, "runc")
    sure, less = (leak_rate(None, made, LIMITS) for made in (spread, heaps))
    assert sure.status == less.status == "failed"
    assert sure.confidence is not None
    assert less.confidence is not None
    assert sure.confidence > less.confidence


def test_a_loop_that_goes_on_fails_and_one_of_another_is_told_as_new(sick: Recording, cured: Recording) -> None:
    assert restarts(sick, cured, LIMITS).status == "passed"
    again = restarts(sick, node(replace(SICK, seed=4)), LIMITS)
    assert again.status == "failed"
    assert "new" not in again.because
    assert restarts(sick, node(replace(CURED, seconds=20)), LIMITS).status == "too-little", "its period was ten seconds"
    blind = node(replace(CURED, off=("units", "cgroup-events")))
    assert restarts(sick, blind, LIMITS).status == "not-seen"


def test_a_loop_that_came_and_went_is_told_and_decides_nothing(sick: Recording) -> None:
    """Somebody's test on the same machine: eight cgroups within four seconds, left behind."""
    after = node(CURED)
    for i in range(8):
        for kind, at in (("mkdir", 100.0 + i / 2), ("rmdir", 100.2 + i / 2)):
            moment = after.window[0] + round(at * 1e9)
            after["cgroup_events"].add(moment, kind, 9, 900 + i, 2, f"/ci/burst/z{i}", 31, "runc")
    found = restarts(sick, after, LIMITS)
    assert found.status == "passed"
    assert "a loop of /ci/burst/z* came and went" in found.because
    assert leak_rate(sick, after, LIMITS).status == "passed"


def throttled(share: float, seconds: float = 120) -> Recording:
    scene = Scene(cpus=2, seconds=seconds)
    for name, rate in (("cpu_periods", 10.0), ("cpu_throttled_periods", 10.0 * share)):
        scene.counter(name, [(0, seconds, rate)], cgroup="/pod\x1b[31m")
    return scene.whole()


def test_throttling_is_told_by_the_group_that_suffers_most() -> None:
    assert throttling(None, throttled(0.1), LIMITS).status == "passed"
    assert throttling(throttled(0.9), throttled(0.9), LIMITS).status == "failed"
    assert throttling(None, throttled(0.3, seconds=2), LIMITS).status == "too-little"
    assert throttling(None, node(replace(CURED, off=("throttling",))), LIMITS).status == "not-seen"
    assert "\x1b" not in throttling(None, throttled(0.1), LIMITS).because


def scanned(rate: float) -> Recording:
    scene = Scene(cpus=2, seconds=60)
    scene.counter("vmstat_pgscan_direct", [(0, 60, rate)])
    return scene.whole()


def test_reclaim_that_fell_is_told_with_how_sure_that_is() -> None:
    found = reclaims(scanned(9000), scanned(10), LIMITS)
    assert found.status == "passed"
    assert found.confidence is not None
    assert found.confidence > 0.99
    assert reclaims(scanned(9000), scanned(9000), LIMITS).status == "failed"
    assert reclaims(None, node(replace(CURED, off=("vmstat",))), LIMITS).status == "not-seen"


def polled(late: int, polls: int) -> Recording:
    scene = Scene(cpus=2, seconds=60)
    scene.recording.add_source(scene.at(0), "latency", SourceState("on"))
    histogram = [polls - late] + [0] * 13 + [late] + [0] * 13
    scene.row("latency", time=scene.at(30), what="napi", stage="wait", device="eth0", count=polls, histogram=histogram)
    return scene.whole()


def test_late_polls_are_counted_from_the_histograms() -> None:
    assert late_polls(polled(50, 10_000), polled(0, 10_000), LIMITS).status == "passed"
    assert late_polls(polled(50, 10_000), polled(60, 10_000), LIMITS).status == "failed"
    assert late_polls(None, polled(0, 100), LIMITS).status == "too-little"
    assert late_polls(None, node(CURED), LIMITS).status == "not-seen"


def stalled(*ms: float, seconds: float = 300) -> Recording:
    recording = findings.recording(2, ("cpu", "latency"))
    findings.cores(recording, seconds, {}, step=1.0)
    for i, length in enumerate(ms):
        findings.stall(recording, 10.0 + 10 * i, length)
    return recording


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ((120.0,) * 20, (), "passed"),
        ((120.0,) * 20, (120.0,) * 20, "failed"),
        ((120.0,) * 2, (), "too-little"),
        ((), (700.0,), "failed"),
        ((), (60.0,), "passed"),
    ],
)
def test_stalls_of_the_network(before: tuple[float, ...], after: tuple[float, ...], status: Status) -> None:
    found: Criterion = network_stalls(stalled(*before), stalled(*after), LIMITS)
    assert found.status == status, found


def with_resets(seconds: float, *at: float) -> Recording:
    scene = Scene(cpus=1, seconds=seconds, hz=1, step=1.0)
    for second in at:
        scene.ena_reset(second)
    return scene.whole()


def test_resets_say_how_long_a_silence_must_be() -> None:
    resets, lockups = rare(with_resets(3600, 100, 1500, 2800), with_resets(600))
    assert (resets.status, resets.before, resets.after) == ("too-little", 3, 0)
    assert resets.needed_hours == pytest.approx(3.0 / 3, rel=0.01)
    assert lockups.needed_hours is None
    assert rare(with_resets(3600, 100, 1500, 2800), with_resets(3700))[0].status == "passed"


def test_a_reset_that_happens_fails_and_one_before_the_window_does_not() -> None:
    assert rare(None, with_resets(60, 30))[0].status == "failed"
    early = with_resets(60, -500)
    assert len(early["events"])
    assert rare(None, early)[0].status == "too-little"
