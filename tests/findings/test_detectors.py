"""Each detector: found where it is, ruled out with a number where it is not, unseen where it cannot look."""

from typing import Any

import pytest

from exhume.findings import (
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
from exhume.findings.detectors import DETECTORS
from exhume.findings.model import Examined
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels
from tests.findings import made
from tests.findings.made import SECOND

T = Thresholds()


def one(examined: Examined) -> Any:
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
    finding = one(zombie_memcgs.detect(memcg(dying, live), T))
    assert finding.severity == severity
    assert finding.value("zombies") == dying
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
    recording["cgroup_dirs"].add(1, "/kubepods", 60_000, 64, 63, "/kubepods/run-17")
    recording["cgroup_dirs"].add(1, "/used", 5_000, 64, 3, "/used/x")
    finding = one(cgroup_dirs_leak.detect(recording, T))
    assert finding.subject == "/kubepods"
    assert "60,000" in finding.summary


def test_one_core_full_of_system_time_is_told_with_its_number_and_length() -> None:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {2: [(1.0, 2.0, "system")]})
    finding = one(core_saturated.detect(recording, T))
    assert finding.value("core") == 2
    assert 900 <= finding.number("longest") <= 1_100


def test_a_busy_machine_has_no_saturated_core_but_is_full() -> None:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {core: [(0.0, 3.0, "system")] for core in range(4)})
    told = core_saturated.detect(recording, T)
    assert {finding.severity for finding in told.findings} == {"info"}
    assert "the other cores are in the kernel too" in told.findings[0].summary
    assert one(cpu_full.detect(recording, T)).number("kernel") > 0.9


def test_a_core_full_of_kernel_time_is_told_while_all_others_are_busy_with_programs() -> None:
    recording = made.recording(cpus=4)
    shares = {core: [(0.0, 3.0, "user")] for core in (0, 1, 3)}
    made.cores(recording, 3.0, {2: [(0.0, 1.0, "user"), (1.0, 2.0, "system"), (2.0, 3.0, "user")], **shares})
    finding = one(core_saturated.detect(recording, T))
    assert (finding.subject, finding.severity) == ("core 2", "warning")
    assert 900 <= finding.number("longest") <= 1_100


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
            finding = one(told)
            assert (finding.value("core"), finding.severity) == (1, "warning")
            assert 950 <= finding.number("not accounted") <= 1_000
            assert "was not accounted for" in finding.summary
            assert "virtual CPU that did not run" in finding.summary


def softirqs(comm: str) -> Any:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "softirq")]})
    process(recording, 11, comm, 2, [0, 100, 290])
    return one(core_saturated.detect(recording, T))


def test_of_a_core_full_of_softirqs_only_ksoftirqd_is_a_suspect() -> None:
    assert softirqs("python3").value("process") is None
    finding = softirqs("ksoftirqd/2")
    assert finding.value("process") == "ksoftirqd/2 [11]"
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
    assert one(core_saturated.detect(recording, T)).value("process") is None
    process(recording, 11, "kubelet", 0, [0, 100, 290])
    process(recording, 11, "kubelet", 2, [0, 100, 290], tid=12)
    finding = one(core_saturated.detect(recording, T))
    assert finding.value("process") == "kubelet [11]"
    assert finding.value("its cgroup") == "/system.slice/kubelet.service"


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


def rates(**per_second: int) -> Recording:
    recording = made.recording()
    made.cores(recording, 2.0, {})
    for name, value in per_second.items():
        recording.count(0, name, 10**12)
        recording.count(2 * SECOND, name, 10**12 + 2 * value)
    return recording


def test_direct_reclaim_is_told_and_kswapd_alone_is_not() -> None:
    finding = one(reclaim.detect(rates(vmstat_pgscan_direct=50_000, vmstat_pgscan_kswapd=9), T))
    assert finding.number("direct") == 50_000
    assert "80,000 by kswapd" in reclaim.detect(rates(vmstat_pgscan_direct=0, vmstat_pgscan_kswapd=80_000), T).ruled_out


def test_major_faults_and_printk_are_rates() -> None:
    assert one(page_fault_storm.detect(rates(vmstat_pgmajfault=5_000), T)).number("major faults") == 5_000
    assert "3 major" in page_fault_storm.detect(rates(vmstat_pgmajfault=3), T).ruled_out
    assert one(printk_flood.detect(rates(printk_records=900), T)).number("messages") == 900
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


def test_steal_is_a_share_of_all_cores() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 2.0, {1: [(0.0, 1.0, "steal")]})
    finding = one(steal.detect(recording, T))
    assert 0.2 < finding.number("steal") < 0.3
    assert finding.value("worst core") == 1


def test_interrupts_on_one_core_only_matter_when_there_are_many() -> None:
    for per_second, found in ((100_000, True), (50, False)):
        recording = made.recording(on=("interrupts",))
        for core, share in (("0", 19), ("1", 1)):
            at = labels(irq=60, cpu=core, device="eth0-Tx-Rx-0")
            recording.count(0, "interrupts", 5, at)
            recording.count(2 * SECOND, "interrupts", 5 + per_second * 2 * share // 20, at)
        assert bool(irq_imbalance.detect(recording, T).findings) is found


def unit(restarts: list[int], sub: str = "running", active: str = "active") -> Recording:
    recording = made.recording(on=("units",))
    for i, count in enumerate(restarts):
        recording["units"].add(
            i * SECOND, "ecs.service", active, sub, count, "exit-code", "enabled", 0, "/system.slice/ecs.service"
        )
    return recording


@pytest.mark.parametrize(
    ("restarts", "sub", "severity"),
    [
        ([10, 12], "running", "warning"),
        ([900, 900], "auto-restart", "warning"),
        ([1, 2], "running", "info"),
        ([900, 900], "running", "info"),
    ],
)
def test_a_unit_that_restarts_is_told_as_bad_as_it_is(restarts: list[int], sub: str, severity: str) -> None:
    finding = one(crash_loop.detect(unit(restarts, sub), T))
    assert (finding.subject, finding.severity) == ("ecs.service", severity)


def test_units_that_do_not_restart_are_ruled_out() -> None:
    assert "none of 1 units" in crash_loop.detect(unit([0, 0]), T).ruled_out
    assert crash_loop.detect(made.recording(on=()), T).unseen


def test_defunct_processes_are_their_own_thing() -> None:
    recording = made.recording()
    recording.count(1, "processes_defunct", 250)
    for pid in range(5):
        recording["processes"].add(1, 100 + pid, 0, 5, 77, "sh", "Z", 0, 0, 0, "")
    finding = one(defunct_processes.detect(recording, T))
    assert finding.severity == "warning"
    assert "PID 77" in finding.summary
    assert "no memory cgroup" in finding.summary


def log(kind: str, seconds_ago: float, subject: str = "eth0", **fields: str | int) -> Recording:
    recording = made.recording(cpus=1)
    end = 10**6 * SECOND
    recording["cpu"].add(end, 0, *[0] * 10)
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
    finding = one(napi_starved.detect(recording, T))
    assert finding.value("core") == 39
    assert finding.number("not polled for") == 6596


def test_a_late_completion_with_a_recent_poll_is_not_starvation() -> None:
    recording = log("nic-tx-not-completed", 5, "eth0", device="eth0", queue=5, napi_age_ms=12)
    assert not napi_starved.detect(recording, T).findings


def test_lockups_and_kills_are_taken_from_the_log() -> None:
    assert one(soft_lockup.detect(log("soft-lockup", 9, "CPU 3", cpu=3, comm="kubelet"), T)).severity == "critical"
    assert one(soft_lockup.detect(log("hung-task", 9, "fsync"), T)).severity == "warning"
    assert one(oom.detect(log("memcg-oom-kill", 9, "python"), T)).severity == "warning"


@pytest.mark.parametrize("detect", DETECTORS, ids=lambda detect: detect.__module__.rsplit(".", 1)[-1])
def test_a_detector_without_data_says_that_it_could_not_see(detect: Any) -> None:
    examined = detect(made.recording(on=()), T)
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
    assert [detect(recording, T) for detect in DETECTORS]
