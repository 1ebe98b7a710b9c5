"""The whole machine in the kernel at once: one finding, with what it does there and whose it is."""

import pytest

from exhume.diagnosis.findings import core_saturated
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.model import Finding, of
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import known

T = Thresholds()
SPIN = ("native_queued_spin_lock_slowpath", "_raw_spin_lock", "d_alloc_parallel", "path_openat")
COMPACT = ("isolate_migratepages_block", "compact_zone", "try_to_compact_pages", "handle_mm_fault")
POD = "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555/" + "a" * 64


def machine(busy: int, cpus: int = 8, seconds: float = 4.0, state: str = "system") -> Recording:
    """So many cores are in the kernel from the second second on."""
    recording = made.recording(cpus=cpus)
    made.cores(recording, 2 + seconds + 1, {core: [(2.0, 2.0 + seconds, state)] for core in range(busy)})
    return recording


def sampled(recording: Recording, cores: int, stack: tuple[str, ...], comm: str = "java", cgroup: str = POD) -> Recording:
    for core in range(cores):
        made.sample(recording, 2.0, 6.0, core, comm, 600 + core, stack, cgroup=cgroup)
    return recording


def told(recording: Recording) -> list[Finding[CoreSaturated]]:
    found = of(core_saturated.detect(recording, T).findings, CoreSaturated)
    return [finding for finding in found if finding.facts.core is None]


def test_a_machine_that_is_all_in_the_kernel_is_one_warning() -> None:
    recording = sampled(machine(8), 8, COMPACT)
    found = of(core_saturated.detect(recording, T).findings, CoreSaturated)
    finding, facts = found[0], found[0].facts
    assert (finding.subject, finding.severity, facts.core) == ("all cores", "warning", None)
    assert [one.severity for one in found[1:]] == ["info"] * 8
    assert (facts.cores_full, facts.cores_total) == (8, 8)
    assert abs(facts.longest_ms - 4_000) <= 100
    assert known(facts.kernel_ratio) > 0.95
    assert [span.core for span in finding.spans] == [-1]
    assert (facts.did, facts.work.compaction_ratio) == ("moved pages about (compaction)", 1.0)
    assert facts.function == "isolate_migratepages_block"
    offender = known(facts.offender)
    assert (offender.process.comm, offender.process.pid > 0) == ("java", True)
    assert offender.pod == "11111111-2222-3333-4444-555555555555"
    assert (facts.offender_system_ms or 0) <= facts.longest_ms


def test_the_work_is_told_where_no_program_has_most_of_it() -> None:
    recording = machine(8)
    for core in range(8):
        made.sample(
            recording, 2.0, 6.0, core, f"job{core % 4}", 600 + core, SPIN, cgroup=f"/system.slice/job{core % 4}.service"
        )
    (finding,) = told(recording)
    assert (finding.facts.offender, finding.facts.work.lock_ratio) == (None, 1.0)
    assert "spun on a lock, d_alloc_parallel" in finding.summary


def test_interrupts_are_nobodys() -> None:
    recording = machine(8, state="softirq")
    (finding,) = told(sampled(recording, 8, ("mlx5e_napi_poll", "net_rx_action", "handle_softirqs"), "nginx"))
    assert (finding.facts.offender, finding.facts.work.network_ratio) == (None, 1.0)
    assert known(finding.facts.interrupt_ratio) > 0.95


def test_it_is_told_without_samples_too() -> None:
    (finding,) = told(machine(8))
    assert (finding.severity, finding.facts.did, finding.facts.samples) == ("warning", "", None)


def test_most_cores_that_are_full_at_once_are_told_with_their_number() -> None:
    (finding,) = told(sampled(machine(6), 6, SPIN))
    assert (finding.subject, finding.facts.cores_full) == ("most cores", 6)
    assert "6 of 8 cores" in finding.summary


@pytest.mark.parametrize("busy", [0, 1, 3, 4])
def test_fewer_are_told_one_by_one_or_not_at_all(busy: int) -> None:
    assert told(machine(busy)) == []


def test_a_moment_of_it_is_no_warning() -> None:
    assert told(machine(8, seconds=0.6)) == []


def test_programs_of_their_own_are_not_the_kernel() -> None:
    assert told(machine(8, state="user")) == []
    recording = made.recording(cpus=4)
    half = [(2.0 + i / 10, 2.07 + i / 10, "system") for i in range(40)]
    made.cores(recording, 7.0, dict.fromkeys(range(4), half))
    assert told(recording) == []


def test_a_name_cannot_write_to_the_terminal() -> None:
    (finding,) = told(sampled(machine(8), 8, SPIN, comm="a\x1b[2Jb"))
    assert "\x1b" not in finding.summary


def test_a_thread_of_the_kernel_on_all_cores_is_told_as_one() -> None:
    (finding,) = told(sampled(machine(8), 8, ("ksm_do_scan", "kthread"), comm="kworker", cgroup="/"))
    assert known(finding.facts.offender).kernel_thread


def test_the_order_of_the_rows_does_not_matter() -> None:
    forth = sampled(machine(8), 8, SPIN)
    back = made.recording(cpus=8)
    for name in ("cpu", "samples", "stacks", "frames", "threads"):
        for row in reversed(list(forth[name].rows())):
            back[name].add(*row.values())
    assert core_saturated.detect(forth, T) == core_saturated.detect(back, T)
