"""Who was on a core in some stretches of time, and what it did there, by the stack samples of a recording."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from exhume.diagnosis.findings import kernel_functions as of
from exhume.diagnosis.findings.kernel_work import BORROWED, IDLE, UNKNOWN, USER, Walks, Work, bare, walks, work
from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.sampled import OfCore, by_core
from exhume.diagnosis.findings.spans import merged
from exhume.recording.recording import Ints, Recording

NAMELESS: Final = "[unknown]"


class Who(NamedTuple):
    comm: str
    pid: int
    tid: int
    cgroup: str = ""
    unit: str = ""
    pod: str = ""

    def __str__(self) -> str:
        return f"{self.comm} [{self.pid}]" if self.pid > 0 else self.comm


# Not a program: the core's own doing, and what is known of nobody.
REST: Final = Who("the core", 0, 0)
INTERRUPT: Final = Who("the core", 0, -1)
NOBODY: Final = Who("somebody", 0, -2)


class Held(NamedTuple):
    """Who was there most, and what it did most of the time."""

    who: Who
    samples: int
    """How many are of it."""
    total: int
    """How many there are of the core in that time, whoever they are of."""
    work: Work
    stack: tuple[str, ...]
    """Its most frequent one in that work, the innermost function first; empty in user space and without names."""
    works: dict[str, int]
    """Samples by kind of work, of all who were there."""
    covered: float = 1.0
    """Share of the stretches in which samples were taken at all."""

    def share(self, *works: Work) -> float:
        """Of all samples, those in which this was done."""
        return sum(self.works.get(one.key, 0) for one in works) / self.total if self.total else 0.0

    @property
    def known(self) -> bool:
        """Whether the stacks say what was done at all: without the kernel's symbols they do not."""
        return 2 * self.works.get(UNKNOWN.key, 0) <= self.total


class Stack(NamedTuple):
    kind: str
    names: tuple[str, ...]
    work: Work


_UNKNOWN_STACK: Final = Stack("", (), UNKNOWN)


def held(recording: Recording, core: int, spans: Iterable[Span], waiting: int = 0) -> Held | None:
    """None where no sample of that core was taken in that time. Those of who waits for the core do not count."""
    of_core = by_core(recording).get(core)
    if of_core is None:
        return None
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(_within(of_core, *part) for part in merged(spans).get(core, []))])
    if not len(rows):
        return None
    pairs, counts = np.unique(
        np.stack((of_core.threads[rows], of_core.stacks[rows])), axis=1, return_counts=True
    )  # as many as there are different stacks, however many samples
    threads = threads_of(recording)
    seen: list[tuple[Who, Stack, int]] = []
    for thread, stack, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        who = threads.get(thread, NOBODY)
        if not waiting or who.tid != waiting:
            one = stack_of(recording, stack)
            seen.append((REST if one.work is IDLE else blamed(who, one.work), one, count))
    return _most(seen)


def _most(seen: Sequence[tuple[Who, Stack, int]]) -> Held | None:
    """Of who was there, with which stack, in how many samples."""
    if not seen:
        return None
    by_thread: Counter[int] = Counter()
    names: Counter[tuple[int, Who]] = Counter()
    works: Counter[str] = Counter()
    for who, stack, count in seen:
        by_thread[who.tid] += count
        names[who.tid, who] += count
        works[stack.work.key] += count
    tid, samples = max(by_thread.items(), key=lambda item: (item[1], item[0]))
    who = max((each for each in names if each[0] == tid), key=lambda each: (names[each], each))[1]
    own: Counter[Work] = Counter()
    stacks: Counter[tuple[Work, tuple[str, ...]]] = Counter()
    for each, stack, count in seen:
        if each.tid == tid:
            kind = stack.work if stack.work.key != "kernel" else Work("kernel", "")
            own[kind] += count
            stacks[kind, stack.names] += count
    did = max(own, key=lambda one: (own[one], one))
    names_of = max((each for each in stacks if each[0] == did), key=lambda each: (stacks[each], each))[1]
    did = work(names_of) if did.key == "kernel" else did
    return Held(who, samples, sum(by_thread.values()), did, names_of, dict(works))


def blamed(who: Who, did: Work) -> Who:
    """The time of an interrupt is not that of the program that it interrupted."""
    return INTERRUPT if did.key in BORROWED and not of_network(who) else who


def of_network(who: Who) -> bool:
    """ksoftirqd or a thread of NAPI's. Programs may call themselves so: the kernel's own are in the root cgroup."""
    return who.comm.startswith(("ksoftirqd/", "napi/")) and who.cgroup in ("", "/")


def _within(of_core: OfCore, start: int, end: int) -> Ints:
    first, after = np.searchsorted(of_core.times, start, "left"), np.searchsorted(of_core.times, end, "right")
    return np.arange(first, after, dtype=np.int64)


def threads_of(recording: Recording) -> dict[int, Who]:
    """By what samples call them."""
    return recording.derived("threads", _threads)


def _threads(recording: Recording) -> dict[int, Who]:
    return {
        row["id"]: Who(row["comm"], row["pid"], row["tid"], row["cgroup"], row["unit"], row["pod"])
        for row in recording["threads"].rows()
    }


def programs_of(recording: Recording) -> dict[int, Who]:
    """By what samples call the thread: who it is, by the name of the process, since threads have any. Of programs only."""
    table = recording["threads"]
    names = dict(zip(table.ints("id").tolist(), table.texts("process"), strict=True))
    return {
        thread: who._replace(comm=names.get(thread) or who.comm)
        for thread, who in threads_of(recording).items()
        if who.tid > 0 and who.pid > 0
    }


def stack_of(recording: Recording, number: int) -> Stack:
    """By what samples call it."""
    known = recording.derived("stacks", _known_stacks)
    if number not in known.made:
        row = known.rows.get(number)
        known.made[number] = _UNKNOWN_STACK if row is None else _made(recording, *row)
    return known.made[number]


class _Known(NamedTuple):
    rows: dict[int, tuple[str, Sequence[int]]]
    made: dict[int, Stack]
    """Those that were asked for."""


def _known_stacks(recording: Recording) -> _Known:
    table = recording["stacks"]
    rows = zip(table.ints("id").tolist(), table.texts("class"), table.lists("frames"), strict=True)
    return _Known({number: (kind, frames) for number, kind, frames in rows}, {})


def _kernel_frames(recording: Recording) -> dict[int, str]:
    table = recording["frames"]
    rows = zip(table.ints("id").tolist(), table.texts("name"), table.texts("space"), strict=True)
    return {number: name or NAMELESS for number, name, space in rows if space == "kernel"}


def walked(recording: Recording) -> Walks:
    """Which files are walks over memory cgroups on this kernel: by its release, and by what the samples show of it."""
    return recording.derived("stacks", _walked)


def _walked(recording: Recording) -> Walks:
    names = recording.derived("frames", _kernel_frames)
    reads = {number for number, name in names.items() if bare([name])[0] in of.READS_NUMA_STAT | of.READS_STAT}
    stacks = recording["stacks"].lists("frames") if reads else ()
    some = ([names[frame] for frame in reversed(frames) if frame in names] for frames in stacks if not reads.isdisjoint(frames))
    return walks(recording.node.kernel, some)


def _made(recording: Recording, kind: str, frames: Sequence[int]) -> Stack:
    kernel = recording.derived("frames", _kernel_frames)
    names = tuple(kernel[frame] for frame in reversed(frames) if frame in kernel)
    if kind == "idle":
        return Stack(kind, names, IDLE)
    if not names:
        return Stack(kind, names, USER if kind == "user" else UNKNOWN)
    return Stack(kind, names, work(names, walked(recording)))
