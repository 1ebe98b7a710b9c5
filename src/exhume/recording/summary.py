"""What each core did in each second, counted: a map of hours is drawn from this, without reading every sample."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording.recording import Ints

OFFSETS = 50  # parts of a second
CLASSES = ("idle", "user", "system", "softirq", "irq")
_IDLE = CLASSES.index("idle")
_PART = SECOND // OFFSETS


class Summary(NamedTuple):
    """A row for each core and second that has samples."""

    time: Ints  # begin of the second, a whole second of the recording's clock
    core: Ints
    idle: Ints
    user: Ints
    system: Ints
    softirq: Ints
    irq: Ints
    offsets: NDArray[np.uint8]  # (rows, OFFSETS): busy samples in each fiftieth, 255 stands for more


def summarise(time: Ints, core: Ints, classes: NDArray[np.int8]) -> Summary:
    """`classes` holds an index into CLASSES for each sample."""
    if not len(time):
        return EMPTY
    seconds, second = _codes(time // SECOND)
    cores, column = _codes(core)
    row_of, row = _codes(second * len(cores) + column)
    counts = np.bincount(row * len(CLASSES) + classes, minlength=len(row_of) * len(CLASSES)).reshape(-1, len(CLASSES))
    busy = classes != _IDLE
    part = (time[busy] % SECOND) // _PART
    offsets = np.bincount(row[busy] * OFFSETS + part, minlength=len(row_of) * OFFSETS).reshape(-1, OFFSETS)
    at, of = np.divmod(row_of, len(cores))
    return Summary._make(
        [seconds[at] * SECOND, cores[of], *counts.T.astype(np.int64), np.minimum(offsets, 255).astype(np.uint8)]
    )


def join(parts: Sequence[Summary]) -> Summary:
    """One summary of several: rows of the same core and second are added up."""
    parts = [part for part in parts if len(part.time)]
    if not parts:
        return EMPTY
    joined = Summary._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
    if _in_order(joined):
        return joined
    order = np.lexsort((joined.core, joined.time))
    joined = Summary._make(column[order] for column in joined)
    changed = np.ones(len(order), dtype=np.bool_)
    changed[1:] = (joined.time[1:] != joined.time[:-1]) | (joined.core[1:] != joined.core[:-1])
    if changed.all():
        return joined
    first = np.flatnonzero(changed)
    again = np.flatnonzero(~changed)
    shared, place = _codes(np.cumsum(changed)[again] - 1)
    offsets = joined.offsets[first]
    sums = offsets[shared].astype(np.int64)
    np.add.at(sums, place, joined.offsets[again])
    offsets[shared] = np.minimum(sums, 255)
    counts = [np.add.reduceat(column, first) for column in joined[2:-1]]
    return Summary._make([joined.time[first], joined.core[first], *counts, offsets])


def between(summary: Summary, start: int | None, end: int | None) -> Summary:
    """The seconds that touch a window."""
    keep = np.ones(len(summary.time), dtype=np.bool_)
    if start is not None:
        keep &= summary.time > start - SECOND
    if end is not None:
        keep &= summary.time < end
    return summary if keep.all() else Summary._make(column[keep] for column in summary)


def _in_order(summary: Summary) -> bool:
    """Whether every row comes after the one before it, by time and core."""
    later = summary.time[1:] > summary.time[:-1]
    same = (summary.time[1:] == summary.time[:-1]) & (summary.core[1:] > summary.core[:-1])
    return bool((later | same).all())


def _codes(values: Ints) -> tuple[Ints, Ints]:
    """The different values, sorted, and for each value its place among them."""
    low, high = int(values.min()), int(values.max())
    if high - low < 4 * len(values) + 1024:
        present = np.bincount(values - low) > 0
        return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[values - low]
    ordered = np.sort(values)
    different = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return different, np.searchsorted(different, values)


EMPTY = Summary._make([*(np.empty(0, dtype=np.int64) for _ in Summary._fields[:-1]), np.empty((0, OFFSETS), dtype=np.uint8)])
