"""The rivals: each is judged in its worst stretch, found with its true begin and end, and names who does it."""

import random

import pytest

from exhume.diagnosis.findings import (
    cpu_full,
    cpu_throttled,
    irq_imbalance,
    nic_reset,
    oom,
    page_fault_storm,
    reclaim,
    steal,
    writeback_stall,
)
from exhume.diagnosis.findings.cpu_full import Program
from exhume.diagnosis.findings.nic_reset import NicReset, ResetCounter
from exhume.diagnosis.findings.registry import BY_NAME, examine
from exhume.diagnosis.findings.subjects import Process
from exhume.recording.recording import Recording, labels
from exhume.recording.schema import TABLES
from exhume.recording.source_state import Failed, SourceState
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import only
from tests.diagnosis.findings.made import SECOND
from tests.diagnosis.findings.shown import (
    CONSOLE,
    DIRECT,
    FAULT,
    PSI_MEMORY,
    T,
    burst,
    flood,
    lasted,
    one,
    read,
    sampled,
    ten_minutes,
)


def test_a_counter_that_never_changed_was_seen_and_is_zero() -> None:
    recording = ten_minutes("vmstat")
    recording.count(0, "vmstat_pgscan_direct", 77)
    recording.count(0, "vmstat_pgscan_kswapd", 77)
    recording.count(0, "vmstat_pgmajfault", 77)
    assert "0 direct scans a second, 0 by kswapd" in reclaim.detect(recording, T).ruled_out
    assert page_fault_storm.detect(recording, T).ruled_out == "0 major faults a second"


def throttle(recording: Recording, cgroup: str, start: int, end: int, quota: int = 50_000) -> None:
    at = labels(cgroup=cgroup)
    for second in range(0, 601, 10):
        held = max(0, min(second, end) - start)
        for name, value in (
            ("cpu_quota_us", quota),
            ("cpu_period_us", 100_000),
            ("cpu_periods", 10 * second),
            ("cpu_throttled_periods", 9 * held),
            ("cpu_throttled_ns", held * 10**8),
        ):
            recording.count(second * SECOND, name, value, at)


def test_a_quota_that_bites_for_a_while_is_told_with_that_while() -> None:
    recording = ten_minutes()
    throttle(recording, "/kubepods/pod1/c", 300, 330)
    throttle(recording, "/kubepods/pod1", 0, 0, 200_000)
    finding = one(cpu_throttled.detect(recording, T))
    assert (finding.subject, finding.severity, lasted(finding)) == ("/kubepods/pod1/c", "warning", (300, 330))
    assert "270 of 300 periods" in finding.summary
    assert (finding.facts.quota_cpus, finding.facts.parent_quota_cpus, finding.facts.machine_busy_ratio) == (0.5, 2.0, 0)
    assert (finding.facts.parent_cgroup, finding.facts.throttled_ms) == ("/kubepods/pod1", 3_000)


def test_a_machine_that_is_full_for_a_while_is_full_then() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 120.0, {core: [(40.0, 60.0, "user")] for core in (0, 1)}, step=0.5)
    for second, ticks in ((30, 0), (60, 3_000), (90, 3_000)):
        recording["processes"].add(second * SECOND, 9, 0, 5, 1, "solver", "R", 0, ticks, 0, "/batch/solver")
        recording["processes"].add(second * SECOND, 8, 0, 5, 1, "web", "R", 0, ticks // 3, 0, "/web/x")
    finding = one(cpu_full.detect(recording, T))
    assert lasted(finding) == pytest.approx((40, 60), abs=1.01)
    assert (finding.facts.busiest_cgroup, finding.facts.busiest_cgroup_ratio) == (
        "/batch/solver",
        pytest.approx(0.75, abs=0.001),
    )
    short = made.recording(cpus=2)
    made.cores(short, 120.0, {core: [(40.0, 44.0, "user")] for core in (0, 1)}, step=0.5)
    assert cpu_full.detect(short, T).ruled_out == "97% idle, at most 40% busy for 10 s"


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (0.0, "time: the machine is full;"),
        (0.35, "the machine is full, 35% of it with work in the kernel;"),
        (0.5, "the machine is full, 50% of it with work in the kernel;"),
        (1.0, "the machine is full of work in the kernel;"),
    ],
)
def test_a_full_machine_is_full_of_programs_or_of_the_kernel(kernel: float, said: str) -> None:
    recording = made.recording(cpus=2)
    parts: list[tuple[float, float, str]] = []
    for second in range(20):
        parts += [(second, second + kernel, "system"), (second + kernel, second + 1, "user")]
    made.cores(recording, 20.0, dict.fromkeys((0, 1), parts), step=0.5)
    for second in range(0, 21, 2):
        recording.count(second * SECOND, "pressure_us", second * 900_000, labels(cgroup="", kind="some", resource="cpu"))
        recording["processes"].add(second * SECOND, 9, 0, 5, 1, "solver", "R", 0, 100 * second, 0, "/batch/solver")
    finding = one(cpu_full.detect(recording, T))
    assert said in finding.summary
    assert (finding.facts.kernel_ratio, finding.facts.user_ratio) == pytest.approx((kernel, 1 - kernel), abs=0.05)


def test_a_full_machine_is_seen_in_samples_alone() -> None:
    recording = made.recording(cpus=2, on=())
    for core in (0, 1):
        made.sample(recording, 0.0, 20.0, core, "solver", 100 + core, ("work",), "user", cgroup="/batch/solver")
    finding = one(cpu_full.detect(recording, T))
    assert finding.facts.busy_ratio > 0.95
    assert finding.facts.busiest.process.comm == "solver"
    assert finding.facts.busiest_cgroup == "/batch/solver"
    assert finding.facts.counted_in == "stack samples"
    assert steal.detect(recording, T).unseen


def test_programs_that_live_shortly_are_one_in_samples_whatever_their_pids() -> None:
    recording = made.recording(cpus=1, on=())
    for second in range(20):
        made.sample(recording, second, second + 0.9, 0, "cc1", 200 + second, ("work",), "user", cgroup="/build")
        made.sample(recording, second + 0.9, second + 1.0, 0, "make", 9, ("work",), "user", cgroup="/build")
    finding = one(cpu_full.detect(recording, T))
    assert finding.facts.busiest == Program(Process("cc1", 219, more=19), "/build")
    assert str(finding.facts.busiest) == "cc1 [219 and 19 more] of build"
    assert finding.facts.busiest_cpu_ms == pytest.approx(18_000, rel=0.02)
    assert finding.facts.second == Program(Process("make", 9), "/build")


def test_a_machine_that_is_full_but_for_short_pauses_is_full() -> None:
    recording = made.recording(cpus=1)
    made.cores(recording, 30.0, {0: [(second, second + 0.97, "user") for second in range(5, 20)]}, step=0.1)
    start, end = lasted(one(cpu_full.detect(recording, T)))
    assert start >= 4
    assert end <= 21


@pytest.mark.parametrize(
    ("stolen", "waited", "idle", "seconds", "severity"),
    [
        (0.15, None, False, 10, "info"),
        (0.15, 0.05, False, 10, "info"),
        (0.25, 0.5, False, 10, "warning"),
        (0.15, 0.5, True, 10, "info"),  # who waits while cores are idle waits for something else, such as a quota
        (0.3, None, True, 10, "warning"),
        (0.3, 0.0, True, 10, "warning"),
        (0.3, 0.5, False, 1, "info"),
    ],
)
def test_a_little_steal_is_loud_only_where_work_waits(
    stolen: float, waited: float | None, idle: bool, seconds: int, severity: str
) -> None:
    recording = made.recording(cpus=2)
    taken: list[tuple[float, float, str]] = [(i, i + stolen, "steal") for i in range(20, 20 + seconds)]
    worked: list[tuple[float, float, str]] = [] if idle else [(i + stolen, i + 1, "user") for i in range(60)]
    made.cores(recording, 60.0, dict.fromkeys((0, 1), taken + worked), step=0.5)
    if waited is not None:
        read(recording, "pressure", 60)
        burst(recording, "pressure_us", waited * 1e6, 20, 30, 60, labels(cgroup="", kind="some", resource="cpu"))
    finding = one(steal.detect(recording, T))
    assert finding.severity == severity
    assert finding.facts.steal_ratio == pytest.approx(stolen, abs=0.03)
    assert lasted(finding) == pytest.approx((20, 20 + seconds), abs=1.01)


def test_one_core_that_is_stolen_is_told_quietly() -> None:
    recording = made.recording(cpus=16)
    made.cores(recording, 20.0, {5: [(4.0, 8.0, "steal")]}, step=0.5)
    finding = one(steal.detect(recording, T))
    assert (finding.severity, finding.facts.worst_core) == ("info", 5)
    assert {span.core for span in finding.spans} == {5}


def test_a_stall_of_writeback_names_who_stood_still() -> None:
    recording = ten_minutes("vmstat", "pressure")
    burst(recording, "pressure_us", 800_000, at=labels(cgroup="", kind="full", resource="io"))
    for second, pages in ((0, 0), (300, 9_000), (320, 0)):
        recording.count(second * SECOND, "vmstat_nr_writeback", pages)
        recording.count(second * SECOND, "vmstat_nr_dirty", 2 * pages)
    recording.count(0, "vmstat_nr_dirty_threshold", 30_000)
    for second in (310, 500):
        recording["processes"].add(second * SECOND, second, 0, 5, 1, "postgres", "D", 0, 0, 0, "/db")
    finding = one(writeback_stall.detect(recording, T))
    assert lasted(finding) == (300, 320)
    assert finding.facts.blocked.processes == (Process("postgres", 310),)
    assert finding.facts.unwritten_pages == 27_000


def test_a_kill_tells_whose_limit_it_was() -> None:
    recording = ten_minutes()
    for kind, fields in (
        ("oom-summary", {"constraint": "CONSTRAINT_MEMCG", "pid": "77", "comm": "python"}),
        ("memcg-oom-kill", {"pid": "77", "comm": "python", "cgroup": "/kubepods/pod1/c", "limit_cgroup": "/kubepods/pod1"}),
    ):
        recording["events"].add(500 * SECOND, kind, "python", "critical", "the line", labels(**fields))
    finding = one(oom.detect(recording, T))
    assert (finding.facts.limit_cgroup, finding.facts.victim_cgroup) == ("/kubepods/pod1", "/kubepods/pod1/c")
    assert (finding.facts.cgroup_paths, finding.facts.constraint) == (("/kubepods/pod1",), oom.Constraint.MEMCG)
    assert finding.summary.startswith("/kubepods/pod1 reached its memory limit: 1 killed, last python")


def test_a_limit_that_the_log_named_once_is_that_of_the_later_kills_too() -> None:
    recording = ten_minutes()
    for second, fields in ((500, {"limit_cgroup": "/kubepods/pod1"}), (502, {}), (504, {})):
        killed = labels(pid=str(second), comm="python", **fields)
        recording["events"].add(second * SECOND, "memcg-oom-kill", "python", "critical", "the line", killed)
    finding = one(oom.detect(recording, T))
    assert (finding.facts.limit_cgroup, finding.facts.kills) == ("/kubepods/pod1", 3)


def test_kills_of_the_days_before_are_not_those_of_the_recording() -> None:
    recording = ten_minutes()
    for second, comm in ((-90_000, "old"), (500, "python")):
        recording["events"].add(second * SECOND, "oom-kill", comm, "critical", "the line", labels(pid="7", comm=comm))
    finding = one(oom.detect(recording, T))
    assert (finding.subject, finding.facts.kills) == ("python", 1)
    only_before = ten_minutes()
    only_before["events"].add(-90_000 * SECOND, "oom-kill", "old", "critical", "the line", labels(pid="7", comm="old"))
    assert one(oom.detect(only_before, T)).severity == "info"


@pytest.mark.parametrize(("fields", "cgroup"), [({"cgroup": "/kubepods/pod1/c"}, "/kubepods/pod1/c"), ({}, "")])
def test_a_kill_of_the_node_tells_where_the_victim_was(fields: dict[str, str], cgroup: str) -> None:
    recording = ten_minutes()
    killed = labels(pid="77", comm="python", **fields)
    recording["events"].add(500 * SECOND, "oom-kill", "python", "critical", "the line", killed)
    finding = one(oom.detect(recording, T))
    assert (finding.facts.cgroup, finding.facts.limit_cgroup) == (cgroup, "")


def test_interrupts_are_judged_while_there_were_many() -> None:
    recording = made.recording(on=("cpu", "interrupts"))
    made.cores(recording, 600.0, {0: [(300.0, 330.0, "softirq")]}, step=1.0)
    for core, share in ((0, 0.95), (1, 0.05)):
        at = labels(irq=60, cpu=core, device="eth0-Tx-Rx-0")
        for second in range(0, 601, 10):
            value = 10 * second + round(share * 50_000 * max(0, min(second, 330) - 300))
            recording.count(second * SECOND, "interrupts", value, at)
    finding = one(irq_imbalance.detect(recording, T))
    assert (finding.subject, lasted(finding)) == ("core 0", (300, 330))
    assert finding.facts.interrupt_time_ratio > 0.9


def test_a_reset_tells_its_reason_its_queue_and_the_core_that_serves_it() -> None:
    recording = ten_minutes()
    pci = "0000:20:03.0"
    for second, kind, fields in (
        (400, "nic-queue-paused", {"queue": 5, "napi_age_ms": 6596, "napi_scheduled": 1}),
        (400, "nic-napi-late", {"reset_reason": "suspected-poll-starvation"}),
        (401, "nic-reset-done", {"driver_version": "2.11.0g"}),
    ):
        every = labels(device="eth0", pci=pci, driver="ena", **fields)
        recording["events"].add(second * SECOND, kind, "eth0", "critical", "the line", every)
    recording.count(0, "interrupts", 10**6, labels(irq=61, cpu=3, device="eth0-Tx-Rx-5"))
    for second, resets in ((0, 1), (600, 2)):
        recording.count(second * SECOND, "nic_stat", resets, labels(device="eth0", stat="total_resets"))
    finding = only(nic_reset.detect(recording, T), NicReset)
    facts = finding.facts
    assert (facts.reason, facts.queue, facts.core) == ("suspected-poll-starvation", 5, 3)
    assert (facts.driver, facts.driver_version) == ("ena", "2.11.0g")
    assert facts.counters == (ResetCounter(name="total_resets", total=2, grown=1),)
    assert (finding.severity, len(finding.spans)) == ("critical", 1)


def test_resets_that_only_the_device_counts_are_told_with_their_reason_and_time() -> None:
    recording = ten_minutes()
    for second, value in ((0, 3), (290, 3), (300, 4), (600, 4)):
        recording.count(second * SECOND, "nic_stat", value, labels(device="eth0", stat="wd_expired"))
    finding = only(nic_reset.detect(recording, T), NicReset)
    assert (finding.severity, finding.facts.reason) == ("critical", "keep-alive")
    assert finding.facts.counters == (ResetCounter(name="wd_expired", total=4, grown=1),)
    assert lasted(finding) == (290, 300)


def shuffled(recording: Recording) -> Recording:
    """The same rows in another order."""
    other = Recording(recording.node)
    for name in TABLES:
        rows = [tuple(row.values()) for row in recording[name].rows()]
        if name != "sources":
            random.Random(name).shuffle(rows)
        other[name].add_rows(rows)
    return other


def test_the_order_of_rows_does_not_matter() -> None:
    recording = sampled({0: (2.0, 8.0, DIRECT, "a"), 1: (1.0, 9.0, FAULT, "b"), 2: (2.0, 8.0, CONSOLE, "c")}, seconds=12.0)
    read(recording, "vmstat", 12)
    read(recording, "pressure", 12)
    burst(recording, "vmstat_pgscan_direct", 9_000, 2, 8, 12)
    burst(recording, "vmstat_pgmajfault", 5_000, 2, 8, 12)
    burst(recording, "pressure_us", 500_000, 2, 8, 12, PSI_MEMORY)
    flood(recording)
    other = shuffled(recording)
    found = 0
    for kind in ("reclaim", "page-fault-storm", "printk-flood", "cpu-full", "steal"):
        examined = BY_NAME[kind].detect(recording, T)
        assert examined == BY_NAME[kind].detect(other, T)
        found += len(examined.findings)
    assert found >= 3


def test_samples_of_one_command_say_nothing_about_the_machine() -> None:
    recording = made.recording(cpus=2, on=())
    for core in (0, 1):
        made.sample(recording, 0.0, 20.0, core, "job", 100 + core, ("copy_page", "asm_exc_page_fault"))
    assert one(cpu_full.detect(recording, T)).facts.busy_ratio > 0.95
    recording = made.recording(cpus=2, on=())
    made.sample(recording, 0.0, 20.0, 0, "job", 100, ("copy_page", "asm_exc_page_fault"))
    recording.add_source(0, "every-core", SourceState.off(Failed("of one command")))
    for one_of in examine(recording, T):
        assert one_of.findings == ()
        if one_of.kind in ("cpu-full", "core-saturated"):
            assert one_of.unseen == "of one command"
    nowhere = made.recording(cpus=2, on=())
    made.sample(nowhere, 0.0, 20.0, -1, "job", 100, ("copy_page", "asm_exc_page_fault"))
    assert cpu_full.detect(nowhere, T).unseen == "the samples do not say which core they are of"


@pytest.mark.parametrize(("seconds", "hz"), [(0.4, 99), (3.0, 3)])
def test_a_few_samples_do_not_make_a_machine_full(seconds: float, hz: int) -> None:
    recording = made.recording(cpus=2, on=())
    for core in (0, 1):
        made.sample(recording, 0.0, seconds, core, "job", 100 + core, ("work",), "user", hz=hz)
    assert "too few samples" in cpu_full.detect(recording, T).unseen
    short = made.recording(cpus=2)
    made.cores(short, 0.4, {core: [(0.0, 0.4, "user")] for core in (0, 1)})
    assert cpu_full.detect(short, T).unseen == "the cores were seen for 400 ms only"


def test_samples_whose_times_are_made_up_are_not_judged() -> None:
    recording = made.recording(cpus=1, on=())
    made.sample(recording, 0.0, 20.0, 0, "job", 100, ("copy_page", "asm_exc_page_fault"))
    recording.add_source(0, "sample-times", SourceState.off(Failed("made up")))
    for one_of in examine(recording, T):
        assert one_of.findings == ()
        if one_of.kind in ("cpu-full", "core-saturated"):
            assert one_of.unseen == "made up"
    assert len(recording["samples"]) == 1980


def test_cpu_time_is_that_of_all_cores_that_were_sampled_where_nobody_counted_them() -> None:
    recording = made.recording(cpus=0, on=())
    for core in (0, 1):
        made.sample(recording, 0.0, 20.0, core, f"job{core}", 100 + core, ("work",), "user")
    assert one(cpu_full.detect(recording, T)).facts.cpu_ms == pytest.approx(40_000, rel=0.02)


def test_names_in_the_list_of_the_busiest_are_short_each() -> None:
    recording = made.recording(cpus=2, on=())
    for core in (0, 1):
        made.sample(recording, 0.0, 20.0, core, "python", 100 + core, ("work",), "user", cgroup=f"/api/{core}{'6' * 200}")
    summary = one(cpu_full.detect(recording, T)).summary
    assert "python [100] of api/066" in summary
    assert "python [101] of api/166" in summary
    assert len(summary) < 400
