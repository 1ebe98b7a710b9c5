"""One recorded night gives the same numbers of resets, stalls, restarts, OOM kills and lockups wherever they are counted."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.agent.gathering import Gathered
from exhume.diagnosis.findings import crash_loop, napi_starved, nic_reset, oom, soft_lockup
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.model import of
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.nic_reset import NicReset
from exhume.diagnosis.findings.oom import Oom
from exhume.diagnosis.findings.soft_lockup import SoftLockup
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.latency import latency_report
from exhume.fleet import recordings
from exhume.recording.events import (
    REASONS,
    REPORT_THE_END,
    ResetDecoder,
    lockup_episodes,
    lockups,
    nic_resets,
    oom_kills,
    restarts,
    stalls,
)
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording, labels
from exhume.remedy.criteria_rare import rare
from exhume.remedy.criteria_signs import network_stalls
from exhume.render.timeline import timeline
from exhume.sources.kernel_forms import ENA_RESET_REASONS, NIC_FORMS
from tests.agent.made import SECOND, logged
from tests.diagnosis.findings import made
from tests.examples import examples
from tests.render.told import write
from tests.trees import Tree
from tests.web.serving import browser, view

T = Thresholds()
END_S = 3600
ENA = "ena 0000:20:03.0 eth0: "
DONE = "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"
FAILED = "ena 0000:20:03.0: Reset attempt failed. Can not reset the device"
PAUSED = ENA + "TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
LATE = ENA + "napi handler hasn't been called for a long time but is scheduled"
WATCHDOG = ENA + "NETDEV WATCHDOG: CPU: 3: transmit queue 5 timed out 5000 ms"
MLX = "mlx5_core 0000:81:00.0 eth1: TX timeout on queue: {}, SQ: 0x1, CQ: 0x2, SQ Cons: 0x3 SQ Prod: 0x4"

# Each with the lines of one reset, or of as many as it says.
RESETS: tuple[tuple[int, tuple[tuple[float, str], ...]], ...] = (
    (1, ((200.0, PAUSED), (200.0, LATE), (201.5, DONE))),
    (1, ((400.0, ENA + "Keep alive watchdog timeout."), (401.0, ENA + "Trigger reset is on"), (403.0, DONE))),
    # The watchdog fires again while a reset of ENA is under way.
    (1, ((600.0, WATCHDOG), (605.1, WATCHDOG), (610.2, WATCHDOG), (612.0, DONE))),
    # Two lines say that one reset failed.
    (1, ((900.0, ENA + "Transmit time out"), (903.0, FAILED), (903.1, DONE.replace("successfully", "status: -5")))),
    # An end without a beginning, for a user asked for it; and another one right after.
    (2, ((1000.0, DONE), (1002.0, DONE))),
    # Lines of one moment in the wrong order.
    (1, ((1200.0, DONE), (1200.0, ENA + "Trigger reset is on"))),
    # Both devices at once.
    (2, ((1500.0, WATCHDOG), (1500.1, MLX.format(1)), (1501.0, DONE))),
    # The end was not logged, or is still to come.
    (1, ((1800.0, PAUSED), (1805.0, PAUSED))),
    # mlx5 logs a line for each queue, each time that it resets them, and no end.
    (2, (*((300.0 + i / 10, MLX.format(i)) for i in range(8)), *((315.0 + i / 10, MLX.format(i)) for i in range(8)))),
)
KILL = "Memory cgroup out of memory: Killed process {0} (python) total-vm:9kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"
SUMMARY = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/a,task_memcg=/a/b,task=python,pid={0},uid=0"
)
OTHER_LINES = (
    (2100.0, SUMMARY.format(71)),
    (2100.0, KILL.format(71)),
    (2100.1, KILL.format(72)),
    (2200.0, "Out of memory: Killed process 73 (java) total-vm:9kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"),
    # A soft lockup that lasts, is over, and comes again; and an RCU stall of that core.
    (2500.0, "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kubelet:11]"),
    (2524.0, "watchdog: BUG: soft lockup - CPU#3 stuck for 44s! [kubelet:11]"),
    (2590.0, "watchdog: BUG: soft lockup - CPU#3 stuck for 111s! [kubelet:11]"),
    (3200.0, "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kubelet:11]"),
    (3210.0, "rcu: INFO: rcu_sched self-detected stall on CPU"),
    (3210.0, "rcu: \t3-....: (5249 ticks this GP) idle=1/0/0 softirq=1/1 fqs=1"),
    (3300.0, "INFO: task fsync:99 blocked for more than 120 seconds."),
)
EXPECTED_RESETS = {"eth0": 9, "eth1": 3}
EXPECTED_LOCKUPS = 3


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    it = made.recording(on=("cpu", "kernel-log", "latency", "units"))
    for second in range(0, END_S + 1, 10):
        it["cpu"].add(second * SECOND, 0, *range(10))
        it["anchors"].add(second * SECOND, second * SECOND, second * SECOND, (1_700_000_000 + second) * SECOND, 1)
    lines = sorted([line for _, some in RESETS for line in some] + list(OTHER_LINES), key=lambda line: line[0])
    logged(Tree(tmp_path_factory.mktemp("log")), it, lines)
    # The tracepoint of the transmit watchdog tells of the same reset as the log does.
    told = labels(device="eth1", netns=1, queue=3, count=1)
    it["events"].add(round(300.05 * SECOND), "xmit-timeout", "eth1", "warning", "eth1: nothing was sent", told)
    made.stall(it, 100.1, 80, over=False)
    made.stall(it, 100.3, 280)
    made.stall(it, 1499.9, 1600)
    made.stall(it, 1500.0, 300, core=2, device="eth1")
    made.stall(it, 1600.0, 300, core=2, device="", what="softirq")
    made.stall(it, END_S - 5, 70, core=3, over=False)
    for second, count in ((10, 10), (20, 11), (30, -1), (40, 14), (50, 0), (60, 2), (70, 2)):
        it["units"].add(second * SECOND, "ecs.service", "activating", "auto-restart", count, "exit-code", "", 1, "", "enabled")
    return it


def cut(whole: Recording, times: Sequence[int]) -> list[Recording]:
    """Batches of the rows of a recording, divided at these times."""
    parts = [Recording(whole.node) for _ in range(len(times) + 1)]
    for name in ("events", "cpu", "anchors"):
        for row in whole[name].rows():
            parts[bisect_right(times, row["time"])][name].add(*row.values())
    return parts


def metric(night: Recording, times: Sequence[int], name: str) -> Counter[str]:
    """By device."""
    gathered = Gathered(4)
    for batch in cut(night, times):
        gathered.add(batch)
    counted: Counter[str] = Counter()
    for key, value in gathered.values[name].items():
        counted[key[0] if name == "exhume_nic_resets_total" else key[1]] += round(value)
    return counted


# Not at all; in the middle of resets, stalls and lockups; every few seconds.
CUTS = {
    "whole": [],
    "in the middle": [
        round(second * SECOND) for second in (100.2, 200.7, 300.35, 402.0, 607.0, 903.05, 1001.0, 1200.2, 1802.0)
    ],
    "every few seconds": [second * SECOND for second in range(1, END_S, 7)],
}


@pytest.mark.parametrize("times", CUTS.values(), ids=CUTS)
def test_resets_are_the_same_in_finding_metric_fleet_proof_and_page(night: Recording, times: list[int]) -> None:
    finding = {one.subject: one.facts.resets for one in of(nic_reset.detect(night, T).findings, NicReset)}
    assert finding == EXPECTED_RESETS
    assert sum(EXPECTED_RESETS.values()) == sum(count for count, _ in RESETS)
    assert metric(night, times, "exhume_nic_resets_total") == EXPECTED_RESETS
    assert recordings.resets(night, night.window) == 12
    (resets, *_) = rare(night, night)
    assert (resets.before, resets.after) == (12, 12)


def test_stalls_are_the_same_in_finding_metric_proof_latency_and_page(night: Recording) -> None:
    findings = of(napi_starved.detect(night, T).findings, NapiStarved)
    measured = {one.subject: one.facts.measured for one in findings if one.facts.measured is not None}
    assert {name: (seen.stalls, seen.unfinished) for name, seen in measured.items()} == {"eth0": (3, 1), "eth1": (1, 0)}
    for times in CUTS.values():  # a metric counts a stall when it ends
        assert metric(night, times, "exhume_stalls_total") == {"eth0": 2, "eth1": 1, "": 1}
    assert network_stalls(None, night, T).after == pytest.approx(4 / (END_S / 60))
    assert len(latency_report(night, T).stalls) == len(stalls(night)) == 5
    shown = timeline(night, 0, END_S * SECOND, (0, 0), (), 10)
    assert sum(len(bars.spans) for bars in shown.bars) == 5


def test_latency_has_the_severity_of_the_finding_and_obeys_the_same_thresholds(night: Recording) -> None:
    strict, lax = Thresholds(napi_stall_critical_ms=100), Thresholds(napi_stall_critical_ms=9000, napi_stall_warning_ms=8000)
    for limits in (T, strict, lax):
        quiet = made.recording(on=("cpu", "latency"))
        made.cores(quiet, 600.0, {})
        made.stall(quiet, 500.0, 300)
        (finding,) = napi_starved.detect(quiet, limits).findings
        health = {"info": "healthy", "warning": "warning", "critical": "critical"}[finding.severity]
        assert latency_report(quiet, limits).health == health
    assert latency_report(night, T).health == "critical"


def test_restarts_are_the_same_in_finding_timeline_and_page(night: Recording) -> None:
    assert [(one.time // SECOND, one.times) for one in restarts(night)] == [(20, 1), (40, 3), (60, 2)]
    (loop,) = [one for one in of(crash_loop.detect(night, T).findings, CrashLoop) if one.facts.name == "ecs.service"]
    assert loop.facts.restarts_in_window == 6
    (shown,) = timeline(night, 0, END_S * SECOND, (0, 0), (), 10).restarts
    assert (shown.unit, shown.total) == ("ecs.service", 6)


def test_kills_are_the_same_in_finding_and_decoder(night: Recording) -> None:
    kills = oom_kills(night)
    assert [(kill.comm, kill.memcg, kill.cgroup, kill.constraint) for kill in kills] == [
        ("python", True, "/a/b", "CONSTRAINT_MEMCG"),
        ("python", True, "", ""),
        ("java", False, "", ""),
    ]
    assert sum(one.facts.kills for one in of(oom.detect(night, T).findings, Oom)) == 3


def test_lockups_are_the_same_in_finding_and_proof(night: Recording) -> None:
    findings = of(soft_lockup.detect(night, T).findings, SoftLockup)
    assert Counter(one.facts.complaint for one in findings) == {"soft-lockup": 2, "rcu-stall": 1, "hung-task": 1}
    (_, proof, *_) = rare(night, night)
    assert (proof.before, proof.after) == (EXPECTED_LOCKUPS, EXPECTED_LOCKUPS), "a hung task holds no core"
    assert len(lockup_episodes(lockups(night))) == 4


def test_the_page_and_the_fleet_count_the_same_from_disk(night: Recording, tmp_path: Path) -> None:
    write(tmp_path / "night", night)
    lanes = browser(view(str(tmp_path / "night"))).api("lanes", columns=10, from_=0, to=(END_S + 1) * SECOND)
    assert Counter(one["device"] for one in lanes["resets"]) == EXPECTED_RESETS
    assert sum(one["times"] for one in lanes["restarts"]) == 6
    assert sum(len(lane["spans"]) for lane in lanes["bars"]) == 5
    assert Counter(flag["kind"] for flag in lanes["flags"] if "oom-kill" in flag["kind"]).total() == 3
    (node,) = recordings.load(str(tmp_path)).nodes
    assert node.resets == 12
    folder = Folder(str(tmp_path / "night"))
    assert len(nic_resets(folder.load())) == 12


def test_what_the_log_had_from_before_the_recording_is_history(night: Recording) -> None:
    """The finding has it with its age; it is not counted as something that happened while the node was recorded."""
    later = Recording(night.node)
    for name in ("events", "anchors", "cpu", "sources"):
        for row in night[name].rows():
            if name in ("events", "sources") or row["time"] >= 1400 * SECOND:
                later[name].add(*row.values())
    (resets, *_) = rare(None, later)
    assert (
        resets.after
        == recordings.resets(later, later.window)
        == sum(metric(later, [], "exhume_nic_resets_total").values())
        == 3
    )
    findings = of(nic_reset.detect(later, T).findings, NicReset)
    assert {one.subject: one.facts.resets for one in findings} == EXPECTED_RESETS
    assert sum(span.end >= 1400 * SECOND for one in findings for span in one.spans) == 3


def test_the_tracepoint_of_the_watchdog_counts_where_the_log_cannot_be_read() -> None:
    it = made.recording(on=("cpu", "latency"))
    made.cores(it, 60.0, {})
    for second in (20, 21, 40):
        told = labels(device="eth1", netns=1, queue=3, count=1)
        it["events"].add(second * SECOND, "xmit-timeout", "eth1", "warning", "eth1: nothing was sent", told)
    (finding,) = of(nic_reset.detect(it, T).findings, NicReset)
    (resets, *_) = rare(None, it)
    assert finding.facts.resets == resets.after == recordings.resets(it, it.window) == 2
    assert metric(it, [], "exhume_nic_resets_total") == {"eth1": 2}


@pytest.mark.parametrize("batches", [1, 3])
def test_a_reset_whose_device_is_named_midway_is_one(batches: int) -> None:
    """Its first line has the PCI address only."""
    whole = made.recording()
    lines = (
        (100, "nic-admin-queue-down", {"pci": "0000:20:03.0", "driver": "ena"}),
        (101, "nic-reset-triggered", {"pci": "0000:20:03.0", "device": "eth0", "driver": "ena"}),
        (103, "nic-reset-done", {"pci": "0000:20:03.0", "driver": "ena"}),
    )
    for time, kind, fields in lines:
        whole["events"].add(time * SECOND, kind, fields.get("device", fields["pci"]), "critical", "", labels(**fields))
    assert [(reset.device, reset.outcome) for reset in nic_resets(whole)] == [("eth0", "done")]
    decoder = ResetDecoder()
    parts = [whole] if batches == 1 else cut(whole, [101 * SECOND, 103 * SECOND])
    assert sum(len(decoder.decode(part)) for part in parts) == 1


def test_a_reset_has_its_outcome_and_reason(night: Recording) -> None:
    of_eth0 = [(reset.time // SECOND, reset.outcome, reset.reason) for reset in nic_resets(night) if reset.device == "eth0"]
    assert of_eth0 == [
        (200, "done", "suspected-poll-starvation"),
        (400, "done", "keep-alive"),
        (600, "done", "netdev-watchdog"),
        (900, "failed", "netdev-watchdog"),
        (1000, "done", ""),
        (1002, "done", ""),
        (1200, "done", ""),
        (1500, "done", "netdev-watchdog"),
        (1800, "not-reported", ""),
    ]
    assert {reset.outcome for reset in nic_resets(night) if reset.device == "eth1"} == {"not-reported"}


def test_the_tables_of_the_decoder_are_those_of_the_log_forms() -> None:
    assert set(REASONS.values()) <= set(ENA_RESET_REASONS.values())
    assert {form.driver for form in NIC_FORMS if form.kind == "nic-reset-done"} == set(REPORT_THE_END)


KINDS = ("nic-tx-timeout", "xmit-timeout", "nic-queue-paused", "nic-napi-late", "nic-keepalive-lost", "nic-tx-not-completed",
         "nic-reset-triggered", "nic-reset-done", "nic-reset-failed", "soft-lockup")  # fmt: skip
DEVICES = (
    labels(device="eth0", pci="0000:20:03.0", driver="ena"),
    labels(pci="0000:20:03.0", driver="ena"),
    labels(device="eth1", pci="0000:81:00.0", driver="mlx5_core"),
    labels(device="eth2"),
)
LINES = st.lists(st.tuples(st.integers(1, 70_000), st.sampled_from(KINDS), st.sampled_from(DEVICES)), max_size=40)


def written(lines: list[tuple[int, str, tuple[tuple[str, str], ...]]]) -> Recording:
    it = made.recording(on=("kernel-log",))
    time = 0
    for gap_ms, kind, fields in lines:
        time += gap_ms * 1_000_000
        known = dict(fields)
        it["events"].add(time, kind, known.get("device") or known["pci"], "critical", kind, fields)
    return it


@given(LINES, st.lists(st.integers(0, 2_000_000), max_size=20))
@settings(max_examples=examples(400), deadline=None)
def test_any_division_into_batches_gives_the_resets_of_the_whole(
    lines: list[tuple[int, str, tuple[tuple[str, str], ...]]], times_ms: list[int]
) -> None:
    whole = written(lines)
    found = [(reset.device, reset.time) for reset in ResetDecoder().decode(whole)]
    decoder = ResetDecoder()
    batches = cut(whole, sorted(ms * 1_000_000 for ms in times_ms))
    assert [(reset.device, reset.time) for batch in batches for reset in decoder.decode(batch)] == found
    assert len(nic_resets(whole)) == len(found)


@given(LINES)
@settings(max_examples=examples(200), deadline=None)
def test_each_success_is_a_reset_and_each_line_is_of_one_at_most(
    lines: list[tuple[int, str, tuple[tuple[str, str], ...]]],
) -> None:
    whole = written(lines)
    resets = nic_resets(whole)
    done = sum(kind == "nic-reset-done" for kind in whole["events"].texts("kind"))
    assert sum(line.kind == "nic-reset-done" for reset in resets for line in reset.lines) == done
    assert all(sum(line.kind == "nic-reset-done" for line in reset.lines) <= 1 for reset in resets)
    taken = [id(line) for reset in resets for line in reset.lines]
    assert len(taken) == len(set(taken))
    assert resets == sorted(resets, key=lambda reset: reset.time)
