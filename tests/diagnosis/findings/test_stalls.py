"""Stalls: read from events, joined with stack samples where those tell more, and told in a sentence with who held the core."""

from typing import Any

import pytest

from exhume.diagnosis.findings import core_saturated, napi_starved
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.held import REST
from exhume.diagnosis.findings.kernel_work import IDLE, NETWORK, UNKNOWN, USER, WALK
from exhume.diagnosis.findings.model import Finding, Span, of
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.stalls import held_stalls, held_while
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels
from exhume.recording.source_state import SourceState, Weaker
from exhume.sources.latency.stalls import Holder
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import known, only
from tests.diagnosis.findings.made import SECOND

T = Thresholds()
NOT_RUNNING = Holder(0, 0, "swapper/1")
SOMEBODY = Holder(44, 45, "trainer")


def watched(seconds: float = 30.0, shares: Any = None) -> Recording:
    recording = made.recording(cpus=4, on=("cpu", "kernel-log", "latency", "memcg"))
    made.cores(recording, seconds, shares or {})
    return recording


def starved(recording: Recording) -> Finding[NapiStarved]:
    return only(napi_starved.detect(recording, T), NapiStarved)


def line(recording: Recording, seconds: float, kind: str = "nic-queue-paused", **more: str | int) -> None:
    fields: dict[str, str | int] = {
        "device": "eth0",
        "queue": 5,
        "napi_age_ms": 6596,
        "threshold_ms": 5000,
        "napi_scheduled": 1,
    }
    recording["events"].add(round(seconds * SECOND), kind, "eth0", "critical", "TX q 5 is paused", labels(**fields | more))
    recording.count(1, "interrupts", 10**6, labels(irq=61, cpu=1, device="eth0-Tx-Rx-5"))


# Reading


def test_what_was_announced_and_is_over_is_one_stall() -> None:
    recording = watched()
    made.stall(recording, 5.05, 50, over=False)
    made.stall(recording, 8.0, 3_000)
    (one,) = held_stalls(recording)
    assert (one.over, one.ms, one.core, one.device) == (True, 3_000, 1, "eth0")
    assert one.who is not None
    assert (str(one.who), one.who.cgroup, one.work) == ("kubelet [11]", "/system.slice/kubelet.service", WALK)


def test_what_is_over_is_over_even_if_it_was_announced_that_very_moment() -> None:
    recording = watched()
    made.stall(recording, 5.0, 60)
    made.stall(recording, 5.0, 60, over=False)
    (one,) = held_stalls(recording)
    assert (one.over, one.ms, one.work) == (True, 60, WALK)


def test_a_stall_that_is_not_over_lasts_as_far_as_the_recording_goes() -> None:
    recording = watched(10.0)
    made.stall(recording, 5.05, 50, over=False)
    (one,) = held_stalls(recording)
    assert (one.over, one.ms) == (False, 5_000)
    finding = starved(recording)
    assert "was not for 5,000 ms and still waits, while kubelet [11] held the core" in finding.summary
    assert finding.severity == "critical"


def test_what_nobody_watched_any_longer_is_not_told_as_lasting() -> None:
    recording = watched(10.0)
    made.cores(recording, 5.0, {}, at=3_600 * SECOND)
    made.stall(recording, 9.0, 50, over=False)
    (one,) = held_stalls(recording)
    assert one.ms == 1_050
    gone = watched(100.0)  # such as a thread that is no more, and that nobody heard of again
    made.stall(gone, 9.0, 60, over=False)
    (one,) = held_stalls(gone)
    assert (one.ms, one.over) == (60, True)


def test_who_waits_anew_does_not_wait_any_longer() -> None:
    recording = watched(10.0)
    made.stall(recording, 2.0, 60, over=False)
    made.stall(recording, 5.0, 70)
    assert [(one.ms, one.over) for one in held_stalls(recording)] == [(60, True), (70, True)]


@pytest.mark.parametrize("fields", [{}, {"us": "-5"}, {"us": "²"}, {"us": "9" * 18}, {"us": "--5"}, {"us": ""}])
def test_a_row_without_a_sensible_length_is_no_stall(fields: dict[str, str]) -> None:
    recording = watched()
    recording["events"].add(SECOND, "stall", "eth0", "warning", "", labels(what="napi", cpu=1, **fields))
    assert held_stalls(recording) == ()
    assert not napi_starved.detect(recording, T).findings


# Joined with samples


def test_samples_of_all_cores_say_who_it_was_where_the_stall_does_not() -> None:
    recording = watched()
    made.stall(recording, 5.0, 400, holder=None, stack=(), samples=(0, 0))
    made.sample(recording, 4.6, 4.95, 1, "kubelet", 12, made.WALK)
    made.sample(recording, 4.95, 5.0, 1, "napi/eth0-1", 77, ("net_rx_action",))  # who waits: not an offender
    made.sample(recording, 4.6, 5.0, 2, "trainer", 99, ("crypto_shash_update",))  # another core
    made.sample(recording, 6.0, 9.0, 1, "trainer", 99, ("crypto_shash_update",))  # another time
    (one,) = held_stalls(recording)
    assert one.who is not None
    assert (one.who.comm, one.work, one.stack[0]) == ("kubelet", WALK, "mem_cgroup_iter")
    assert one.samples == one.total == 35
    assert "while kubelet [12] walked memory cgroups there" in starved(recording).summary


@pytest.mark.parametrize(
    ("kind", "stack", "expected"),
    [("idle", ("default_idle", "do_idle"), IDLE), ("user", (), USER), ("system", ("[unknown]",), UNKNOWN)],
)
def test_samples_of_an_idle_core_or_of_user_space_are_told_as_such(kind: str, stack: tuple[str, ...], expected: Any) -> None:
    recording = watched()
    made.stall(recording, 5.0, 400, holder=None, stack=(), samples=(0, 0))
    made.sample(recording, 4.6, 5.0, 1, "trainer", 99, stack, kind)
    (one,) = held_stalls(recording)
    assert one.work == expected
    assert (one.who == REST) is (kind == "idle")


def test_the_time_of_a_softirq_is_not_that_of_the_program_it_interrupted() -> None:
    recording = watched()
    made.stall(recording, 5.0, 400, holder=None, stack=(), samples=(0, 0))
    interrupted = ("ena_io_poll", "__napi_poll", "net_rx_action", "handle_softirqs", "__irq_exit_rcu", "common_interrupt")
    made.sample(recording, 4.6, 5.0, 1, "trainer", 99, interrupted, "softirq")
    (one,) = held_stalls(recording)
    assert one.work == NETWORK
    finding = starved(recording)
    assert "while the core was busy with packets there: more work for the network than this core can do" in finding.summary
    assert finding.facts.offender is None


def test_neither_is_it_where_the_stall_itself_came_with_the_stack() -> None:
    recording = watched()
    made.stall(recording, 5.0, 400, holder=SOMEBODY, stack=("rcu_core", "handle_softirqs", "common_interrupt", "do_syscall_64"))
    finding = starved(recording)
    assert "while the core ran RCU callbacks in a softirq" in finding.summary
    assert finding.facts.offender is None


def test_a_stack_that_came_with_the_stall_is_believed() -> None:
    recording = watched()
    made.stall(recording, 5.0, 400)
    made.sample(recording, 4.6, 5.0, 1, "trainer", 99, ("crypto_shash_update",))
    (one,) = held_stalls(recording)
    assert str(one.who) == "kubelet [11]"


# In a sentence


def test_the_sentence_says_how_often_how_long_where_and_who_did_what() -> None:
    recording = watched()
    for i in range(12):
        made.stall(recording, 2.0 * (i + 1), 690 if i == 7 else 100)
    finding = starved(recording)
    assert finding.summary == (
        "eth0 was due to be polled and was not: 12 stalls of up to 690 ms on core 1, "
        "all of them while kubelet [11] walked memory cgroups there (last 6 s ago)"
    )
    measured = known(finding.facts.measured)
    assert (finding.subject, measured.longest_core, measured.stalls, measured.late_ms) == ("eth0", 1, 12, 1_790)
    assert measured.work.memcg_walk_ratio == 1.0
    assert measured.stack[:2] == ("mem_cgroup_iter", "shrink_node")


def test_several_offenders_are_told_by_how_long_they_made_it_wait() -> None:
    recording = watched()
    for i in range(4):
        made.stall(recording, 2.0 + i, 60)
    for i in range(3):
        made.stall(recording, 10.0 + i, 500, 2, holder=SOMEBODY, stack=("zap_pte_range", "exit_mmap"))
    made.stall(recording, 20.0, 70, 3, holder=None, stack=(), samples=(0, 0))
    finding = starved(recording)
    assert "8 stalls of up to 500 ms on cores 1, 2 and 3" in finding.summary
    assert (
        "3 of them while trainer [44] gave back the memory of a process there, 4 while kubelet [11] walked" in finding.summary
    )
    assert "1 with others there" in finding.summary
    measured = known(finding.facts.measured)
    assert known(measured.offender).process == Process("trainer", 44)
    assert measured.work.memcg_walk_ratio < 0.15
    assert measured.unknown_ratio > 0


def test_a_program_that_is_another_process_each_time_is_one_offender() -> None:
    recording = watched()
    for i in range(5):
        made.stall(recording, 2.0 + i, 300, holder=Holder(100 + i, 100 + i, "runc"))
    assert "all of them while runc walked memory cgroups there" in starved(recording).summary


@pytest.mark.parametrize(
    ("holder", "stack", "samples", "expected"),
    [
        (NOT_RUNNING, (), (0, 0), "while the core was idle, or not running at all"),
        (None, (), (0, 0), "while nobody saw who held the core"),
        (Holder(16, 16, "ksoftirqd/1"), (), (0, 0), "while ksoftirqd/1 [16] was busy with packets there: more work for the"),
        (Holder(17, 17, "napi/eth1-9"), (), (0, 0), "while napi/eth1-9 [17] was busy with packets there: more work for the"),
        (SOMEBODY, (), (9, 30), "while several took turns there, trainer [44] most"),
        (SOMEBODY, (), (30, 30), "while trainer [44] held the core"),
        (
            SOMEBODY,
            ("io_serial_in", "console_unlock"),
            (30, 30),
            "while trainer [44] printed kernel messages to a slow console",
        ),
    ],
)
def test_who_held_the_core_is_told_as_far_as_it_was_seen(
    holder: Holder | None, stack: tuple[str, ...], samples: tuple[int, int], expected: str
) -> None:
    recording = watched()
    made.stall(recording, 5.0, 400, holder=holder, stack=stack, samples=samples, cgroup="/")
    finding = starved(recording)
    assert expected in finding.summary
    assert known(finding.facts.measured).work.memcg_walk_ratio == 0.0


def test_a_program_that_calls_itself_ksoftirqd_is_a_program() -> None:
    recording = watched()
    made.stall(recording, 5.0, 400, holder=Holder(16, 16, "ksoftirqd/1"), stack=(), cgroup="/kubepods/pod1")
    assert "while ksoftirqd/1 [16] held the core" in starved(recording).summary


def test_a_stall_while_the_hypervisor_took_the_core_says_so() -> None:
    recording = watched(10.0, {1: [(4.0, 5.0, "steal")]})
    made.stall(recording, 5.0, 900, holder=NOT_RUNNING, stack=())
    finding = starved(recording)
    assert "the hypervisor took" in finding.summary
    assert known(known(finding.facts.measured).steal_ratio) > 0.9
    other = watched(10.0, {1: [(1.0, 2.0, "steal")]})
    made.stall(other, 5.0, 900, holder=NOT_RUNNING, stack=())
    assert known(starved(other).facts.measured).steal_ratio is None


# How bad


@pytest.mark.parametrize(
    ("seconds", "lengths", "severity"),
    [
        (3_600, [60], "info"),
        (3_600, [60, 60, 60], "info"),  # five thousandths of a per cent of an hour
        (3, [60], "info"),
        (60, [60, 60], "info"),
        (60, [60, 60, 60], "warning"),
        (3_600, [199], "info"),
        (3_600, [200], "warning"),
        (3_600, [999], "warning"),
        (3_600, [1_000], "critical"),
    ],
)
def test_stalls_are_judged_by_number_length_and_share_of_time(seconds: int, lengths: list[int], severity: str) -> None:
    recording = made.recording(on=("cpu", "latency"))
    for at in range(seconds + 1):
        recording["cpu"].add(at * SECOND, 0, 0, 0, 0, 100 * at, 0, 0, 0, 0, 0, 0)
    for i, ms in enumerate(lengths):
        made.stall(recording, 1.0 + i / 2, ms)
    assert starved(recording).severity == severity


def test_a_stall_below_the_threshold_is_ruled_out_with_the_number() -> None:
    recording = watched()
    made.stall(recording, 5.0, 49)
    assert (
        napi_starved.detect(recording, T).ruled_out
        == "no poll was 50 ms late, no driver complained, 0 packets dropped by softnet"
    )
    made.stall(recording, 6.0, 60)
    assert not napi_starved.detect(recording, Thresholds(napi_stall_ms=100)).findings


def test_probes_that_see_less_say_so() -> None:
    recording = made.recording(on=("cpu",))
    recording.add_source(0, "latency", SourceState.read((Weaker("/proc/PID/schedstat", "no BTF"),)))
    made.cores(recording, 3.0, {})
    assert "(weaker, from /proc/PID/schedstat: no BTF)" in napi_starved.detect(recording, T).ruled_out
    made.stall(recording, 2.0, 500)
    assert known(starved(recording).facts.measured).measured_by == "weaker, from /proc/PID/schedstat: no BTF"


@pytest.mark.parametrize(("hours", "severity"), [(0.5, "critical"), (2, "warning"), (30, "info")])
def test_what_is_over_for_long_is_less_bad(hours: float, severity: str) -> None:
    recording = watched(3.0)
    made.cores(recording, 3.0, {}, at=round(hours * 3600 * SECOND))
    made.stall(recording, 2.0, 1_500)
    assert starved(recording).severity == severity


@pytest.mark.parametrize(
    ("reset", "device", "severity"), [(12.0, "eth0", "critical"), (9.0, "eth0", "warning"), (12.0, "eth1", "warning")]
)
def test_a_stall_that_a_reset_of_the_device_followed_is_critical(reset: float, device: str, severity: str) -> None:
    recording = watched()
    made.stall(recording, 10.0, 300)
    recording["events"].add(
        round(reset * SECOND), "nic-reset-done", "0000:20:03.0", "warning", "done", labels(pci="0000:20:03.0")
    )
    recording["events"].add(1, "nic-up", device, "info", "", labels(pci="0000:20:03.0", device=device))
    finding = starved(recording)
    assert finding.severity == severity
    assert bool(finding.facts.reset_line) is (severity == "critical")


# Which device


def test_only_polls_of_the_network_count() -> None:
    recording = watched()
    made.stall(recording, 5.0, 2_000, what="runqueue")
    made.stall(recording, 6.0, 2_000, device="", what="softirq")
    assert not napi_starved.detect(recording, T).findings


def test_a_device_that_nobody_knows_is_told_by_its_core() -> None:
    recording = watched()
    made.stall(recording, 5.0, 400, device="", netns=0)
    made.stall(recording, 6.0, 300, 2, device="", netns=0)
    recording.count(1, "interrupts", 10**6, labels(irq=61, cpu=2, device="eth0-Tx-Rx-5"))
    first, second = of(napi_starved.detect(recording, T).findings, NapiStarved)
    assert (first.subject, first.facts.core_serves) == ("an unknown device on core 1", ())
    assert (second.subject, second.facts.core_serves) == ("an unknown device on core 2", ("eth0",))


def test_devices_of_the_same_name_in_other_network_namespaces_are_others() -> None:
    recording = watched()
    made.stall(recording, 5.0, 300, netns=4026531840)
    made.stall(recording, 6.0, 400, 2, netns=4026532999)
    made.stall(recording, 7.0, 300, netns=0)
    line(recording, 5.5)
    found = of(napi_starved.detect(recording, T).findings, NapiStarved)
    first, second = sorted(found, key=lambda finding: finding.subject)
    assert (first.subject, known(first.facts.measured).stalls, known(first.facts.complaint).lines) == ("eth0", 2, 1)
    assert (second.subject, second.facts.complaint) == ("eth0 of network namespace 4026532999", None)


def test_what_was_measured_and_what_the_driver_says_are_one_finding() -> None:
    recording = watched()
    made.stall(recording, 10.1, 6_700)
    line(recording, 10.0)
    finding = starved(recording)
    assert finding.summary.startswith("eth0 was due to be polled on core 1 and was not for 6,700 ms, while kubelet [11] walked")
    assert "the driver says: eth0 queue 5 was not polled for 6,596 ms, the driver gives up at 5,000" in finding.summary
    measured, complaint = known(finding.facts.measured), known(finding.facts.complaint)
    assert (measured.longest_ms, complaint.not_polled_ms, measured.longest_core) == (6_700, 6_596, 1)
    assert finding.severity == "critical"


def test_the_drivers_line_names_the_device_of_a_stall_on_its_core() -> None:
    recording = watched()
    made.stall(recording, 10.1, 6_700, device="", netns=0)
    line(recording, 10.0)
    assert starved(recording).subject == "eth0"
    elsewhere = watched()
    made.stall(elsewhere, 10.1, 6_700, 3, device="", netns=0)
    line(elsewhere, 10.0)
    assert len(napi_starved.detect(elsewhere, T).findings) == 2


def test_without_the_kernel_log_the_probes_are_enough_and_the_other_way_round() -> None:
    recording = made.recording(on=("cpu", "latency"))
    made.cores(recording, 3.0, {})
    assert "driver" not in napi_starved.detect(recording, T).ruled_out
    made.stall(recording, 2.0, 400)
    assert starved(recording).severity == "warning"
    only_log = made.recording(on=("cpu", "kernel-log"))
    made.cores(only_log, 3.0, {})
    assert "50 ms" not in napi_starved.detect(only_log, T).ruled_out


# A saturated core


def saturated(recording: Recording) -> Finding[CoreSaturated]:
    return only(core_saturated.detect(recording, T), CoreSaturated)


def test_stacks_say_what_a_saturated_core_did_and_who_it_was() -> None:
    recording = watched(5.0, {1: [(1.0, 3.0, "system")]})
    made.sample(recording, 1.0, 2.86, 1, "kubelet", 12, made.WALK, cgroup="/system.slice/kubelet.service")
    made.sample(recording, 2.86, 3.0, 1, "trainer", 99, ("clear_page_erms", "handle_mm_fault"))
    finding = saturated(recording)
    assert "kubelet [12] walked memory cgroups there, mem_cgroup_iter (93% of the core's samples)" in finding.summary
    offender = known(finding.facts.offender)
    assert (offender.process, offender.cgroup) == (Process("kubelet", 12), "/system.slice/kubelet.service")
    assert 0.9 < finding.facts.work.memcg_walk_ratio < 0.95


def test_stacks_of_stalls_say_it_where_the_cores_were_not_sampled() -> None:
    recording = watched(5.0, {1: [(1.0, 3.0, "system")]})
    made.stall(recording, 2.95, 1_900)
    for end, core in ((0.9, 1), (4.5, 1), (2.9, 2)):  # before it, after it, elsewhere
        made.stall(recording, end, 100, core, holder=SOMEBODY, stack=("zap_pte_range",), samples=(99, 99))
    finding = saturated(recording)
    assert "kubelet [11] walked memory cgroups there, mem_cgroup_iter (100% of the core's samples)" in finding.summary
    assert known(finding.facts.sampled_ratio) > 0.9


def test_what_was_looked_at_for_a_moment_only_is_told_so() -> None:
    recording = watched(12.0, {1: [(1.0, 11.0, "system")]})
    made.stall(recording, 2.0, 100)
    assert "samples, taken in 1% of that time)" in saturated(recording).summary


def test_of_many_who_took_turns_nobody_is_named() -> None:
    recording = watched(5.0, {1: [(1.0, 3.0, "system")]})
    for i in range(4):
        made.sample(recording, 1.0 + i / 2, 1.5 + i / 2, 1, "worker", 20 + i, made.WALK)
    finding = saturated(recording)
    assert finding.facts.offender is None
    assert "worker" not in finding.summary
    assert finding.facts.work.memcg_walk_ratio == 1.0


def test_stacks_without_names_say_nothing() -> None:
    recording = watched(5.0, {1: [(1.0, 3.0, "system")]})
    made.sample(recording, 1.0, 3.0, 1, "kubelet", 12, ("[unknown]",))
    facts = saturated(recording).facts
    assert (facts.samples, facts.offender) == (None, None)


def test_samples_without_their_dictionaries_are_nobodys() -> None:
    recording = watched(5.0)
    for i in range(100):
        recording["samples"].add(SECOND + i, 1, 5, 6)
    found = held_while(recording, 1, [Span(1, 0, 2 * SECOND)])
    assert found is not None
    assert (str(found.who), found.work, found.known) == ("somebody", UNKNOWN, False)
