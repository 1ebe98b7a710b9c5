"""From what the sampler's rings held to rows of a recording: samples, and the stacks, frames and threads they need.

A stack that was seen before costs one look into a dictionary. Those that are new are resolved together, by numpy: first to
functions, so that two samples of one function are one frame, then to stacks of frames.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.node.root import Root
from exhume.profile import records
from exhume.profile.classes import of_stack
from exhume.profile.frames import Frames
from exhume.profile.images import Images
from exhume.profile.kernel_symbols import KernelSymbols
from exhume.profile.sampler import Taken
from exhume.profile.spaces import Space
from exhume.profile.tasks import MOST_NAMES, NO_PID, Process, Tasks, Told
from exhume.profile.user_symbols import UserSymbols
from exhume.recording.arrays import among, unique
from exhume.recording.recording import Recording

# Raw stacks that are remembered, and how many bytes of them: all are forgotten when there are more, and met again.
MOST_RAW = 1 << 15
LARGEST_RAW = 8 << 20
# Times of samples are kept to 2^10 ns, about a microsecond, which is less than a timer is late: a fifth of all bytes.
GRAIN = 10
# Stacks after which a new chapter is due: the dictionaries are written anew with every minute.
MOST_STACKS = 1 << 17


class _New(NamedTuple):
    """A raw stack that was not seen before."""

    space: Space
    idle_task: bool
    chain: bytes


class Profiler:
    """Holds what is known of the node's processes and code between one batch and the next."""

    def __init__(
        self,
        root: Root,
        cgroups: bool,
        unified: bool = False,
        symbols: UserSymbols | None = None,
        kernel: KernelSymbols | None = None,
    ) -> None:
        """`cgroups`: samples carry the id of their cgroup; `unified`: it is the id of the one hierarchy. `root` is where
        processes are looked up that the side-band does not tell of, and the kernel's symbols unless they are given."""
        self.kernel = kernel if kernel is not None else KernelSymbols(root)
        self.lost = 0
        """Samples that found no place in a ring."""
        self.throttled = 0
        """How often the kernel paused a CPU's sampling because it took too long."""
        self.taken = 0
        self._with_cgroups = cgroups
        self._images = Images()
        self._frames = Frames(root, self.kernel, self._images, symbols)
        self.tasks = Tasks(root, self._images, unified, self._changed)
        self._threads: dict[tuple[int, int], tuple[int, Space, bool]] = {}
        self._thread_rows: list[tuple[int, int, int, int, str, str, str, str, str, str]] = []
        self._raw: dict[tuple[int, bytes], int] = {}
        self._raw_bytes = 0
        self._stacks: dict[tuple[bytes, bool], int] = {}
        self._stack_rows: list[tuple[int, str, list[int]]] = []
        self._next_thread = self._next_stack = 1

    @property
    def side_band_lost(self) -> int:
        return self.tasks.lost

    @property
    def full(self) -> bool:
        """Time for a new chapter: so many stacks or images are known that writing them down anew becomes dear."""
        return len(self._stacks) > MOST_STACKS or self._images.full

    def number_from(self, ids: Mapping[str, int]) -> None:
        """The first numbers to give: a recording that goes on has used those below."""
        self._next_stack, self._next_thread = ids["stacks"], ids["threads"]
        self._frames.number_from(ids["frames"])

    def forget(self) -> None:
        """A new chapter: all that samples refer to is told anew, under new numbers."""
        self._threads.clear()
        self.tasks.forget(spaces=self._images.full)
        self._forget_raw()
        self._stacks.clear()
        self._frames.forget()

    def close(self) -> None:
        self._frames.close()

    def add(self, taken: Iterable[Taken], into: Recording) -> None:
        """Adds the rows of one batch, about a second."""
        batch = list(taken)
        decoded = records.samples(b"".join(each.samples for each in batch), self._with_cgroups)
        self.fold(decoded, records.tasks(b"".join(each.tasks for each in batch)), into, GRAIN)

    def fold(self, decoded: records.Samples, tasks: records.Tasks, into: Recording, grain: int = 0) -> None:
        """The same from records that were decoded: samples, and what happened to tasks in their time. `grain`: bits of the
        time that are not kept."""
        self.lost += decoded.lost
        self.throttled += decoded.throttled
        told = self.tasks.hear(tasks, unique(decoded.task & 0xFFFFFFFF))
        new: list[_New] = []
        threads = np.zeros(len(decoded.time), dtype=np.int64)
        stacks = np.zeros(len(decoded.time), dtype=np.int64)
        late = among(decoded.task & 0xFFFFFFFF, unique(np.array([each.pid for each in told], dtype=np.int64)))
        threads[~late], stacks[~late] = self._plain(decoded, np.flatnonzero(~late), new)
        self._in_order(told, decoded, np.flatnonzero(late), threads, stacks, new)
        resolved = self._resolve(new)
        # A negative number is the place in `new` of one that had no number yet.
        fresh = stacks < 0
        stacks[fresh] = resolved[-1 - stacks[fresh]]
        self._write(into)
        if len(threads):
            self.taken += len(threads)
            into["samples"].add_columns({"time": decoded.time >> grain << grain, "core": decoded.core, "thread": threads, "stack": stacks})

    def _plain(self, each: records.Samples, rows: NDArray[np.int64], new: list[_New]) -> tuple[list[int], list[int]]:
        """Thread and stack of samples whose processes are as they were."""
        data, raw, known = each.data, self._raw, self._threads
        threads, stacks = [], []
        columns = (column[rows].tolist() for column in (each.task, each.cgroup, each.begin, each.end))
        for task, cgroup, begin, end in zip(*columns, strict=True):
            found = known.get((task, cgroup))
            if found is None:
                found = self._thread(task, cgroup)
            thread, space, idle_task = found
            chain = data[begin:end]
            number = raw.get((space.number, chain))
            if number is None:
                number = self._new(new, _New(space, idle_task, chain))
            threads.append(thread)
            stacks.append(number)
        return threads, stacks

    def _in_order(
        self,
        told: Sequence[Told],
        each: records.Samples,
        rows: NDArray[np.int64],
        threads: NDArray[np.int64],
        stacks: NDArray[np.int64],
        new: list[_New],
    ) -> None:
        """Samples of processes that forked, became others, mapped or ended meanwhile, each with what was true at its time."""
        at = 0
        for row in rows[np.argsort(each.time[rows], kind="stable")].tolist():
            time, task, cgroup = int(each.time[row]), int(each.task[row]), int(each.cgroup[row])
            while at < len(told) and told[at].time <= time:
                self.tasks.apply(told[at])
                at += 1
            thread, space, idle_task = self._threads.get((task, cgroup)) or self._thread(task, cgroup)
            chain = each.data[each.begin[row] : each.end[row]]
            number = self._raw.get((space.number, chain))
            threads[row] = thread
            stacks[row] = self._new(new, _New(space, idle_task, chain)) if number is None else number
        for left in told[at:]:
            self.tasks.apply(left)

    def _new(self, new: list[_New], found: _New) -> int:
        new.append(found)
        number = -len(new)
        self._raw[found.space.number, found.chain] = number  # the same stack later in this batch
        return number

    def _thread(self, task: int, cgroup: int) -> tuple[int, Space, bool]:
        pid, tid = task & 0xFFFFFFFF, task >> 32 & 0xFFFFFFFF
        process = self.tasks.process(pid)
        if len(process.keys) >= MOST_NAMES or len(process.numbers) >= MOST_NAMES:
            self._changed(process)
            process.numbers.clear()
        path = self.tasks.cgroup(process, cgroup)
        comm, first = self.tasks.name(process, tid), self.tasks.name(process, pid)
        key = (tid, comm, first, path)
        number = process.numbers.get(key)
        if number is None:
            number = process.numbers[key] = self._next_thread
            self._next_thread += 1
            belongs = process.owner
            self._thread_rows.append(
                (number, *_shown(pid, tid), process.start, comm, first, path, belongs.unit, belongs.pod, belongs.container)
            )
        found = self._threads[task, cgroup] = (number, process.space, pid == 0)
        process.keys.append((task, cgroup))
        return found

    def _changed(self, process: Process) -> None:
        for key in process.keys:
            self._threads.pop(key, None)
        process.keys.clear()

    def _resolve(self, new: list[_New]) -> NDArray[np.int64]:
        """The numbers of the stacks that raw stacks turn out to be."""
        numbers = np.zeros(len(new), dtype=np.int64)
        if not new:
            self._frames.catch_up()
            return numbers
        frames, lengths = self._frames.resolve([(each.space, each.chain) for each in new])
        listed, packed, width = frames.tolist(), frames.tobytes(), frames.itemsize
        end = 0
        for i, (each, length) in enumerate(zip(new, lengths.tolist(), strict=True)):
            begin, end = end, end + length
            key = (packed[begin * width : end * width], each.idle_task)
            number = self._stacks.get(key)
            if number is None:
                number = self._stacks[key] = self._next_stack
                self._next_stack += 1
                mine = listed[begin:end]
                self._stack_rows.append((number, self._class(mine, each.idle_task), mine))
            numbers[i] = number
            self._raw[each.space.number, each.chain] = number
            self._raw_bytes += len(each.chain)
        if len(self._raw) > MOST_RAW or self._raw_bytes > LARGEST_RAW or self._frames.renewed:
            self._frames.renewed = False
            self._forget_raw()
        return numbers

    def _class(self, frames: list[int], idle_task: bool) -> str:
        marks, kernel = self._frames.marks(frames)
        return of_stack(marks, kernel, idle_task, not self.kernel.reason)

    def _forget_raw(self) -> None:
        self._raw.clear()
        self._raw_bytes = 0

    def _write(self, into: Recording) -> None:
        self._frames.write(into)
        into["threads"].add_rows(self._thread_rows)
        into["stacks"].add_rows(self._stack_rows)
        self._thread_rows, self._stack_rows = [], []


def _shown(pid: int, tid: int) -> tuple[int, int]:
    return -1 if pid == NO_PID else pid, -1 if tid == NO_PID else tid
