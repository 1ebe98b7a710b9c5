"""The cores' counters, read by whichever thread is awake: in their rhythm, none twice, none lost, and quiet when they are."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exhume.host.root import Root
from exhume.recorder.cores import Cores
from exhume.recorder.latency import Latency
from exhume.recorder.policy import Policy
from exhume.recorder.recorder import Options, Recorder
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import SourceState
from tests.kernel.bpf.needs import needs_bpf
from tests.recorder.test_quiet import stat
from tests.recorder.test_recorder import NOTHING, Memory

NODE = Node("n", "b", "6", "v1", 2)
TICK_NS = 100_000_000
AWAKE_NS = round(Policy().awake_s * 1e9)


class Time:
    """A clock that is set."""

    def __init__(self) -> None:
        self.ns = 10**9

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    path = tmp_path / "proc/stat"
    path.parent.mkdir()
    path.write_bytes(stat(40, 50))
    return path


def times(cores: Cores) -> list[int]:
    rows = Recording(NODE)
    cores.collect(rows)
    return sorted({*rows["cpu"].ints("time").tolist()})


def test_what_was_read_is_given_once_and_the_first_reading_with_it(proc: Path) -> None:
    now = Time()
    cores = Cores(Root(str(proc.parent.parent)), NODE, now, TICK_NS)
    begun = now.ns
    for _ in range(3):
        now.ns += TICK_NS
        cores.take()
    assert times(cores) == [begun, *(begun + step * TICK_NS for step in (1, 2, 3))]
    assert times(cores) == []
    assert cores.source.state == SourceState("on")
    assert cores.source.cost > 0


def test_in_its_rhythm_a_reading_that_is_not_due_is_not_made_and_a_late_one_not_made_up_for(proc: Path) -> None:
    now = Time()
    cores = Cores(Root(str(proc.parent.parent)), NODE, now, TICK_NS)
    due = cores.keep_time(0)
    assert times(cores) == [now.ns]
    assert cores.keep_time(due - 1) == due
    assert times(cores) == []
    after = cores.keep_time(due)
    assert after == due + TICK_NS
    assert cores.keep_time(after + 10 * TICK_NS) == after + 11 * TICK_NS
    now.ns += TICK_NS
    assert len(times(cores)) == 1


def test_cores_that_cannot_be_read_any_more_are_off_and_say_why(proc: Path) -> None:
    cores = Cores(Root(str(proc.parent.parent)), NODE, Time(), TICK_NS)
    proc.unlink()
    cores.take()
    assert cores.source.state is not None
    assert cores.source.state.state == "off"
    assert "proc/stat" in cores.source.state.reason
    proc.write_bytes(stat(40, 50))
    cores.take()
    assert len(times(cores)) == 1


def test_while_two_threads_read_them_no_reading_is_lost_and_none_comes_before_an_earlier_one(proc: Path) -> None:
    now, lock = Time(), threading.Lock()

    def moment() -> int:
        with lock:
            now.ns += 1
            return now.ns

    cores = Cores(Root(str(proc.parent.parent)), NODE, moment, TICK_NS)
    taken: list[bytes] = []
    real = cores._reader.take

    def take(time: int) -> bytes:
        taken.append(raw := real(time))
        return raw

    cores._reader.take = take  # type: ignore[method-assign]

    def often() -> None:
        for _ in range(1000):
            cores.take()

    threads = [threading.Thread(target=often) for _ in range(2)]
    for thread in threads:
        thread.start()
    given: list[int] = []
    while any(thread.is_alive() for thread in threads):
        rows = Recording(NODE)
        cores.collect(rows)
        given += rows["cpu"].ints("time")[rows["cpu"].ints("core") == 0].tolist()
    rows = Recording(NODE)
    cores.collect(rows)
    given += rows["cpu"].ints("time")[rows["cpu"].ints("core") == 0].tolist()
    assert len(given) == len(taken) + 1  # and the first
    assert given == sorted({*given})


def test_quiet_is_told_by_all_that_was_read_since_it_was_asked_for_last(proc: Path) -> None:
    now = Time()
    cores = Cores(Root(str(proc.parent.parent)), NODE, now, TICK_NS)
    begun = now.ns

    def pass_by(ns: int, busy: bool = False) -> None:
        for _ in range(ns // TICK_NS):
            now.ns += TICK_NS
            idle = (now.ns - begun) // 10**7
            proc.write_bytes(stat(idle - (10 if busy else 0), idle))
            cores.take()

    pass_by(AWAKE_NS + 2 * TICK_NS)
    assert cores.quiet()
    pass_by(TICK_NS, busy=True)
    pass_by(5 * TICK_NS)
    assert not cores.quiet()
    pass_by(AWAKE_NS)
    assert cores.quiet()


@needs_bpf
def test_who_looks_for_stalls_reads_the_cores_and_wakes_a_recorder_that_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is longer here than anybody waits for it."""
    readers: list[str] = []
    real, enough = Cores.take, threading.Event()

    def take(cores: Cores) -> None:
        real(cores)
        readers.append(threading.current_thread().name)
        if readers.count("exhume-latency") >= 5:
            enough.set()

    monkeypatch.setattr(Cores, "take", take)
    store = Memory()
    with Recorder(Root(), replace(NOTHING, batch_ns=600 * 10**9), Options(strict=True)) as it:
        it.run(store, stop=enough.is_set)
    assert readers[-5:] == ["exhume-latency"] * 4 + ["MainThread"]  # which reads them once more at the end
    assert len(store.all()["cpu"]) > 5


@needs_bpf
def test_where_the_watch_for_stalls_ends_the_recorder_reads_the_cores_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[str] = []
    real, enough = Cores.take, threading.Event()

    def take(cores: Cores) -> None:
        real(cores)
        name = threading.current_thread().name
        readers.append(name)
        if name == "exhume-latency" and readers.count(name) == 3:
            raise RuntimeError("it stumbles")
        if "exhume-latency" in readers and readers[-3:].count("MainThread") == 3:
            enough.set()

    monkeypatch.setattr(Cores, "take", take)
    store = Memory()
    with Recorder(Root(), NOTHING) as it:
        it.run(store, stop=enough.is_set)
    assert "it stumbles" in store.all().why_off("latency")
    assert store.all().on("cpu")


@needs_bpf
def test_where_the_watch_for_stalls_hangs_the_recorder_reads_the_cores_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a node whose /proc/PID/cgroup does not answer for minutes."""
    readers: list[str] = []
    real, look = Cores.take, Latency._look
    back, enough = threading.Event(), threading.Event()

    def take(cores: Cores) -> None:
        real(cores)
        readers.append(threading.current_thread().name)
        if readers[-8:] == ["MainThread"] * 8 and "exhume-latency" in readers:
            back.set()
        if back.is_set() and readers[-10:] == ["exhume-latency"] * 10:
            enough.set()

    def hangs(*arguments: Any) -> None:
        if readers.count("exhume-latency") == 3:
            back.wait(20)
        look(*arguments)

    monkeypatch.setattr(Cores, "take", take)
    monkeypatch.setattr(Latency, "_look", hangs)
    store = Memory()
    with Recorder(Root(), NOTHING, Options(strict=True)) as it:
        it.run(store, 15 * 10**9, enough.is_set)
    assert back.is_set()
    assert enough.is_set()
