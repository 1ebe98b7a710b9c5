"""The numbers of a heat map: busy samples by second and part of a second, and by core and column of time. The terminal and the
page draw the same cells.

The subsecond-offset heat map is Brendan Gregg's: a column is a second, read upwards, and what happens at the same place in
every second, or holds a core for half of one, shows as a pattern.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording.arrays import unique
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS, Summary, join

Shares = NDArray[np.float64]
"""From 0 to 1; not a number where nothing was recorded."""
Seen = Sequence[tuple[int, int]]
"""When samples were taken: from, to; by time."""
Flags = NDArray[np.bool_]
SATURATED = 0.95
MOST_COLUMNS = 4096
_PART = SECOND // OFFSETS
# A second with fewer of its samples than this was not seen whole: nothing is said about all of it.
_WHOLE = 0.8


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
    return seconds_from(first, -(-(end - first) // SECOND))


def seconds_from(first: int, number: int) -> Seconds:
    base = first // SECOND * SECOND
    return Seconds(first, number, base, round((first - base) / _PART))


def recorded_seconds(summary: Summary, start: int, seconds: int) -> Flags:
    """Of each second whether anything is known of it."""
    found = np.zeros(seconds, dtype=np.bool_)
    at = (summary.time - start) // SECOND
    found[at[(at >= 0) & (at < seconds)]] = True
    return found


class Cells:
    """The cells that are shown, to which counts are added a stretch at a time: of days, all seconds would not fit in memory."""

    def __init__(self, wanted: Seconds, most_columns: int | None = None) -> None:
        self.wanted = wanted
        self.width = -(-wanted.number // (most_columns or MOST_COLUMNS))
        """Seconds of a column."""
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


class OffsetMap(NamedTuple):
    """Busy share by part of a second (row) and second (column)."""

    start: int
    shares: Shares


class CoreMap(NamedTuple):
    """Busy and kernel share by core (row) and column of several seconds; the oddest core first."""

    start: int
    seconds: int
    cores: list[int]
    busy: Shares
    kernel: Shares
    recorded: Shares
    """Of each column how many nanoseconds have samples."""


class Saturated(NamedTuple):
    """A second that a core spent in the kernel, at least 95 % of it in system calls, faults and softirqs."""

    time: int
    core: int
    share: float


def of_cores(summary: Summary, cores: "list[int] | tuple[int, ...]") -> Summary:
    keep = np.zeros(len(summary.time), dtype=bool)
    for core in cores:
        keep |= summary.core == core
    counts = (summary.idle, summary.user, summary.system, summary.softirq, summary.irq)
    idle, user, system, softirq, irq = (column[keep] for column in counts)
    return Summary(summary.time[keep], summary.core[keep], idle, user, system, softirq, irq, summary.offsets[keep])


def recorded(begin: Ints, end: Ints, seen: Seen | None) -> Shares:
    """How many nanoseconds of each span were recorded; all of them where nobody says."""
    if not seen:
        return (end - begin).astype(np.float64)
    edges = np.array(seen, dtype=np.int64).ravel()
    until = np.cumsum(np.diff(edges, prepend=edges[0]) * (np.arange(len(edges)) % 2))
    first = edges[0]  # numbers are exact as floats when they are small
    spans: Shares = np.interp(end - first, edges - first, until) - np.interp(begin - first, edges - first, until)
    return spans


def aligned(summary: Summary, start: int, seen: Seen | None = None) -> Summary:
    """Its counts, without fiftieths, by seconds that begin where `start` does, such as those of the clock on the wall.

    What a second holds goes to the two that it touches, by how much of each was recorded.
    """
    late = _late(start)
    begin = (summary.time - start) // SECOND * SECOND + start
    summary = summary._replace(offsets=summary.offsets[:, :0])
    if late in (0, OFFSETS):
        return summary._replace(time=begin + late // OFFSETS * SECOND)
    counts = (summary.idle, summary.user, summary.system, summary.softirq, summary.irq)
    before = recorded(summary.time, begin + SECOND, seen)
    whole = before + recorded(begin + SECOND, summary.time + SECOND, seen)
    share = np.where(whole > 0, before / np.maximum(whole, 1), 1 - late / OFFSETS)
    first = [np.floor(column * share + 0.5).astype(np.int64) for column in counts]
    rest = [column - part for column, part in zip(counts, first, strict=True)]
    both = [
        Summary._make([begin, summary.core, *first, summary.offsets]),
        Summary._make([begin + SECOND, summary.core, *rest, summary.offsets]),
    ]
    return join([_without_empty(part) for part in both])


def _late(start: int) -> int:
    """How many fiftieths a second of the recording begins after one that begins where `start` does, to the nearest."""
    return round(-start % SECOND / _PART)


def _without_empty(summary: Summary) -> Summary:
    keep = total(summary) > 0
    return Summary._make(column[keep] for column in summary)


def total(summary: Summary) -> Ints:
    return summary.idle + summary.user + summary.system + summary.softirq + summary.irq


def offset_map(summary: Summary, start: int, seconds: int, rows: int, hz: int = 0, seen: Seen | None = None) -> OffsetMap:
    """All cores of a summary together, by seconds that begin where `start` does.

    A core that is asleep may give no samples (cycles do not count then, and some virtual machines stop the timer of
    cpu-clock): `hz` says how many there would be. Of a second in which sampling began or ended only a part was `seen`: shares
    are of that.
    """
    cells = Cells(seconds_from(start, seconds), seconds)
    base = cells.wanted.base
    cells.add(0, offsets_together(summary, base, seconds + 1), recorded_seconds(summary, base, seconds + 1))
    parts = cells.counts.reshape(seconds, rows, OFFSETS // rows).sum(axis=2)
    summary = aligned(summary, start, seen)
    at, keep = _seconds(summary, start, seconds)
    moved = -start % SECOND - _late(start) * _PART  # by so much the fiftieths are not where they are drawn
    begins = start + moved + np.arange(seconds * rows) * (SECOND // rows)
    part = recorded(begins, begins + SECOND // rows, seen).reshape(seconds, rows)
    present = np.maximum(part.sum(axis=1), 1)[at] / SECOND
    whole = np.bincount(at, weights=np.maximum(total(summary)[keep] / present, hz), minlength=seconds)
    cores = len(unique(summary.core)) if len(at) else 0
    whole = np.where(np.bincount(at, minlength=seconds) > 0, np.maximum(whole, hz * cores), whole)
    whole = np.maximum(whole, parts.sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Samples are known to the fiftieth: less of a cell than that says nothing.
        shares = np.minimum(1.0, parts * (SECOND / np.maximum(part, _PART)) / whole[:, np.newaxis])
    return OffsetMap(start, np.where((part > 0) | (parts > 0), shares, np.nan).T)


def offsets_together(summary: Summary, start: int, seconds: int) -> Ints:
    """Busy samples of all cores by second (row) and fiftieth of it."""
    at, keep = _seconds(summary, start, seconds)
    added = np.zeros((seconds, OFFSETS), dtype=np.int64)
    if len(at):
        order = np.argsort(at, kind="stable")
        at, offsets = at[order], summary.offsets[keep][order]
        first = np.append(0, np.flatnonzero(np.diff(at)) + 1)
        added[at[first]] = np.add.reduceat(offsets, first, axis=0, dtype=np.int64)
    return added


def core_map(summary: Summary, start: int, seconds: int, columns: int, hz: int = 0, seen: Seen | None = None) -> CoreMap:
    """Every core of a summary, in at most so many columns. `hz` and `seen` as above."""
    width = max(1, -(-seconds // columns))
    number = -(-seconds // width)
    at, keep = _seconds(summary, start, seconds)
    cores = unique(summary.core[keep])  # -1 where a file of another tool does not tell
    cell = np.searchsorted(cores, summary.core[keep]) * number + at // width
    begins = start + np.arange(number * width) * SECOND
    part = recorded(begins, begins + SECOND, seen)
    some = np.zeros(number * width)  # of the seconds of which any core has something
    some[at] = part[at]
    lasts = some.reshape(number, width).sum(axis=1)
    least = np.maximum(total(summary)[keep], hz * part[at] / SECOND)
    samples = np.maximum(_sum(cell, least, len(cores), number), hz * lasts / SECOND)
    kernel = _sum(cell, (summary.system + summary.softirq + summary.irq)[keep], len(cores), number)
    user = _sum(cell, summary.user[keep], len(cores), number)
    with np.errstate(divide="ignore", invalid="ignore"):
        busy_share, kernel_share = np.minimum(1.0, (user + kernel) / samples), np.minimum(1.0, kernel / samples)
    # Of two cores neither is in the middle: the one that is more in the kernel comes first.
    order = np.lexsort((-kernel.sum(axis=1), -np.round(oddness(busy_share, kernel_share), 6)))
    return CoreMap(start, width, cores[order].tolist(), busy_share[order], kernel_share[order], lasts)


def oddness(busy: Shares, kernel: Shares) -> Shares:
    """How far a core is from the middle one: in the kernel where it is farthest, and busy on average."""
    if not busy.size:
        return np.zeros(len(busy))
    apart = [np.nan_to_num(np.abs(one - _middle(one))) for one in (kernel, busy)]
    odd: Shares = apart[0].max(axis=1) + apart[1].mean(axis=1)
    return odd


def _middle(shares: Shares) -> Shares:
    """The median of the cores in each column. np.nanmedian would load numpy.ma."""
    ordered = np.sort(shares, axis=0)  # what is not a number comes last
    known = np.count_nonzero(~np.isnan(shares), axis=0)
    places = np.arange(shares.shape[1])
    middle: Shares = (ordered[np.maximum(known - 1, 0) // 2, places] + ordered[known // 2 % len(shares), places]) / 2
    return middle


def saturated(summary: Summary, hz: int = 0) -> list[Saturated]:
    """Every second of every core in which the kernel left it nothing else, by time and core."""
    samples = total(summary)
    kernel = summary.system + summary.softirq
    enough = samples >= max(1, hz * _WHOLE)
    rows = np.flatnonzero(enough & (kernel >= SATURATED * samples))
    return [Saturated(int(summary.time[i]), int(summary.core[i]), float(kernel[i] / samples[i])) for i in rows.tolist()]


def _seconds(summary: Summary, start: int, seconds: int) -> tuple[Ints, NDArray[np.bool_]]:
    """For rows inside of the window their second, and which rows those are."""
    at = (summary.time - start) // SECOND
    keep = (at >= 0) & (at < seconds)
    return at[keep], keep


def _sum(cell: Ints, values: Ints | Shares, rows: int, columns: int) -> Shares:
    sums: Shares = np.bincount(cell, weights=values, minlength=rows * columns).astype(np.float64)
    return sums.reshape(rows, columns)
