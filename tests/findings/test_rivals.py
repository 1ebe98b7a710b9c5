"""The rivals: each is judged in its worst stretch, found with its true begin and end, and names who does it."""

import random
from typing import Any

import pytest

from exhume.findings import (
    cpu_full,
    cpu_throttled,
    irq_imbalance,
    nic_reset,
    oom,
    page_fault_storm,
    printk_flood,
    reclaim,
    steal,
    writeback_stall,
)
from exhume.findings.detectors import DETECTORS
from exhume.findings.model import Examined
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels
from exhume.recording.schema import TABLES
from tests.findings import made
from tests.findings.made import SECOND

T = Thresholds()
DIRECT = ("shrink_inactive_list", "shrink_lruvec", "try_to_free_pages", "__alloc_pages_direct_reclaim", "__alloc_pages")
KSWAPD = ("shrink_inactive_list", "shrink_lruvec", "shrink_node", "balance_pgdat", "kswapd")
ASKED = (
    "mem_cgroup_iter",
    "shrink_node",
    "do_try_to_free_pages",
    "try_to_free_mem_cgroup_pages",
    "mem_cgroup_force_empty_write",
)
CONSOLE = ("wait_for_lsr", "serial8250_console_write", "console_unlock", "vprintk_emit", "_printk")
FAULT = ("clear_page_erms", "do_anonymous_page", "handle_mm_fault", "do_user_addr_fault", "exc_page_fault")


def one(examined: Examined) -> Any:
    assert len(examined.findings) == 1, examined
    return examined.findings[0]


def burst(
    recording: Recording, name: str, per_second: float, start: int = 300, end: int = 320, until: int = 600, at: Any = ()
) -> None:
    """A counter that is read every two seconds and has a row only when it changed, as it is on disk."""
    value = 10**9
    recording.count(0, name, value, at)
    for second in range(2, until + 1, 2):
        if start < second <= end:
            value += round(2 * per_second)
            recording.count(second * SECOND, name, value, at)


def read(recording: Recording, source: str, until: int = 600) -> None:
    """Something of that source changes at each reading."""
    for second in range(0, until + 1, 2):
        recording.count(second * SECOND, f"{source}_something", second)


def ten_minutes(*sources: str) -> Recording:
    recording = made.recording(on=("cpu", "kernel-log", "throttling", "interrupts"))
    made.cores(recording, 600.0, {}, step=1.0)
    for source in sources:
        read(recording, source)
    return recording


def lasted(finding: Any) -> tuple[float, float]:
    return finding.start / SECOND, finding.end / SECOND


PSI_MEMORY = labels(cgroup="", kind="some", resource="memory")


def test_a_burst_of_direct_reclaim_does_not_drown_in_ten_minutes() -> None:
    recording = ten_minutes("vmstat")
    burst(recording, "vmstat_pgscan_direct", 50_000)
    burst(recording, "vmstat_pgscan_kswapd", 0)
    finding = one(reclaim.detect(recording, T))
    assert lasted(finding) == (300, 320)
    assert finding.number("direct") == 50_000
    assert [(span.core, span.start, span.end) for span in finding.spans] == [(-1, 300 * SECOND, 320 * SECOND)]


def test_two_bursts_are_two_however_heavy_they_are() -> None:
    recording = ten_minutes("vmstat")
    burst(recording, "vmstat_pgscan_direct", 5_000_000, 100, 110, 110)
    for second in (402, 404, 406):
        recording.count(second * SECOND, "vmstat_pgscan_direct", 2 * 10**9 + second * 10**7)
    finding = one(reclaim.detect(recording, T))
    assert len(finding.spans) == 2
    assert lasted(finding) == (100, 406)


def test_a_counter_that_never_changed_was_seen_and_is_zero() -> None:
    recording = ten_minutes("vmstat")
    recording.count(0, "vmstat_pgscan_direct", 77)
    recording.count(0, "vmstat_pgscan_kswapd", 77)
    recording.count(0, "vmstat_pgmajfault", 77)
    assert "0 direct scans a second, 0 by kswapd" in reclaim.detect(recording, T).ruled_out
    assert page_fault_storm.detect(recording, T).ruled_out == "0 major faults a second"


def test_a_window_that_begins_between_two_readings_invents_no_burst() -> None:
    """The value of before is carried to its begin: all that was counted since is not of the first tenth of a second."""
    recording = made.recording()
    made.cores(recording, 20.0, {}, step=1.0)
    for time, value in ((0.0, 0), (0.1, 3_000), *((0.1 + 2 * i, 3_000 + 3_000 * i) for i in range(1, 10))):
        recording.count(round(time * SECOND), "vmstat_pgscan_direct", value)
    assert reclaim.detect(recording, T).ruled_out.startswith("1,500 direct scans a second")


def sampled(kinds: dict[int, tuple[float, float, tuple[str, ...], str]], cpus: int = 4, seconds: float = 10.0) -> Recording:
    """Cores that do something from here to there, and are idle otherwise, by their stacks."""
    recording = made.recording(cpus=cpus)
    made.cores(recording, seconds, {}, step=1.0)
    for core in range(cpus):
        start, end, stack, comm = kinds.get(core, (0.0, 0.0, (), ""))
        if stack:
            made.sample(recording, start, end, core, comm, 100 + core, stack, cgroup=f"/kubepods/{comm}")
        for idle_from, idle_to in ((0.0, start), (end, seconds)):
            if idle_to > idle_from:
                made.sample(recording, idle_from, idle_to, core, f"swapper/{core}", 0, ("do_idle",), "idle")
    return recording


def test_the_share_of_direct_reclaim_is_of_all_cores_and_names_whose_it_is() -> None:
    recording = sampled({0: (2.0, 8.0, DIRECT, "trainer"), 1: (2.0, 8.0, KSWAPD, "kswapd0")})
    recording["memcg"].add(1, "/", 10, 5_000, 5_010, "proc-cgroups", "node", 1)
    finding = one(reclaim.detect(recording, T))
    assert finding.severity == "warning"
    assert finding.number("direct share") == pytest.approx(0.25, abs=0.02)
    assert finding.number("kswapd share") == pytest.approx(0.25, abs=0.02)
    assert finding.value("cgroup") == "/kubepods/trainer"
    assert (finding.value("walk share"), finding.value("zombies")) == (0, 5_000)
    assert finding.start / SECOND == pytest.approx(2.0, abs=1.01)
    assert "direct reclaim takes 25% of all cores' time" in finding.summary


def test_without_idle_samples_the_share_is_still_of_all_cores() -> None:
    recording = made.recording(cpus=8)
    made.sample(recording, 0.0, 10.0, 3, "trainer", 7, DIRECT)
    assert "12.5% of all cores' time in direct reclaim" in reclaim.detect(recording, T).ruled_out
    recording = made.recording(cpus=4)
    made.sample(recording, 0.0, 10.0, 3, "trainer", 7, DIRECT)
    assert one(reclaim.detect(recording, T)).number("direct share") == pytest.approx(0.25, abs=0.01)


def test_where_cores_that_sleep_are_not_sampled_a_few_samples_are_a_small_share() -> None:
    recording = made.recording(cpus=4)
    made.sample(recording, 0.0, 2.0, 0, "busy", 6, ("work",), "user")
    made.sample(recording, 0.0, 10.0, 3, "trainer", 7, DIRECT, hz=10)
    assert "2.5% of all cores' time in direct reclaim" in reclaim.detect(recording, T).ruled_out


def test_reclaim_that_only_walks_groups_says_so() -> None:
    recording = sampled({0: (0.0, 10.0, made.WALK, "trainer")})
    finding = one(reclaim.detect(recording, T))
    assert finding.value("walk share") == 1
    assert "100% of it only goes from one memory cgroup to the next" in finding.summary


def test_reclaim_that_a_program_asked_for_is_no_shortage() -> None:
    recording = sampled({0: (0.0, 10.0, ASKED, "tool")})
    for second, waited in ((0, 0), (10, 9_000_000)):
        recording.count(second * SECOND, "pressure_us", waited, PSI_MEMORY)
    finding = one(reclaim.detect(recording, T))
    assert finding.severity == "info"
    assert finding.number("asked share") == pytest.approx(0.25, abs=0.01)
    assert finding.number("direct share") == 0
    assert "nothing was reclaimed" not in finding.summary


def probes(seconds: int = 10, ms_each: int = 0, cgroup: str = "/small", waited: float = 0.0) -> Recording:
    recording = made.recording(cpus=2, on=("cpu", "latency-reclaim"))
    made.cores(recording, float(seconds), {}, step=1.0)
    for second in range(1, seconds + 1):
        if ms_each:
            recording["latency"].add(
                second * SECOND, "reclaim", "memcg", -1, "", 0, cgroup, 10, ms_each * 10**6, 10**6, [1], 0, 0, "", 1000
            )
            recording["latency"].add(
                second * SECOND, "reclaim", "memcg", -1, "", 0, "/other", 1, 10**6, 10**6, [1], 0, 0, "", 1000
            )
    for second in range(0, seconds + 1, 2):
        recording.count(second * SECOND, "pressure_us", round(second * waited * 1e6), PSI_MEMORY)
    return recording


def test_without_samples_the_probes_tell_the_share_and_the_cgroup() -> None:
    finding = one(reclaim.detect(probes(ms_each=800, waited=0.5), T))
    assert finding.number("direct share") == pytest.approx(0.4, abs=0.01)
    assert finding.value("cgroup") == "/small"
    assert "most in /small (100%)" in finding.summary


def test_waiting_for_memory_while_nobody_reclaims_is_not_reclaim() -> None:
    finding = one(reclaim.detect(probes(waited=0.5), T))
    assert finding.severity == "info"
    assert "nothing was reclaimed meanwhile" in finding.summary
    assert one(reclaim.detect(probes(ms_each=100, waited=0.5), T)).severity == "warning"


def test_scanning_that_nobody_waits_for_is_information() -> None:
    recording = ten_minutes("vmstat", "pressure")
    burst(recording, "vmstat_pgscan_direct", 50_000)
    burst(recording, "pressure_us", 10_000, at=PSI_MEMORY)
    assert one(reclaim.detect(recording, T)).severity == "info"
    recording = ten_minutes("vmstat", "pressure")
    burst(recording, "vmstat_pgscan_direct", 50_000)
    burst(recording, "pressure_us", 400_000, at=PSI_MEMORY)
    finding = one(reclaim.detect(recording, T))
    assert (finding.severity, finding.number("waited for memory")) == ("warning", 0.4)


def test_major_faults_name_the_process_that_has_them() -> None:
    recording = ten_minutes("vmstat")
    burst(recording, "vmstat_pgmajfault", 4_000)
    for pid, faults in ((41, 30_000), (42, 30_000), (50, 900)):
        at = labels(pid=pid, comm="mapper" if pid < 50 else "other", cgroup="/web/index" if pid < 50 else "/x")
        recording.count(290 * SECOND, "process_major_faults", 5, at)
        recording.count(320 * SECOND, "process_major_faults", 5 + faults, at)
    finding = one(page_fault_storm.detect(recording, T))
    assert (lasted(finding), finding.number("major faults")) == ((300, 320), 4_000)
    assert (finding.value("process"), finding.value("its cgroup")) == ("mapper [41 and 1 more]", "/web/index")
    assert finding.number("its share") > 0.9


@pytest.mark.parametrize(("cores", "severity"), [((0, 1), "warning"), ((0,), "info"), ((), "")])
def test_minor_faults_are_a_storm_by_their_share_of_the_cores(cores: tuple[int, ...], severity: str) -> None:
    recording = sampled(dict.fromkeys(cores, (2.0, 8.0, FAULT, "python3")))
    recording.count(0, "vmstat_pgmajfault", 0)
    recording.count(10 * SECOND, "vmstat_pgmajfault", 3)
    examined = page_fault_storm.detect(recording, T)
    assert [finding.severity for finding in examined.findings] == ([severity] if severity else [])
    if severity:
        assert "python3 [" in str(one(examined).value("process"))
        assert one(examined).value("its cgroup") == "/kubepods/python3"
    else:
        assert examined.ruled_out == "0 major faults a second, 0% of all cores' time in page faults"


def test_many_faults_without_stacks_need_kernel_time_to_be_a_storm() -> None:
    for state, found in (("system", True), ("user", False)):
        recording = made.recording(cpus=2)
        made.cores(recording, 4.0, {0: [(0.0, 4.0, state)]})
        for second, faults in ((0, 0), (2, 800_000), (4, 1_600_000)):
            recording.count(second * SECOND, "vmstat_pgfault", faults)
            recording.count(second * SECOND, "vmstat_pgmajfault", 0)
        assert bool(page_fault_storm.detect(recording, T).findings) is found


def flood(recording: Recording, name: str = "printk_records") -> None:
    burst(recording, name, 500)
    burst(recording, name, 450, at=labels(prefix="veth#", example="veth7: entered promiscuous mode"))
    burst(recording, name, 50, at=labels(prefix="usb #-#", example="usb 1-1: reset"))


def test_a_flood_names_the_message_and_lasts_as_long_as_it_did() -> None:
    recording = ten_minutes("printk")
    flood(recording)
    finding = one(printk_flood.detect(recording, T))
    assert (lasted(finding), finding.number("messages")) == ((300, 320), 500)
    assert (finding.value("message"), finding.number("its share")) == ("veth#", 0.9)
    assert "veth7: entered promiscuous mode" in finding.summary
    assert finding.severity == "warning"


def test_lines_that_programs_write_are_not_the_kernels() -> None:
    recording = ten_minutes("printk")
    burst(recording, "printk_records", 0)
    flood(recording, "printk_program_records")
    finding = one(printk_flood.detect(recording, T))
    assert finding.severity == "info"
    assert "written by programs, not by the kernel" in finding.summary
    assert finding.value("messages") is None


def test_a_slow_console_holds_a_core_with_few_messages() -> None:
    recording = sampled({2: (2.0, 8.0, CONSOLE, "kworker/2:1")})
    recording.count(0, "printk_records", 0)
    recording.count(10 * SECOND, "printk_records", 900)
    finding = one(printk_flood.detect(recording, T))
    assert finding.value("core") == 2
    assert finding.number("console share") > 0.8
    assert {span.core for span in finding.spans} == {2}
    assert "kworker/2:1 [102]" in finding.summary
    quiet = sampled({})
    quiet.count(0, "printk_records", 0)
    quiet.count(10 * SECOND, "printk_records", 900)
    assert printk_flood.detect(quiet, T).ruled_out == "90 kernel messages a second, at most 0% of a core in printing them"


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
    assert (finding.value("quota"), finding.value("parent quota"), finding.value("machine busy")) == (0.5, 2.0, 0)
    assert finding.number("throttled time") == 3_000


def test_a_machine_that_is_full_for_a_while_is_full_then() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 120.0, {core: [(40.0, 60.0, "user")] for core in (0, 1)}, step=0.5)
    for second, ticks in ((30, 0), (60, 3_000), (90, 3_000)):
        recording["processes"].add(second * SECOND, 9, 0, 5, 1, "solver", "R", 0, ticks, 0, "/batch/solver")
        recording["processes"].add(second * SECOND, 8, 0, 5, 1, "web", "R", 0, ticks // 3, 0, "/web/x")
    finding = one(cpu_full.detect(recording, T))
    assert lasted(finding) == pytest.approx((40, 60), abs=1.01)
    assert (finding.value("busiest cgroup"), finding.value("its share")) == ("/batch/solver", 0.75)
    short = made.recording(cpus=2)
    made.cores(short, 120.0, {core: [(40.0, 44.0, "user")] for core in (0, 1)}, step=0.5)
    assert cpu_full.detect(short, T).ruled_out == "97% idle, at most 40% busy for 10 s"


def test_a_full_machine_is_seen_in_samples_alone() -> None:
    recording = made.recording(cpus=2, on=())
    for core in (0, 1):
        made.sample(recording, 0.0, 20.0, core, "solver", 100 + core, ("work",), "user", cgroup="/batch/solver")
    finding = one(cpu_full.detect(recording, T))
    assert finding.number("busy") > 0.95
    assert "solver [10" in str(finding.value("busiest"))
    assert finding.value("busiest cgroup") == "/batch/solver"
    assert finding.evidence[0].source == "stack samples"
    assert steal.detect(recording, T).unseen


@pytest.mark.parametrize(
    ("stolen", "waited", "idle", "seconds", "severity"),
    [
        (0.15, None, False, 10, "info"),
        (0.15, 0.05, False, 10, "info"),
        (0.15, 0.5, False, 10, "warning"),
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
    assert finding.number("steal") == pytest.approx(stolen, abs=0.03)
    assert lasted(finding) == pytest.approx((20, 20 + seconds), abs=1.01)


def test_one_core_that_is_stolen_is_told_quietly() -> None:
    recording = made.recording(cpus=16)
    made.cores(recording, 20.0, {5: [(4.0, 8.0, "steal")]}, step=0.5)
    finding = one(steal.detect(recording, T))
    assert (finding.severity, finding.value("worst core")) == ("info", 5)
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
    assert finding.value("blocked") == "postgres [310]"
    assert finding.number("dirty or under writeback") == 27_000


def test_a_kill_tells_whose_limit_it_was() -> None:
    recording = ten_minutes()
    for kind, fields in (
        ("oom-summary", {"constraint": "CONSTRAINT_MEMCG", "pid": "77", "comm": "python"}),
        ("memcg-oom-kill", {"pid": "77", "comm": "python", "cgroup": "/kubepods/pod1/c", "limit_cgroup": "/kubepods/pod1"}),
    ):
        recording["events"].add(500 * SECOND, kind, "python", "critical", "the line", labels(**fields))
    finding = one(oom.detect(recording, T))
    assert (finding.value("limit of"), finding.value("its cgroup")) == ("/kubepods/pod1", "/kubepods/pod1/c")
    assert finding.summary.startswith("/kubepods/pod1 reached its memory limit: 1 killed, last python")


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
    assert finding.number("interrupt time") > 0.9


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
    finding = one(nic_reset.detect(recording, T))
    told = {what: finding.value(what) for what in ("reason", "queue", "core", "driver", "driver version", "total_resets")}
    assert told == {
        "reason": "suspected-poll-starvation",
        "queue": 5,
        "core": 3,
        "driver": "ena",
        "driver version": "2.11.0g",
        "total_resets": 1,
    }
    assert (finding.severity, len(finding.spans)) == ("critical", 1)


def test_resets_that_only_the_device_counts_are_told_with_their_reason_and_time() -> None:
    recording = ten_minutes()
    for second, value in ((0, 3), (290, 3), (300, 4), (600, 4)):
        recording.count(second * SECOND, "nic_stat", value, labels(device="eth0", stat="wd_expired"))
    finding = one(nic_reset.detect(recording, T))
    assert (finding.severity, finding.value("reason"), finding.value("wd_expired")) == ("critical", "keep-alive", 1)
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
    for detect in DETECTORS:
        if detect.__module__.rsplit(".", 1)[-1] in ("reclaim", "page_fault_storm", "printk_flood", "cpu_full", "steal"):
            examined = detect(recording, T)
            assert examined == detect(other, T)
            found += len(examined.findings)
    assert found >= 3
