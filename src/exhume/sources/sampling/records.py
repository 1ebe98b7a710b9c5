"""perf records as the kernel writes them (include/uapi/linux/perf_event.h), decoded with little work for each.

A record is a whole number of 64-bit words; its first has the kind, 16 bits of flags and the size. numpy finds where records
begin, or a plain loop where it cannot, and does the rest. What does not fit is passed over: a ring is ours, yet what it holds
may be cut, and a perf.data is anybody's. Where a sample has what is its `Layout`; our own rings have two of them.
"""

import struct
from collections.abc import Sequence
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
CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER = (1 << 64) - 2176, (1 << 64) - 2560

_LAST = (1 << 63) - 1
_LOWER = (1 << 32) - 1
# One bit of the flags: PERF_RECORD_MISC_COMM_EXEC, _MMAP_DATA (not to be executed) and _FORK_EXEC (perf tells of a process
# that was there before: it has nothing of its parent's).
_COMM_EXEC = _MMAP_DATA = _FORK_EXEC = 1 << 13
_MMAP_BUILD_ID = 1 << 14  # PERF_RECORD_MISC_MMAP_BUILD_ID: a build id in place of device and inode
_CPU_MODE = 7  # PERF_RECORD_MISC_CPUMODE_MASK: of a sample where its ip is, 1 in the kernel, 2 in user space
_GUEST_MODE = 4  # in the kernel of a virtual machine, 5 in its user space
# Looked up for every record: an enumeration's members are slow.
_MMAP, _COMM, _EXIT = 1, int(Record.COMM), int(Record.EXIT)  # MMAP is what MMAP2 was before 3.16, and perf's own for the kernel
_FORK, _MMAP2 = int(Record.FORK), int(Record.MMAP2)
_TASK = struct.Struct("=IHHIII")  # kind, flags, size, pid, parent or tid, and of FORK and EXIT the tid
_MAPPING = struct.Struct("=QQQIIQQ")  # of MMAP2 from its address to its inode generation; protection and flags follow
_OLD_MAPPING = struct.Struct("=QQQ")
_WORD = struct.Struct("=Q")
_DEEPEST = 1 << 16
# Where more words than that look like records and are none, to go from record to record is cheaper.
_MOST_JUMPS = 1000
# A record has eight bytes at least, and a whole number of eights; kinds are below 128, those of the kernel below 32, perf's own
# from 64 on (enum perf_user_event_type in tools/lib/perf). The smallest size taken off, none of up to 32 kB has these bits.
_SMALLEST = np.uint64(8 << 48)
_NEVER_SET = np.uint64(1 << 63 | 7 << 48 | 0xFFFFFF80)


class Layout(NamedTuple):
    """Where a sample has what, in words from its beginning, the header is the first; -1 for what it has not."""

    task: int
    time: int
    core: int
    chain: int
    """The length of the chain, which follows it."""
    ip: int = -1
    identifier: int = -1
    cgroup: int = 0
    """In words from its end; 0 where there is none."""
    group: int = -1
    """Of a group that is read with each sample, where the number of its members is: what follows it is so much later."""
    group_words: tuple[int, int] = (0, 0)
    """What a group takes besides its members, and each of them."""


# What sampler.py asks for: header, pid and tid, time, CPU, the chain and mostly the cgroup.
RING, RING_WITH_CGROUPS = Layout(1, 2, 3, 4), Layout(1, 2, 3, 4, cgroup=1)


class Samples(NamedTuple):
    """The samples of rings, one after the other, each in order of time."""

    data: bytes
    task: Ints
    """pid in the lower half, tid in the upper."""
    time: Ints
    """Where samples have none, the word of the records where each begins."""
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
    # Few words but the first of a record look like one. If each of those that do ends where the next begins, they are it.
    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    unlike = words - _SMALLEST
    unlike &= _NEVER_SET
    begins = np.flatnonzero(unlike == 0)
    heads = words[begins]
    if not (known := heads & np.uint64(0xFFFFFFFF) != 0).all():
        begins, heads = begins[known], heads[known]
    ends: Ints = begins + (heads >> np.uint64(51)).view(np.int64)
    if len(begins) and not begins[0]:
        if not (ends[:-1] == begins[1:]).all():  # a chain that led into data: what no record ends at does not begin one
            begins, ends = _linked(begins, ends)
        if (ends[:-1] == begins[1:]).all():
            after = int(ends[-1])
            if after >= len(words) or words[after] < 1 << 48:
                return np.array(begins[: len(begins) - (after > len(words))])
    return _starts_one_by_one(data)


def _linked(begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Those that follow from the first: each begins where the one before it ends."""
    nexts = np.searchsorted(begins, ends)  # mostly the next one, or there would be many more of them than records
    jumps = np.flatnonzero(nexts[:-1] != np.arange(1, len(begins)))
    if len(jumps) > _MOST_JUMPS:
        return begins, ends
    kept = np.ones(len(begins), dtype=bool)
    at = 0
    while (jump := int(np.searchsorted(jumps, at))) < len(jumps):
        before = int(jumps[jump])
        at = int(nexts[before])
        kept[before + 1 : at] = False
    return begins[kept], ends[kept]


def _starts_one_by_one(data: bytes) -> Ints:
    """The same, whatever is in the records."""
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
    # Half of an odd size may be a whole number of words; the size is none, and perf_event_header knows only multiples of 8.
    whole = (begins & 3 == 0) & (ends & 3 == 0) & (ends <= end + 3) & (np.asarray(sizes)[begins] & 1 == 0)
    return begins[: len(begins) if whole.all() else int(whole.argmin())] >> 2


class Index(NamedTuple):
    """Where records are, in words, of which kind, and how many words each has."""

    data: bytes
    words: Words
    at: Ints
    kind: NDArray[np.uint32]
    size: Ints

    def total(self, kind: Record, word: int) -> int:
        """The sum of that word over all records of a kind."""
        return int(self.words[self.at[(self.kind == kind) & (self.size > word)] + word].sum())

    @property
    def lost(self) -> int:
        return self.total(Record.LOST, 2) + self.total(Record.LOST_SAMPLES, 1)

    @property
    def throttled(self) -> int:
        return int((self.kind == Record.THROTTLE).sum())

    def only(self, which: NDArray[np.bool_]) -> "Index":
        if which.all():
            return self
        return self._replace(at=self.at[which], kind=self.kind[which], size=self.size[which])

    def gathered(self, which: NDArray[np.bool_]) -> "Index":
        """Copies of these, one after the other, without what is between them."""
        at, size = self.at[which], self.size[which]
        to = np.cumsum(size) - size
        words = self.words[np.repeat(at - to, size) + np.arange(int(size.sum()))]
        data = words.tobytes()
        return Index(data, np.frombuffer(data, dtype=np.uint64), to, self.kind[which], size)


def index(data: bytes) -> Index:
    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    at = starts(data)
    head = words[at]
    return Index(data, words, at, head.astype(np.uint32), (head >> np.uint64(51)).astype(np.int64))


def joined(parts: "Sequence[Index]") -> Index:
    """One of several, whose bytes are put together."""
    data = b"".join([part.words.data for part in parts]) if len(parts) != 1 else parts[0].data
    shifts = np.cumsum([0, *(len(part.words) for part in parts)])
    return Index(
        data,
        np.frombuffer(data, dtype=np.uint64, count=len(data) // 8),
        np.concatenate([part.at + shift for part, shift in zip(parts, shifts.tolist(), strict=False)]),
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.size for part in parts]),
    )


def samples(data: bytes, cgroups: bool) -> Samples:
    """Those of our rings."""
    found = index(data)
    return decode(found.only(found.kind == Record.SAMPLE), RING_WITH_CGROUPS if cgroups else RING)._replace(
        lost=found.lost, throttled=found.throttled
    )


def decode(samples: Index, layout: Layout) -> Samples:
    """Records that are all samples of one layout. Those that cannot hold what they should are left out."""
    at, size, words = samples.at, samples.size, samples.words
    fits = size > max(*layout[:6], layout.group) + layout.cgroup
    if not fits.all():  # mostly all do, and to copy them takes as long as the rest
        at, size = at[fits], size[fits]
    place = at + layout.chain
    if layout.group >= 0:
        besides, each = layout.group_words
        members = np.minimum(words[at + layout.group], np.uint64(_DEEPEST)).astype(np.int64)
        place = place + besides + each * members
    data = samples.data
    if layout.chain < 0:
        depth = np.zeros(len(at), dtype=np.int64)
        begin = depth
    else:
        after = at + size - layout.cgroup
        if not (fits := place < after).all():
            at, size, place, after = at[fits], size[fits], place[fits], after[fits]
        depth = np.minimum(words[place], np.uint64(_DEEPEST)).view(np.int64)
        begin = place + 1
        if not (fits := begin + depth <= after).all():
            at, size, begin, depth = at[fits], size[fits], begin[fits], depth[fits]
    end = begin + depth
    if layout.ip >= 0:
        # Of a guest there is no chain, only the marks of one (perf_callchain_kernel and _user in arch/x86/events/core.c).
        guest = words[at] & np.uint64(_GUEST_MODE << 32) != 0
        guest |= depth == 0
        if len(bare := np.flatnonzero(guest)):
            mode = words[at[bare]] >> np.uint64(32) & np.uint64(_CPU_MODE)
            data, begin, end = _alone(samples, at, layout.ip, mode, bare, begin, end)
    nothing = np.zeros(len(at), dtype=np.int64)
    return Samples(
        data=data,
        task=words[at + layout.task].view(np.int64) if layout.task >= 0 else nothing - 1,
        time=words[at + layout.time].view(np.int64) & _LAST if layout.time >= 0 else at,
        core=words[at + layout.core].view(np.int64) & _LOWER if layout.core >= 0 else nothing - 1,
        cgroup=words[at + size - layout.cgroup].view(np.int64) if layout.cgroup else nothing,
        begin=begin * 8,
        end=end * 8,
        lost=0,
        throttled=0,
    )


def _alone(samples: Index, at: Ints, ip: int, mode: Words, bare: Ints, begin: Ints, end: Ints) -> tuple[bytes, Ints, Ints]:
    """Samples without a chain: the one address that they have makes one, put after everything else."""
    marks = np.full(8, CONTEXT_MAX, dtype=np.uint64)
    marks[1], marks[2], marks[4], marks[5] = CONTEXT_KERNEL, CONTEXT_USER, CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER
    chains = np.empty((len(bare), 2), dtype=np.uint64)
    chains[:, 0], chains[:, 1] = marks[mode.astype(np.int64)], samples.words[at[bare] + ip]
    begin, end = begin.copy(), end.copy()
    begin[bare] = len(samples.words) + 2 * np.arange(len(bare))
    end[bare] = begin[bare] + 2
    return samples.words.tobytes() + chains.tobytes(), begin, end


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
    build_id: bytes = b""
    """b"" where not known."""


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
    bare: bool = False
    """Its parent's mappings are not its own: it was there before, and is only told of now."""


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
    """Where the time of a record is, in words from its end; 0 if it has none."""
    parent: Ints | None = None
    """Of a fork the process that made it, -1 otherwise: where nothing else tells of a parent, it is looked for here."""
    times: Ints | None = None
    """Of each record, where they have none themselves."""

    def of(self, pids: Ints) -> list[Mapped | Named | Forked | Exited]:
        """The records about these processes (sorted), parsed, in the order of the rings."""
        mine = among(self.pid, pids)
        if self.times is None:
            return parse_tasks(self.data, self.at[mine], self.clock)
        places = zip(self.at[mine].tolist(), self.times[mine].tolist(), strict=True)
        found = ((parse_task(self.data, at, self.clock), time) for at, time in places)
        return [one._replace(time=time) for one, time in found if one is not None]


def tasks(data: bytes) -> Tasks:
    """Those of our rings."""
    found = index(data)
    return side_band(found)


def side_band(found: Index, clock: int = 1, parents: bool = False) -> Tasks:
    kind, at = found.kind, found.at
    pid = np.full(len(at), -1, dtype=np.int64)
    forks = kind == _FORK
    about = ((kind == _MMAP2) | (kind == _COMM) | forks | (kind == _EXIT) | (kind == _MMAP)) & (found.size > 1)
    pid[about] = found.words[at[about] + 1].astype(np.uint32)
    parent = None
    if parents:
        parent = np.full(len(at), -1, dtype=np.int64)
        made = np.flatnonzero(about & forks & (found.words[at] >> np.uint64(32) & np.uint64(_FORK_EXEC) == 0))
        parent[made] = (found.words[at[made] + 1] >> np.uint64(32)).astype(np.int64)
    grouped = (parse_cgroup(found.data, int(where)) for where in at[kind == Record.CGROUP])
    groups = tuple(group for group in grouped if group is not None)
    return Tasks(found.data, at, pid, found.total(Record.LOST, 2), groups, clock, parent)


def parse_task(data: bytes, at: int, clock: int = 1) -> Mapped | Named | Forked | Exited | None:
    """The record at that word. All end with what they were asked to (sample_id_all); the time is so many words from there."""
    at *= 8
    if len(data) < at + _TASK.size:
        return None
    kind, misc, size, pid, other, tid = _TASK.unpack_from(data, at)
    end = at + (size & ~7) - 8 * clock
    if size < _TASK.size + 8 * (clock - 1) or end + 8 * (clock > 0) > len(data):
        return None
    time = _WORD.unpack_from(data, end)[0] & _LAST if clock else 0
    if kind == _MMAP2:
        if size < _MAPPING.size + 24 or misc & _MMAP_DATA:
            return None
        start, length, offset, major, minor, inode, generation = _MAPPING.unpack_from(data, at + 16)
        path = data[at + 72 : end].split(b"\0", 1)[0]
        if misc & _MMAP_BUILD_ID:
            build_id = data[at + 44 : at + 44 + min(data[at + 40], 20)]
            return Mapped(time, pid, start, length, offset, (0, 0), 0, 0, path, build_id)
        return Mapped(time, pid, start, length, offset, (major, minor), inode, generation, path)
    if kind == _COMM:
        return Named(time, pid, other, bool(misc & _COMM_EXEC), data[at + 16 : end].split(b"\0", 1)[0])
    if size < 40 - 8 * (not clock):
        return None
    if kind == _FORK:
        return Forked(time, pid, other, tid, bool(misc & _FORK_EXEC))
    if kind == _MMAP and size >= 40 and not misc & _MMAP_DATA:
        start, length, offset = _OLD_MAPPING.unpack_from(data, at + 16)
        return Mapped(time, pid, start, length, offset, (0, 0), 0, 0, data[at + 40 : end].split(b"\0", 1)[0])
    return Exited(time, pid, tid) if kind == _EXIT else None


def parse_tasks(data: bytes, at: Ints, clock: int = 1) -> list[Mapped | Named | Forked | Exited]:
    """The same of many that are whole, without those that say nothing. What they mostly are is taken apart together: a busy
    node has a thousand of them in a second."""
    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    head = words[at]
    kind, flags = head.astype(np.uint32), head >> np.uint64(32) & np.uint64(0xFFFF)
    size = (head >> np.uint64(51)).astype(np.int64)
    end = at + size - clock
    plain = (clock > 0) & (size >= max(5, 2 + clock)) & (end + clock <= len(words))
    maps = plain & (kind == _MMAP2) & (size >= 9 + clock) & (flags & np.uint64(_MMAP_DATA | _MMAP_BUILD_ID) == 0)
    tasks = plain & ((kind == _FORK) | (kind == _EXIT) | (kind == _COMM))
    found: list[Mapped | Named | Forked | Exited | None] = [None] * len(at)
    when = np.zeros(len(at), dtype=np.int64)
    when[plain] = (words[end[plain]] & np.uint64(_LAST)).astype(np.int64)
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)

    def columns(rows: Ints, *each: Words) -> "zip[tuple[int, ...]]":
        return zip(*(column.tolist() for column in (rows, when[rows], 8 * at[rows], 8 * end[rows], *each)), strict=True)

    rows = np.flatnonzero(maps)
    whose, *mapping, device, inode, generation = (words[at[rows] + place] for place in range(1, 8))
    for row, time, begin, after, pid, start, length, offset, major, minor, number, version in columns(
        rows, whose & low, *mapping, device & low, device >> high, inode, generation
    ):
        path = data[begin + 72 : after].split(b"\0", 1)[0]
        found[row] = Mapped(time, pid, start, length, offset, (major, minor), number, version, path)
    rows = np.flatnonzero(tasks)
    whose = words[at[rows] + 1]
    for row, time, begin, after, pid, other, what, misc, tid in columns(
        rows, whose & low, whose >> high, head[rows] & low, flags[rows], words[at[rows] + 2] & low
    ):
        if what == _COMM:
            found[row] = Named(time, pid, other, misc & _COMM_EXEC > 0, data[begin + 16 : after].split(b"\0", 1)[0])
        else:
            found[row] = Forked(time, pid, other, tid, misc & _FORK_EXEC > 0) if what == _FORK else Exited(time, pid, tid)
    others = np.flatnonzero(~maps & ~tasks)
    for row, where in zip(others.tolist(), at[others].tolist(), strict=True):
        found[row] = parse_task(data, where, clock)
    return [record for record in found if record is not None]


def parse_cgroup(data: bytes, at: int) -> Grouped | None:
    words = memoryview(data)[8 * at : len(data) & ~7].cast("Q")
    size = words[0] >> 51
    if size < 3 or size > len(words):
        return None
    return Grouped(words[1], _text(data, at + 2, at + size - 1))


def _text(data: bytes, begin: int, end: int) -> bytes:
    return data[8 * begin : 8 * end].split(b"\0", 1)[0]
