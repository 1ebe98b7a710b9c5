"""A column of numbers as a recording keeps it: ten minutes of 96 cores are a million rows, and as Python objects 345 MB."""

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

# Rows after which a column is packed. Two seconds of 96 cores: their times then differ by less than 2^32 ns.
CHUNK = 4096
_WIDTHS = (np.uint8, np.uint16, np.uint32)


class IntColumn:
    """64 bit numbers. What is packed is kept as the difference to its smallest number, in as few bytes as that takes."""

    __slots__ = ("_packed", "_packed_rows", "_tail", "append")

    def __init__(self) -> None:
        self._packed: list[tuple[int, NDArray[np.generic]]] = []
        self._packed_rows = 0
        self._tail = array("q")
        self.append = self._tail.append
        """The array's own: twelve calls a core and reading are what recording the cores costs."""

    def __len__(self) -> int:
        return self._packed_rows + len(self._tail)

    def __iter__(self) -> Iterator[int]:
        for base, offsets in self._packed:
            yield from (offsets.astype(np.int64) + base).tolist()
        yield from self._tail

    def extend(self, other: "IntColumn") -> None:
        self.extend_ints(other.ints())

    def extend_ints(self, values: NDArray[np.int64]) -> None:
        self._tail.frombytes(values.tobytes())
        if len(self._tail) >= CHUNK:
            self.pack()

    def pack(self) -> None:
        if len(self._tail):
            self._packed.append(_pack(np.array(self._tail, dtype=np.int64)))
            self._packed_rows += len(self._tail)
            del self._tail[:]

    def ints(self) -> NDArray[np.int64]:
        whole = np.empty(len(self), dtype=np.int64)
        first = 0
        for base, offsets in self._packed:
            np.add(offsets, base, out=whole[first : first + len(offsets)], casting="unsafe", dtype=np.int64)
            first += len(offsets)
        whole[first:] = self._tail
        return whole


def _pack(values: NDArray[np.int64]) -> tuple[int, NDArray[np.generic]]:
    low, high = int(values.min()), int(values.max())
    for width in _WIDTHS:
        if high - low <= np.iinfo(width).max:
            return low, (values - low).astype(width)
    return 0, values
