"""What metrics are made of: counters that never go back, bounded series, resets with their reasons, what judges said."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.agent.gathering import RATE_NS, Gathered
from exhume.agent.hierarchy import memory_hierarchy
from exhume.agent.histogram import Histogram
from exhume.agent.metrics import EDGES_US, METRICS, MOST_DEVICES, OTHER, TOP, most_series
from exhume.agent.standing import FRESH_S, Standing
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.cpu_throttled import CpuThrottled
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.leak_places import PlaceOwner
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.nic_reset import NicReset
from exhume.diagnosis.findings.oom import Oom
from exhume.diagnosis.findings.steal import Steal
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.diagnosis.report import Health, Report, health_of
from exhume.host.root import Root
from exhume.recording.recording import labels
from exhume.recording.source_state import SourceState, State
from exhume.sources.latency.histogram import BUCKETS
from tests.agent.made import NODE, SECOND, batch, logged, memcg, waited, walked
from tests.diagnosis.findings import made
from tests.diagnosis.findings.facts import finding
from tests.diagnosis.made import report as made_report
from tests.examples import examples
from tests.trees import Tree

ENA = "ena 0000:20:03.0 eth0: "
DONE = "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"
COUNTERS = [metric.name for metric in METRICS.values() if metric.kind == "counter"]


def value(gathered: Gathered, name: str, *at: str) -> float | None:
    return gathered.values[name].get(at)


def counted(gathered: Gathered) -> dict[tuple[str, ...], float]:
    """Everything that may only grow."""
    found = {(name, *at): one for name in COUNTERS for at, one in gathered.values[name].items()}
    for at, histogram in gathered.histograms.items():
        found |= {("bucket", edge, *at): count for edge, count in histogram.cumulative()}
        found["sum", *at] = histogram.sum_s
    return found


def series(gathered: Gathered) -> int:
    return sum(map(len, gathered.values.values())) + len(gathered.histograms) * (len(EDGES_US) + 3)


NAMES = ("vmstat_pgscan_direct", "cpu_throttled_ns", "cpu_periods", "pressure_us", "samples_lost", "rows_lost", "own_cpu_ns")
_LABELS = st.one_of(
    st.just(()),
    st.text(max_size=8).map(lambda name: labels(cgroup=name)),
    st.sampled_from(["disk full", "over budget", "\x00", "x" * 300]).map(lambda name: labels(reason=name)),
    st.just(labels(resource="cpu", kind="some")),
)
_ROW = st.tuples(st.sampled_from(NAMES), _LABELS, st.integers(-5, 10**12))
_WAIT = st.tuples(
    st.sampled_from(["napi", "softirq", "runqueue", "rstat"]),
    st.sampled_from(["wait", "stall", "gap"]),
    st.text(max_size=15),
    st.lists(st.integers(0, 100), min_size=BUCKETS, max_size=BUCKETS),
)
_SPAN = st.tuples(st.integers(-1, 3), st.integers(0, 50), st.integers(0, 9))
_BATCH = st.tuples(st.integers(0, 10**6), st.lists(_ROW, max_size=12), st.lists(_WAIT, max_size=4), st.lists(_SPAN, max_size=4))


@settings(max_examples=examples(80))
@given(st.lists(_BATCH, max_size=12))
def test_counters_never_go_back_whatever_resets_vanishes_or_steps(batches: list[Any]) -> None:
    gathered = Gathered(2)
    before: dict[tuple[str, ...], float] = {}
    for at, rows, waits, spans in batches:
        seen = batch(at)
        memcg(seen, at, 200, at % 1000)
        for name, at_labels, number in rows:
            seen.count(at * SECOND, name, number, at_labels)
        for what, stage, device, histogram in waits:
            waited(seen, what, device, histogram, sum(histogram), stage)
        gathered.add(seen)
        gathered.judged([finding(CoreSaturated, spans=[Span(core, s, s + n) for core, s, n in spans])])
        now = counted(gathered)
        assert all(now[key] >= one for key, one in before.items())
        assert (value(gathered, "exhume_memory_cgroup_leak_rate") or 0.0) >= 0.0
        assert all(len(gathered.values[name]) <= metric.most for name, metric in METRICS.items())
        before = now


def test_the_first_reading_is_where_it_begins_and_a_reset_counts_what_came_since() -> None:
    gathered = Gathered(2)
    for at, reading in enumerate((1000, 1500, 200, 250)):
        rows = batch(at)
        rows.count(at * SECOND, "vmstat_pgscan_direct", reading)
        gathered.add(rows)
    assert value(gathered, "exhume_reclaim_pages_total", "direct", "scanned") == 500 + 200 + 50


def test_what_was_lost_by_a_recorder_that_began_anew_is_added_to_what_was_lost_before() -> None:
    gathered = Gathered(2)
    for at, reading in enumerate((7, 9, 0, 4)):
        rows = batch(at)
        rows.count(at * SECOND, "samples_lost", reading)
        rows.count(at * SECOND, "rows_lost", reading, labels(reason="disk full"))
        gathered.add(rows)
    assert value(gathered, "exhume_agent_lost_total", "samples") == 13
    assert value(gathered, "exhume_agent_lost_total", "rows, disk full") == 13


def test_throttling_is_that_of_all_cgroups_together() -> None:
    gathered = Gathered(2)
    for at in (0, 1):
        rows = batch(at)
        for name in ("a", "b"):
            rows.count(at * SECOND, "cpu_throttled_ns", at * 2 * SECOND, labels(cgroup=name))
        gathered.add(rows)
    assert value(gathered, "exhume_cpu_throttled_seconds_total") == pytest.approx(4.0)


def test_memory_cgroups_and_what_they_cost() -> None:
    gathered = Gathered(96)
    rows = batch(5)
    memcg(rows, 5, 240, 68_440)
    gathered.add(rows)
    assert value(gathered, "exhume_memory_cgroups", "live", "v1") == 240
    assert value(gathered, "exhume_memory_cgroups", "dying", "v1") == 68_440
    cost = value(gathered, "exhume_zombie_memory_cgroup_bytes")
    assert cost is not None
    assert cost > 68_440 * 1024


def leak(gathered: Gathered, until_s: int, rate: float, start: int = 1000, begin_s: int = 0) -> None:
    for at in range(begin_s, until_s, 5):
        rows = batch(at)
        memcg(rows, at, 200, start + round((at - begin_s) * rate))
        gathered.add(rows)


def test_the_leak_rate_is_of_the_last_ten_minutes_and_absent_in_the_first() -> None:
    gathered = Gathered(2)
    leak(gathered, 55, 5.0)
    assert value(gathered, "exhume_memory_cgroup_leak_rate") is None
    leak(gathered, 400, 5.0, 1275, 55)
    assert value(gathered, "exhume_memory_cgroup_leak_rate") == pytest.approx(5.0, rel=0.02)
    leak(gathered, 400 + RATE_NS // SECOND + 20, 0.0, 3000, 400)
    assert value(gathered, "exhume_memory_cgroup_leak_rate") == 0.0


def test_zombies_that_go_are_no_leak_and_another_clock_begins_anew() -> None:
    gathered = Gathered(2)
    leak(gathered, 300, -3.0, 10_000, 0)
    assert value(gathered, "exhume_memory_cgroup_leak_rate") == 0.0
    leak(gathered, 100, 2.0)  # earlier than what was seen last
    assert value(gathered, "exhume_memory_cgroup_leak_rate") == pytest.approx(2.0, rel=0.02)


def test_sources_of_zombies_are_the_largest_and_the_rest_together() -> None:
    gathered = Gathered(2)
    rows = batch(1)
    walked(rows, 1, [(f"/place{i}", "", 100 - i) for i in range(50)])
    walked(rows, 1, [("/system.slice/a/*", "a.service", 500), ("/system.slice/b/*", "a.service", 1)])
    gathered.add(rows)
    told = gathered.values["exhume_zombie_memory_cgroups"]
    assert len(told) == TOP + 1
    assert told["a.service",] == 501
    assert sum(told.values()) == 501 + sum(100 - i for i in range(50))
    assert told[OTHER,] == sum(100 - i for i in range(TOP - 1, 50))


def test_zombies_that_are_too_few_to_be_named_are_of_no_source_any_more() -> None:
    gathered = Gathered(2)
    rows = batch(1)
    walked(rows, 1, [("/system.slice/*", "ecs.service", 68_345)])
    rows.count(SECOND, "memcg_walk_zombies", 68_345)
    gathered.add(rows)
    gathered.add(batch(2))  # nobody counted
    assert value(gathered, "exhume_zombie_memory_cgroups", "ecs.service") == 68_345
    rows = batch(60)
    rows.count(60 * SECOND, "memcg_walk_zombies", 12)
    gathered.add(rows)
    assert gathered.values["exhume_zombie_memory_cgroups"] == {}


def test_a_gauge_whose_source_is_off_for_a_minute_is_absent_and_a_counter_stands_still() -> None:
    gathered = Gathered(2)

    def told(at: int, state: State) -> None:
        rows = batch(at)
        for name in ("memcg", "units"):
            rows.add_source(at * SECOND, name, SourceState(state))
        if state != "off":
            memcg(rows, at, 240, 100 + at)
        rows["cgroup_events"].add(at * SECOND, "mkdir", 0, 7, 1, "/x", 1, "systemd")
        gathered.add(rows)

    gauges = ("exhume_memory_cgroups", "exhume_memory_cgroup_leak_rate", "exhume_zombie_memory_cgroup_bytes")
    for at in (0, 40, 80):
        told(at, "on")
    gathered.judged([finding(CrashLoop, subject="u", period_s=1.0)])
    told(90, "off")
    told(100, "on")  # it hung for a moment
    for at in (110, 169):
        told(at, "off")
        assert all(gathered.values[name] for name in gauges)
    told(170, "off")
    assert not any(gathered.values[name] for name in gauges)
    assert value(gathered, "exhume_memory_cgroup_changes_total", "made") == 8
    assert value(gathered, "exhume_crash_loop_restarts_rate", "u") == 1.0
    told(180, "partial")
    assert value(gathered, "exhume_source_up", "memcg") == 1.0
    assert value(gathered, "exhume_memory_cgroups", "dying", "v1") == 280
    assert value(gathered, "exhume_memory_cgroup_leak_rate") is None


def test_only_cgroups_of_the_memory_hierarchy_count() -> None:
    gathered = Gathered(2)
    gathered.count_only(4)
    rows = batch(1)
    for kind, hierarchy in (("mkdir", 4), ("mkdir", 0), ("rmdir", 4), ("release", 9)):
        rows["cgroup_events"].add(SECOND, kind, hierarchy, 7, 1, "/x", 1, "systemd")
    gathered.add(rows)
    changes = gathered.values["exhume_memory_cgroup_changes_total"]
    assert changes == {("made",): 1, ("removed",): 1, ("released",): 0}


@given(st.lists(st.integers(0, 1000), min_size=BUCKETS, max_size=BUCKETS))
def test_a_histogram_counts_everything_once_and_no_wait_in_a_bucket_that_is_too_small(buckets: list[int]) -> None:
    histogram = Histogram()
    histogram.add(buckets, 10**9)
    told = histogram.cumulative()
    assert told[-1] == ("+Inf", float(sum(buckets)))
    for (_, count), edge in zip(told, EDGES_US, strict=False):
        assert count == sum(one for i, one in enumerate(buckets) if 1 << i <= edge)


def test_stalls_and_waits_are_by_device_and_devices_are_bounded() -> None:
    gathered = Gathered(2)
    rows = batch(1)
    for i in range(100):
        waited(rows, "napi", f"eth{i}", [1] * BUCKETS, 5)
        made.stall(rows, 3.0, 2000, core=i, device=f"eth{i}")
    waited(rows, "runqueue", "", [3] * BUCKETS, 5)
    gathered.add(rows)
    assert len(gathered.histograms) == MOST_DEVICES + 2
    assert value(gathered, "exhume_stalls_total", "napi", OTHER) == 100 - MOST_DEVICES
    assert value(gathered, "exhume_stall_seconds_total", "napi", "eth0") == 2.0


def test_a_reset_of_a_device_has_the_reason_of_the_lines_before_it(tmp_path: Path) -> None:
    gathered, rows = Gathered(2), batch(100)
    paused = ENA + "TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
    late = ENA + "napi handler hasn't been called for a long time but is scheduled"
    lines = [
        (50.0, ENA + "Keep alive watchdog timeout."),
        (51.0, DONE),  # before we began
        (120.0, paused),
        (120.0, late),
        (120.5, DONE),
        (140.0, ENA + "Keep alive watchdog timeout."),
        (140.4, DONE),
        (300.0, DONE),  # for a reason that nobody gave
    ]
    logged(Tree(tmp_path), rows, lines)
    gathered.add(rows)
    told = gathered.values["exhume_nic_resets_total"]
    assert told == {
        ("eth0", "suspected-poll-starvation"): 1,
        ("eth0", "keep-alive"): 1,
        ("eth0", "unknown"): 1,
    }


def test_the_transmit_watchdog_counts_once_for_all_queues_and_for_the_reset_that_follows(tmp_path: Path) -> None:
    gathered, rows = Gathered(2), batch(100)
    mlx = "mlx5_core 0000:81:00.0 eth1: TX timeout on queue: {}, SQ: 0x1, CQ: 0x2, SQ Cons: 0x3 SQ Prod: 0x4, "
    lines = [
        (110.0, "NETDEV WATCHDOG: eth1 (mlx5_core): transmit queue 3 timed out 5000 ms"),
        *((110.1 + i / 10, mlx.format(i) + "usecs since last trans: 5000000") for i in range(8)),
        (130.0, mlx.format(2) + "usecs since last trans: 5000000"),
        (200.0, "NETDEV WATCHDOG: eth0 (ena): transmit queue 3 timed out 5000 ms"),
        (200.2, ENA + "Transmit time out"),
        (200.9, DONE),
    ]
    logged(Tree(tmp_path), rows, lines)
    gathered.add(rows)
    told = gathered.values["exhume_nic_resets_total"]
    assert told == {("eth1", "netdev-watchdog"): 2, ("eth0", "netdev-watchdog"): 1}


def test_a_full_core_is_counted_once_however_often_it_is_seen() -> None:
    gathered = Gathered(4)
    spans = [Span(2, 10 * SECOND, 14 * SECOND)]
    for _ in range(5):
        gathered.judged([finding(CoreSaturated, spans=spans)])
    gathered.judged([finding(CoreSaturated, spans=[Span(2, 10 * SECOND, 16 * SECOND), Span(2, 20 * SECOND, 21 * SECOND)])])
    gathered.judged([finding(CoreSaturated, "info", spans=[Span(2, 30 * SECOND, 40 * SECOND)])])
    assert value(gathered, "exhume_core_saturated_seconds_total", "2") == 7.0
    assert value(gathered, "exhume_core_saturated_episodes_total", "2") == 2.0


def test_crash_loops_have_their_rate_and_whether_they_leak() -> None:
    gathered = Gathered(2)
    found = [
        finding(CrashLoop, subject="ecs.service", period_s=10.0, unreleased=3),
        finding(CrashLoop, subject="tidy.service", period_s=2.0),
        finding(CrashLoop, subject="agent.service", period_s=5.0),
        finding(MemcgLeak, subject="/x", owner=PlaceOwner(unit="agent.service")),
    ]
    gathered.judged(found)
    assert value(gathered, "exhume_crash_loop_restarts_rate", "ecs.service") == 0.1
    leaks = gathered.values["exhume_crash_loop_leaks"]
    assert leaks == {("ecs.service",): 1.0, ("tidy.service",): 0.0, ("agent.service",): 1.0}
    gathered.judged([])
    assert not gathered.values["exhume_crash_loop_restarts_rate"]
    assert not gathered.values["exhume_findings"]


def test_of_more_crash_loops_than_there_is_room_for_those_that_leak_are_told() -> None:
    gathered = Gathered(2)
    found = [finding(CrashLoop, subject=f"fast{i}.service", period_s=1.0) for i in range(5)]
    more = [finding(CrashLoop, subject=f"slow{i}.service", period_s=5.0) for i in range(30)]
    gathered.judged(found, [*found, *more, finding(CrashLoop, subject="ecs.service", period_s=600.0, unreleased=1)])
    told = gathered.values["exhume_crash_loop_restarts_rate"]
    assert len(told) == TOP
    assert value(gathered, "exhume_crash_loop_leaks", "ecs.service") == 1.0
    assert {(f"fast{i}.service",) for i in range(5)} < told.keys()
    assert value(gathered, "exhume_findings", "crash-loop", "warning") == 5.0


def test_cores_that_have_no_series_of_their_own_are_counted_together() -> None:
    gathered = Gathered(768)
    seconds = "exhume_core_saturated_seconds_total"
    assert (value(gathered, seconds, "510"), value(gathered, seconds, OTHER)) == (0.0, 0.0)
    spans = [Span(core, 10 * SECOND, 14 * SECOND) for core in (-1, 3, 511, 600, 767)]
    for _ in range(2):
        gathered.judged([finding(CoreSaturated, spans=spans)])
    assert (value(gathered, seconds, "3"), value(gathered, seconds, OTHER)) == (4.0, 12.0)
    assert value(gathered, "exhume_core_saturated_episodes_total", OTHER) == 3.0
    assert len(gathered.values[seconds]) == METRICS[seconds].most


KINDS = ("core-saturated", "nic-reset", "cpu-full")
"""That make an incident."""


def report(health: Health, cause: str | None = "memcg-leak") -> Report:
    return made_report(health=health, cause=cause, subject="/ecs", confidence=0.9 if cause else 0.0)


def health(gathered: Gathered) -> str:
    (now,) = [at[0] for at, one in gathered.values["exhume_node_health"].items() if one]
    return now


def test_health_follows_findings_and_a_fresh_verdict_that_saw_more() -> None:
    gathered = Gathered(2)
    standing = Standing(gathered)
    assert health(gathered) == "unknown"
    standing.found([], KINDS, 0.0)
    assert health(gathered) == "healthy"
    standing.found([finding(CoreSaturated)], KINDS, 5.0)
    assert health(gathered) == "warning"
    standing.verdict(report("critical"), 6.0, 1_800_000_000.0)
    assert health(gathered) == "critical"
    assert value(gathered, "exhume_verdict_confidence", "memcg-leak", "/ecs") == 0.9
    standing.found([finding(CoreSaturated)], KINDS, 10.0)
    assert health(gathered) == "critical"
    standing.found([finding(CoreSaturated)], KINDS, 6.0 + FRESH_S)
    assert health(gathered) == "warning"
    standing.found([finding(NicReset, "critical")], KINDS, 70.0)
    assert health(gathered) == "critical"
    standing.found([], KINDS, 75.0)
    assert health(gathered) == "healthy"
    assert not gathered.values["exhume_verdict_confidence"]
    assert value(gathered, "exhume_verdict_timestamp_seconds") == 1_800_000_000.0


def test_a_verdict_that_comes_after_everything_is_well_again_lasts_until_the_next_look() -> None:
    gathered = Gathered(2)
    standing = Standing(gathered)
    standing.found([], KINDS, 0.0)
    standing.verdict(report("warning", None), 1.0, 5.0)
    assert not gathered.values["exhume_verdict_confidence"]
    standing.found([], KINDS, 5.0)
    assert health(gathered) == "healthy"


def test_what_makes_no_incident_is_the_nodes_health_as_exhume_check_says_it_and_a_tenants_affair_is_not() -> None:
    gathered = Gathered(2)
    standing = Standing(gathered)
    standing.found([finding(MemcgLeak)], KINDS, 0.0)
    assert health(gathered) == "warning"
    standing.found([finding(Oom, "critical"), finding(ZombieMemcgs)], KINDS, 10.0, looked=False)
    assert health(gathered) == "critical"
    standing.found([finding(CpuThrottled), finding(MemcgLeak, "info")], KINDS, 20.0)
    assert health(gathered) == "healthy"
    standing.found([finding(CpuThrottled)], KINDS, 30.0, looked=False)
    assert health(gathered) == "unknown"


def test_a_verdict_stands_while_its_cause_does_and_no_other_condition_keeps_it() -> None:
    gathered = Gathered(2)
    standing = Standing(gathered)
    for cause, stays in (("memcg-leak", True), ("cpu-full", False)):
        standing.verdict(report("warning", cause), 0.0, 5.0)
        standing.found([finding(NicReset), finding(MemcgLeak)], KINDS, 1.0)
        assert gathered.values["exhume_verdict_confidence"]
        standing.found([finding(MemcgLeak)], KINDS, 90.0)  # what made the incident is over, the leak is not
        assert bool(gathered.values["exhume_verdict_confidence"]) is stays
        assert health(gathered) == "warning"


def test_the_worst_finding_is_the_health() -> None:
    assert health_of([], True) == health_of([finding(Steal, "info")], True) == "healthy"
    assert health_of([], False) == "unknown"
    assert health_of([finding(Steal), finding(Oom, "critical"), finding(Oom, "info")], False) == "critical"


def test_a_large_node_and_floods_of_hostile_names_stay_within_the_bound() -> None:
    assert most_series() < 2000
    gathered = Gathered(96)
    for at in range(3):
        rows = batch(at, NODE)
        memcg(rows, at, 240, 60_000)
        walked(rows, at, [(f"/\x1b[31m{i}\n{'x' * 300}", "", i) for i in range(2_000)])
        for i in range(5_000):
            rows.count(at * SECOND, "cpu_throttled_ns", at * i, labels(cgroup=f"/kubepods/\udcff{i}"))
            rows.count(at * SECOND, "pressure_us", at * i, labels(resource=f"r{i}", kind="some"))
        for i in range(200):
            waited(rows, "napi", f"e\u202e{i}", [1] * BUCKETS, 5)
            waited(rows, f"w{i}", f"e{i}", [1] * BUCKETS, 5, "stall")
            rows.add_source(at * SECOND, f"source{i}", SourceState("on"))
            rows["events"].add(at * SECOND, "nic-reset-done", f"eth\n{i}", "critical", "x", ())
            rows.count(at * SECOND, "rows_lost", at, labels(reason=f"\x00{i}"))
        gathered.add(rows)
        found = [finding(CrashLoop, subject=f"u{i}", period_s=1.0) for i in range(500)]
        gathered.judged([*found, finding(CoreSaturated, spans=[Span(core, at, at + 1) for core in range(4096)])])
        for i in range(100):
            gathered.incident(f"kind{i}")
    for name, metric in METRICS.items():
        assert len(gathered.values[name]) <= metric.most, name
    assert series(gathered) <= most_series() < 2000


@pytest.mark.parametrize(
    ("text", "hierarchy"),
    [
        ("#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t80\t1\nmemory\t4\t90\t1\n", 4),
        ("memory\t0\t90\t1\n", 0),
        ("cpu\t1\t80\t1\n", 0),
        ("memory\tx\n\xff", 0),
    ],
)
def test_the_memory_hierarchy_is_told_by_the_kernel(tmp_path: Path, text: str, hierarchy: int) -> None:
    tree = Tree(tmp_path)
    assert memory_hierarchy(Root(str(tree.path))) is None
    tree.write("proc/cgroups", text)
    assert memory_hierarchy(Root(str(tree.path))) == hierarchy
