"""Tracepoints by perf_event_open: all of them, in order, the lost ones counted, and gone with the process."""

import contextlib
import ctypes
import errno
import os
import resource
import signal
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.kernel.bpf import R0, R6, Block, Btf, Builder, Helper, Routine, Tracefs, unavailable
from exhume.kernel.perf import (
    DUMMY,
    Attributes,
    Comm,
    Flag,
    Hit,
    Kind,
    Record,
    Ring,
    Sample,
    Tracepoints,
    open_event,
    parse_comm,
    parse_hit,
    records,
    ring_size,
)
from tests.waiting import wait_for
from tests.zombies import MEMORY
from tests.zombies import unavailable as no_cgroups

PARENT = MEMORY / "exhume-test-perf"
CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def parent() -> Iterator[Path]:
    if why := no_cgroups():
        pytest.skip(why)
    PARENT.mkdir(exist_ok=True)
    yield PARENT
    for directory in PARENT.iterdir():
        if directory.is_dir():
            directory.rmdir()
    PARENT.rmdir()


def number(name: str = "cgroup_mkdir") -> int:
    try:
        with Tracefs() as tracefs:
            return tracefs.tracepoint("cgroup", name).id
    except Unreadable as error:
        pytest.skip(str(error))


def listen(only: str, cpus: list[int] = CPUS, size: int = 0, comm: bool = False) -> Tracepoints:
    return Tracepoints({number("cgroup_mkdir"): only, number("cgroup_rmdir"): only}, cpus, comm=comm, size=size)


def ours() -> str:
    """A filter for what this very thread does, since a machine has other users of cgroups."""
    return f"common_pid == {os.getpid()}"


def make_and_remove(parent: Path, count: int) -> None:
    for i in range(count):
        os.mkdir(parent / f"g{i}")
        os.rmdir(parent / f"g{i}")


@contextlib.contextmanager
def on_cpu(cpu: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def in_child(what: Callable[[], str]) -> str:
    """Run something in a child that may spoil its own limits and privileges; what it returned."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: other threads may hold locks, none of which we take
        pid = os.fork()
    if pid == 0:
        answer = "the child raised"
        try:
            answer = what()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, answer.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        answer = file.read().decode()
    os.waitpid(pid, 0)
    return answer


def test_every_hit_is_read_once_and_in_order_though_it_happened_on_different_cpus(parent: Path) -> None:
    with listen(ours()) as tracepoints:
        for cpu in CPUS * 3:
            with on_cpu(cpu):
                make_and_remove(parent, 5)
        hits = [event for event in tracepoints.read() if isinstance(event, Hit)]
        assert tracepoints.read() == []
        assert tracepoints.lost == 0
    assert len(hits) == len(CPUS) * 3 * 10
    assert {hit.cpu for hit in hits} == set(CPUS)
    assert [hit.time for hit in hits] == sorted(hit.time for hit in hits)
    kinds = [int.from_bytes(hit.raw[:2], sys.byteorder) for hit in hits]
    assert kinds == [number("cgroup_mkdir"), number("cgroup_rmdir")] * (len(hits) // 2)
    assert {hit.pid for hit in hits} == {os.getpid()}


def test_a_ring_is_used_round_and_round_without_a_loss(parent: Path) -> None:
    seen = 0
    with listen(ours(), size=4096) as tracepoints:
        for _ in range(100):
            make_and_remove(parent, 10)
            seen += len(tracepoints.read())
        assert (seen, tracepoints.lost) == (2000, 0)


def test_what_finds_no_place_is_counted_and_what_comes_later_is_read(parent: Path) -> None:
    with on_cpu(CPUS[0]), listen(ours(), cpus=CPUS[:1], size=4096) as tracepoints:
        make_and_remove(parent, 200)
        first = len(tracepoints.read())
        make_and_remove(parent, 5)  # the kernel says how much was lost when it next has a record to write
        later = len(tracepoints.read())
        assert 0 < first < 400
        assert later == 10
        assert first + later + tracepoints.lost == 410


def test_the_kernel_leaves_out_what_the_filter_says(parent: Path) -> None:
    with listen("common_pid == 1 && common_pid == 2") as tracepoints:
        make_and_remove(parent, 5)
        assert tracepoints.read() == []


def test_a_filter_that_the_kernel_does_not_take_is_left_off(parent: Path) -> None:
    with listen("no_such_field == 1") as tracepoints:
        make_and_remove(parent, 5)
        assert sum(isinstance(event, Hit) and event.pid == os.getpid() for event in tracepoints.read()) == 10


def test_names_come_along_once(parent: Path) -> None:
    with listen(ours(), comm=True) as tracepoints:
        with subprocess.Popen(["/bin/true"]) as child:
            child.wait()
        assert tracepoints.read() == []  # names are of use only with something that their owners did
        make_and_remove(parent, 1)
        names = [event for event in tracepoints.read() if isinstance(event, Comm) and event.pid == child.pid]
    assert [(name.tid, name.name) for name in names] == [(child.pid, b"true")]


def test_a_ring_of_one_page_gives_every_name_in_order() -> None:
    attributes = Attributes(
        Kind.SOFTWARE, DUMMY, Sample.TID | Sample.TIME | Sample.CPU, Flag.COMM | Flag.SAMPLE_ID_ALL | Flag(96)
    )
    try:
        fd = open_event(attributes, pid=0)
    except (OSError, Unreadable) as error:
        pytest.skip(f"perf_event_open: {error}")
    libc = ctypes.CDLL(None)
    before = ctypes.create_string_buffer(16)
    libc.prctl(16, before, 0, 0, 0)
    ring = Ring(fd)
    seen = []
    try:
        for i in range(1000):
            libc.prctl(15, f"exhume {i}".encode(), 0, 0, 0)
            if i % 7 == 0 or i == 999:
                seen += [parse_comm(body) for kind, body in records(ring.take()) if kind == Record.COMM]
    finally:
        libc.prctl(15, before, 0, 0, 0)
        ring.close()
        os.close(fd)
    assert [comm.name for comm in seen if comm is not None] == [f"exhume {i}".encode() for i in range(1000)]


def test_nothing_is_left_open(parent: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with listen(ours()) as tracepoints:
        assert len(os.listdir("/proc/self/fd")) == before + 3 * len(
            CPUS
        )  # two events a CPU, and the one of them that the ring keeps
        tracepoints.read()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_cpu_that_went_offline_is_passed_over(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_last(attributes: Attributes, pid: int = -1, cpu: int = -1) -> int:
        if cpu == CPUS[-1]:
            raise OSError(errno.ENODEV, "No such device")
        return open_event(attributes, pid, cpu)

    monkeypatch.setattr("exhume.kernel.perf.open_event", without_the_last)
    with pytest.raises(Unreadable, match="no CPU"):
        listen(ours(), cpus=CPUS[-1:])
    if len(CPUS) > 1:
        with on_cpu(CPUS[0]), listen(ours()) as tracepoints:
            make_and_remove(parent, 1)
            assert len(tracepoints.read()) == 2


def test_a_tracepoint_that_is_not_there_is_said_in_a_sentence() -> None:
    if why := no_cgroups():
        pytest.skip(why)
    with pytest.raises(Unreadable, match="tracepoints cannot be read: "):
        Tracepoints({65_000: ""}, CPUS)


def test_without_privilege_it_says_what_it_takes() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give it up")
    numbers = {number(): ""}

    def unprivileged() -> str:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        Tracepoints(numbers, CPUS)
        return "it was let"

    assert in_child(unprivileged).startswith("Unreadable: tracepoints cannot be read: it takes root or CAP_PERFMON")


def test_more_cpus_than_files_may_be_open_raise_the_limit() -> None:
    if why := no_cgroups():
        pytest.skip(why)
    numbers = dict.fromkeys(map(number, ("cgroup_mkdir", "cgroup_rmdir", "cgroup_release")), "")

    def narrow() -> str:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
        with Tracepoints(numbers, CPUS[:1]):
            return "opened"

    assert in_child(narrow) == "opened"


CHILD = """
import os, sys
sys.path[:0] = sys.argv[2:]
from exhume.kernel.perf import Tracepoints
tracepoints = Tracepoints({int(sys.argv[1]): ""}, sorted(os.sched_getaffinity(0)), comm=True)
print("open", flush=True)
sys.stdin.read()
"""


def users(fd: int) -> int:
    """How many perf events the kernel has on the tracepoint that ours, `fd`, is on: trace_event_call.perf_refcount."""
    btf = Btf.vmlinux()
    with Block(8) as block:
        p = Builder()
        p.address_of(R6, block)
        p.call(Helper.get_current_task)
        for struct_name, member in (("task_struct", "files"), ("files_struct", "fdt"), ("fdtable", "fd")):
            p.read(R0, R0 + btf.member(struct_name, member).offset)
        p.read(R0, R0 + 8 * fd)
        for struct_name, member in (("file", "private_data"), ("perf_event", "tp_event")):
            p.read(R0, R0 + btf.member(struct_name, member).offset)
        p.copy(R6, 4, R0 + btf.member("trace_event_call", "perf_refcount").offset)
        p.exit(0)
        with Routine(p) as routine:
            routine.run()
        count: int = struct.unpack_from("=I", block.read())[0]
        return count


def test_a_killed_process_leaves_no_event_in_the_kernel(parent: Path) -> None:
    if why := unavailable():
        pytest.skip(why)
    own = open_event(Attributes(Kind.TRACEPOINT, number(), Sample.TIME, Flag.DISABLED), cpu=CPUS[0])
    try:
        before = users(own)
        assert before >= 1
        command = [sys.executable, "-c", CHILD, str(number()), *sys.path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"open\n"
            assert users(own) >= before + len(CPUS)
            child.send_signal(signal.SIGKILL)
            child.wait()
        wait_for(lambda: users(own) <= before)
        with Tracefs() as tracefs:
            assert not [name for name in _entries(tracefs.fd, "instances") if "exhume" in name]
    finally:
        os.close(own)


def _entries(directory: int, name: str) -> list[str]:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def test_the_rings_of_a_large_machine_stay_bounded() -> None:
    assert ring_size(1) == ring_size(32) == 1 << 20
    assert ring_size(96) == 256 << 10
    assert ring_size(512) == 64 << 10
    assert all(ring_size(cpus) * cpus <= 32 << 20 for cpus in range(1, 513))
    assert all(ring_size(cpus) & (ring_size(cpus) - 1) == 0 for cpus in range(8193))


def test_an_unknown_architecture_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.kernel.perf._PERF_EVENT_OPEN", {})
    with pytest.raises(Unreadable, match="perf events are not known on"):
        Tracepoints({1: ""}, CPUS)


def test_the_kernels_no_is_an_os_error() -> None:
    with pytest.raises(OSError) as caught:
        open_event(Attributes(Kind.SOFTWARE, DUMMY, Sample.TIME, Flag(1 << 62)), pid=0)
    assert caught.value.errno in (errno.EINVAL, errno.E2BIG, errno.EACCES, errno.EPERM, errno.ENOSYS)


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHH", kind, 0, 8 + len(body)) + body


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=64))), st.integers(0, 200))
def test_records_end_where_the_data_does(bodies: list[tuple[int, bytes]], cut: int) -> None:
    data = b"".join(record(kind, body) for kind, body in bodies)
    assert list(records(data)) == bodies
    found = list(records(data[: max(0, len(data) - cut)]))
    assert found == bodies[: len(found)]


@given(st.binary(max_size=200))
def test_garbage_in_a_ring_raises_nothing(data: bytes) -> None:
    for _, body in records(data):
        parse_hit(body)
        parse_comm(body)
    hit = parse_hit(data)
    assert hit is None or len(hit.raw) <= len(data)


def test_raw_data_that_claims_to_be_longer_ends_with_its_record() -> None:
    body = struct.pack("=IIQIII", 7, 8, 9, 1, 0, 4000) + b"abcd"
    assert parse_hit(body) == Hit(9, 1, 7, b"abcd")
    assert parse_hit(body[:27]) is None
