"""What each core did when each sample was taken, and nothing else of it: no names of processes, no stacks, no order.

That takes a fraction of the time of an import and is all that a first heat map shows. The classes are those that an import
gives (profile/classes.py), from the kernel's part of each chain; only the addresses that say something are looked at closely.
"""

import threading
from collections.abc import Callable
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from exhume.profile import classes
from exhume.profile.kernel_symbols import KernelSymbols
from exhume.profile.records import CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER, CONTEXT_KERNEL, CONTEXT_MAX, CONTEXT_USER
from exhume.profile.records import Samples as Decoded
from exhume.recording.arrays import unique
from exhume.recording.recording import Ints
from exhume.recording.summary import CLASSES, Summary, join, summarise

_KNOWN: Final = np.array([CONTEXT_KERNEL, CONTEXT_USER, CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER], dtype=np.uint64)
_OF_KERNEL: Final = frozenset((CONTEXT_KERNEL, CONTEXT_GUEST_KERNEL))
# The upper half of all addresses is the kernel's, but for the marks at its end; as signed numbers that is one comparison.
_BELOW_MARKS: Final = CONTEXT_MAX - (1 << 64)
_SLOTS: Final = 1 << 20
_NEVER: Final = 1 << 62
_PID: Final = 0xFFFFFFFF
# Samples that are counted at once: what is kept of each is 17 bytes.
_MOST: Final = 1 << 20
# Batches of samples, of about a megabyte, that wait for the kernel's symbols.
_MOST_HELD: Final = 32
_IDLE, _USER, _SYSTEM, _SOFTIRQ, _IRQ = (np.int8(CLASSES.index(kind)) for kind in ("idle", "user", "system", "softirq", "irq"))


class Marks:
    """What the functions that hold addresses say about a stack (classes.mark), for very many addresses of few functions.

    A slot for each of their last bits has the first address that was met; those that share one are looked up by themselves.
    """

    def __init__(self, kernel: KernelSymbols) -> None:
        self._kernel = kernel
        self._slots: NDArray[np.uint64] = np.zeros(_SLOTS, dtype=np.uint64)
        self._values: NDArray[np.uint8] = np.zeros(_SLOTS, dtype=np.uint8)
        self._others: dict[int, int] = {}
        self._functions: dict[int, int] = {}

    def of(self, addresses: NDArray[np.uint64]) -> NDArray[np.uint8]:
        at = (addresses & np.uint64(_SLOTS - 1)).view(np.int64)
        missing = np.flatnonzero(self._slots[at] != addresses)
        if len(missing):
            self._learn(addresses[missing])
            missing = np.flatnonzero(self._slots[at] != addresses)
        found: NDArray[np.uint8] = self._values[at]
        if len(missing):
            listed = addresses[missing].tolist()
            found[missing] = np.fromiter(map(self._others.get, listed, repeat(0)), dtype=np.uint8, count=len(listed))
        return found

    def _learn(self, addresses: NDArray[np.uint64]) -> None:
        different = unique(addresses.view(np.int64)).view(np.uint64)
        functions = self._kernel.find(different)
        for function in unique(functions).tolist():
            if function not in self._functions:
                self._functions[function] = classes.mark(self._kernel.name(function)) if function >= 0 else 0
        values = np.array([self._functions[function] for function in functions.tolist()], dtype=np.uint8)
        at = (different & np.uint64(_SLOTS - 1)).view(np.int64)
        free = self._slots[at] == 0
        self._slots[at[free]] = different[free]
        mine = self._slots[at] == different
        self._values[at[mine]] = values[mine]
        self._others.update(zip(different[~mine].tolist(), values[~mine].tolist(), strict=True))


class Sketch:
    """Counts of samples by core, second and class. `offset` is added to all their times."""

    def __init__(self, load: Callable[[], KernelSymbols], offset: int = 0) -> None:
        """The kernel's symbols are loaded while the first samples come."""
        self._offset = offset
        self._kernel: list[KernelSymbols] = []
        self._loading = threading.Thread(target=lambda: self._kernel.append(load()), name="exhume-kallsyms", daemon=True)
        self._loading.start()
        self._marks: Marks | None = None
        self._held: list[Decoded] = []
        self._parts: list[tuple[Ints, Ints, NDArray[np.int8]]] = []
        self._waiting = 0
        self._summary: list[Summary] = []
        self.samples = 0
        self.first, self.last = _NEVER, 0

    def add(self, each: Decoded) -> None:
        if not len(each.time):
            return
        self.samples += len(each.time)
        self._held.append(each)
        if len(self._held) > _MOST_HELD or self._kernel:
            self._take_held()

    def summary(self) -> Summary:
        """Of all that was added; nothing is added any more."""
        self._take_held()
        if self._parts:
            self._count()
        return join(self._summary)

    def _take_held(self) -> None:
        self._loading.join()
        if self._marks is None and not self._kernel[0].reason:
            self._marks = Marks(self._kernel[0])
        for each in self._held:
            time = each.time + self._offset if self._offset else each.time
            self._parts.append((time, each.core, classes_of(each, self._marks)))
            self._waiting += len(time)
            self.first, self.last = min(self.first, int(time.min())), max(self.last, int(time.max()))
        self._held = []
        if self._waiting > _MOST:
            self._count()

    def _count(self) -> None:
        time, core, kind = (np.concatenate(columns) for columns in zip(*self._parts, strict=True))
        self._summary = [join([*self._summary, summarise(time, core, kind)])]
        self._parts, self._waiting = [], 0


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
    mark = words >= np.uint64(CONTEXT_MAX)
    high = np.flatnonzero(words.view(np.int64) < _BELOW_MARKS)
    # Return addresses have the call before them; what follows a mark is none (frames.py).
    said = marks.of(words[high] - np.uint64(1) + mark[high - 1])
    some = np.flatnonzero(said)
    places, said = high[some], said[some]
    contexts = np.flatnonzero(mark)
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
