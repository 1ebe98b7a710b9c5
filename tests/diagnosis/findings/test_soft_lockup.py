"""What the kernel's watchdogs say, with the call trace: who, where, how long and at what."""

from exhume.diagnosis.findings import memcg_walk, soft_lockup
from exhume.diagnosis.findings.memcg_walk import MemcgWalk
from exhume.diagnosis.findings.model import Finding, Span, of
from exhume.diagnosis.findings.soft_lockup import SoftLockup
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels
from exhume.sources.kernel_lines import Joiner
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import known, only
from tests.diagnosis.findings.made import SECOND
from tests.sources.test_kernel_traces import ARM64, HUNG, RCU_5, SOFT_4_19, SOFTIRQ, WALK_4_19

T = Thresholds()


def logged(*texts: tuple[float, str], on: tuple[str, ...] = ("cpu", "kernel-log"), split: int = 10_000) -> Recording:
    """A recording of a node that said this then, read in batches of so many lines."""
    recording = made.recording(cpus=96, on=on)
    for at in (0, 4_000 * SECOND):
        recording["cpu"].add(at, 0, *[at // 10**7] * 10)
    joiner = Joiner()
    lines = [(round(at * SECOND), line) for at, text in texts for line in text.splitlines()]
    for first in range(0, len(lines), split):
        for line in joiner.join(lines[first : first + split]):
            recording["events"].add(*line.row)
    return recording


def lockup(recording: Recording) -> Finding[SoftLockup]:
    return only(soft_lockup.detect(recording, T), SoftLockup)


def lockups(*texts: tuple[float, str]) -> list[Finding[SoftLockup]]:
    return of(soft_lockup.detect(logged(*texts), T).findings, SoftLockup)


def process(finding: Finding[SoftLockup]) -> Process:
    return known(finding.facts.offender).process


def test_a_soft_lockup_of_4_19_says_who_where_how_long_and_at_what() -> None:
    finding = lockup(logged((3_990, SOFT_4_19)))
    facts = finding.facts
    assert finding.severity == "critical"
    assert (facts.core, process(finding), facts.stuck_s) == (39, Process("kubelet", 3021), 22)
    assert (facts.did, facts.work.memcg_walk_ratio) == ("walked memory cgroups", 1.0)
    assert facts.function == "mem_cgroup_node_nr_lru_pages"
    assert facts.stack == tuple(WALK_4_19.split(";")[:6])
    assert finding.spans == (Span(39, 3_968 * SECOND, 3_990 * SECOND),)
    assert (
        "on core 39 in kubelet [3021], stuck for 22 s: it walked memory cgroups, mem_cgroup_node_nr_lru_pages"
        in finding.summary
    )


def test_a_trace_that_was_read_in_pieces_is_whole_again() -> None:
    for lines in (1, 3, 7, 12):
        assert lockup(logged((3_990, SOFT_4_19), split=lines)) == lockup(logged((3_990, SOFT_4_19)))


def test_what_came_on_top_of_a_program_is_not_laid_at_its_door() -> None:
    finding = lockup(logged((3_990, SOFTIRQ.replace("swapper/2:0", "trainer:77"))))
    assert finding.facts.offender is None
    assert finding.facts.work.network_ratio == 1.0
    assert "trainer" not in finding.summary


def test_an_rcu_stall_is_told_by_the_core_that_is_late() -> None:
    finding = lockup(logged((3_990, RCU_5)))
    assert (finding.facts.core, process(finding)) == (5, Process("reader", 77))
    assert finding.facts.work.memcg_walk_ratio == 1.0
    assert "an RCU stall on core 5" in finding.summary


def test_where_the_thread_of_rcu_waits_says_nothing_about_who_keeps_it_waiting() -> None:
    text = "rcu: rcu_sched kthread starved for 5252 jiffies! g1 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x402 ->cpu=3\n"
    facts = lockup(logged((3_990, text + "Call Trace:\n schedule_timeout+0x8b/0x150\n rcu_gp_kthread+0x51b/0xbb0\n"))).facts
    assert (facts.core, facts.did, facts.stack) == (3, "", ())


def test_a_hung_task_is_on_no_core() -> None:
    finding = lockup(logged((3_990, HUNG)))
    assert (finding.facts.core, finding.severity) == (None, "warning")
    assert process(finding) == Process("kworker/u8:1", 123)
    assert finding.spans == (Span(-1, 3_870 * SECOND, 3_990 * SECOND),)
    waits = lockup(logged((3_990, HUNG + " jbd2_log_wait_commit+0x1/0x2\n"))).facts
    assert (waits.did, waits.function) == ("waits in jbd2_log_wait_commit", "jbd2_log_wait_commit")


def test_the_unit_is_that_of_the_process_where_anybody_saw_it() -> None:
    recording = logged((3_990, SOFT_4_19))
    recording["processes"].add(SECOND, 3021, 0, 5, 1, "kubelet", "R", 39, 0, 9, "/system.slice/kubelet.service")
    assert known(lockup(recording).facts.offender).unit == "kubelet.service"
    other = logged((3_990, SOFT_4_19))
    other["processes"].add(SECOND, 3021, 0, 5, 1, "another", "R", 39, 0, 9, "/system.slice/another.service")
    assert known(lockup(other).facts.offender).unit == ""


def test_the_one_with_a_trace_speaks_for_those_of_its_time_and_not_for_those_of_another() -> None:
    bare = SOFT_4_19.splitlines()[0].replace("22s", "30s")
    again = SOFT_4_19.replace("22s", "45s")
    first, second = lockups((1_000, ARM64), (3_900, bare), (3_923, again), (3_990, bare))
    assert (first.facts.core, process(first), first.facts.lines) == (12, Process("kswapd0", 88), 1)
    assert (second.facts.core, second.facts.lines, len(second.spans)) == (39, 3, 3)
    assert (second.facts.stuck_s, second.facts.did) == (45, "walked memory cgroups")


def _stuck(core: int, comm: str, pid: int, *functions: str, seconds: int = 22) -> str:
    head = f"watchdog: BUG: soft lockup - CPU#{core} stuck for {seconds}s! [{comm}:{pid}]\n"
    head += f"CPU: {core} PID: {pid} Comm: {comm} Not tainted 5.15.0 #1\nRIP: 0010:{functions[0]}+0x11c/0x3a0\n"
    return head + "Call Trace:\n <TASK>\n" + "".join(f" {name}+0x24/0x40\n" for name in functions[1:]) + " </TASK>\n"


BAD = _stuck(3, "badjob", 777, "os_delay_us", "rm_ioctl", "nvidia_ioctl", "__x64_sys_ioctl")
WAITS = _stuck(7, "kubelet", 3021, "smp_call_function_many_cond", "on_each_cpu_cond_mask", "flush_tlb_mm_range")
SPINS = _stuck(5, "runc", 44, "native_queued_spin_lock_slowpath", "_raw_spin_lock", "d_alloc", "path_openat", seconds=45)


def test_each_core_is_told_by_itself_who_does_something_before_who_waits_for_others() -> None:
    for log in (((10, BAD), (11, WAITS), (12, SPINS)), ((10, SPINS), (11, WAITS), (12, BAD))):
        found = lockups(*((3_900 + at, text) for at, text in log))
        assert process(found[0]) == Process("badjob", 777)
        assert {finding.facts.core: finding.facts.waits for finding in found} == {3: False, 7: True, 5: True}
        assert [finding.facts.lines for finding in found] == [1, 1, 1]


def test_of_those_that_do_something_the_one_that_was_stuck_first_is_told_first() -> None:
    other = BAD.replace("CPU#3", "CPU#4").replace("CPU: 3", "CPU: 4").replace("badjob", "later").replace("777", "778")
    for log in (((3_900, other), (3_899, BAD)), ((3_899, BAD), (3_900, other))):
        assert [finding.facts.core for finding in lockups(*log)] == [3, 4]
    # It was found later, and is stuck for longer.
    longer = other.replace("22s", "45s")
    assert [finding.facts.core for finding in lockups((3_899, BAD), (3_900, longer))] == [4, 3]


def test_a_task_that_hangs_waits_and_is_told_after_what_runs() -> None:
    first, second = lockups((3_890, HUNG), (3_899, BAD))
    assert (process(first), first.facts.waits) == (Process("badjob", 777), False)
    assert (second.facts.waits, second.facts.core) == (True, None)


def test_a_thread_of_the_kernel_is_known_by_where_its_trace_begins() -> None:
    mine = _stuck(3, "irq/128-nvidia", 130, "os_delay_us", "irq_thread_fn", "irq_thread", "kthread", "ret_from_fork")
    assert known(lockup(logged((3_900, mine))).facts.offender).kernel_thread
    assert not known(lockup(logged((3_900, BAD))).facts.offender).kernel_thread


def test_lines_without_a_trace_are_told_as_before() -> None:
    finding = lockup(logged((3_990, SOFT_4_19.splitlines()[0])))
    assert (finding.facts.stack, finding.facts.did) == ((), "")
    assert (finding.facts.core, process(finding)) == (39, Process("kubelet", 3021))


def test_a_name_in_the_log_cannot_write_to_the_terminal() -> None:
    recording = made.recording(on=("cpu", "kernel-log"))
    recording["events"].add(5, "soft-lockup", "cpu1", "critical", "x", labels(cpu=1, comm="a\x1b[2Jb", pid=7, seconds=22))
    assert "\x1b" not in lockup(recording).summary


def test_the_order_of_the_rows_does_not_matter() -> None:
    recording = logged((1_000, ARM64), (3_900, SOFT_4_19), (3_950, RCU_5), (3_990, HUNG), split=5)
    rows = list(recording["events"].rows())
    backwards = logged()
    for row in reversed(rows):
        backwards["events"].add(*row.values())
    assert soft_lockup.detect(recording, T) == soft_lockup.detect(backwards, T)
    assert memcg_walk.detect(recording, T) == memcg_walk.detect(backwards, T)


def test_a_trace_in_a_walk_is_evidence_of_the_walk() -> None:
    finding = only(memcg_walk.detect(logged((3_970, SOFT_4_19), (3_990, SOFT_4_19)), T), MemcgWalk)
    assert (finding.subject, finding.severity) == ("kubelet [3021]", "warning")
    assert (finding.facts.family, finding.facts.through) == ("numa_stat", "memory.numa_stat")
    assert finding.facts.walked_ms == 42_000  # 22 s, of which two overlap
    assert finding.spans == (Span(39, 3_948 * SECOND, 3_990 * SECOND),)
    (old,) = memcg_walk.detect(logged((100, SOFT_4_19)), T).findings
    assert old.severity == "info"
