"""What each core did when each sample was taken, and nothing else of it: no names of processes, no stacks, no order.

That takes a fraction of the time of an import and is all that cores and a heat map show. The classes are those that an import
gives (sources/sampling/classes.py), from the kernel's part of each chain; only the addresses that say something are looked at
closely.
"""

import threading
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from exhume.imports.kernel_marks import Marks
from exhume.recording.recording import Ints
from exhume.recording.summary import CLASSES, Summary, join, summarise
from exhume.sources.sampling import classes
from exhume.sources.sampling.records import (
    CONTEXT_GUEST_KERNEL,
    CONTEXT_GUEST_USER,
    CONTEXT_KERNEL,
    CONTEXT_MAX,
    CONTEXT_USER,
    Index,
)
from exhume.sources.sampling.records import Samples as Decoded

_KNOWN: Final = np.array([CONTEXT_KERNEL, CONTEXT_USER, CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER], dtype=np.uint64)
_OF_KERNEL: Final = frozenset((CONTEXT_KERNEL, CONTEXT_GUEST_KERNEL))
_NEVER: Final = 1 << 62
_PID: Final = 0xFFFFFFFF
# Samples that are counted at once, with all that it takes in the cache of a core; and such counts that are added up at once.
_MOST: Final = 1 << 15
_MOST_COUNTS: Final = 256
# Batches of samples, of about a megabyte, that wait for the kernel's symbols.
_MOST_HELD: Final = 32
_IDLE, _USER, _SYSTEM, _SOFTIRQ, _IRQ = (np.int8(CLASSES.index(kind)) for kind in ("idle", "user", "system", "softirq", "irq"))


class Sketch:
    """Counts of samples by core, second and class. `offset` is added to all their times.

    Unless looked at closely, only idle samples are told from others, and those all count as `user`: that is known of most
    samples without their chains, and a heat map needs no more.
    """

    def __init__(
        self, load: Callable[[], Marks | None], decode: Callable[[Index], Decoded], offset: int = 0, closely: bool = True
    ) -> None:
        """`load` has None where the kernel's functions have no names: they are loaded while the first samples come."""
        self._decode, self._offset, self._closely = decode, offset, closely
        self._marks: list[Marks | None] = []
        self._loading = threading.Thread(target=lambda: self._marks.append(load()), name="exhume-kallsyms", daemon=True)
        self._loading.start()
        self._held: list[Decoded] = []
        self._counts = _Counts()
        self.samples = 0
        self.first, self.last = _NEVER, 0

    def add(self, records: Index) -> None:
        """Samples."""
        each = self._decode(records)
        if not len(each.time):
            return
        if self._offset:
            each = each._replace(time=each.time + self._offset)
        self.samples += len(each.time)
        self.first, self.last = min(self.first, int(each.time.min())), max(self.last, int(each.time.max()))
        if not self._closely and (each.task & _PID).all():
            self._counts.add(each, np.full(len(each.time), _USER))
            return
        self._held.append(each)
        if len(self._held) > _MOST_HELD or self._marks:
            self._take_held()

    def end(self) -> None:
        """Nothing is added any more."""
        self._take_held()

    def summary(self) -> Summary:
        return self._counts.summary()

    def _take_held(self) -> None:
        if self._held:
            self._loading.join()
        classify = classes_of if self._closely else idle_or_not
        for each in self._held:
            self._counts.add(each, classify(each, self._marks[0]))
        self._held = []


class _Counts:
    """Summaries of batches, added up."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, NDArray[np.int8]]] = []
        self._waiting = 0
        self._summaries: list[Summary] = []

    def add(self, each: Decoded, kind: NDArray[np.int8]) -> None:
        self._parts.append((each.time, each.core, kind))
        self._waiting += len(kind)
        if self._waiting > _MOST:
            self._count()

    def summary(self) -> Summary:
        if self._parts:
            self._count()
        return join(self._summaries)

    def _count(self) -> None:
        time, core, kind = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        self._summaries.append(summarise(time, core, kind))
        if len(self._summaries) > _MOST_COUNTS:
            self._summaries = [join(self._summaries)]
        self._parts, self._waiting = [], 0


def idle_or_not(each: Decoded, marks: Marks | None) -> NDArray[np.int8]:
    """The place of `idle` for those that are, that of `user` for all others. Only chains of idle tasks are looked at."""
    found = np.full(len(each.task), _USER)
    rows = np.flatnonzero(each.task & _PID == 0)
    if not len(rows):
        return found
    if len(rows) < len(found) // 2:
        of_some = _only(each, rows)
    else:  # to copy them would take longer
        of_some = each._replace(task=each.task[rows], begin=each.begin[rows], end=each.end[rows])
    found[rows[classes_of(of_some, marks) == _IDLE]] = _IDLE
    return found


def _only(each: Decoded, rows: Ints) -> Decoded:
    """Some of the samples, with nothing but their own chains."""
    words = np.frombuffer(each.data, dtype=np.uint64, count=len(each.data) // 8)
    begin = each.begin[rows] >> 3
    depth = (each.end[rows] >> 3) - begin
    to = np.cumsum(depth) - depth
    chains = words[np.repeat(begin - to, depth) + np.arange(int(depth.sum()))]
    return each._replace(data=chains.tobytes(), task=each.task[rows], begin=8 * to, end=8 * (to + depth))


def classes_of(each: Decoded, marks: Marks | None) -> NDArray[np.int8]:
    """The class of every sample, as a place in summary.CLASSES. `marks` is None where the kernel's functions have no names."""
    words = np.frombuffer(each.data, dtype=np.uint64, count=len(each.data) // 8)
    begin, end = each.begin >> 3, each.end >> 3
    idle_task = each.task & _PID == 0
    kernel = _in_kernel(words, begin, end)
    found = np.where(kernel, _SYSTEM, _USER)
    if marks is None:
        return np.where(idle_task, _IDLE, found)
    softirq, irq, left, idle = _told(words, begin, end, marks)
    found = np.where(idle_task & (idle < _NEVER) & kernel, _IDLE, found)
    # Chains have their innermost first: an interrupt that was left comes after the place where it was.
    found = np.where((irq < left) & kernel, _IRQ, found)
    return np.where((softirq < _NEVER) & kernel, _SOFTIRQ, found)


def _told(words: NDArray[np.uint64], begin: Ints, end: Ints, marks: Marks) -> list[Ints]:
    """Of each chain where it is first in a function of softirqs, of interrupts, of their end and of the idle loop."""
    places, said = marks.said(words)
    contexts = np.flatnonzero(words >= np.uint64(CONTEXT_MAX))
    by_begin = np.argsort(begin, kind="stable") if (begin[1:] < begin[:-1]).any() else np.arange(len(begin))
    owner = by_begin[np.maximum(np.searchsorted(begin[by_begin], places, side="right") - 1, 0)]
    context = contexts[np.maximum(np.searchsorted(contexts, places) - 1, 0)] if len(contexts) else np.zeros_like(places)
    fits = (
        (begin[owner] <= context) & (context < places) & (places < end[owner]) & (words[context] == np.uint64(CONTEXT_KERNEL))
    )
    places, said, owner = places[fits], said[fits], owner[fits]
    found = []
    for kind in (classes.SOFTIRQ, classes.IRQ, classes.LEFT, classes.IDLE):
        mine = np.flatnonzero(said == kind)[::-1]
        first = np.full(len(begin), _NEVER, dtype=np.int64)
        first[owner[mine]] = places[mine]
        found.append(first)
    return found


def _in_kernel(words: NDArray[np.uint64], begin: Ints, end: Ints) -> NDArray[np.bool_]:
    """Whether the innermost frame of each chain is of the kernel: mostly the chain's first mark says so."""
    depth = end - begin
    deep = depth > 1
    places = np.where(deep, begin, 0)
    if not len(words):
        return np.zeros(len(begin), dtype=np.bool_)
    first, second = words[places], words[np.minimum(places + 1, len(words) - 1)]
    found: NDArray[np.bool_] = deep & ((first == _KNOWN[0]) | (first == _KNOWN[2]))
    usual = (found | (first == _KNOWN[1]) | (first == _KNOWN[3])) & (second < np.uint64(CONTEXT_MAX))
    for row in np.flatnonzero(deep & ~usual).tolist():
        found[row] = _first_context(words[begin[row] : end[row]].tolist()) in _OF_KERNEL
    return found


def _first_context(chain: list[int]) -> int:
    """The mark before the innermost frame of a chain, one by one; 0 if it has no frame."""
    known = frozenset(_KNOWN.tolist())
    context = 0
    for word in chain:
        if word >= CONTEXT_MAX:
            context = word
        elif context in known:
            return context
    return 0
