"""Processes and threads as the samples meet them: their names, address spaces and cgroups, at the time of each sample.

What the kernel told of them while we ran is in the side-band, which is only looked into for processes that have samples; what
was there before us is in /proc. A process that is gone, and of which neither tells, is a number without a name.

Of a perf.data there is no /proc: perf put into its side-band what was there before, and all of it is kept.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from operator import itemgetter

import numpy as np

from exhume.errors import Unreadable
from exhume.host.owners import Owner, owner
from exhume.host.root import Root
from exhume.recording.arrays import among, unique
from exhume.sources.processes import parse_cgroup, parse_stat
from exhume.sources.sampling import records
from exhume.sources.sampling.images import Images
from exhume.sources.sampling.records import Exited, Forked, Ints, Mapped, Named
from exhume.sources.sampling.spaces import Space
from exhume.text import decode

Told = Mapped | Named | Forked | Exited

# The side-band of processes without samples is kept for so many batches (seconds), and no more than that.
KEPT = 4
LARGEST_KEPT = 8 << 20
# Where nothing else tells of processes, the side-band is kept up to that, and then applied to all of them.
LARGEST_ALONE = 16 << 20
_time = itemgetter(0)
# Processes that are remembered; those that had no sample for longest go first.
MOST_PROCESSES = 8192
# Threads of one process that are remembered.
MOST_NAMES = 4096
TICK_NS = 10_000_000  # USER_HZ is 100 on x86 and arm64 (include/asm-generic/param.h)
_START = ~((1 << 23) - 1)
"""Starts are kept to 8 ms, as /proc has them to 10: each digit more is a byte for every short process there ever was."""
NO_PID = 0xFFFFFFFF
"""A task that is being taken apart has no number any more."""


_NOBODY = Owner()


class Process:
    __slots__ = ("cgroup", "cgroup_id", "cgroup_read", "keys", "names", "numbers", "owner", "pid", "space", "start", "unsure")

    def __init__(self, pid: int, space: Space) -> None:
        self.pid = pid
        self.space = space
        self.start = 0
        self.names: dict[int, str] = {}
        self.cgroup = ""
        self.cgroup_id = -1
        self.cgroup_read = False
        self.owner = _NOBODY
        self.unsure = False
        """It executed something since its cgroup was known, as what a runtime puts into a container does."""
        self.keys: list[tuple[int, int]] = []
        """What whoever uses this has cached of it, to be dropped when it changes."""
        self.numbers: dict[tuple[object, ...], int] = {}
        """What it calls the process's threads."""


class Tasks:
    """Knows who a sample is of."""

    def __init__(
        self,
        root: Root,
        images: Images,
        unified: bool,
        changed: Callable[[Process], None],
        alone: bool = False,
        hide_tenants: bool = False,
    ) -> None:
        """`unified`: the cgroup id of a sample is that of the one hierarchy. `changed` hears of processes whose names, cgroup
        or address space are not what they were. `alone`: the side-band is all there is. `hide_tenants`: the address spaces of
        all that is in a container or pod, or that may be, are hidden."""
        self.lost = 0
        """Records of the side-band that found no place."""
        self.boot_offset_ns = 0
        """CLOCK_BOOTTIME less the clock of the samples."""
        self._root = root
        self._images = images
        self._unified = unified
        self._changed = changed
        self._processes: dict[int, Process] = {}
        self._spaces = 0
        self._alone = alone
        self._hide_tenants = hide_tenants
        self._kept: deque[records.Tasks] = deque(maxlen=None if alone else KEPT)
        self._cgroups: dict[int, str] = {}
        self._gone: list[Process] = []
        self._ending: set[int] = set()
        """Who ended in this batch: there is nothing in /proc to look for."""

    def hear(self, chunk: records.Tasks, pids: Ints) -> list[Told]:
        """The side-band of a batch, and what it tells about these processes, in order of time: to be `apply`ed between the
        samples, each at its time. What was told earlier of those that nobody asked for so far is applied at once."""
        self._bury()
        self.lost += chunk.lost
        for group in chunk.groups:
            self._keep_cgroup(group.id, decode(group.path))
        if self._alone:
            pids = self._with_parents(pids, chunk)
        # Also about those that were met before and have no sample now: they may have another name when they have one again.
        met = np.fromiter(self._processes, dtype=np.int64, count=len(self._processes))
        told = sorted(_about(_numbered(unique(np.concatenate([pids, met]))), [chunk]), key=_time)
        begun = {each.pid for each in told if isinstance(each, Forked) and each.pid != each.parent}
        unmet = [pid for pid in pids.tolist() if pid not in self._processes and pid not in begun]
        if unmet:
            for earlier in sorted(_about(_numbered(np.array(unmet, dtype=np.int64)), self._kept), key=_time):
                self.apply(earlier)
        self._ending = {each.pid for each in told if isinstance(each, Exited) and each.tid == each.pid}
        if self._alone:
            self._keep_all(chunk)
        elif len(chunk.data) * KEPT <= LARGEST_KEPT:
            self._kept.append(chunk)
        return told

    def _with_parents(self, pids: Ints, chunk: records.Tasks) -> Ints:
        """These and those they were forked by, whose names and mappings they have: who has no samples matters, too."""
        while True:
            known = np.fromiter(self._processes, dtype=np.int64, count=len(self._processes))
            unmet = pids[~among(pids, np.sort(known))]
            found = [_parents(chunk, pids), *(_parents(earlier, unmet) for earlier in self._kept if len(unmet))]
            more = unique(np.concatenate([pids, *found]))
            if len(more) == len(pids):
                return pids
            pids = more

    def _keep_all(self, chunk: records.Tasks) -> None:
        if not len(chunk.at):
            return
        if sum(len(kept.data) for kept in self._kept) + len(chunk.data) > LARGEST_ALONE:
            everybody = _numbered(unique(np.concatenate([kept.pid for kept in self._kept] or [chunk.pid])))
            met = np.fromiter(self._processes, dtype=np.int64, count=len(self._processes))
            unmet = everybody[~among(everybody, np.sort(met)) & (everybody >= 0)]
            while self._kept:
                for earlier in sorted(_about(unmet, [self._kept.popleft()]), key=_time):
                    self.apply(earlier)
                self._bury()  # most have ended since
        self._kept.append(chunk)

    def apply(self, told: Told) -> None:
        """Something happened to a process that has samples."""
        if isinstance(told, Mapped):  # as most are
            self._map(told)
            return
        if isinstance(told, Forked):
            if told.pid != told.parent:
                self._fork(told)
            elif (process := self._processes.get(told.pid)) is not None and process.names.pop(told.tid, None) is not None:
                self._changed(process)  # a number that another thread had
            return
        known = self._processes.get(told.pid)
        if known is None and isinstance(told, Exited):
            return
        process = known or self._meet(told.pid)
        if isinstance(told, Named):
            if told.exec:
                process.space = Space(self._number(), told.pid)
                process.names.clear()
                process.cgroup_read, process.unsure = False, True
            _call(process, told.tid, decode(told.name))
            self._changed(process)
        elif told.tid == told.pid:
            self._gone.append(process)

    def _map(self, told: Mapped) -> None:
        process = self._processes.get(told[1]) or self._meet(told[1])
        space, locate = process.space, self._images.locate
        if space.unread:
            space.read(self._root, locate)
        if not space.hear(told, locate):
            # Samples of before are resolved when the batch is read: what they were in must stay as it was.
            process.space = space.copy(self._number(), process.pid)
            process.space.hear(told, locate)
            self._changed(process)

    def _bury(self) -> None:
        """Those that ended a batch ago: a task is sampled for a while after its end was told, taking itself apart."""
        gone, self._gone = self._gone, []
        for process in gone:
            if self._processes.get(process.pid) is process:
                self._changed(process)
                del self._processes[process.pid]

    def forget(self, spaces: bool) -> None:
        """What others have noted of processes is of no use any more; with `spaces`, nor is what they have mapped."""
        if spaces:
            self._processes.clear()
        for process in self._processes.values():
            process.keys.clear()
            process.numbers.clear()

    def process(self, pid: int) -> Process:
        """Whoever has that number now. Moves it to the end of those to be forgotten."""
        process = self._processes.pop(pid, None)
        if process is None:
            return self._meet(pid)
        self._processes[pid] = process
        return process

    def name(self, process: Process, tid: int) -> str:
        """A thread's name; a new one has its creator's until it gets another."""
        name = process.names.get(tid)
        if name is None:
            name = self._comm(process.pid, tid) or process.names.get(process.pid, "")
            _call(process, tid, name)
        return name

    def cgroup(self, process: Process, number: int) -> str:
        """The cgroup of a process, whose samples carry that id."""
        if self._alone and not number:
            return process.cgroup
        known, sure = self._unified and number > 0, True
        if known and number in self._cgroups:
            path = self._cgroups[number]
        elif process.cgroup_read and process.cgroup_id == number:
            return process.cgroup
        else:
            read = "" if process.pid in self._ending else self._read_cgroup(process.pid)
            path, sure = read or process.cgroup, bool(read)
            if known and path and self._is(path, number):
                self._keep_cgroup(number, path)
                sure = True
        process.cgroup_read, process.cgroup_id = True, number
        process.unsure = process.unsure and not sure
        if path != process.cgroup:
            process.cgroup, process.owner = path, owner(path)
        if self._hide_tenants:
            self._hide(process, not sure)
        return path

    def _hide(self, process: Process, unsure: bool) -> None:
        """One that ended before its cgroup could be read has its parent's by hearsay, and may have been put into a pod."""
        hidden = unsure or not process.cgroup or bool(process.owner.pod or process.owner.container)
        if hidden != process.space.hidden:
            # Another number: stacks that were resolved before are kept by it.
            process.space = process.space.copy(self._number(), process.pid)
            process.space.hidden = hidden
            self._changed(process)

    def _number(self) -> int:
        self._spaces += 1
        return self._spaces

    def _fork(self, told: Forked) -> None:
        if not told.parent:  # in a container, of somebody outside
            self._keep(Process(told.pid, Space(self._number(), told.pid))).start = told.time & _START
            return
        parent = self._processes.get(told.parent) or self._meet(told.parent)
        if not parent.cgroup_read:
            self.cgroup(parent, parent.cgroup_id)
        parent.space.settle(self._images.locate)
        space = Space(self._number(), told.pid) if told.bare else parent.space.copy(self._number(), told.pid)
        process = self._keep(Process(told.pid, space))
        process.start = told.time & _START
        process.names[told.pid] = parent.names.get(told.parent, "")
        process.cgroup, process.owner, process.unsure = parent.cgroup, parent.owner, parent.unsure

    def _meet(self, pid: int) -> Process:
        """One that was there before us, or that the side-band lost."""
        process = self._keep(Process(pid, Space(self._number(), pid, unread=0 if pid in (0, NO_PID) else pid)))
        if pid == 0:
            process.names[0] = "swapper"
        elif pid == NO_PID:
            process.names[NO_PID] = "(exiting)"
        else:
            try:
                stat = parse_stat(self._root.read(f"proc/{pid}/stat", 4096))
            except Unreadable:
                stat = None
            if stat is not None:
                process.names[pid] = stat.comm
                process.start = max(0, stat.start * TICK_NS - self.boot_offset_ns) & _START
        return process

    def _keep(self, process: Process) -> Process:
        old = self._processes.pop(process.pid, None)
        if old is not None:
            self._changed(old)
        self._processes[process.pid] = process
        if len(self._processes) > MOST_PROCESSES:
            oldest = self._processes.pop(next(iter(self._processes)))
            self._changed(oldest)
        return process

    def _comm(self, pid: int, tid: int) -> str:
        if pid in (0, NO_PID) or not self._root.own:
            return ""
        try:
            return decode(self._root.read(f"proc/{pid}/task/{tid}/comm", 64).removesuffix(b"\n"))
        except Unreadable:
            return ""

    def _read_cgroup(self, pid: int) -> str:
        if pid in (0, NO_PID) or self._alone:
            return ""
        try:
            return parse_cgroup(self._root.read(f"proc/{pid}/cgroup", 1 << 16))
        except Unreadable:
            return ""

    def _is(self, path: str, number: int) -> bool:
        """Whether a path is that of a cgroup's number: its process may have been moved since its sample was taken."""
        try:
            return os.stat(self._root.at(f"sys/fs/cgroup{path}")).st_ino == number
        except OSError:
            return False

    def _keep_cgroup(self, number: int, path: str) -> None:
        self._cgroups[number] = path
        if len(self._cgroups) > MOST_PROCESSES:
            del self._cgroups[next(iter(self._cgroups))]


def _call(process: Process, tid: int, name: str) -> None:
    if len(process.names) >= MOST_NAMES:  # mostly of threads that are gone
        process.names = {process.pid: process.names.get(process.pid, "")}
    process.names[tid] = name


def _numbered(pids: Ints) -> Ints:
    """Without the numbers that many share: in a container 0 is every process of others, whom the side-band tells of, too."""
    numbered: Ints = pids[(pids != 0) & (pids != NO_PID)]
    return numbered


def _about(pids: Ints, chunks: Iterable[records.Tasks]) -> list[Told]:
    return [told for chunk in chunks if len(chunk.at) for told in chunk.of(pids)]


def _parents(chunk: records.Tasks, pids: Ints) -> Ints:
    if chunk.parent is None:
        return np.zeros(0, dtype=np.int64)
    found: Ints = chunk.parent[(chunk.parent > 0) & among(chunk.pid, pids)]
    return found
