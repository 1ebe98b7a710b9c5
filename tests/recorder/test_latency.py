"""Stalls that are made for real: announced while they last, measured when they are over."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.recorder.latency import Latency, Options
from exhume.recorder.latency_probes import WINDOWS, LatencyProbes
from exhume.recorder.latency_told import Told
from exhume.recorder.recorder import node_of
from exhume.recording.recording import Recording
from exhume.recording.source_state import Note, SourceState
from tests.kernel.bpf.needs import needs_bpf
from tests.sources.latency.waiting import HELD_MS
from tests.starved import FAR, Link, held, hold, link, needs_starvation, no_core_held, off_the_core, waited_ns
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def starvable() -> Iterator[Link]:
    needs_starvation()
    with link(real_time=True) as made, off_the_core():
        yield made


class Watched:
    """A watch under way, and what it told."""

    def __init__(self, options: Options | None = None) -> None:
        self.told: list[tuple[int, Told]] = []
        root = Root()
        self.watch = Latency(
            root, node_of(root), options or Options(), lambda told: self.told.append((time.monotonic_ns(), told))
        )

    def __enter__(self) -> "Watched":
        self.watch.start()
        assert self.watch.ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.finish()
        assert self.watch.failure is None

    def by(self, pid: int, device: str = FAR) -> list[Told]:
        """Stalls of a device that a process caused: a machine that others use, too, may have others."""
        ours = [told for _, told in self.told if told.holder is not None and told.holder.pid == pid]
        return [told for told in ours if told.stall.device == device]

    def over(self, pid: int, device: str = FAR) -> list[Told]:
        """Of those the ones that are over, as soon as there is one."""
        wait_for(lambda: any(told.over for told in self.by(pid, device)))
        return [told for told in self.by(pid, device) if told.over]

    def recording(self) -> Recording:
        recording = Recording(node_of(Root()))
        self.watch.collect(recording)
        return recording


def test_a_stall_is_measured_with_its_device_core_and_offender(starvable: Link) -> None:
    with Watched() as watched:
        for ms in (100, 300):
            process = hold(ms)
            begin, end = held(process)
            (told,) = watched.over(process.pid)
            watched.told.clear()
            # A packet comes each millisecond. How exactly it is measured needs a quiet machine: bench/run latency-stalls.
            assert told.length_ns > end - begin - 60_000_000
            assert (told.stall.what, told.stall.device, told.stall.core) == ("napi", starvable.device, starvable.core)
            assert told.stall.netns == starvable.netns
            assert told.holder is not None
            assert told.holder.pid == process.pid
            assert told.offender is not None
            assert told.offender.pid == process.pid
    recording = watched.recording()
    events = [row for row in recording["events"].rows() if row["kind"] == "stall"]
    assert [row["subject"] for row in events].count(starvable.device) >= 2
    assert dict(events[0]["fields"])["offender_comm"].startswith("python")
    stalls = [row for row in recording["latency"].rows() if (row["what"], row["stage"]) == ("napi", "stall")]
    rows = [row for row in stalls if row["device"] == starvable.device]  # others may have made theirs meanwhile
    assert {row["netns"] for row in rows} == {starvable.netns}
    assert max(row["max"] for row in rows) >= 240_000_000


def test_a_stall_is_announced_while_it_lasts(starvable: Link) -> None:
    with Watched() as watched:
        process = hold(1500)
        begin, end = held(process)
        watched.over(process.pid)
    assert [told.over for told in watched.by(process.pid)] == [False, True]
    assert any(begin < at < end and told in watched.by(process.pid) for at, told in watched.told)


def test_traffic_that_is_served_is_no_stall(starvable: Link) -> None:
    """Unless the kernel itself says that its thread waited."""
    with no_core_held():
        before = waited_ns(starvable.thread)
        with Watched() as watched:
            time.sleep(1)
        waited = waited_ns(starvable.thread) - before
    assert sum(told.length_ns for _, told in watched.told if told.over and told.stall.device == FAR) <= waited
    assert {row.name for row in watched.watch.sources() if row.state.up} >= {"latency"}


def test_a_thread_that_was_asked_for_is_watched() -> None:
    needs_starvation()
    with off_the_core():
        _watch_a_thread_that_was_asked_for()


def _watch_a_thread_that_was_asked_for() -> None:
    child = os.fork()
    if not child:
        with open("/proc/self/comm", "w") as file:
            file.write("exhume-waits")
        os.sched_setaffinity(0, {1})
        while True:
            pass
    try:
        with Watched(Options(names="^exhume-waits$")) as watched:
            process = hold(HELD_MS)
            held(process)
            watched.over(process.pid, "")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    stalls = [told for told in watched.by(process.pid, "") if told.over and told.stall.what == "runqueue"]
    assert {told.stall.core for told in stalls} == {1}
    assert stalls[0].stall.thread is not None
    assert stalls[0].stall.thread.tid == child
    assert stalls[0].holder is not None
    assert stalls[0].holder.pid == process.pid


def test_who_holds_a_core_is_asked_for_by_somebody_else_so_that_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc/PID/cgroup waits for a lock that is held for minutes on a sick node."""
    answers = threading.Event()
    read = Root.read

    def waits(self: Root, name: str, largest: int = 1 << 20) -> bytes:
        if name.startswith("proc/"):
            answers.wait(60)
        return read(self, name, largest)

    watch = Latency(Root(), node_of(Root()), Options())
    monkeypatch.setattr(Root, "read", waits)
    begin = time.monotonic()
    assert (watch._cgroup(os.getpid()), watch._policy(os.getpid()), watch._comm(os.getpid())) == ("", "", "")
    assert time.monotonic() - begin < 60
    answers.set()


@needs_bpf
@pytest.mark.parametrize("threads_poll", [False, True])
def test_the_run_queue_is_measured_for_a_part_of_the_window_unless_threads_poll_devices(threads_poll: bool) -> None:
    node = node_of(Root())
    recording = Recording(node)
    said: dict[str, SourceState] = {}

    probes = LatencyProbes(Root(), node, 20 * SECOND, 30 * SECOND, False, said.__setitem__, recording.extend)
    probes.threads_poll = lambda: threads_poll
    probes.start()
    time.sleep(2.5)
    probes.finish()
    assert probes.failure is None
    assert said[WINDOWS].find(Note) == Note("20 s of each 30 s, the run queue 200 ms")
    shares: dict[str, dict[int, int]] = {}
    for row in recording["latency"].rows():
        shares.setdefault(row["what"], {})[row["time"]] = row["share"]
    queue, softirqs = (sum(shares[what].values()) for what in ("runqueue", "softirq"))
    assert queue > 0
    assert queue == softirqs if threads_poll else queue < softirqs
