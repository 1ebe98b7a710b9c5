"""From what the sampler's rings held to rows of a recording: samples, and the stacks, frames and threads they need.

A stack that was seen before costs one look into a dictionary. Those that are new are resolved together, by numpy: first to
functions, so that two samples of one function are one frame, then to stacks of frames.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.host.owners import PERHAPS
from exhume.host.root import Root
from exhume.recording.arrays import among, unique, unique_inverse
from exhume.recording.recording import Recording
from exhume.sources.sampling import chains, records
from exhume.sources.sampling.frames import Frames
from exhume.sources.sampling.images import Images
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.recent import Recent
from exhume.sources.sampling.sampler import Taken
from exhume.sources.sampling.spaces import Space
from exhume.sources.sampling.tasks import MOST_NAMES, NO_PID, Process, Tasks, Told
from exhume.sources.sampling.user_symbols import UserSymbols

# Raw stacks that are remembered, and how many bytes of them: all are forgotten when there are more, and met again.
MOST_RAW = 1 << 14
LARGEST_RAW = 4 << 20
HASHED_BITS = 19
# Times of samples are kept to 2^10 ns, about a microsecond, which is less than a timer is late: a fifth of all bytes.
GRAIN = 10
# Stacks after which a new chapter is due: the dictionaries are written anew with every minute.
MOST_STACKS = 1 << 17


class Imported(NamedTuple):
    """What is different where samples are read from a file: /proc tells nothing, and there is time."""

    own: bool
    """It was recorded by the kernel that runs here, booted as it was then."""
    build_ids: Mapping[bytes, bytes]
    wait_s: float
    alive: Callable[[int, int], bool]
    """Whether a process that had samples up to a time still runs here."""


class _New(NamedTuple):
    """A raw stack that was not seen before."""

    space: Space
    idle_task: bool
    chain: bytes


_NOBODY = (0, Space(0, 0), False)
_TIME, _PID = itemgetter(0), itemgetter(1)  # of whatever was told


class Profiler:
    """Holds what is known of the node's processes and code between one batch and the next."""

    def __init__(
        self,
        root: Root,
        cgroups: bool,
        unified: bool = False,
        symbols: UserSymbols | None = None,
        kernel: KernelSymbols | None = None,
        imported: Imported | None = None,
        hide_tenants: bool = False,
    ) -> None:
        """`cgroups`: samples carry the id of their cgroup; `unified`: it is the id of the one hierarchy. `root` is where
        processes are looked up that the side-band does not tell of, and the kernel's symbols unless they are given.
        `hide_tenants`: of what runs in containers and pods only the kernel's frames are kept."""
        own = imported is None or imported.own
        self.kernel = kernel if kernel is not None else KernelSymbols(root)
        self.lost = 0
        """Samples that found no place in a ring."""
        self.throttled = 0
        """How often the kernel paused a CPU's sampling because it took too long."""
        self.taken = 0
        self._with_cgroups = cgroups
        self._until = 0
        """When the last sample was taken."""
        if imported is None:
            self._images = Images()
            self._frames = Frames(root, self.kernel, self._images, symbols)
        else:
            alive = imported.alive
            self._images = Images(own, imported.build_ids, left=own)
            self._frames = Frames(
                root, self.kernel, self._images, symbols, imported.wait_s, lambda pid: own and alive(pid, self._until)
            )
        self.tasks = Tasks(root, self._images, unified, self._changed, imported is not None, hide_tenants)
        self._threads: dict[tuple[int, int], tuple[int, Space, bool]] = {}
        self._thread_rows: list[tuple[int, int, int, int, str, str, str, str, str, str]] = []
        self._raw: dict[tuple[int, bytes], int] = {}
        self._raw_bytes = 0
        self._hashed = Recent(HASHED_BITS)
        """The same of large batches, by what chains.py makes of space and stack."""
        self._stacks: dict[int, int] = {}
        """The numbers of stacks, by what chains.py makes of their frames."""
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

    @property
    def next_ids(self) -> dict[str, int]:
        """The numbers that `number_from` would go on with."""
        return {"stacks": self._next_stack, "threads": self._next_thread, "frames": self._frames.next}

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

    def fold(
        self,
        decoded: records.Samples,
        tasks: records.Tasks,
        into: Recording,
        grain: int = 0,
        stacks: chains.Stacks | None = None,
    ) -> None:
        """The same from records that were decoded: samples, and what happened to tasks in their time. `grain`: bits of the
        time that are not kept. `stacks`: of many samples, where somebody has looked at them already."""
        self.lost += decoded.lost
        self.throttled += decoded.throttled
        self._until = max(self._until, int(decoded.time.max(initial=0)))
        told = self.tasks.hear(tasks, unique(decoded.task & 0xFFFFFFFF))
        if len(decoded.time) >= chains.MANY:
            threads, numbers = self._fold_many(told, decoded, stacks or chains.of_samples(decoded))
        else:
            threads, numbers = self._fold_few(told, decoded)
        self._write(into)
        if len(threads):
            self.taken += len(threads)
            into["samples"].add_columns(
                {"time": decoded.time >> grain << grain, "core": decoded.core, "thread": threads, "stack": numbers}
            )

    def _fold_few(self, told: Sequence[Told], decoded: records.Samples) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Thread and stack of each sample, one by one."""
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
        return threads, stacks

    def _fold_many(
        self, told: Sequence[Told], each: records.Samples, raw: chains.Stacks
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same with work only for each thread that something happened to and each raw stack that is new."""
        group, members, begins = _groups(told, each)
        found: list[tuple[int, Space, bool]] = [_NOBODY] * len(members)
        order = np.argsort(begins, kind="stable")
        tasks, cgroups = (column[members].tolist() for column in (each.task, each.cgroup))
        # How much was told before each group begins.
        untils = np.searchsorted(np.fromiter(map(_TIME, told), dtype=np.int64, count=len(told)), begins, side="right")
        at, apply, known = 0, self.tasks.apply, self._threads
        for which, until in zip(order.tolist(), untils[order].tolist(), strict=True):
            for one in told[at:until]:
                apply(one)
            at = until
            key = tasks[which], cgroups[which]
            found[which] = known.get(key) or self._thread(*key)
        for left in told[at:]:
            apply(left)
        threads = np.array([thread for thread, _, _ in found], dtype=np.int64)[group]
        # Two spaces of one number are one; which task is idle matters for what a stack is taken for.
        numbers = np.array([space.number << 1 | idle for _, space, idle in found], dtype=np.int64)[group]
        numbers[~raw.in_user] &= 1
        hashed = chains.with_number(raw.hashed, numbers)
        stacks = self._hashed.get(hashed)
        unknown = np.flatnonzero(stacks == 0)
        if len(unknown):
            keys, back = unique_inverse(hashed[unknown])
            rows = np.zeros(len(keys), dtype=np.int64)
            rows[back] = unknown
            words, lengths = chains.gather(each.data, each.begin[rows], each.end[rows])
            different = {space.number: space for _, space, _ in found}
            places = {number: place for place, number in enumerate(different)}
            which = np.array([places[space.number] for _, space, _ in found], dtype=np.int64)[group[rows]]
            resolved = self._frames.resolve_chains(list(different.values()), which, words, lengths)
            new = self._number(*resolved, numbers[rows] & 1)
            stacks[unknown] = new[back]
            self._hashed.put(keys, new)
        else:
            self._frames.catch_up()
        if self._frames.renewed:
            self._frames.renewed = False
            self._forget_raw()
        return threads, stacks

    def _number(self, frames: NDArray[np.int32], depths: NDArray[np.int64], idle: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of stacks of frames, which are one after the other; `idle` is 1 for those of an idle task."""
        keys, back = unique_inverse(chains.with_number(chains.hashes(frames.astype(np.uint64), depths), idle))
        numbers = np.fromiter(map(self._stacks.get, keys.tolist(), repeat(0)), dtype=np.int64, count=len(keys))
        new = np.flatnonzero(numbers == 0)
        if len(new):
            rows = np.zeros(len(keys), dtype=np.int64)
            rows[back] = np.arange(len(back))
            rows = rows[new]
            lengths = depths[rows]
            ends = np.cumsum(lengths)
            places = np.repeat(np.cumsum(depths)[rows] - ends, lengths) + np.arange(int(lengths.sum()))
            mine = frames[places]
            kinds = self._frames.classes(mine, lengths, idle[rows] > 0, not self.kernel.reason)
            listed, bounds = mine.tolist(), [0, *ends.tolist()]
            numbers[new] = np.arange(self._next_stack, self._next_stack + len(new))
            self._stack_rows += [
                (number, kind, listed[begin:end])
                for number, kind, begin, end in zip(numbers[new].tolist(), kinds, bounds, bounds[1:], strict=False)
            ]
            self._next_stack += len(new)
            self._stacks.update(zip(keys[new].tolist(), numbers[new].tolist(), strict=True))
        return numbers[back]

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
        key = (tid, comm, first, path, process.unsure)
        number = process.numbers.get(key)
        if number is None:
            number = process.numbers[key] = self._next_thread
            self._next_thread += 1
            belongs = process.owner
            container = belongs.container or (PERHAPS if process.unsure and path and not belongs.pod else "")
            self._thread_rows.append(
                (number, *_shown(pid, tid), process.start, comm, first, path, belongs.unit, belongs.pod, container)
            )
        process.space.seen = True
        found = self._threads[task, cgroup] = (number, process.space, pid == 0)
        process.keys.append((task, cgroup))
        return found

    def _changed(self, process: Process) -> None:
        for key in process.keys:
            self._threads.pop(key, None)
        process.keys.clear()

    def _resolve(self, new: list[_New]) -> NDArray[np.int64]:
        """The numbers of the stacks that raw stacks turn out to be."""
        if not new:
            self._frames.catch_up()
            return np.zeros(0, dtype=np.int64)
        frames, lengths = self._frames.resolve([(each.space, each.chain) for each in new])
        numbers = self._number(frames, lengths, np.array([each.idle_task for each in new], dtype=np.int64))
        for each, number in zip(new, numbers.tolist(), strict=True):
            self._raw[each.space.number, each.chain] = number
            self._raw_bytes += len(each.chain)
        if len(self._raw) > MOST_RAW or self._raw_bytes > LARGEST_RAW or self._frames.renewed:
            self._frames.renewed = False
            self._forget_raw()
        return numbers

    def _forget_raw(self) -> None:
        self._raw.clear()
        self._hashed.clear()
        self._raw_bytes = 0

    def _write(self, into: Recording) -> None:
        self._frames.write(into)
        into["threads"].add_rows(self._thread_rows)
        into["stacks"].add_rows(self._stack_rows)
        self._thread_rows, self._stack_rows = [], []


def _groups(told: Sequence[Told], each: records.Samples) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Samples of one thread between which nothing happened to its process: the group of each, one of each group, and when the
    first of it was taken."""
    _, key = unique_inverse(each.task)
    if (each.cgroup != each.cgroup[0]).any():
        cgroups, cgroup = unique_inverse(each.cgroup)
        key = key * len(cgroups) + cgroup
    if told:
        # Sorted by process and time, so many were told before each sample: other numbers, other groups.
        pids = np.fromiter(map(_PID, told), dtype=np.int64, count=len(told))
        late = np.flatnonzero(among(each.task & 0xFFFFFFFF, unique(pids)))
        pid = np.concatenate([pids, each.task[late] & 0xFFFFFFFF])
        time = np.concatenate([np.fromiter(map(_TIME, told), dtype=np.int64, count=len(told)), each.time[late]])
        order = np.lexsort((time, pid))  # stable: what was told at the time of a sample comes before it
        before = np.empty(len(order), dtype=np.int64)
        before[order] = np.cumsum(order < len(told))
        key *= len(told) + 1
        key[late] += before[len(told) :]
    order = np.argsort(key)
    new = np.ones(len(key), dtype=bool)
    np.not_equal(key[order[1:]], key[order[:-1]], out=new[1:])
    group = np.empty(len(key), dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    edges = np.flatnonzero(new)
    return group, order[edges], np.minimum.reduceat(each.time[order], edges)


def _shown(pid: int, tid: int) -> tuple[int, int]:
    return -1 if pid == NO_PID else pid, -1 if tid == NO_PID else tid
