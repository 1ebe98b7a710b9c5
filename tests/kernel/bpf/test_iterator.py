"""The iterator over tasks, on the running kernel."""

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.kernel.bpf import R1, R2, R3, R6, R7, BpfError, Btf, Builder, Features, Helper, Rejected, Tasks, iterator
from tests.kernel.bpf.needs import each_fallback, needs_bpf
from tests.sources.latency import loaded

pytestmark = needs_bpf

RECORD = struct.Struct("=II16s")


@pytest.fixture(scope="module")
def btf() -> Btf:
    return Btf.vmlinux()


def writer(btf: Btf, features: Features | None = None, times: int = 1) -> Builder:
    """Writes tid, pid and name of each, as often as wanted."""
    p = Builder(features or Features())
    record = p.stack(RECORD.size)
    Tasks.begin(p, btf)
    p.copy(record, 4, R7 + btf.offset("task_struct", "pid"))
    p.copy(record + 4, 4, R7 + btf.offset("task_struct", "tgid"))
    p.copy(record + 8, 16, R7 + btf.offset("task_struct", "comm"))
    for _ in range(times):
        p.mov(R1, R6)
        p.mov(R2, record)
        p.mov(R3, RECORD.size)
        p.call(Helper.seq_write)
    p.exit(0)
    return p


def tasks(raw: bytes) -> dict[int, tuple[int, bytes]]:
    assert len(raw) % RECORD.size == 0
    return {tid: (pid, comm.split(b"\0", 1)[0]) for tid, pid, comm in RECORD.iter_unpack(raw)}


def in_proc() -> set[int]:
    """But init's: there are machines whose kernel does not show the process that runs them to BPF."""
    found = set()
    for pid in os.listdir("/proc"):
        if pid.isdecimal() and pid != "1":
            try:
                found |= {int(tid) for tid in os.listdir(f"/proc/{pid}/task")}
            except OSError:
                continue
    return found


@pytest.fixture
def sleepers() -> Iterator[set[int]]:
    """Threads of ours, so many that what is written about them does not fit into one read."""
    end = threading.Event()
    ready = threading.Barrier(201)
    tids: set[int] = set()

    def sleep() -> None:
        tids.add(threading.get_native_id())
        ready.wait()
        end.wait()

    threads = [threading.Thread(target=sleep) for _ in range(200)]
    for thread in threads:
        thread.start()
    ready.wait()
    yield tids
    end.set()
    for thread in threads:
        thread.join()


@each_fallback
def test_every_task_is_told_with_its_numbers_and_its_name(btf: Btf, features: Features) -> None:
    with Tasks(writer(btf, features), btf) as reader:
        before = in_proc()
        seen = tasks(reader.read())
        after = in_proc()
    assert before & after <= seen.keys()
    assert len(before & after) > 10
    tid = threading.get_native_id()
    assert seen[tid] == (os.getpid(), Path("/proc/thread-self/comm").read_bytes().rstrip(b"\n"))
    assert seen[2] == (2, b"kthreadd")


def test_more_than_fits_into_one_read_is_read_whole_and_as_often_as_asked(btf: Btf, sleepers: set[int]) -> None:
    with Tasks(writer(btf, times=16), btf) as reader:
        for _ in range(3):
            raw = reader.read()
            assert len(raw) > iterator._CHUNK
            seen = [tid for tid, _, _ in RECORD.iter_unpack(raw)]
            assert {seen.count(tid) for tid in sleepers} == {16}
            assert sleepers <= {tid for tid, (pid, _) in tasks(raw).items() if pid == os.getpid()}


def test_what_is_read_has_a_bound(btf: Btf, sleepers: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterator, "_LARGEST", 1000)
    monkeypatch.setattr(iterator, "_CHUNK", 480)
    with Tasks(writer(btf), btf) as reader:
        assert 1000 <= len(reader.read()) <= 1480


def test_a_kernel_without_the_iterator_is_said_to_be_one(btf: Btf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Btf, "function", lambda *_: None)
    with pytest.raises(BpfError, match=r"this kernel has no BPF iterator over tasks \(5.8\)"):
        Tasks(writer(btf), btf)


def test_a_refused_program_and_one_that_is_closed_leave_nothing(btf: Btf, monkeypatch: pytest.MonkeyPatch) -> None:
    before, descriptors = loaded.of_process(), set(os.listdir("/proc/self/fd"))
    with Tasks(writer(btf), btf) as reader:
        reader.read()
        ours = loaded.of_process() - before
        assert len(ours) == 1
    bad = Builder(Features())
    bad.mov(R1, R7)  # which nothing was put into
    bad.exit(0)
    with pytest.raises(Rejected):
        Tasks(bad, btf)
    monkeypatch.setattr(iterator, "_TRACE_ITER", 0)  # BPF_CGROUP_INET_INGRESS: not for this kind of program
    with pytest.raises(BpfError):
        Tasks(writer(btf), btf)
    assert loaded.gone(ours)
    assert loaded.of_process() == before
    assert set(os.listdir("/proc/self/fd")) == descriptors
