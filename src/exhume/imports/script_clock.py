"""The times of perf script: how they are printed, and what they count from.

perf_sample__fprintf_start of tools/perf/builtin-script.c prints seconds since boot, or what has passed since the first sample
(--reltime) or since the sample before (--deltatime). Nothing says which; but the first sample of the latter two is at 0.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording.recording import Ints

CLOCK = re.compile(rb"\d{1,10}\.(?:\d{6}|\d{9})", re.ASCII)
Since = Literal["boot", "first", "before"]
_LATEST = 9_000_000_000  # seconds: what 63 bits hold as nanoseconds, rounded down
# So much of what passes between samples is less than what passed between the two before, at least: mostly it is half of it.
# Of times that only grow hardly any is, perf puts them into order.
_LESS = 20


def since(times: Sequence[int]) -> Since:
    """What these count from, given those of the first samples."""
    if not times:
        return "boot"
    # Another capture in the same text begins with 0 again.
    less = sum(1 for before, now in pairwise(times) if 0 < now < before)
    if times[0]:  # perf may have counted from what is no sample (--show-task-events)
        unsteady = len(times) >= _LESS and less * 5 >= len(times) and min(times) * 10 < max(times)
        return "before" if unsteady else "boot"
    return "before" if less * _LESS >= len(times) else "first"


def nanoseconds(clocks: list[bytes]) -> Ints:
    """Seconds with 6 or 9 digits behind the point, mostly all of one width; -1 for what is something else."""
    if not clocks:
        return np.zeros(0, dtype=np.int64)
    width = len(clocks[0]) + 1
    raw = np.frombuffer(b"\n".join(clocks) + b"\n", dtype=np.uint8)
    if len(raw) == width * len(clocks):
        table = raw.reshape(-1, width)
        found = columns(table[:, :-1]) if (table[:, -1] == 0x0A).all() else None
        if found is not None:
            return found
    return np.array([one(clock) for clock in clocks], dtype=np.int64)


def columns(table: NDArray[np.uint8]) -> Ints | None:
    """The same of times that are one below the other, a row for each; None if they are not all of one form."""
    width = table.shape[1]
    point = next((point for point in (width - 7, width - 10) if 0 < point <= 10 and (table[:, point] == 0x2E).all()), 0)
    if not point:
        return None
    digits = np.delete(table, point, axis=1) - np.uint8(0x30)
    if not (digits < 10).all():
        return None
    unit = 1000 if width - point == 7 else 1
    found = np.asarray(digits.astype(np.int64) @ (10 ** np.arange(width - 2, -1, -1, dtype=np.int64) * unit), dtype=np.int64)
    return np.where(found < _LATEST * SECOND, found, -1)


def one(clock: bytes) -> int:
    if CLOCK.fullmatch(clock) is None:
        return -1
    seconds, _, fraction = clock.partition(b".")
    return int(seconds) * SECOND + int(fraction.ljust(9, b"0")) if int(seconds) < _LATEST else -1
