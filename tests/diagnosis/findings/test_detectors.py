"""Each detector: found where it is, ruled out with a number where it is not, unseen where it cannot look."""

import pytest

from exhume.diagnosis.findings import (
    cgroup_dirs_leak,
    core_saturated,
    cpu_full,
    cpu_throttled,
    crash_loop,
    defunct_processes,
    irq_imbalance,
    napi_starved,
    nic_reset,
    oom,
    page_fault_storm,
    printk_flood,
    reclaim,
    soft_lockup,
    steal,
    writeback_stall,
    zombie_memcgs,
)
from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.cpu_full import CpuFull
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.defunct_processes import DefunctProcesses
from exhume.diagnosis.findings.model import Examined, Facts, Finding
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.nic_reset import NicReset
from exhume.diagnosis.findings.page_fault_storm import PageFaultStorm
from exhume.diagnosis.findings.printk_flood import PrintkFlood
from exhume.diagnosis.findings.reclaim import Reclaim
from exhume.diagnosis.findings.registry import BY_NAME, KINDS
from exhume.diagnosis.findings.steal import Steal
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.recording.recording import Recording, labels
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import known, only
from tests.diagnosis.findings.made import SECOND

T = Thresholds()


def one(examined: Examined) -> Finding[Facts]:
    assert len(examined.findings) == 1, examined
    return examined.findings[0]


def memcg(dying: int, live: int, scope: str = "node", complete: int = 1) -> Recording:
    recording = made.recording()
    recording["memcg"].add(1, "/", live, dying, live + max(0, dying), "proc-cgroups", scope, complete)
    return recording


@pytest.mark.parametrize(
    ("dying", "live", "severity"),
    [
        (68_440, 240, "warning"),
        (1_000, 200, "warning"),
        (999, 10, "info"),  # below the floor
        (1_000, 201, "info"),  # less than five times the live ones
        (5_000, 4_000, "info"),
        (3, 4, "info"),
    ],
)
def test_zombies_are_judged_against_the_floor_and_the_live_ones(dying: int, live: int, severity: str) -> None:
    finding = only(zombie_memcgs.detect(memcg(dying, live), T), ZombieMemcgs)
    assert finding.severity == severity
    assert finding.facts.zombies == dying
    assert f"{dying:,}" in finding.summary


def test_no_zombies_is_ruled_out_and_an_unknown_count_is_unseen() -> None:
    assert "0 zombie" in zombie_memcgs.detect(memcg(0, 5), T).ruled_out
    unseen = zombie_memcgs.detect(memcg(-1, 5, "container"), T)
    assert not unseen.findings
    assert unseen.unseen


def test_a_bound_from_giving_up_counting_accuses_nobody() -> None:
    finding = one(zombie_memcgs.detect(memcg(50_000, 20_000, complete=0), Thresholds(zombies_per_live=1.0)))
    assert finding.severity == "info"
    assert "at most 50,000" in finding.summary


def test_zombies_name_the_lowest_parent_that_has_nearly_all_of_them() -> None:
    recording = memcg(2_000, 10)
    for path, dying in (("/system.slice", 1_990), ("/system.slice/ecs.service", 1_950), ("/user.slice", 10)):
        recording["memcg"].add(1, path, 1, dying, dying + 1, "cgroup-stat", "node", 1)
    assert one(zombie_memcgs.detect(recording, T)).subject == "/system.slice/ecs.service"


def test_leaked_directories_are_many_empty_children_of_one_parent() -> None:
    recording = made.recording(on=("cgroup-dirs",))
    mount = "/sys/fs/cgroup/memory"
    recording["cgroup_dirs"].add(1, "/kubepods", mount, 60_000, 59_000, 64, 63, "/kubepods/run-17")
    recording["cgroup_dirs"].add(1, "/used", mount, 5_000, 5_000, 64, 3, "/used/x")
    finding = only(cgroup_dirs_leak.detect(recording, T), CgroupDirsLeak)
    assert finding.subject == "/kubepods"
    assert "60,000" in finding.summary
    assert finding.facts.directory == "/sys/fs/cgroup/memory/kubepods"


@pytest.mark.parametrize(
    ("children", "leaves", "looked", "empty"),
    [
        (60_000, 12, 12, 12),  # thousands of children, but they have children of their own: services, not leavings
        (60_000, 59_000, 20, 20),  # too few looked at
        (60_000, 59_000, 64, 40),
        (900, 900, 64, 64),
    ],
)
def test_directories_that_may_well_be_used_are_not_called_leaked(children: int, leaves: int, looked: int, empty: int) -> None:
    recording = made.recording(on=("cgroup-dirs",))
    recording["cgroup_dirs"].add(1, "/a", "/sys/fs/cgroup", children, leaves, looked, empty, "/a/x")
    examined = cgroup_dirs_leak.detect(recording, T)
    assert not examined.findings
    assert examined.ruled_out


def test_one_core_full_of_system_time_is_told_with_its_number_and_length() -> None:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {2: [(1.0, 2.0, "system")]})
    finding = only(core_saturated.detect(recording, T), CoreSaturated)
    assert finding.facts.core == 2
    assert 900 <= finding.facts.longest_ms <= 1_100


def test_a_machine_that_is_all_in_the_kernel_has_no_saturated_core_but_is_full() -> None:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {core: [(0.0, 3.0, "system")] for core in range(4)})
    told = core_saturated.detect(recording, T)
    assert [(finding.subject, finding.severity) for finding in told.findings] == [
        ("all cores", "warning"),
        *((f"core {core}", "info") for core in range(4)),
    ]
    assert "the other cores are in the kernel too" in told.findings[1].summary
    assert only(cpu_full.detect(recording, T), CpuFull).facts.kernel_ratio > 0.9


def test_a_core_full_of_kernel_time_is_told_while_all_others_are_busy_with_programs() -> None:
    recording = made.recording(cpus=4)
    shares = {core: [(0.0, 3.0, "user")] for core in (0, 1, 3)}
    made.cores(recording, 3.0, {2: [(0.0, 1.0, "user"), (1.0, 2.0, "system"), (2.0, 3.0, "user")], **shares})
    finding = only(core_saturated.detect(recording, T), CoreSaturated)
    assert (finding.subject, finding.severity) == ("core 2", "warning")
    assert 900 <= finding.facts.longest_ms <= 1_100


def test_the_others_are_judged_while_the_core_was_full_and_not_at_other_times() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {0: [(0.0, 1.0, "system")], 1: [(1.0, 1.2, "system"), (1.4, 1.6, "system")]})
    assert one(core_saturated.detect(recording, T)).severity == "warning"
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {0: [(0.0, 1.0, "system")], 1: [(i / 10, i / 10 + 0.06, "system") for i in range(10)]})
    assert one(core_saturated.detect(recording, T)).severity == "info"


def test_the_only_core_of_a_machine_is_the_machine() -> None:
    recording = made.recording(cpus=1)
    made.cores(recording, 3.0, {0: [(0.0, 1.0, "system")]})
    assert one(core_saturated.detect(recording, T)).severity == "info"


def test_no_core_is_ruled_out_by_a_number_that_would_have_accused_it() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 0.25, {1: [(0.0, 0.25, "system")]})  # all that was seen of it, and still too short
    assert core_saturated.detect(recording, T).ruled_out == "longest at a stretch in the kernel is core 1 with 250 ms"


def test_a_core_that_nobody_accounted_is_told_and_a_tickless_one_is_not() -> None:
    for tickless in (False, True):
        recording = made.recording(cpus=2)
        for i in range(61):
            for core, ticks in ((0, 5 * i), (1, 5 * min(i, 20) if i < 40 else 5 * (i - 20))):
                recording["cpu"].add(i * SECOND // 20, core, 0, 0, 0, ticks, 0, 0, 0, 0, 0, 0)
        if tickless:
            recording.count(0, "cpu_nohz_full", 1, labels(cpu=1))
        told = core_saturated.detect(recording, T)
        assert bool(told.findings) is not tickless
        if not tickless:
            finding = only(told, CoreSaturated)
            assert (finding.facts.core, finding.severity) == (1, "warning")
            assert 950 <= known(finding.facts.unaccounted_ms) <= 1_000
            assert "was not accounted for" in finding.summary
            assert "virtual CPU that did not run" in finding.summary


def softirqs(comm: str) -> Finding[CoreSaturated]:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "softirq")]})
    process(recording, 11, comm, 2, [0, 100, 290])
    return only(core_saturated.detect(recording, T), CoreSaturated)


def test_of_a_core_full_of_softirqs_only_ksoftirqd_is_a_suspect() -> None:
    assert softirqs("python3").facts.offender is None
    finding = softirqs("ksoftirqd/2")
    assert known(finding.facts.offender).process == Process("ksoftirqd/2", 11)
    assert "last seen on that core" in finding.summary


def test_a_machine_busy_in_user_time_is_full_and_nothing_else() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {0: [(0.0, 3.0, "user")], 1: [(0.0, 3.0, "nice")]})
    assert not core_saturated.detect(recording, T).findings
    assert one(cpu_full.detect(recording, T)).kind == "cpu-full"


def process(recording: Recording, pid: int, comm: str, core: int, system: list[int], tid: int = 0) -> None:
    for i, ticks in enumerate(system):
        recording["processes"].add(i * SECOND, pid, tid, 5, 1, comm, "R", core, 0, ticks, f"/system.slice/{comm}.service")


def test_the_process_that_used_the_core_is_named_and_a_bystander_is_not() -> None:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "system")]})
    process(recording, 9, "bystander", 2, [0, 1, 2])
    process(recording, 10, "elsewhere", 1, [0, 100, 200])
    assert only(core_saturated.detect(recording, T), CoreSaturated).facts.offender is None
    process(recording, 11, "kubelet", 0, [0, 100, 290])
    process(recording, 11, "kubelet", 2, [0, 100, 290], tid=12)
    offender = known(only(core_saturated.detect(recording, T), CoreSaturated).facts.offender)
    assert (offender.process, offender.cgroup) == (Process("kubelet", 11), "/system.slice/kubelet.service")


def throttled(periods: int, throttled: int) -> Recording:
    recording = made.recording(on=("throttling",))
    at = labels(cgroup="/kubepods/pod1")
    for time, factor in ((0, 0), (3 * SECOND, 1)):
        for name, value in (
            ("cpu_quota_us", 50_000),
            ("cpu_period_us", 100_000),
            ("cpu_periods", 1_000_000 + factor * periods),
            ("cpu_throttled_periods", 900_000 + factor * throttled),
            ("cpu_throttled_ns", 0),
        ):
            recording.count(time, name, value, at)
    return recording


def test_throttling_is_what_happened_while_we_looked_not_what_the_counters_hold() -> None:
    finding = one(cpu_throttled.detect(throttled(30, 20), T))
    assert finding.subject == "/kubepods/pod1"
    assert "0.5 CPUs" in finding.summary
    assert "20 of 30" in finding.summary
    assert "0 throttled" in cpu_throttled.detect(throttled(30, 0), T).ruled_out
    assert not cpu_throttled.detect(throttled(300, 4), T).findings


@pytest.mark.parametrize(
    ("periods", "held", "severity"), [(30, 15, "warning"), (30, 14, "info"), (18, 9, "info"), (20, 10, "warning")]
)
def test_throttling_is_a_warning_for_who_is_held_back_most_of_the_time(periods: int, held: int, severity: str) -> None:
    assert one(cpu_throttled.detect(throttled(periods, held), T)).severity == severity


def rates(**per_second: int) -> Recording:
    recording = made.recording()
    made.cores(recording, 2.0, {})
    for name, value in per_second.items():
        recording.count(0, name, 10**12)
        recording.count(2 * SECOND, name, 10**12 + 2 * value)
    return recording


def test_direct_reclaim_is_told_and_a_little_of_kswapd_is_not() -> None:
    finding = only(reclaim.detect(rates(vmstat_pgscan_direct=50_000, vmstat_pgscan_kswapd=9), T), Reclaim)
    assert finding.facts.direct_scans_per_s == 50_000
    assert "80,000 by kswapd" in reclaim.detect(rates(vmstat_pgscan_direct=0, vmstat_pgscan_kswapd=80_000), T).ruled_out


@pytest.mark.parametrize(("freed", "severity"), [(50_000, "warning"), (590_000, "info"), (None, "warning")])
def test_kswapd_counts_as_reclaim_and_is_worse_when_it_frees_little(freed: int | None, severity: str) -> None:
    seen = {"vmstat_pgscan_direct": 0, "vmstat_pgscan_kswapd": 600_000}
    finding = one(reclaim.detect(rates(**seen, **({} if freed is None else {"vmstat_pgsteal_kswapd": freed})), T))
    assert finding.severity == severity
    assert finding.summary.startswith("kswapd scans 600,000 pages a second")
    assert "processes reclaim" not in finding.summary


def waiting(recording: Recording, resource: str, ratio: float, cgroup: str = "", kind: str = "some") -> None:
    at = labels(cgroup=cgroup, kind=kind, resource=resource)
    recording.count(0, "pressure_us", 5, at)
    recording.count(2 * SECOND, "pressure_us", 5 + round(2_000_000 * ratio), at)


def test_reclaim_inside_a_limit_shows_as_waiting_and_names_the_cgroup() -> None:
    recording = rates(vmstat_pgscan_direct=0, vmstat_pgscan_kswapd=0)
    for cgroup, ratio in (("", 0.4), ("/kubepods", 0.4), ("/kubepods/pod1", 0.39), ("/system.slice", 0.01)):
        waiting(recording, "memory", ratio, cgroup)
    finding = only(reclaim.detect(recording, T), Reclaim)
    assert finding.severity == "warning"
    assert finding.facts.limit_cgroup == "/kubepods/pod1"
    assert "waited for memory 40%" in finding.summary


def test_reclaim_is_only_ruled_out_as_far_as_it_could_be_seen() -> None:
    recording = rates(vmstat_pgscan_direct=0, vmstat_pgscan_kswapd=0)
    ruled_out = reclaim.detect(recording, T).ruled_out
    assert "node-wide" in ruled_out
    assert "reclaim inside a cgroup's limit is not visible here" in ruled_out
    waiting(recording, "memory", 0.01)
    assert "waited for memory 1% of the time" in reclaim.detect(recording, T).ruled_out


def test_major_faults_and_printk_are_rates() -> None:
    assert only(page_fault_storm.detect(rates(vmstat_pgmajfault=5_000), T), PageFaultStorm).facts.major_faults_per_s == 5_000
    again = rates(vmstat_pgmajfault=5_000, vmstat_workingset_refault=7)
    assert only(page_fault_storm.detect(again, T), PageFaultStorm).facts.refaults_per_s == 7
    assert "3 major" in page_fault_storm.detect(rates(vmstat_pgmajfault=3), T).ruled_out
    assert only(printk_flood.detect(rates(printk_records=900), T), PrintkFlood).facts.messages_per_s == 900
    assert "0 kernel" in printk_flood.detect(rates(printk_records=0), T).ruled_out


def test_writeback_needs_both_waiting_and_writing() -> None:
    at = labels(cgroup="", kind="full", resource="io")
    for pages, found in ((5_000, True), (0, False)):
        recording = made.recording()
        made.cores(recording, 2.0, {})
        for time, total in ((0, 0), (2 * SECOND, 1_000_000)):
            recording.count(time, "pressure_us", total, at)
            recording.count(time, "vmstat_nr_writeback", pages)
        assert bool(writeback_stall.detect(recording, T).findings) is found


@pytest.mark.parametrize(("dirty", "found"), [(5_000, True), (100, False)])
def test_writeback_needs_enough_dirty_pages_that_writers_are_held_up(dirty: int, found: bool) -> None:
    """A backup that is all that runs waits for its disk all the time: that is 100 % of the tasks that are not idle."""
    recording = made.recording()
    made.cores(recording, 2.0, {})
    waiting(recording, "io", 0.9, kind="full")
    for time in (0, 2 * SECOND):
        recording.count(time, "vmstat_nr_writeback", 300)
        recording.count(time, "vmstat_nr_dirty", dirty)
        recording.count(time, "vmstat_nr_dirty_threshold", 10_000)
    examined = writeback_stall.detect(recording, T)
    assert bool(examined.findings) is found
    assert ("not idle" in one(examined).summary) if found else ("against a limit of 10,000" in examined.ruled_out)


def full(waited: float | None = None) -> Finding[CpuFull]:
    recording = made.recording(cpus=2)
    made.cores(recording, 2.0, {0: [(0.0, 2.0, "user")], 1: [(0.0, 2.0, "user")]})
    if waited is not None:
        waiting(recording, "cpu", waited)
    process(recording, 9, "trainer", 0, [0, 100, 200])
    process(recording, 10, "loader", 1, [0, 50, 60])
    process(recording, 11, "logger", 1, [0, 1, 2])
    process(recording, 12, "quiet", 1, [0, 0, 1])
    return only(cpu_full.detect(recording, T), CpuFull)


def test_a_full_machine_names_who_fills_it() -> None:
    finding = full()
    assert [(str(program), used) for program, used in finding.facts.programs] == [
        ("trainer [9] of trainer.service", 2_000),
        ("loader [10] of loader.service", 600),
        ("logger [11] of logger.service", 20),
    ]
    assert "quiet" not in finding.summary


def test_a_full_machine_is_a_warning_when_tasks_wait_or_when_nobody_knows() -> None:
    assert [full(waited).severity for waited in (None, 0.5, 0.05)] == ["warning", "warning", "info"]
    assert "nobody waits" in full(0.05).summary


def test_time_that_the_hypervisor_took_is_not_work() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 2.0, {core: [(0.0, 1.0, "user"), (1.0, 2.0, "steal")] for core in (0, 1)})
    assert cpu_full.detect(recording, T).ruled_out == "50% busy, 50% taken by the hypervisor"


def test_a_machine_whose_hypervisor_reports_nothing_says_so() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 2.0, {})
    assert steal.detect(recording, T).ruled_out == "none reported"


def test_steal_is_a_share_of_all_cores() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 2.0, {1: [(0.0, 1.0, "steal")]})
    finding = only(steal.detect(recording, T), Steal)
    assert finding.facts.steal_ratio == pytest.approx(0.5, abs=0.05)
    assert finding.facts.worst_core == 1
    assert finding.end <= 1.1 * SECOND


@pytest.mark.parametrize(
    ("per_second", "device", "softirq", "found"),
    [
        (100_000, "eth0-Tx-Rx-0", 1.5, True),
        (50, "eth0-Tx-Rx-0", 1.5, False),
        (100_000, "eth0-Tx-Rx-0", 0.2, False),  # the core has time left
        (100_000, "nvme0q1", 1.5, False),
        (100_000, "timer", 1.5, False),
    ],
)
def test_interrupts_on_one_core_matter_when_they_are_a_networks_and_fill_it(
    per_second: int, device: str, softirq: float, found: bool
) -> None:
    recording = made.recording(on=("interrupts", "cpu"))
    made.cores(recording, 2.0, {0: [(0.0, softirq, "softirq")]})
    for core, share in (("0", 19), ("1", 1)):
        at = labels(irq=60, cpu=core, device=device)
        recording.count(0, "interrupts", 5, at)
        recording.count(2 * SECOND, "interrupts", 5 + per_second * 2 * share // 20, at)
    examined = irq_imbalance.detect(recording, T)
    assert bool(examined.findings) is found
    assert bool(examined.ruled_out) is not found


def unit(restarts: list[int], sub: str = "running", active: str = "active", result: str = "exit-code") -> Recording:
    recording = made.recording(on=("units",))
    for i, count in enumerate(restarts):
        recording["units"].add(
            i * SECOND, "ecs.service", active, sub, count, result, "enabled", 0, "/system.slice/ecs.service", "?"
        )
    return recording


@pytest.mark.parametrize(
    ("restarts", "sub", "severity"),
    [
        ([10, 12], "running", "warning"),
        ([900, 900], "auto-restart", "warning"),
        ([900, 900], "auto-restart-queued", "warning"),
        ([900, 900], "dead-before-auto-restart", "warning"),
        ([1, 2], "running", "info"),
        ([900, 900], "running", "info"),
    ],
)
def test_a_unit_that_restarts_is_told_as_bad_as_it_is(restarts: list[int], sub: str, severity: str) -> None:
    finding = only(crash_loop.detect(unit(restarts, sub), T), CrashLoop)
    assert (finding.subject, finding.severity) == ("ecs.service", severity)
    assert finding.facts.restarts_in_window == restarts[-1] - restarts[0]


def test_a_unit_that_ends_with_success_each_time_does_not_crash() -> None:
    assert one(crash_loop.detect(unit([10, 12], "auto-restart", result="success"), T)).severity == "info"
    # systemd sets the result to success when it starts a service: of one that was only seen running it proves nothing.
    assert one(crash_loop.detect(unit([10, 12], "running", result="success"), T)).severity == "warning"


@pytest.mark.parametrize(
    ("restarts", "subs", "end", "period"),
    [
        ([40, 41, 41, 41, 41], "running", 1, None),
        ([40, 42, 43, 43, 43], "running", 2, 2 / 3),
        ([40, 41, 42, 42, 42], "running running auto-restart auto-restart auto-restart", 4, 2.0),
        ([40, 41, 41, 41, 41], "running running running auto-restart-queued running", 3, None),
        ([40, 41, 0, 5, 5], "running", 3, 0.5),
        ([900, 900, 900], "running", 2, None),
    ],
)
def test_a_loop_ends_when_it_was_seen_to_loop_last(restarts: list[int], subs: str, end: int, period: float | None) -> None:
    looked, each = made.recording(on=("units",)), subs.split()
    for i, count in enumerate(restarts):
        sub = each[i % len(each)]
        looked["units"].add(i * SECOND, "ecs.service", "active", sub, count, "exit-code", "enabled", 0, "/ecs.service", "?")
    finding = only(crash_loop.detect(looked, T), CrashLoop)
    assert (finding.start, finding.end) == (0, end * SECOND)
    assert finding.facts.period_s == (None if period is None else pytest.approx(period, abs=1e-6))


def test_units_that_do_not_restart_are_ruled_out() -> None:
    assert "none of 1 units" in crash_loop.detect(unit([0, 0]), T).ruled_out
    assert crash_loop.detect(made.recording(on=()), T).unseen


def test_defunct_processes_are_their_own_thing() -> None:
    recording = made.recording()
    recording.count(1, "processes_defunct", 250)
    for pid in range(5):
        recording["processes"].add(1, 100 + pid, 0, 5, 77, "sh", "Z", 0, 0, 0, "")
    finding = only(defunct_processes.detect(recording, T), DefunctProcesses)
    assert finding.severity == "warning"
    assert "5 of the 5 looked at not collected by PID 77" in finding.summary
    assert "may pin a removed cgroup until collected" in finding.summary


def test_the_parent_of_the_defunct_is_named_and_its_number_is_plain_text() -> None:
    recording = made.recording()
    recording.count(1, "processes_defunct", 1)
    recording["processes"].add(1, 1_234_567, 0, 5, 1_234_560, "sh", "Z", 0, 0, 0, "")
    recording["processes"].add(1, 1_234_560, 0, 5, 1, "agent", "S", 0, 0, 0, "")
    finding = only(defunct_processes.detect(recording, T), DefunctProcesses)
    assert finding.severity == "info"
    assert finding.summary.startswith("1 defunct process (")
    assert "not collected by agent [1234560]" in finding.summary
    assert known(finding.facts.parent).pid == 1_234_560
    assert {each.what: each.value for each in finding.evidence}["parent"] == "1234560"


def named_zombies(recording: Recording, zombies: int, empty: int, unreaped: int, exact: bool = True) -> None:
    """One place with so many zombies, and how many unreaped children of a supervisor hold."""
    parent = (77, "supervisor", "/system.slice/jobs.service") if unreaped else (0, "", "")
    recording["memcg_walk"].add(
        1, "/jobs/*", "/jobs/7", "/jobs", zombies, 3, 0, 0, 0, empty, "", "", "", "", 0, "", "bpf-walk", 0, unreaped, *parent
    )
    if exact:
        recording.count(1, "memcg_walk_unreaped", unreaped)


def test_defunct_processes_that_hold_zombies_are_told_with_their_number_and_the_parent() -> None:
    recording = made.recording()
    recording.count(1, "processes_defunct", 250)
    named_zombies(recording, 400, 300, 240)
    finding = only(defunct_processes.detect(recording, T), DefunctProcesses)
    assert finding.summary == (
        "250 defunct processes hold 240 of 400 zombie memory cgroups: supervisor [77] does not reap its children"
    )
    assert finding.subject == finding.facts.parent_unit == "jobs.service"
    assert (finding.facts.zombies_held, known(finding.facts.parent).pid) == (240, 77)


@pytest.mark.parametrize(("defunct", "empty", "perhaps"), [(250, 300, 250), (250, 200, 200), (250, 1_000, 0), (250, 20, 0)])
def test_without_the_kernels_word_as_many_defunct_as_empty_zombies_perhaps_hold_them(
    defunct: int, empty: int, perhaps: int
) -> None:
    recording = made.recording()
    recording.count(1, "processes_defunct", defunct)
    named_zombies(recording, 1_000, empty, 0, exact=False)
    finding = only(defunct_processes.detect(recording, T), DefunctProcesses)
    assert finding.facts.held == (finding.facts.zombies_perhaps_held or 0) == perhaps
    assert finding.facts.zombies_held is None


def test_where_the_kernel_says_that_they_hold_none_their_number_says_nothing() -> None:
    recording = made.recording()
    recording.count(1, "processes_defunct", 250)
    named_zombies(recording, 250, 250, 0)
    finding = only(defunct_processes.detect(recording, T), DefunctProcesses)
    assert (finding.subject, finding.facts.held) == ("node", 0)


def test_the_defunct_children_of_init_will_be_collected() -> None:
    recording = made.recording()
    recording.count(1, "processes_defunct", 2)
    for pid in (8, 9):
        recording["processes"].add(1, pid, 0, 5, 1, "sh", "Z", 0, 0, 0, "")
    recording["processes"].add(1, 1, 0, 0, 0, "systemd", "S", 0, 0, 0, "")
    assert "PID 1 is the parent of all of them and will collect them" in one(defunct_processes.detect(recording, T)).summary


def log(kind: str, seconds_ago: float, subject: str = "eth0", **fields: str | int) -> Recording:
    recording = made.recording(cpus=1)
    end = 10**6 * SECOND
    for time in (end - SECOND, end):
        recording["cpu"].add(time, 0, *[0] * 10)
    recording["events"].add(end - int(seconds_ago * SECOND), kind, subject, "warning", "the line", labels(**fields))
    return recording


@pytest.mark.parametrize(("ago", "severity"), [(40, "critical"), (7_200, "warning"), (3 * 86_400, "info")])
def test_a_reset_is_as_bad_as_it_is_recent(ago: int, severity: str) -> None:
    finding = one(nic_reset.detect(log("nic-reset-done", ago, "0000:20:03.0", pci="0000:20:03.0", driver="ena"), T))
    assert finding.severity == severity


def test_a_starved_queue_names_the_core_that_takes_its_interrupts() -> None:
    recording = log(
        "nic-queue-paused", 5, "eth0", device="eth0", queue=5, napi_age_ms=6596, threshold_ms=5000, napi_scheduled=1
    )
    recording.count(1, "interrupts", 10**6, labels(irq=61, cpu=39, device="eth0-Tx-Rx-5"))
    recording.count(1, "interrupts", 10, labels(irq=61, cpu=3, device="eth0-Tx-Rx-5"))
    complaint = known(only(napi_starved.detect(recording, T), NapiStarved).facts.complaint)
    assert (complaint.core, complaint.not_polled_ms) == (39, 6596)


def test_a_late_completion_with_a_recent_poll_is_not_starvation() -> None:
    recording = log("nic-tx-not-completed", 5, "eth0", device="eth0", queue=5, napi_age_ms=12)
    assert not napi_starved.detect(recording, T).findings


def test_a_queue_without_a_scheduled_poll_misses_its_interrupt_and_was_not_starved() -> None:
    fields: dict[str, str | int] = {"device": "eth0", "queue": 5, "napi_age_ms": 6596, "threshold_ms": 5000, "driver": "ena"}
    recording = log("nic-queue-paused", 5, "eth0", napi_scheduled=0, **fields)
    assert not napi_starved.detect(recording, T).findings
    finding = only(nic_reset.detect(recording, T), NicReset)
    assert (finding.severity, finding.facts.reason, finding.facts.queue) == ("warning", "interrupt missing", 5)
    assert "no poll was scheduled" in finding.summary
    due = log("nic-queue-paused", 5, "eth0", napi_scheduled=1, **fields)
    finding = only(nic_reset.detect(due, T), NicReset)
    assert (finding.severity, finding.facts.outcome) == ("critical", "stopped"), "ena_tx_timeout resets, whatever the reason"


def test_a_line_that_does_not_say_whether_a_poll_was_scheduled_is_a_warning() -> None:
    recording = log("nic-tx-not-completed", 5, "eth0", device="eth0", queue=5, napi_age_ms=6596)
    finding = one(napi_starved.detect(recording, T))
    assert finding.severity == "warning"
    assert "not known whether its poll was scheduled" in finding.summary


def test_lockups_and_kills_are_taken_from_the_log() -> None:
    assert one(soft_lockup.detect(log("soft-lockup", 9, "CPU 3", cpu=3, comm="kubelet"), T)).severity == "critical"
    assert one(soft_lockup.detect(log("hung-task", 9, "fsync"), T)).severity == "warning"
    assert one(oom.detect(log("memcg-oom-kill", 9, "python"), T)).severity == "warning"


@pytest.mark.parametrize("kind", BY_NAME)
def test_a_detector_without_data_says_that_it_could_not_see(kind: str) -> None:
    examined = BY_NAME[kind].detect(made.recording(on=()), T)
    assert examined.kind == kind
    assert examined.unseen
    assert not examined.findings
    assert not examined.ruled_out


def test_detectors_open_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 1.0, {0: [(0.0, 1.0, "system")]})

    def refuse(*args: object, **keywords: object) -> None:
        raise AssertionError("a detector opened a file")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("os.open", refuse)
    assert [kind.detect(recording, T) for kind in KINDS]
