"""Softirqs, NAPI polls and the run queue on the running kernel."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.errors import Unreadable
from exhume.kernel.bpf import R0, R6, Block, BpfError, Btf, BtfError, Builder, Helper, Link, Program, ProgramKind, Routine
from exhume.kernel.bpf.asm import Assembler
from exhume.kernel.bpf.maps import possible_cpus
from exhume.sources.latency import hot, hot_maps, probes
from exhume.sources.latency.histogram import Histogram
from exhume.sources.latency.hot import Hot, Napi, Taken, memory_bytes
from exhume.sources.latency.hot_maps import TASK_BITS, TASKS, Vector
from exhume.sources.latency.probes import Probe, Probes
from exhume.sources.latency.run_queue import OTHER_BITS
from tests.kernel.bpf.needs import needs_bpf, needs_test_run
from tests.sources.latency import loaded
from tests.sources.latency.network import RECEIVER, Pair, veth_pair

pytestmark = needs_bpf


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        yield made


@contextmanager
def window(probe: Hot) -> Iterator[None]:
    probe.attach()
    try:
        yield
    finally:
        probe.detach()


@contextmanager
def told(probe: Hot) -> Iterator[None]:
    """A window in which nothing is attached: the programs see what the test runs them with, on one core, and nothing else."""
    with pinned(first_cpu()):
        probe._window.open()
        probe._write("since_ns", probe._window.since_ns)
        try:
            yield
        finally:
            probe.detach()


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def first_cpu() -> int:
    return min(os.sched_getaffinity(0))


def loopback(count: int) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        for _ in range(count):
            sender.sendto(b"x", receiver.getsockname())


def histograms(taken: Taken) -> list[Histogram]:
    found = [h for s in taken.softirqs for h in (s.wait, s.run)] + [r.wait for r in taken.runqueues]
    return found + [h for n in taken.napis for h in (n.wait, n.gap, n.poll)]


def of_receiver(taken: Taken, pair: Pair) -> list[Napi]:
    return [n for n in taken.napis if n.device == RECEIVER and n.netns == pair.netns]


def test_packets_over_loopback_run_net_rx_on_the_core_that_sends_them() -> None:
    cpu = first_cpu()
    with Hot() as probe, pinned(cpu):
        assert probe.off == {}
        with window(probe):
            loopback(300)
        taken = probe.take()
    (rx,) = [s for s in taken.softirqs if (s.cpu, s.vector) == (cpu, Vector.NET_RX)]
    assert rx.run.count >= 30, "one for each packet, but a busy core takes several at once"
    assert rx.wait.count >= 30
    assert sum(rx.run.buckets) == rx.run.count
    assert 0 < rx.run.max_ns <= rx.run.sum_ns
    assert rx.run.comm != ""
    assert probe.attached_ns >= taken.attached_ns > 0
    assert not [n for n in taken.napis if n.device in ("", "lo")], "the backlog has no device"


def test_polls_in_a_softirq_are_of_the_right_device_in_the_right_namespace(pair: Pair) -> None:
    cpu = first_cpu()
    with Hot() as probe, pair.sending(300, cpu=cpu) as sender:
        with window(probe):
            sender.send()
        taken = probe.take()
        assert probe.take().napis == ()
    (napi,) = [n for n in of_receiver(taken, pair) if n.cpu == cpu]
    assert napi.ifindex == pair.ifindex
    assert napi.napi_id > 0
    assert napi.packets >= 300
    assert napi.threaded == 0
    assert napi.poll.count == napi.polls - napi.untimed > 0
    assert 0 < napi.wait.count <= napi.poll.count
    assert taken.unkept == 0


def test_polls_by_a_thread_are_measured_from_its_wake_up_and_leave_gaps_when_the_budget_is_used_up(pair: Pair) -> None:
    cpu = first_cpu()
    with veth_pair_threaded(pair, cpu), Hot() as probe, pair.sending(500, cpu=cpu, burst=True) as sender:
        with window(probe):
            sender.send()
        taken = probe.take()
    (napi,) = [n for n in of_receiver(taken, pair) if n.cpu == cpu]
    assert napi.threaded == napi.polls > 0
    assert napi.wait.count > 0
    assert napi.wait.comm.startswith(f"napi/{RECEIVER}"[:15])
    assert napi.poll.count == napi.polls - napi.untimed > 0
    # While the burst kept the core, a ring of 256 packets filled up (VETH_RING_SIZE): more than one budget of 64.
    assert napi.exhausted > 0
    assert 0 < napi.gap.count <= napi.exhausted


@contextmanager
def veth_pair_threaded(pair: Pair, cpu: int) -> Iterator[None]:
    pair.thread(cpu)
    try:
        yield
    finally:
        pair.unthread()


def test_two_busy_processes_on_one_core_wait_for_each_other() -> None:
    cpu = first_cpu()
    busy = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"]
    with Hot() as probe:
        pair = [subprocess.Popen(busy, stdout=subprocess.PIPE) for _ in range(2)]
        try:
            for process in pair:
                assert process.stdout is not None
                process.stdout.readline()
            with window(probe):
                time.sleep(0.3)
            taken = probe.take()
        finally:
            for process in pair:
                process.kill()
                process.communicate()
    (queue,) = [r for r in taken.runqueues if r.cpu == cpu]
    assert queue.wait.max_ns >= 1_000_000
    assert sum(queue.wait.buckets[10:]) >= 5, "waits of half a millisecond and more"
    assert queue.wait.pid > 0
    assert not any(r.wait.comm.startswith("swapper") for r in taken.runqueues), "idle does not wait"


def test_what_is_detached_counts_nothing() -> None:
    with Hot() as probe:
        loopback(50)
        assert probe.take() == Taken(0, 0, (), (), (), 0)
        with window(probe):
            loopback(50)
        taken = probe.take()
        assert taken.softirqs
        assert taken.attached_ns > 0
        loopback(50)
        assert probe.take() == Taken(0, 0, (), (), (), 0)


@needs_test_run
def test_what_is_taken_in_the_middle_of_a_window_is_not_taken_again() -> None:
    counts, attached_ns = [], 0
    with Hot() as probe, told(probe):
        for times in (3, 1, 2):
            for _ in range(times):
                for name in ("softirq_raise", "softirq_entry", "softirq_exit"):
                    probe.program(name).run(Vector.NET_TX)
            taken = probe.take()
            counts.append([(s.wait.count, s.run.count) for s in taken.softirqs])
            attached_ns += taken.attached_ns
        assert probe.take().softirqs == ()
        assert 0 < attached_ns <= probe.attached_ns
    assert counts == [[(3, 3)], [(1, 1)], [(2, 2)]]


@needs_test_run
def test_a_softirq_that_was_raised_in_an_earlier_window_does_not_count_as_late() -> None:
    with Hot() as probe:
        for name in ("softirq_raise", "softirq_entry", "softirq_exit"):
            with told(probe):
                probe.program(name).run(Vector.NET_TX)
            assert probe.take().softirqs == ()
        with told(probe):
            for name in ("softirq_raise", "softirq_raise", "softirq_entry", "softirq_exit", "softirq_exit"):
                probe.program(name).run(Vector.NET_TX)
        (seen,) = probe.take().softirqs
    assert (seen.cpu, seen.vector, seen.wait.count, seen.run.count) == (first_cpu(), Vector.NET_TX, 1, 1)
    assert seen.wait.pid == seen.run.pid == threading.get_native_id()


@needs_test_run
def test_a_thread_that_was_woken_in_an_earlier_window_does_not_count_as_late() -> None:
    with sleeping_thread() as (task, number), Hot() as probe:
        with told(probe):
            probe.program("sched_waking").run(task)
        with told(probe):
            probe.program("sched_switch").run(0, 0, task)
        assert probe.take().runqueues == ()
        with told(probe):
            probe.program("sched_waking").run(task)
            probe.program("sched_switch").run(0, 0, task)
            probe.program("sched_switch").run(0, 0, task)
        (queue,) = probe.take().runqueues
        assert (queue.cpu, queue.wait.count) == (first_cpu(), 1)
        assert (queue.wait.pid, queue.wait.comm) == (number, Path("/proc/self/comm").read_text().rstrip("\n"))


@needs_test_run
def test_a_thread_that_has_to_make_room_waits_and_one_that_goes_to_sleep_does_not() -> None:
    with sleeping_thread() as (task, _), Hot() as probe:
        for preempt, counted in ((0, 0), (1, 1)):
            with told(probe):
                probe.program("sched_switch").run(preempt, task, 0)
                probe.program("sched_switch").run(0, 0, task)
            assert sum(r.wait.count for r in probe.take().runqueues) == counted


@needs_test_run
def test_a_thread_is_known_by_its_whole_number_where_another_has_the_same_place() -> None:
    with sleeping_thread() as (task, number), Hot() as probe:
        place, others = number % TASKS, number >> TASK_BITS
        with told(probe):
            before = time.monotonic_ns()
            probe.program("sched_waking").run(task)
            entry = probe._maps.wakes.lookup(place)
            after = time.monotonic_ns()
            assert entry is not None
            word = int.from_bytes(entry, sys.byteorder)
            assert word % (1 << OTHER_BITS) == others
            assert before <= word >> OTHER_BITS <= after, "of a machine that is up for less than two years"
            probe._maps.wakes.update(place, (word ^ 1).to_bytes(8, sys.byteorder))
            probe.program("sched_switch").run(0, 0, task)
            assert probe.take().runqueues == (), "that one was another's"
            assert probe._maps.wakes.lookup(place) == (word ^ 1).to_bytes(8, sys.byteorder), "who still waits"
            probe._maps.wakes.update(place, entry)
            probe.program("sched_switch").run(0, 0, task)
            (queue,) = probe.take().runqueues
    assert (queue.wait.count, queue.wait.pid) == (1, number)


@needs_test_run
def test_a_wait_that_would_be_longer_than_the_window_is_not_counted() -> None:
    """Such as of a thread that was woken by a core whose clock is a hair ahead."""
    with sleeping_thread() as (task, number), Hot() as probe, told(probe):
        for moment in (time.monotonic_ns() - 10**12, time.monotonic_ns() + 10**12, 0):
            word = moment << OTHER_BITS & (1 << 64) - 1 | number >> TASK_BITS
            probe._maps.wakes.update(number % TASKS, word.to_bytes(8, sys.byteorder))
            probe.program("sched_switch").run(0, 0, task)
        assert probe.take().runqueues == ()


def test_the_run_queue_can_be_left_before_the_window_ends() -> None:
    with Hot() as probe:
        with window(probe):
            for _ in range(10):
                time.sleep(0.001)
            probe.detach_run_queue()
            assert not probe.sees_run_queue
            assert probe.take().runqueues
            loopback(50)
            time.sleep(0.01)
            later = probe.take()
        assert later.softirqs
        assert later.runqueues == ()
        assert later.attached_ns > later.run_queue_ns == 0
        with window(probe):
            for _ in range(10):
                time.sleep(0.001)
        assert probe.take().runqueues, "and the next window has it again"


@contextmanager
def sleeping_thread() -> Iterator[tuple[int, int]]:
    """Its task_struct's address and its number."""
    ready, over = threading.Event(), threading.Event()
    with Block(8) as block:
        p = Builder()
        p.address_of(R6, block)
        p.call(Helper.get_current_task)
        p.store(R6 + 0, R0)
        p.exit(0)
        with Routine(p) as routine:

            def sleep() -> None:
                routine.run()
                ready.set()
                over.wait()

            thread = threading.Thread(target=sleep)
            thread.start()
            try:
                ready.wait()
                time.sleep(0.05)  # until it sleeps
                assert thread.native_id is not None
                yield int.from_bytes(block.read(), sys.byteorder), thread.native_id
            finally:
                over.set()
                thread.join()


@needs_test_run
def test_polls_follow_each_other_in_a_softirq_and_what_is_left_behind_waits_for_the_next(pair: Pair) -> None:
    """With the address of a real NAPI."""
    cpu = first_cpu()
    with Hot() as probe:
        with pair.sending(100, cpu=cpu) as sender, window(probe):
            sender.send()
        devices = {key[:8]: value for key, value in probe._maps.napis.snapshot().items()}
        (napi,) = [key for key, value in devices.items() if value.startswith(RECEIVER.encode() + b"\0")]
        probe.take()
        with told(probe):
            two_softirqs(probe, int.from_bytes(napi, sys.byteorder))
        taken = probe.take()
    ((rx,), (seen,)) = taken.softirqs, taken.napis
    assert (seen.device, seen.netns, seen.cpu) == (RECEIVER, pair.netns, cpu)
    assert (rx.vector, rx.wait.count, rx.run.count) == (Vector.NET_RX, 2, 2)
    assert (seen.polls, seen.packets, seen.exhausted, seen.threaded) == (5, 64 + 64 + 5, 2, 0)
    assert seen.untimed == 2, "by nobody that is known, and by netpoll, which is never out of budget"
    assert seen.wait.count == 2, "the first of each softirq"
    assert seen.poll.count == 3
    assert seen.poll.sum_ns >= 3_000_000
    assert rx.run.sum_ns >= seen.poll.sum_ns
    assert seen.gap.count == 2
    assert seen.gap.sum_ns >= 2_000_000, "all of it between the softirqs"
    assert seen.gap.buckets[0] == 1, "and none within"


def two_softirqs(probe: Hot, napi: int) -> None:
    probe.program("softirq_raise").run(Vector.NET_RX)
    probe.program("softirq_entry").run(Vector.NET_RX)
    for _ in range(2):
        spin(1_000_000)
        probe.program("napi_poll").run(napi, 64, 64)
    probe.program("softirq_exit").run(Vector.NET_RX)
    spin(2_000_000)
    probe.program("softirq_raise").run(Vector.NET_RX)
    probe.program("softirq_entry").run(Vector.NET_RX)
    spin(1_000_000)
    probe.program("napi_poll").run(napi, 5, 64)
    probe.program("softirq_exit").run(Vector.NET_RX)
    probe.program("napi_poll").run(napi, 0, 64)
    probe.program("napi_poll").run(napi, 0, 0)


def spin(ns: int) -> None:
    end = time.monotonic_ns() + ns
    while time.monotonic_ns() < end:
        pass


def test_nothing_lasts_longer_than_the_window_it_was_seen_in(pair: Pair) -> None:
    with Hot() as probe, pair.sending(3000, cpu=first_cpu()) as sender:
        sending = threading.Thread(target=sender.send)
        sending.start()
        for _ in range(4):
            with window(probe):
                loopback(20)
                time.sleep(0.02)
            taken = probe.take()
            assert taken.softirqs
            assert max(h.max_ns for h in histograms(taken)) <= taken.attached_ns
            time.sleep(0.1)
        sending.join()


def refuse(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Program):
        def __init__(self, kind: ProgramKind, code: Assembler | bytes, name: str = "exhume") -> None:
            if name == refused:
                raise BpfError("the verifier does not like it")
            super().__init__(kind, code, name)

    monkeypatch.setattr(probes, "Program", Refusing)


def test_where_switches_are_not_seen_a_thread_that_slept_did_not_poll_all_the_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse("exhume_switch", monkeypatch)
    cpu = first_cpu()
    with veth_pair_threaded(pair, cpu), Hot() as probe, pair.sending(100, cpu=cpu) as sender:
        assert set(probe.off) == {"sched_switch"}
        with window(probe):
            sender.send()
        (napi,) = [n for n in of_receiver(probe.take(), pair) if n.cpu == cpu]
    assert napi.threaded == napi.untimed == napi.polls > 0
    assert napi.packets >= 100
    assert napi.poll.count == napi.wait.count == 0


def test_a_program_that_is_refused_leaves_the_others_on(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse("exhume_napi", monkeypatch)
    with Hot() as probe:
        assert probe.off == {"napi_poll": "the verifier does not like it"}
        with window(probe):
            loopback(50)
        taken = probe.take()
    assert taken.softirqs
    assert taken.napis == ()


def test_no_program_at_all_is_a_source_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise BpfError("it takes CAP_BPF")

    monkeypatch.setattr(probes, "Program", forbidden)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(Unreadable, match=r"^it takes CAP_BPF$"):
        Hot()
    assert len(os.listdir("/proc/self/fd")) == len(before), "the maps are closed"


def test_without_btf_the_softirqs_are_still_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def types() -> Btf:
        raise BtfError("there is no BTF")

    monkeypatch.setattr(hot, "kernel_types", types)
    with Hot() as probe:
        assert set(probe.off) == {"napi_poll", "sched_waking", "sched_wakeup_new", "sched_switch"}
        assert set(probe.off.values()) == {"there is no BTF"}
        with window(probe):
            loopback(50)
        assert probe.take().softirqs


def test_where_nobody_is_seen_waking_the_next_best_tracepoint_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    attach = Program.attach_raw

    def without_waking(self: Program, tracepoint: str) -> Link:
        if tracepoint == "sched_waking":
            raise BpfError(f"this kernel has no tracepoint {tracepoint}")
        return attach(self, tracepoint)

    monkeypatch.setattr(Program, "attach_raw", without_waking)
    with Hot() as probe:
        assert probe.off == {}
        with window(probe):
            for _ in range(10):
                time.sleep(0.002)
        assert probe.take().runqueues


def test_a_tracepoint_that_is_not_there_is_named() -> None:
    def program() -> Builder:
        p = Builder()
        p.exit(0)
        return p

    there = Probe("there", ("sched_switch",), "there", program)
    missing = Probe("missing", ("exhume_no_such", "exhume_nor_such"), "missing", program)
    with Probes([there, missing]) as both:
        both.attach()
        assert both.off == {"missing": "this kernel has no tracepoint exhume_no_such"}
        assert both.attached
        with pytest.raises(ValueError, match="attached already"):
            both.attach()
    with Probes([missing]) as none, pytest.raises(Unreadable, match="exhume_no_such"):
        none.attach()


def test_polls_for_which_there_is_no_room_are_counted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_maps, "NAPIS", 1)
    cpu = first_cpu()
    with Hot() as probe, pair.sending(100, cpu=cpu) as sender:
        assert probe._maps.napis.update(b"\xff" * 16, bytes(probe._maps.napis.value_size)), "the only entry is taken"
        with window(probe):
            sender.send()
        taken = probe.take()
        assert taken.napis == ()
        assert taken.unkept >= 100 > probe.take().unkept


def test_programs_are_gone_when_closed() -> None:
    before = loaded.of_process()
    probe = Hot()
    probe.attach()
    mine = loaded.of_process() - before
    assert len(mine) == 7
    assert mine <= loaded.in_kernel()
    probe.close()
    assert loaded.gone(mine)


def test_programs_are_gone_when_the_process_is_killed() -> None:
    code = "from exhume.sources.latency.hot import Hot\nh = Hot()\nh.attach()\nprint(flush=True)\nimport time\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        theirs = loaded.of_process(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(theirs) == 7
    assert loaded.gone(theirs)


def test_the_maps_take_no_more_than_is_said() -> None:
    before = loaded.map_bytes()
    with Hot():
        taken = loaded.map_bytes() - before
    said = memory_bytes(possible_cpus())
    assert taken <= said <= 1.3 * taken
    assert memory_bytes(96) < 5 << 20
