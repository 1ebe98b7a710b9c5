"""When nobody recorded: what counters passed between the last reading before and the first one after is of no known time."""

import numpy as np
from numpy.typing import NDArray

from exhume.recording.folder import Folder
from exhume.recording.recording import Ints

Gaps = list[tuple[int, int]]
# As Folder.gaps has it.
_GAP_NS = 5_000_000_000


def unrecorded(folder: Folder, start: int, end: int) -> Gaps:
    """Inside of a window. The folder looks into open segments for it: it is only asked where their names leave room for one."""
    seen: int | None = None
    for span in sorted(folder.spans, key=lambda span: span.start):
        if seen is not None and span.start - seen > _GAP_NS and seen < end and span.start > start:
            return folder.gaps(start, end)
        seen = max(span.end, seen or span.end)
    return []


def between_readings(times: Ints, gaps: Gaps) -> Gaps:
    """The same from the last reading before each on, to the first one after it."""
    if not gaps:
        return []
    times = np.sort(times)
    found = set()
    for first, last in gaps:
        low, high = int(np.searchsorted(times, first, "right")), int(np.searchsorted(times, last))
        found.add((int(times[low - 1]) if low else first, int(times[high]) if high < len(times) else last))
    return sorted(found)


def recorded_ns(edges: Ints, gaps: Gaps) -> Ints:
    """How much of the time between each two edges is in none of them."""
    found = edges[1:] - edges[:-1]
    for first, last in gaps:
        inside = np.clip(edges, first, last)
        found -= inside[1:] - inside[:-1]
    return found


def across(times: Ints, gaps: Gaps) -> NDArray[np.bool_]:
    """Of each step from one reading to the next whether it leads over one."""
    found = np.zeros(max(0, len(times) - 1), dtype=np.bool_)
    for first, last in gaps:
        found |= (times[:-1] < last) & (times[1:] > first)
    return found
