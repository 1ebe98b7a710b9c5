"""The numbers of a heat map as its answer has them: fiftieths of seconds of the clock on the wall, from counts by second.

Without the recording that they come from: the first picture of a file is made before anything of that is loaded.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS, Summary
from exhume.web.numbers import encoded

MOST_COLUMNS = 4096
_PART = SECOND // OFFSETS

Flags = NDArray[np.bool_]


class Seconds(NamedTuple):
    """The seconds that a window touches."""

    first: int
    """Where the first of them begins, a whole second of the clock on the wall."""
    number: int
    base: int
    """The whole second of the recording's clock that this is in: counts are wanted from there on, of one second more."""
    late: int
    """How many fiftieths after it."""


def seconds_of(start: int, end: int, real_ns: int) -> Seconds:
    """`real_ns` is the time of day at `start`."""
    first = start - real_ns % SECOND
    base = first // SECOND * SECOND
    return Seconds(first, -(-(end - first) // SECOND), base, round((first - base) / _PART))


def recorded(summary: Summary, start: int, seconds: int) -> Flags:
    """Of each second whether anything is known of it."""
    found = np.zeros(seconds, dtype=np.bool_)
    at = (summary.time - start) // SECOND
    found[at[(at >= 0) & (at < seconds)]] = True
    return found


class Cells:
    """The cells that are shown, to which counts are added a stretch at a time: of days, all seconds would not fit in memory."""

    def __init__(self, wanted: Seconds) -> None:
        self.wanted = wanted
        self.width = -(-wanted.number // MOST_COLUMNS)
        columns = -(-wanted.number // self.width)
        self.counts: Ints = np.zeros((columns, OFFSETS), dtype=np.int64)
        self.known = np.zeros(columns, dtype=np.bool_)

    def add(self, first: int, parts: Ints, there: Flags) -> None:
        """Busy samples by second and fiftieth, from the second `first` after `wanted.base` on, and what was recorded."""
        self._add(first * OFFSETS + np.arange(parts.size, dtype=np.int64), parts.reshape(-1))
        self.know(first, there)

    def count(self, at: Ints) -> None:
        """Samples by the fiftieth that they are in, from `wanted.base` on."""
        self._add(at, np.ones(len(at), dtype=np.int64))

    def know(self, first: int, there: Flags) -> None:
        """A second of one clock lies in two of the other."""
        at = (first + np.flatnonzero(there)) * OFFSETS - self.wanted.late
        for edge in (at, at + OFFSETS - 1):
            second = edge // OFFSETS
            self.known[second[(second >= 0) & (second < self.wanted.number)] // self.width] = True

    def _add(self, at: Ints, counts: Ints) -> None:
        at = at - self.wanted.late
        keep = (at >= 0) & (at < self.wanted.number * OFFSETS) & (counts > 0)
        if not keep.any():
            return
        at = at[keep]
        cell = at // OFFSETS // self.width * OFFSETS + at % OFFSETS
        first = int(cell.min())
        added = np.bincount(cell - first, counts[keep]).astype(np.int64)  # exact: floats count to 2 to the 53
        self.counts.reshape(-1)[first : first + len(added)] += added


def answer(cells: Cells, start_us: int, ready: float) -> dict[str, Any]:
    most = int(cells.counts.max(initial=0))
    scaled = -(-cells.counts * 255 // max(1, most))
    return {
        "start": start_us,
        "seconds": cells.wanted.number,
        "seconds_per_column": cells.width,
        "columns": len(cells.counts),
        "rows": OFFSETS,
        "cells": encoded(scaled.astype(np.uint8)),
        "most": most,
        "unknown": encoded(np.packbits(~cells.known, bitorder="little")),
        "ready": round(ready, 3),
    }
