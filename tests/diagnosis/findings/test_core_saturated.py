"""A core full of kernel time, where all there is are stack samples: a capture of perf's has nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.diagnosis.findings import core_saturated
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.cores import busy, cores, saturated, share
from exhume.diagnosis.findings.model import Finding
from exhume.diagnosis.findings.sampled import period_ns
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import known, only
from tests.diagnosis.findings.made import SECOND
from tests.examples import examples

T = Thresholds()
NUMA_STAT = ("mem_cgroup_nr_lru_pages", "memcg_numa_stat_show", "seq_read", "vfs_read", "ksys_read", "do_syscall_64")
POD = "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555/" + "a" * 64


def capture(cpus: int = 4) -> Recording:
    return made.recording(cpus=cpus, on=("samples",))


def saturated_by(recording: Recording) -> Finding[CoreSaturated]:
    return only(core_saturated.detect(recording, T), CoreSaturated)


def idle(recording: Recording, seconds: float, core: int, hz: int = 99) -> None:
    made.sample(recording, 0.0, seconds, core, "swapper", 0, ("intel_idle", "do_idle"), kind="idle", hz=hz)


@pytest.mark.parametrize("hz", [97, 499, 999])
def test_a_burst_is_found_where_it_is_although_idle_cores_were_not_sampled(hz: int) -> None:
    recording = capture()
    made.sample(recording, 2.0, 5.0, 2, "kubelet", 12, NUMA_STAT, hz=hz, cgroup="/system.slice/kubelet.service")
    for core in (0, 1, 3):
        made.sample(recording, 1.0, 1.4, core, "trainer", 99, (), kind="user", hz=hz)
        made.sample(recording, 9.5, 10.0, core, "trainer", 99, (), kind="user", hz=hz)
    finding = saturated_by(recording)
    assert (finding.subject, finding.severity, finding.facts.core) == ("core 2", "warning", 2)
    assert abs(finding.facts.longest_ms - 3_000) <= 40
    assert abs(finding.start - 2 * SECOND) <= 0.04 * SECOND
    assert known(finding.facts.machine_busy_ratio) < 0.2
    assert {one.source for one in finding.evidence if one.field in ("core", "longest_ms", "kernel_ratio")} == {"stack samples"}


def test_it_says_who_and_whose_and_where_in_the_kernel() -> None:
    recording = capture()
    made.sample(recording, 1.0, 2.0, 2, "kubelet", 12, NUMA_STAT, cgroup="/system.slice/kubelet.service")
    made.sample(recording, 0.0, 3.0, 1, "trainer", 99, (), kind="user")
    facts = saturated_by(recording).facts
    offender = known(facts.offender)
    assert (offender.process, offender.unit, offender.pod) == (Process("kubelet", 12), "kubelet.service", "")
    assert facts.function == "mem_cgroup_nr_lru_pages"
    assert facts.stack[:2] == ("mem_cgroup_nr_lru_pages", "memcg_numa_stat_show")
    assert facts.work.memcg_walk_ratio == 1.0


def test_a_pod_is_named_by_the_path_of_its_cgroup() -> None:
    recording = capture()
    made.sample(recording, 1.0, 2.0, 2, "cat", 12, NUMA_STAT, cgroup=POD)
    made.sample(recording, 0.0, 3.0, 1, "trainer", 99, (), kind="user")
    assert known(saturated_by(recording).facts.offender).pod == "11111111-2222-3333-4444-555555555555"


def test_who_polls_has_the_core_by_design() -> None:
    recording = capture()
    polls = ("nvme_poll", "bio_poll", "io_do_iopoll", "io_sq_thread", "ret_from_fork")
    made.sample(recording, 0.0, 9.0, 2, "iou-sqp-900", 901, polls, cgroup="/system.slice/db.service")
    made.sample(recording, 0.0, 9.0, 1, "trainer", 99, (), kind="user")
    finding = saturated_by(recording)
    assert (finding.severity, finding.facts.work.polling_ratio) == ("info", 1.0)
    assert not known(finding.facts.offender).kernel_thread
    assert "by design" in finding.summary


def test_what_the_hypervisor_took_is_told() -> None:
    recording = made.recording(cpus=2)
    for i in range(81):
        system, idle, steal = (46 * i, 50 * i, 4 * i) if i <= 40 else (46 * 40, 50 * 40 + 96 * (i - 40), 4 * i)
        recording["cpu"].add(i * SECOND, 0, 0, 0, 2 * system, 0 if i <= 40 else idle, 0, 0, 0, 2 * steal, 0, 0)
        recording["cpu"].add(i * SECOND, 1, 0, 0, 0, 100 * i, 0, 0, 0, 0, 0, 0)
    finding = saturated_by(recording)
    assert finding.facts.core == 0
    assert (finding.facts.steal_ratio, finding.facts.kernel_ratio) == pytest.approx((0.08, 1.0), abs=0.0005)
    assert "of what the hypervisor left it (it took 8%)" in finding.summary


def test_softirqs_and_interrupts_count_and_user_time_does_not() -> None:
    recording = capture()
    made.sample(recording, 1.0, 1.5, 0, "swapper", 0, ("net_rx_action", "handle_softirqs"), kind="softirq")
    made.sample(recording, 1.5, 2.0, 0, "swapper", 0, ("nvme_irq", "common_interrupt"), kind="irq")
    made.sample(recording, 0.0, 3.0, 1, "trainer", 99, (), kind="user")
    finding = saturated_by(recording)
    assert (finding.facts.core, finding.facts.interrupt_ratio) == (0, 1.0)


def test_half_of_the_time_is_not_a_full_core_whichever_way_idle_time_is_told() -> None:
    sampled = capture(2)
    unsampled = capture(2)
    for i in range(60):
        for recording in (sampled, unsampled):
            made.sample(recording, 0.1 * i, 0.1 * i + 0.05, 0, "reader", 12, NUMA_STAT, hz=200)
        made.sample(sampled, 0.1 * i + 0.05, 0.1 * i + 0.1, 0, "swapper", 0, ("do_idle",), kind="idle", hz=200)
    idle(sampled, 6.0, 1, hz=200)
    for recording in (sampled, unsampled):
        assert not core_saturated.detect(recording, T).findings
        assert 0.45 < cores(recording)[0].share("system") < 0.55


def test_a_gap_among_samples_of_idle_cores_too_is_time_in_which_none_could_be_taken() -> None:
    recording = capture(4)
    for core in range(3):
        idle(recording, 10.0, core)
    made.sample(recording, 0.0, 4.0, 3, "swapper", 0, ("do_idle",), kind="idle")
    made.sample(recording, 5.0, 10.0, 3, "swapper", 0, ("do_idle",), kind="idle")
    finding = saturated_by(recording)
    assert (finding.facts.core, finding.severity) == (3, "info")
    assert 950 <= known(finding.facts.unaccounted_ms) <= 1_050
    assert "samples were lost" in finding.summary


def test_between_two_captures_nobody_knows_what_was() -> None:
    recording = capture(2)
    for start in (0.0, 1_000.0):
        made.sample(recording, start, start + 5.0, 0, "reader", 12, NUMA_STAT)
        made.sample(recording, start, start + 5.0, 1, "trainer", 99, (), kind="user")
    facts = saturated_by(recording).facts
    assert facts.episodes == 2
    assert 4_900 <= facts.longest_ms <= 5_020
    assert busy(cores(recording)) > 0.99


def test_the_counters_of_the_kernel_are_believed_where_they_were_read() -> None:
    recording = capture(2)
    made.cores(recording, 3.0, {})
    made.sample(recording, 0.0, 3.0, 0, "reader", 12, NUMA_STAT)
    assert not core_saturated.detect(recording, T).findings
    assert {core.source for core in cores(recording)} == {"/proc/stat"}


def test_a_full_machine_of_samples_is_full() -> None:
    recording = capture(2)
    for core in range(2):
        made.sample(recording, 0.0, 3.0, core, "build", 12, (), kind="user")
    assert busy(cores(recording)) == 1.0
    assert share(cores(recording), "user") == 1.0


def test_without_counters_and_without_samples_nothing_was_seen() -> None:
    assert core_saturated.detect(capture(), T).unseen
    assert cores(capture()) == []


def test_the_period_is_that_of_the_core_that_has_most() -> None:
    recording = capture(2)
    made.sample(recording, 0.0, 1.0, 0, "reader", 12, NUMA_STAT, hz=499)
    made.sample(recording, 0.0, 9.0, 1, "now and then", 13, NUMA_STAT, hz=3)
    assert abs(period_ns(recording) - SECOND // 499) <= 1_000


_KINDS = st.sampled_from(["idle", "user", "system", "softirq", "irq", "nonsense"])


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 5 * SECOND), st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=60),
    st.lists(_KINDS, max_size=3),
)
def test_any_samples_in_any_order_are_the_same_cores(samples: list[tuple[int, int, int]], kinds: list[str]) -> None:
    def made_of(rows: list[tuple[int, int, int]]) -> Recording:
        recording = capture(3)
        for i, kind in enumerate(kinds, 1):
            recording["stacks"].add(i, kind, [])
        for time, core, stack in rows:
            recording["samples"].add(time, core, 1, stack)
        return recording

    forth, back = cores(made_of(samples)), cores(made_of(sorted(samples, key=lambda row: (-row[0], row[2], row[1]))))
    for one, other in zip(forth, back, strict=True):
        assert (one.times == other.times).all()
        assert one.ticks.sum(axis=0).tolist() == other.ticks.sum(axis=0).tolist()
        assert (np.diff(one.times) >= 0).all()
        assert (one.ticks >= 0).all()
        assert all(found.end > found.start for found in saturated(one, 0.95, 0))


def test_cores_may_differ_in_whether_they_are_sampled_while_idle() -> None:
    recording = capture(2)
    for core in range(2):
        made.sample(recording, 0.0, 2.0, core, "trainer", 99, (), kind="user")
        made.sample(recording, 9.0, 10.0, core, "trainer", 99, (), kind="user")
    made.sample(recording, 2.0, 9.0, 0, "swapper", 0, ("do_idle",), kind="idle")
    assert [round(core.share("idle"), 1) for core in cores(recording)] == [0.7, 0.7]
