"""perf_event_open(2): events, and the rings the kernel writes their records into. All of it is gone with its file descriptors.

A `Ring` belongs to one event; `Tracepoints` has one ring for each CPU and gives back what was hit, in order of time.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from operator import itemgetter
from typing import Final, NamedTuple, Self

from exhume.errors import Unreadable

# asm/unistd_64.h, asm-generic/unistd.h
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_FLAG_FD_CLOEXEC = 8
_ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5: known to every kernel since 4.1
_DATA_HEAD, _DATA_TAIL = 1024, 1032  # offsets in struct perf_event_mmap_page

# include/uapi/linux/perf_event.h: _IO('$', 0), _IO('$', 5), _IOW('$', 6, char *)
_IOC_ENABLE, _IOC_SET_OUTPUT, _IOC_SET_FILTER = 0x2400, 0x2405, 0x40082406

CPU_CYCLES: Final = 0  # PERF_COUNT_HW_CPU_CYCLES
CPU_CLOCK: Final = 0  # PERF_COUNT_SW_CPU_CLOCK: a timer of each CPU, idle or not
DUMMY: Final = 9  # PERF_COUNT_SW_DUMMY: never happens, but carries what happens to tasks (COMM and the like)

_LARGEST_RING, _SMALLEST_RING = 1 << 20, 1 << 16
_ALL_RINGS = 32 << 20
_LARGEST_UNREAD = 1 << 18


class Kind(IntEnum):
    """enum perf_type_id"""

    HARDWARE = 0
    SOFTWARE = 1
    TRACEPOINT = 2


class Sample(IntFlag):
    """What a record says, enum perf_event_sample_format; the kernel writes it in this order, RAW last."""

    TID = 1 << 1
    TIME = 1 << 2
    CALLCHAIN = 1 << 5
    CPU = 1 << 7
    RAW = 1 << 10
    CGROUP = 1 << 21
    """The id of the task's cgroup in the hierarchy of the perf_event controller; since 5.7."""


class Flag(IntFlag):
    """The bits of struct perf_event_attr, from `disabled` on."""

    DISABLED = 1 << 0
    EXCLUDE_KERNEL = 1 << 5
    EXCLUDE_HV = 1 << 6
    MMAP = 1 << 8
    COMM = 1 << 9
    FREQ = 1 << 10
    """The period is a frequency."""
    TASK = 1 << 13
    WATERMARK = 1 << 14
    SAMPLE_ID_ALL = 1 << 18
    EXCLUDE_GUEST = 1 << 20
    EXCLUDE_CALLCHAIN_USER = 1 << 22
    MMAP2 = 1 << 23
    COMM_EXEC = 1 << 24
    CGROUP = 1 << 32


class Record(IntEnum):
    """enum perf_event_type"""

    LOST = 2
    COMM = 3
    EXIT = 4
    THROTTLE = 5
    FORK = 7
    SAMPLE = 9
    MMAP2 = 10
    LOST_SAMPLES = 13
    CGROUP = 19


@dataclass(frozen=True, slots=True)
class Attributes:
    """struct perf_event_attr, as far as anything here is asked of it."""

    kind: Kind
    config: int
    sample: Sample
    flags: Flag
    period: int = 0
    read_format: int = 0
    watermark: int = 0
    """Bytes in the ring after which whoever polls is woken, with Flag.WATERMARK."""

    def pack(self) -> bytes:
        head = (self.kind, _ATTR_SIZE, self.config, self.period, self.sample, self.read_format, self.flags, self.watermark)
        return struct.pack("=IIQQQQQI", *head).ljust(_ATTR_SIZE, b"\0")


class Hit(NamedTuple):
    """A tracepoint was hit: when, where, by whom, and the tracepoint's own record."""

    time: int
    cpu: int
    pid: int
    """The process as our PID namespace knows it; 0 when it does not."""
    raw: bytes


class Comm(NamedTuple):
    """A thread got a name, mostly by exec."""

    time: int
    pid: int
    tid: int
    name: bytes


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def open_event(attributes: Attributes, pid: int = -1, cpu: int = -1) -> int:
    """The file descriptor of a new event; OSError as the kernel has it, since only the caller knows what that means."""
    machine = os.uname().machine
    number = _PERF_EVENT_OPEN.get(machine)
    if number is None or sys.maxsize < 1 << 32:
        raise Unreadable(f"perf events are not known on {machine}")
    attr = ctypes.create_string_buffer(attributes.pack(), _ATTR_SIZE)
    arguments = (pid, cpu, -1, _FLAG_FD_CLOEXEC)
    fd: int = _libc.syscall(ctypes.c_long(number), attr, *map(ctypes.c_long, arguments))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


class Ring:
    """The memory that the kernel writes an event's records into, and those of the events redirected to it."""

    def __init__(self, fd: int, size: int = mmap.PAGESIZE) -> None:
        """`size` is that of the data: a power of two of pages."""
        self._size = size
        self._memory = mmap.mmap(fd, mmap.PAGESIZE + size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._positions = memoryview(self._memory)[_DATA_HEAD : _DATA_TAIL + 8].cast("Q")
        """Head and tail, each read and written by one instruction: struct would clear the tail before it writes it."""

    def close(self) -> None:
        self._positions.release()
        self._memory.close()

    @property
    def head(self) -> int:
        """How far the kernel has written."""
        return self._positions[0]

    def take(self, head: int | None = None) -> bytes:
        """All records that are not yet taken, up to `head`; their place is given back to the kernel.

        The kernel asks for a barrier between reading the head and the data, and between reading the data and writing the
        tail. Python has none to offer, but spends more instructions in between than any CPU reorders loads across.
        """
        if head is None:
            head = self.head
        tail = self._positions[1]
        length = min(head - tail, self._size)
        if length <= 0:
            return b""
        base, start = mmap.PAGESIZE, tail % self._size
        data = self._memory[base + start : base + min(start + length, self._size)]
        if len(data) < length:
            data += self._memory[base : base + length - len(data)]
        self._positions[1] = head
        return data


_HEADER = struct.Struct("=IHH")


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """What a ring held, record by record: enum perf_event_type, and what follows the header. Half a record ends it."""
    at, end = 0, len(data)
    while at + 8 <= end:
        kind, _, size = _HEADER.unpack_from(data, at)
        if size < 8 or at + size > end:
            return
        yield kind, data[at + 8 : at + size]
        at += size


# What every event of Tracepoints is asked for, and how the kernel lays it out: perf_output_sample in kernel/events/core.c,
# and for all but samples perf_event__output_id_sample, which puts the same at the end.
_ASKED = Sample.TID | Sample.TIME | Sample.CPU | Sample.RAW
_SAMPLE = struct.Struct("=IIQIII")  # pid, tid, time, cpu, reserved, size of the raw data
_ID = struct.Struct("=IIQII")  # pid, tid, time, cpu, reserved
_PAIR = struct.Struct("=QQ")
_TASK = struct.Struct("=II")


class Tracepoints:
    """Tracepoints on all CPUs, read when we please. The kernel does not wait: what finds no place is lost and counted."""

    def __init__(self, filters: Mapping[int, str], cpus: Iterable[int], comm: bool = False, size: int = 0) -> None:
        """`filters` has the number of each tracepoint, and what the kernel shall leave out ("" for nothing; see
        Documentation/trace/events.rst; a filter that it does not take is left off). With `comm` it also says which thread
        gets which name. `size` is that of each ring; 0 lets the number of CPUs decide."""
        self.lost = 0
        """Records that found no place, so far."""
        self._fds: list[int] = []
        self._rings: list[Ring] = []
        self._unread: list[bytes] = []
        wanted = list(cpus)
        size = size or ring_size(len(wanted))
        try:
            for cpu in wanted:
                self._open(filters, cpu, comm, size)
            for fd in self._fds:
                enable(fd)
        except OSError as error:
            self.close()
            raise refusal("tracepoints", error) from None
        except BaseException:
            self.close()
            raise
        if not self._rings:
            raise Unreadable("no CPU is there to read tracepoints on")

    def _open(self, filters: Mapping[int, str], cpu: int, comm: bool, size: int) -> None:
        first = -1
        for number, text in filters.items():
            # The names come with one event only, else every exec would be told once for each tracepoint.
            flags = Flag.DISABLED | Flag.SAMPLE_ID_ALL | (Flag.COMM if comm and first < 0 else Flag(0))
            try:
                fd = open_on_cpu(Attributes(Kind.TRACEPOINT, number, _ASKED, flags, period=1), cpu)
            except OSError as error:
                if error.errno == errno.ENODEV:  # a CPU that went offline
                    return
                raise
            self._fds.append(fd)
            if text:
                try:
                    fcntl.ioctl(fd, _IOC_SET_FILTER, text.encode() + b"\0")
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
            if first < 0:
                first = fd
                self._rings.append(Ring(fd, size))
            else:
                fcntl.ioctl(fd, _IOC_SET_OUTPUT, first)

    def read(self) -> list[Hit | Comm]:
        """What came since the last time, oldest first.

        Where each ring ends is looked up first, for all of them, so that one read and the next can only disagree about the
        microseconds that takes.
        """
        heads = [ring.head for ring in self._rings]
        taken = [ring.take(head) for ring, head in zip(self._rings, heads, strict=True)]
        self._unread += filter(None, taken)
        if not any(map(_has_hits, taken)):
            # Processes that were started, and nothing that they did: who they are is told when they do, if that is soon.
            while sum(map(len, self._unread)) > _LARGEST_UNREAD:
                del self._unread[0]
            return []
        unread, self._unread = self._unread, []
        found: list[Hit | Comm] = []
        for data in unread:
            for kind, body in records(data):
                if kind == Record.SAMPLE:
                    if (hit := parse_hit(body)) is not None:
                        found.append(hit)
                elif kind == Record.COMM:
                    if (named := parse_comm(body)) is not None:
                        found.append(named)
                elif kind == Record.LOST and len(body) >= _PAIR.size:
                    self.lost += _PAIR.unpack_from(body)[1]
        found.sort(key=itemgetter(0))  # the time comes first in both
        return found

    def close(self) -> None:
        for ring in self._rings:
            ring.close()
        for fd in self._fds:
            os.close(fd)
        self._rings, self._fds = [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _has_hits(data: bytes) -> bool:
    """Whoever asks for names is told of forks and exits as well (perf_event_task_match in kernel/events/core.c)."""
    halves = memoryview(data)[: len(data) & ~7].cast("H")  # the kind, which is small, comes first, the size in bytes fourth
    telling = (int(Record.SAMPLE), int(Record.LOST))
    at, end = 0, len(halves)
    while at < end:
        size = halves[at + 3] >> 1
        if halves[at] in telling or not size:
            return True
        at += size
    return False


def ring_size(cpus: int) -> int:
    """The size of each ring: 1 MiB on small machines, less where all of them together would take more than 32 MiB."""
    share = _ALL_RINGS // max(1, cpus)
    size = 1 << max(0, share.bit_length() - 1)
    return max(_SMALLEST_RING, mmap.PAGESIZE, min(_LARGEST_RING, size))


def parse_hit(body: bytes) -> Hit | None:
    """A PERF_RECORD_SAMPLE of ours. Raw data that says it is longer than the record ends with the record."""
    if len(body) < _SAMPLE.size:
        return None
    pid, _, time, cpu, _, length = _SAMPLE.unpack_from(body)
    return Hit(time, cpu, pid, body[_SAMPLE.size : _SAMPLE.size + length])


def parse_comm(body: bytes) -> Comm | None:
    """A PERF_RECORD_COMM of ours: who, the name with its end, and the time at the end of the record."""
    if len(body) < _TASK.size + _ID.size:
        return None
    pid, tid = _TASK.unpack_from(body)
    time = _ID.unpack_from(body, len(body) - _ID.size)[2]
    return Comm(time, pid, tid, body[_TASK.size : -_ID.size].split(b"\0", 1)[0])


def open_on_cpu(attributes: Attributes, cpu: int) -> int:
    """An event for all that runs on a CPU."""
    try:
        return open_event(attributes, cpu=cpu)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    # Three tracepoints on 400 CPUs are more than the 1,024 files that most processes start with, and may raise themselves.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_event(attributes, cpu=cpu)


def enable(fd: int) -> None:
    fcntl.ioctl(fd, _IOC_ENABLE, 0)


def refusal(what: str, error: OSError) -> Unreadable:
    """Why an event could not be opened, for people."""
    reasons = {
        errno.EPERM: "it takes root or CAP_PERFMON, and a seccomp filter that allows it",
        errno.EACCES: "it takes root or CAP_PERFMON (CAP_SYS_ADMIN where kernel.perf_event_paranoid is above 2), or that at -1",
        errno.ENOSYS: "the kernel was built without perf events, or a sandbox hides them",
        errno.ENOENT: "the kernel does not know them",
        errno.ENOMEM: "there is no memory for the rings",
        errno.EMFILE: "there are too many CPUs for the number of files this process may open (ulimit -n)",
    }
    return Unreadable(f"{what} cannot be read: {reasons.get(error.errno or 0, error.strerror)}")
