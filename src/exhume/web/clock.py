"""What the clock on the wall said in the course of a recording: it may have been set while that went on."""

import heapq
import threading
from bisect import insort
from itertools import pairwise

from exhume.recording.readable import Readable

Reading = tuple[int, int]
"""A moment, and how much later than that it is by the clock on the wall; both in nanoseconds."""
# Clocks drift apart, too: less than this is not told.
_APART_NS = 50_000_000
# Where it was set is known to this.
_CLOSE_NS = 100_000_000
# To ask for the time of day somewhere takes less than a millisecond.
_MOST_ASKED = 100
# Of the newest segment it is not known yet where in it the clock was set.
_SETTLED_NS = 120_000_000_000


class Clock:
    """Looks closer only where it says something else at the end than at the begin: where it was not set it is asked twice."""

    def __init__(self) -> None:
        self._told: list[Reading] = []
        self._end = 0
        self._lock = threading.Lock()

    def readings(self, folder: Readable, start: int, end: int) -> list[Reading]:
        """Of the begin, and of both sides of wherever it was set after that: the nearest to a moment is the one to go by."""
        with self._lock:
            if end != self._end:
                known = [one for one in self._told if one[0] <= end - _SETTLED_NS] or [_asked(folder, start)]
                known += _between(folder, known[-1], _asked(folder, end))
                self._told, self._end = _different(known), end
            return self._told


def _between(folder: Readable, first: Reading, last: Reading) -> list[Reading]:
    """Asked for after the first up to the last, where it differs most before all."""
    found = [last]
    stretches = [(-abs(last[1] - first[1]), first, last)]
    for _ in range(_MOST_ASKED):
        if not stretches or -stretches[0][0] <= _APART_NS:
            break
        _, low, high = heapq.heappop(stretches)
        middle = _asked(folder, (low[0] + high[0]) // 2)
        insort(found, middle)
        for one, other in ((low, middle), (middle, high)):
            if other[0] - one[0] > _CLOSE_NS:
                heapq.heappush(stretches, (-abs(other[1] - one[1]), one, other))
    return found


def _asked(folder: Readable, time: int) -> Reading:
    return time, folder.real_ns(time) - time


def _different(known: list[Reading]) -> list[Reading]:
    """The first, and those that differ, each with the one right before it."""
    found = known[:1]
    for before, now in pairwise(known):
        if abs(now[1] - found[-1][1]) > _APART_NS:
            found += [now] if before == found[-1] else [before, now]
    return found
