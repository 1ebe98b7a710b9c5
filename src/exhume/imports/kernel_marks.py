"""Which addresses of the kernel say what a core did: those in the functions that classes.py knows, and no others.

Of the hundred thousand lines of kallsyms only those functions and what follows each of them are looked at, and what is asked
of very many addresses is one table with a byte for each address of the kernel's code, of which few pages are ever touched.
"""

import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

from exhume.host.root import Root
from exhume.sources.sampling import classes
from exhume.sources.sampling.kernel_symbols import NO_CODE, KernelSymbols
from exhume.sources.sampling.records import CONTEXT_MAX
from exhume.text import decode

_FILE: Final = "proc/kallsyms"
_LARGEST: Final = 128 << 20
# seq_read (fs/seq_file.c) gives a page at most, yet fills whatever is smaller than that: so a call that reads into very many
# pieces has them all, and nobody else in this process waits for it meanwhile.
_PIECE, _PIECES = 3_500, 1_000
_CODE: Final = frozenset(b"TtWw")
_LONGEST_TABLE: Final = 64 << 20
_EDGE: Final = 0x80

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


class Marks:
    """What the functions that hold addresses say about a stack (classes.mark)."""

    def __init__(self, kernel: KernelSymbols) -> None:
        starts, sizes, indexes = kernel.spans
        marks = np.array([classes.mark(kernel.name(index)) for index in indexes.tolist()], dtype=np.uint8)
        known = np.flatnonzero((marks > 0) & (sizes > 0))
        self._starts, self._ends, self._marks = starts[known], starts[known] + sizes[known].astype(np.uint64), marks[known]
        self._base, self._length = np.uint64(0), np.uint64(0)
        self._table: Bytes = np.zeros(1, dtype=np.uint8)
        near = self._near()
        if near:
            self._base = self._starts[near[0]]
            self._length = self._ends[near[1] - 1] - self._base + np.uint64(1)
            self._fill(*near)
        others = [*range(near[0]), *range(near[1], len(self._starts))] if near else []
        self._far = (self._starts[others].min(), self._ends[others].max()) if others else None

    def _near(self) -> tuple[int, int] | None:
        """Most of the functions, as close to each other as a table may be long. Modules are elsewhere, few of theirs count."""
        if not len(self._starts):
            return None
        last = np.searchsorted(self._ends, self._starts + np.uint64(_LONGEST_TABLE), side="right")
        first = int((last - np.arange(len(last))).argmax())
        return first, int(last[first])

    def _fill(self, first: int, last: int) -> None:
        self._table = np.zeros(int(self._length) + 1, dtype=np.uint8)
        begins, ends = (each[first:last] - self._base for each in (self._starts, self._ends))
        for begin, end, mark in zip(begins.tolist(), ends.tolist(), self._marks[first:last].tolist(), strict=True):
            self._table[begin + 1 : end] = mark
        self._table[begins.view(np.int64)] = self._table[ends.view(np.int64)] = _EDGE

    def said(self, words: Words) -> tuple[NDArray[np.int64], Bytes]:
        """Which of these words are addresses that say something, and what. What follows a mark of a chain's is the address
        itself; return addresses have the call before them (frames.py)."""
        beyond = words - self._base
        np.minimum(beyond, self._length, out=beyond)
        told: Bytes = self._table.take(beyond.view(np.int64), mode="wrap")  # all are inside: without a look at each
        if self._far is not None:
            far = np.flatnonzero((words >= self._far[0]) & (words <= self._far[1]))
            told[far[told[far] == 0]] = _EDGE
        places = np.flatnonzero(told != 0)  # flags are found six times sooner than numbers
        found = told[places]
        # At the begin and the end of a function it matters which of both it is.
        edges = np.flatnonzero(found == _EDGE)
        if len(edges):
            at = places[edges]
            after_mark = words[at - 1] >= np.uint64(CONTEXT_MAX)
            found[edges] = self.of(words[at] - np.uint64(1) + after_mark)
            places, found = places[found > 0], found[found > 0]
        return places, found

    def of(self, addresses: Words) -> Bytes:
        """One by one; 0 where nothing is known."""
        if not len(self._starts):
            return np.zeros(len(addresses), dtype=np.uint8)
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (at >= 0) & (addresses < self._ends[at])
        return np.where(inside, self._marks[at], 0).astype(np.uint8)


def load(root: Root) -> KernelSymbols:
    """The kernel's symbols, without those that say nothing."""
    try:
        text = _read(root.at(_FILE))
    except OSError:
        return KernelSymbols(root)  # which says why
    return KernelSymbols(root, told_of(text))


def _read(path: str) -> bytes:
    parts: list[memoryview] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = _LARGEST
        while left > 0:
            room = memoryview(bytearray(_PIECE * _PIECES))
            size = os.readv(descriptor, [room[at : at + _PIECE] for at in range(0, len(room), _PIECE)])
            if not size:
                break
            parts.append(room[:size])
            left -= size
    finally:
        os.close(descriptor)
    return b"".join(parts)


def told_of(text: bytes) -> bytes:
    """The lines of kallsyms about the functions that classes.py knows: all names for their addresses, and what comes next.

    The kernel's own lines are sorted by address (scripts/kallsyms.c). Those of modules are not: if one counts, all are kept.
    """
    tab = text.find(b"\t")
    own = len(text) if tab < 0 else text.rfind(b"\n", 0, tab) + 1
    modules = text[own:]
    return _own(_Lines(text[:own])) + (modules if _Lines(modules).marked() else b"")


class _Lines:
    """Lines of `ADDRESS KIND NAME`, by number."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._raw = np.frombuffer(text, dtype=np.uint8)
        self._ends = np.flatnonzero(self._raw == ord("\n"))
        self._starts = np.append(0, self._ends[:-1] + 1) if len(self._ends) else self._ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        return self._text[self._starts[number] : self._ends[number]]

    def address(self, number: int) -> bytes:
        return self[number].partition(b" ")[0]

    def is_code(self, number: int) -> bool:
        """As kernel_symbols.parse has it."""
        words = self[number].split(b" ", 2)
        return len(words) == 3 and len(words[1]) == 1 and words[1][0] in _CODE and not words[2].startswith(NO_CODE)

    def marked(self) -> list[int]:
        """Those of functions that classes.py knows. Few begin with the same four letters as one of them."""
        name = max(self._text.find(b" "), 1) + 3  # addresses are as wide in every line
        some = np.flatnonzero(self._ends - self._starts > name + 2)
        if not len(some):
            return []
        fours: NDArray[np.uint32] = np.ndarray(len(self._text) - 3, dtype="<u4", buffer=self._text, strides=(1,))
        letters = fours[self._starts[some] + name]  # with the end of the line they are four at least
        place = np.minimum(np.searchsorted(_LETTERS, letters), len(_LETTERS) - 1)
        alike = some[_LETTERS[place] == letters].tolist()
        return [line for line in alike if _mark(self[line][name:]) and self.is_code(line)]


def _own(lines: _Lines) -> bytes:
    wanted: set[int] = set()
    for number in lines.marked():
        address = lines.address(number)
        if not address.strip(b"0"):
            continue
        low = high = number
        while low and lines.address(low - 1) == address:
            low -= 1
        # Up to the next function, with all its names.
        while high + 1 < len(lines) and (lines.address(high) == address or not lines.is_code(high)):
            high += 1
        while high + 1 < len(lines) and lines.address(high + 1) == lines.address(high):
            high += 1
        wanted.update(range(low, high + 1))
    # By any function it is seen that addresses are shown. If they are not, all are zero.
    last = len(lines)
    while not wanted and last and lines.address(last - 1).strip(b"0"):
        last -= 1
        wanted = {last} if lines.is_code(last) else wanted
    return b"".join(lines[number] + b"\n" for number in sorted(wanted))


def _mark(name: bytes) -> int:
    return classes.mark(decode(name.partition(b"\t")[0]))


def _letters() -> NDArray[np.uint32]:
    """The first four of each name that counts; of a shorter one with what may follow it."""
    found = {f"{name}{after}"[:4].encode() for name in classes.MARKED for after in (".", "\n", "\t")}
    return np.array(sorted(int.from_bytes(each, "little") for each in found), dtype=np.uint32)


_LETTERS: Final = _letters()
