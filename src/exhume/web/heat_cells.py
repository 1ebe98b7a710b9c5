"""The numbers of a heat map as its answer has them: fiftieths of seconds of the clock on the wall, from counts by second.

Without the recording that they come from: the first picture of a file is made before anything of that is loaded.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS, SECOND, Summary
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


def answer(parts: Ints, there: Flags, wanted: Seconds, start_us: int, ready: float) -> dict[str, Any]:
    """`parts` are busy samples by second and fiftieth, `there` whether a second was recorded; both from `wanted.base` on."""
    last = wanted.late + wanted.number * OFFSETS
    flat = parts.reshape(-1)[wanted.late : last].reshape(wanted.number, OFFSETS)
    seen: Flags = np.repeat(there, OFFSETS)[wanted.late : last].reshape(wanted.number, OFFSETS).max(axis=1)
    width = -(-wanted.number // MOST_COLUMNS)
    cells, known = _merged(flat, seen, width)
    most = int(cells.max(initial=0))
    scaled = -(-cells * 255 // max(1, most))
    return {
        "start": start_us,
        "seconds": wanted.number,
        "seconds_per_column": width,
        "columns": len(cells),
        "rows": OFFSETS,
        "cells": encoded(scaled.astype(np.uint8)),
        "most": most,
        "unknown": encoded(np.packbits(~known, bitorder="little")),
        "ready": round(ready, 3),
    }


def _merged(parts: Ints, there: Flags, width: int) -> tuple[Ints, Flags]:
    """Columns of several seconds: their sums, and whether any of them was recorded."""
    more = -len(parts) % width
    padded, known = np.pad(parts, ((0, more), (0, 0))), np.pad(there, (0, more))
    return padded.reshape(-1, width, OFFSETS).sum(axis=1), known.reshape(-1, width).max(axis=1)
