"""What was found out last about numbers, for many at once: a table in which two that share a place push each other out."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from exhume.recording.arrays import Ints

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio: neighbours come to be far from each other


class Recent:
    """A value for each key that was put last, and 0 for all others. It never grows."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._keys: Ints | None = None
        self._values = np.zeros(0, dtype=np.int64)

    def get(self, keys: Ints) -> Ints:
        if self._keys is None:
            return np.zeros(len(keys), dtype=np.int64)
        at = self._places(keys)
        found = self._values[at]
        found[self._keys[at] != keys] = 0
        return found

    def put(self, keys: Ints, values: Ints) -> None:
        """Of several for one place one stays, with its own value: they must be different keys."""
        if self._keys is None:
            self._keys, self._values = np.zeros(1 << self._bits, dtype=np.int64), np.zeros(1 << self._bits, dtype=np.int64)
        at = self._places(keys)
        self._keys[at] = keys
        # Whichever key of several has the place now: a value is put with no other.
        mine = self._keys[at] == keys
        self._values[at[mine]] = values[mine]

    def clear(self) -> None:
        self._keys = None
        self._values = np.zeros(0, dtype=np.int64)

    def _places(self, keys: Ints) -> NDArray[np.int64]:
        return ((keys.view(np.uint64) * _SPREAD) >> np.uint64(64 - self._bits)).view(np.int64)
