"""perf records as the sampler's rings hold them (include/uapi/linux/perf_event.h), decoded with little work for each.

A record is a whole number of 64-bit words; its first has the kind, 16 bits of flags and the size. A plain loop finds where
records begin, numpy does the rest. What does not fit is passed over: the ring is ours, yet what it holds may be cut.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.kernel.perf import Record
from exhume.recording.arrays import among

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

# enum perf_callchain_context: what follows is of the kernel, of user space. Everything as large as the last is such a mark.
CONTEXT_KERNEL, CONTEXT_USER, CONTEXT_MAX = (1 << 64) - 128, (1 << 64) - 512, (1 << 64) - 4095

_LAST = (1 << 63) - 1
_COMM_EXEC = 1 << 13  # PERF_RECORD_MISC_COMM_EXEC
# Looked up for every record: an enumeration's members are slow.
_COMM, _EXIT, _FORK, _MMAP2 = int(Record.COMM), int(Record.EXIT), int(Record.FORK), int(Record.MMAP2)
_TASK = struct.Struct("=IHHIII")  # kind, flags, size, pid, parent or tid, and of FORK and EXIT the tid
_MAPPING = struct.Struct("=QQQIIQQ")  # of MMAP2 from its address to its inode generation; protection and flags follow
_WORD = struct.Struct("=Q")
_CHAIN = 5  # words before a sample's chain: header, pid and tid, time, CPU, the chain's length


class Samples(NamedTuple):
    """The samples of rings, one after the other, each in order of time."""

    data: bytes
    task: Ints
    """pid in the lower half, tid in the upper."""
    time: Ints
    core: Ints
    cgroup: Ints
    """0 where samples have none."""
    begin: Ints
    """Where the chain is in `data`, in bytes."""
    end: Ints
    lost: int
    throttled: int


def starts(data: bytes) -> Ints:
    """Where each record begins, in words. Half a record ends it, and so does a size that cannot be."""
    # As numbers of 16 bits, which are cheaper than words: of the four that begin a record the last is its size in bytes.
    sizes = memoryview(data)[: len(data) & ~7].cast("H")[3:]
    found: list[int] = []
    append = found.append
    at, end = 0, len(sizes)
    while at < end:
        append(at)
        at += sizes[at] >> 1 or end
    begins = np.array(found, dtype=np.int64)
    ends = np.append(begins[1:], at)
    whole = (begins & 3 == 0) & (ends & 3 == 0) & (ends <= end + 3)
    return begins[: len(begins) if whole.all() else int(whole.argmin())] >> 2


class _Index(NamedTuple):
    words: Words
    at: Ints
    kind: NDArray[np.uint32]
    size: Ints

    def total(self, kind: Record, word: int) -> int:
        """The sum of that word over all records of a kind."""
        return int(self.words[self.at[(self.kind == kind) & (self.size > word)] + word].sum())


def _index(data: bytes) -> _Index:
    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    at = starts(data)
    head = words[at]
    return _Index(words, at, head.astype(np.uint32), (head >> np.uint64(51)).astype(np.int64))


def samples(data: bytes, cgroups: bool) -> Samples:
    index = _index(data)
    words, tail = index.words, 1 if cgroups else 0
    whole = (index.kind == Record.SAMPLE) & (index.size >= _CHAIN + tail)
    at, room = index.at[whole], index.size[whole] - _CHAIN - tail
    depth = np.minimum(words[at + 4], np.uint64(1 << 16)).astype(np.int64)
    fits = depth <= room
    at, depth = at[fits], depth[fits]
    begin = at + _CHAIN
    end = begin + depth
    return Samples(
        data=data,
        task=words[at + 1].view(np.int64),
        time=words[at + 2].view(np.int64),
        core=words[at + 3].astype(np.uint32).astype(np.int64),
        cgroup=words[end].view(np.int64) if cgroups else np.zeros(len(at), dtype=np.int64),
        begin=begin * 8,
        end=end * 8,
        lost=index.total(Record.LOST, 2) + index.total(Record.LOST_SAMPLES, 1),
        throttled=int((index.kind == Record.THROTTLE).sum()),
    )


class Mapped(NamedTuple):
    """A process mapped a file (or nothing) to execute it."""

    time: int
    pid: int
    start: int
    length: int
    offset: int
    device: tuple[int, int]
    inode: int
    generation: int
    path: bytes


class Named(NamedTuple):
    """A thread got a name; by exec, and all that was mapped is gone."""

    time: int
    pid: int
    tid: int
    exec: bool
    name: bytes


class Forked(NamedTuple):
    time: int
    pid: int
    parent: int
    tid: int


class Exited(NamedTuple):
    time: int
    pid: int
    tid: int


class Grouped(NamedTuple):
    """A cgroup was made."""

    id: int
    path: bytes


@dataclass(frozen=True, slots=True)
class Tasks:
    """The side-band of rings, raw: only where its records are, and whose."""

    data: bytes
    at: Ints
    pid: Ints
    """The process a record is about; -1 for those about none."""
    lost: int
    groups: tuple[Grouped, ...] = ()
    """The cgroups that were made: few, and nobody's."""
    clock: int = 1
    """Where the time of a record is, in words from its end."""

    def of(self, pids: Ints) -> list[Mapped | Named | Forked | Exited]:
        """The records about these processes (sorted), parsed, in the order of the rings."""
        parsed = (parse_task(self.data, int(at), self.clock) for at in self.at[among(self.pid, pids)].tolist())
        return [record for record in parsed if record is not None]


def tasks(data: bytes) -> Tasks:
    index = _index(data)
    kind, at = index.kind, index.at
    pid = np.full(len(at), -1, dtype=np.int64)
    about = ((kind == Record.MMAP2) | (kind == Record.COMM) | (kind == Record.FORK) | (kind == Record.EXIT)) & (index.size > 1)
    pid[about] = index.words[at[about] + 1].astype(np.uint32)
    grouped = (parse_cgroup(data, int(where)) for where in at[kind == Record.CGROUP])
    return Tasks(data, at, pid, index.total(Record.LOST, 2), tuple(group for group in grouped if group is not None))


def parse_task(data: bytes, at: int, clock: int = 1) -> Mapped | Named | Forked | Exited | None:
    """The record at that word. All end with what they were asked to (sample_id_all); the time is so many words from there."""
    at *= 8
    if len(data) < at + _TASK.size:
        return None
    kind, misc, size, pid, other, tid = _TASK.unpack_from(data, at)
    end = at + (size & ~7) - 8 * clock
    if size < _TASK.size + 8 * (clock - 1) or end + 8 > len(data):
        return None
    time = _WORD.unpack_from(data, end)[0] & _LAST
    if kind == _MMAP2:
        if size < _MAPPING.size + 24:
            return None
        start, length, offset, major, minor, inode, generation = _MAPPING.unpack_from(data, at + 16)
        path = data[at + 72 : end].split(b"\0", 1)[0]
        return Mapped(time, pid, start, length, offset, (major, minor), inode, generation, path)
    if kind == _COMM:
        return Named(time, pid, other, bool(misc & _COMM_EXEC), data[at + 16 : end].split(b"\0", 1)[0])
    if size < 40:
        return None
    if kind == _FORK:
        return Forked(time, pid, other, tid)
    return Exited(time, pid, tid) if kind == _EXIT else None


def parse_cgroup(data: bytes, at: int) -> Grouped | None:
    words = memoryview(data)[8 * at : len(data) & ~7].cast("Q")
    size = words[0] >> 51
    if size < 3 or size > len(words):
        return None
    return Grouped(words[1], _text(data, at + 2, at + size - 1))


def _text(data: bytes, begin: int, end: int) -> bytes:
    return data[8 * begin : 8 * end].split(b"\0", 1)[0]
