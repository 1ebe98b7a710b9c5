"""/tmp/perf-PID.map: what a JIT says about the code it makes, a line of start, size and name for each function.

The form is that of tools/perf/Documentation/jit-interface.txt. The file grows while it is read, and later lines win.
"""

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from exhume.sources.sampling.elf import Found, Read

LARGEST: Final = 64 << 20
_TOP: Final = 1 << 63
_NESTED: Final = 1024
_LONGEST_NAME: Final = 4096
_PYTHON: Final = b"py::"


class PerfMap:
    """What was read of a map so far. Names stay in the file."""

    def __init__(self) -> None:
        self.taken = 0
        """How far it was read: up to the last whole line."""
        self._starts, self._ends = array("Q"), array("Q")
        self._names, self._lengths = array("I"), array("H")
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self._sorted: NDArray[np.uint64] = np.empty(0, np.uint64)

    @property
    def nbytes(self) -> int:
        return len(self._starts) * (8 + 8 + 4 + 2) + self._order.nbytes + self._sorted.nbytes

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, raw: bytes) -> None:
        """What follows in the file. A line without its end is left for the next time, one that does not parse passed over."""
        at = 0
        for line in raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1]:
            after = at + len(line) + 1
            words = line.split(None, 2)
            if len(words) == 3:
                try:
                    start, size = int(words[0], 16), int(words[1], 16)
                except ValueError:
                    size = start = 0
                if size > 0 and start >= 0 and start + size < _TOP:
                    self._starts.append(start)
                    self._ends.append(start + size)
                    self._names.append(self.taken + after - 1 - len(words[2]))
                    self._lengths.append(min(len(words[2]), _LONGEST_NAME))
            at = after
        self.taken += at

    def find(self, address: int) -> Found:
        """The function that the last line has which holds the address, cut to where that is so."""
        self._sort()
        at = int(self._sorted.searchsorted(np.uint64(address), "right"))
        low = max(0, at - _NESTED)
        before = self._order[low:at]
        ends = np.frombuffer(self._ends, np.uint64)
        holding = before[ends[before] > np.uint64(address)]
        if not len(holding):
            return Found(address, address + 1, -1)
        best = int(holding.max())
        start, end = self._starts[best], self._ends[best]
        over = before[(before > best) & (ends[before] <= np.uint64(address))]
        if len(over):
            start = max(start, int(ends[over].max()))
        for later in self._order[at : at + _NESTED].tolist():
            if self._starts[later] >= end:
                break
            if later > best:
                end = self._starts[later]
                break
        return Found(start, end, best)

    def name(self, index: int, read: Read) -> bytes:
        return readable(read(self._lengths[index], self._names[index]).rstrip())

    def _sort(self) -> None:
        if len(self._order) != len(self._starts):
            starts = np.frombuffer(self._starts, np.uint64)
            self._order = np.argsort(starts, kind="stable")
            self._sorted = starts[self._order]


def readable(name: bytes) -> bytes:
    """`py::Class.method:/path/to/file.py`, as Python 3.12 has it (Python/perf_trampoline.c), as `Class.method (file.py)`."""
    if not name.startswith(_PYTHON):
        return name
    function, _, path = name.removeprefix(_PYTHON).partition(b":")
    file = path.rsplit(b"/", 1)[-1]
    return function + b" (" + file + b")" if file else function
