"""What was counted beside the cores, as lines over columns of time: zombies, waits of NAPI, pressure, reclaim, throttling."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints, Labels, Recording, Series
from exhume.web.unrecorded import Gaps, across, between_readings, recorded_ns, unrecorded

TABLES = ("memcg", "latency", "counters")
Values = NDArray[np.float64]
"""Not a number where nothing is known."""
# A reading says how it is until the next one: so long, where there is none.
_HOLDS_NS = 5 * SECOND


class Line(NamedTuple):
    key: str
    title: str
    unit: str
    values: Values


class Kind(NamedTuple):
    key: str
    title: str
    unit: str
    of: Callable[[Recording, Ints, Gaps], Values | None]


def around(folder: Folder, edges: Ints) -> list[Line]:
    """The lines of a window, by the readings before it and after it, too."""
    start, end = int(edges[0]) - _HOLDS_NS, int(edges[-1]) + _HOLDS_NS
    return lines(folder.load(start, end, TABLES), edges, unrecorded(folder, start, end))


def lines(recording: Recording, edges: Ints, gaps: Gaps) -> list[Line]:
    """Every line that the recording knows anything of, between each two edges, but for gaps, in which nobody recorded."""
    found = ((kind, kind.of(recording, edges, gaps)) for kind in KINDS)
    return [Line(kind.key, kind.title, kind.unit, values) for kind, values in found if values is not None]


def _memcg(column: str) -> Callable[[Recording, Ints, Gaps], Values | None]:
    def values(recording: Recording, edges: Ints, _: Gaps) -> Values | None:
        """Of the whole node."""
        table = recording["memcg"]
        if not len(table):
            return None
        counts = table.ints(column)
        root = np.array([path == "/" for path in table.texts("path")], dtype=np.bool_)
        keep = (counts >= 0) & (root if root.any() else True)
        return _held(table.ints("time")[keep], counts[keep], edges)

    return values


def _held(times: Ints, counts: Ints, edges: Ints) -> Values | None:
    """A count that stays as it was read: the most of a column, or the last one before it if that is not too long ago."""
    if not len(times):
        return None
    order = np.argsort(times, kind="stable")
    times, counts = times[order], counts[order].astype(np.float64)
    low, high = np.searchsorted(times, edges[:-1]), np.searchsorted(times, edges[1:])
    last = np.maximum(high - 1, 0)
    fresh = (high > 0) & (edges[1:] - times[last] <= np.maximum(_HOLDS_NS, np.diff(edges)))
    values = np.where(fresh, counts[last], np.nan)
    several = np.flatnonzero(high - low > 1)
    for column in several.tolist():
        values[column] = counts[low[column] : high[column]].max()
    return values


def _napi(recording: Recording, edges: Ints, _: Gaps) -> Values | None:
    """The longest wait for a poll that ended in a column, ms; zero where it was measured and nothing waited."""
    table = recording["latency"]
    if not len(table):
        return None
    mine = np.array([what == "napi" for what in table.texts("what")], dtype=np.bool_)
    if not mine.any():
        return None
    values = np.full(len(edges) - 1, np.nan)
    column = np.searchsorted(edges, table.ints("time"), "right") - 1
    inside = (column >= 0) & (column < len(values))
    values[column[inside]] = 0.0
    keep = inside & mine
    np.maximum.at(values, column[keep], table.ints("max")[keep] / 1e6)
    return values


def _rate(name: str, scale: float, **wanted: str) -> Callable[[Recording, Ints, Gaps], Values | None]:
    """How fast counters of that name grow, all that have these labels together."""

    def values(recording: Recording, edges: Ints, gaps: Gaps) -> Values | None:
        found = [series for at, series in recording.counters(name).items() if _has(at, wanted)]
        return rate(recording, found, edges, scale, gaps)

    return values


def _has(at: Labels, wanted: dict[str, str]) -> bool:
    known = dict(at)
    return all(known.get(key, "") == value for key, value in wanted.items())


def rate(recording: Recording, series: Sequence[Series], edges: Ints, scale: float, gaps: Gaps) -> Values | None:
    """A second, by what was added between two readings. One that stands still has no rows, and counts as zero, as long as
    any counter was read. What was added over a gap is of no known time."""
    if not series:
        return None
    read = recording["counters"].ints("time")
    gaps = between_readings(read, gaps)
    at = (edges - edges[0]).astype(np.float64)
    passed = np.zeros(len(edges) - 1)
    first = min(int(one.times[0]) for one in series)
    for one in series:
        added = np.maximum(np.diff(one.values), 0)
        if gaps:
            added[across(one.times, gaps)] = 0
        grown = np.concatenate((np.zeros(1), np.cumsum(added, dtype=np.float64)))
        passed += np.diff(np.interp(at, (one.times - edges[0]).astype(np.float64), grown))
    length = recorded_ns(edges, gaps)
    known = (edges[1:] > first) & (edges[:-1] < int(read.max())) & (length > 0)
    return np.where(known, passed * SECOND / np.maximum(length, 1) * scale, np.nan)


def _reclaim(recording: Recording, edges: Ints, gaps: Gaps) -> Values | None:
    names = ("vmstat_pgscan_direct", "vmstat_pgscan_kswapd")
    return rate(recording, [series for name in names for series in recording.counters(name).values()], edges, 1.0, gaps)


KINDS = (
    Kind("zombies", "zombies", "", _memcg("dying")),
    Kind("live", "live cgroups", "", _memcg("live")),
    Kind("napi", "NAPI, longest wait", "ms", _napi),
    Kind("pressure_cpu", "CPU pressure", "%", _rate("pressure_us", 1e-4, resource="cpu", kind="some", cgroup="")),
    Kind("pressure_memory", "memory pressure", "%", _rate("pressure_us", 1e-4, resource="memory", kind="some", cgroup="")),
    Kind("pressure_io", "I/O pressure", "%", _rate("pressure_us", 1e-4, resource="io", kind="some", cgroup="")),
    Kind("reclaim", "reclaim", "pages/s", _reclaim),
    Kind("throttled", "throttled periods", "/s", _rate("cpu_throttled_periods", 1.0)),
)
