"""The lanes of a timeline, read out of a recording: cores by class, counters, waits, lines of logs, restarts of units.

The terminal, the reports and the page draw from this, and it is read nowhere else. Lanes have columns, which lie between two
edges of time each; where nothing is known of one it is not a number.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.cores import TICK_NS, Core, cores
from exhume.host.quantities import SECOND, milliseconds
from exhume.recording.events import Restart, nic_resets, restarts
from exhume.recording.readable import Readable
from exhume.recording.recording import Ints, Labels, Recording, Series

if TYPE_CHECKING:
    from exhume.diagnosis.findings.stalls import HeldStall

Shares = NDArray[np.float64]
Gaps = Sequence[tuple[int, int]]
"""When nothing was recorded: what counters passed between the readings around it is of no known time."""
Importance = Literal["info", "warning", "critical"]

CLASSES = ("idle", "user", "system", "softirq", "irq", "steal")
"""The classes of recording/summary.py in their order, and what the hypervisor took, which only /proc/stat knows."""
_STATES_OF_CLASSES = (("idle", "iowait"), ("user", "nice"), ("system",), ("softirq",), ("irq",), ("steal",))
STATES = ("system", "softirq", "user", "steal")
"""What the strip of a core tells apart, in the order in which it is drawn; the rest is idle."""
_CLASSES_OF_STATES = (("system",), ("softirq", "irq"), ("user",), ("steal",))
TICKS_A_SECOND = 1e9 / TICK_NS
# A core with fewer samples than this share of all that there would be slept meanwhile.
_AWAKE = 0.9
_GAP_NS = 5 * SECOND  # as Folder.gaps has it
_AROUND_NS = SECOND
# A count is as it was read until the next reading; where there is none, for this long.
_HOLDS_NS = 5 * SECOND


def edges_of(start: int, end: int, columns: int) -> Ints:
    """In whole numbers: floats lose nanoseconds of such times. A window shorter than its columns is made as long."""
    length = max(end - start, columns)
    place = np.arange(columns + 1, dtype=np.int64)
    return start + place * (length // columns) + place * (length % columns) // columns


# Gaps


def unrecorded(folder: Readable, start: int, end: int) -> Gaps:
    """Inside of a window. The folder looks into open segments for it: it is only asked where their names leave room for one."""
    seen: int | None = None
    for span in sorted(folder.spans, key=lambda span: span.start):
        if seen is not None and span.start - seen > _GAP_NS and seen < end and span.start > start:
            return folder.gaps(start, end)
        seen = max(span.end, seen or span.end)
    return []


def _between_readings(times: Ints, gaps: Gaps) -> Gaps:
    """The same from the last reading before each on, to the first one after it."""
    if not gaps:
        return []
    times = np.sort(times)
    found = set()
    for first, last in gaps:
        low, high = int(np.searchsorted(times, first, "right")), int(np.searchsorted(times, last))
        found.add((int(times[low - 1]) if low else first, int(times[high]) if high < len(times) else last))
    return sorted(found)


def _recorded_ns(edges: Ints, gaps: Gaps) -> Ints:
    """How much of the time between each two edges is in none of them."""
    found = edges[1:] - edges[:-1]
    for first, last in gaps:
        inside = np.clip(edges, first, last)
        found -= inside[1:] - inside[:-1]
    return found


def _across(times: Ints, gaps: Gaps) -> NDArray[np.bool_]:
    """Of each step from one reading to the next whether it leads over one."""
    found = np.zeros(max(0, len(times) - 1), dtype=np.bool_)
    for first, last in gaps:
        found |= (times[:-1] < last) & (times[1:] > first)
    return found


# Cores


class Counted(NamedTuple):
    """Of each core (first axis) and class (second) the counts between each two edges (third)."""

    cores: list[int]
    counts: Shares
    a_second: float = 0.0
    """What a second of a core counts. Samples of a core asleep are fewer, and it was idle for the rest. 0: not known, or
    every moment counts, as with ticks; a core that has none was not accounted, or not recorded."""

    def states(self, edges: Ints, window: tuple[int, int] | None = None) -> Shares:
        """By core, state (STATES) and column its share. `window` is what was recorded."""
        total = self.counts.sum(axis=1)
        whole, known = total, total > 1e-9
        if self.a_second:
            whole = np.maximum(total, self.a_second * np.diff(edges) / SECOND * _AWAKE)
            known = np.broadcast_to(_recorded(total, edges, window), total.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(known[:, None, :], np.minimum(1.0, self.counts / whole[:, None, :]), np.nan)
        places = [[CLASSES.index(name) for name in classes] for classes in _CLASSES_OF_STATES]
        found: Shares = np.stack([shares[:, place].sum(axis=1) for place in places], axis=1)
        return found


def _recorded(total: Shares, edges: Ints, window: tuple[int, int] | None) -> NDArray[np.bool_]:
    """Columns that anything is known of. Between two samples of cores asleep may be many narrow ones without any."""
    there: NDArray[np.bool_] = total.sum(axis=0) > 1e-9
    if window is None:
        return there
    reached = np.append(0, np.cumsum(there))
    low, high = np.searchsorted(edges, edges[:-1] - SECOND // 2), np.searchsorted(edges, edges[1:] + SECOND // 2, "right") - 1
    near = reached[high] > reached[low]
    inside = (edges[1:] > window[0]) & (edges[:-1] <= window[1])
    return np.logical_or(there, near & inside)


def ticks(folder: Readable, edges: Ints) -> Counted | None:
    """By /proc/stat; None where it was not read."""
    start, end = int(edges[0]) - _AROUND_NS, int(edges[-1]) + _AROUND_NS
    recording = folder.load(start, end, ("cpu",))
    if not len(recording["cpu"]):
        return None
    return of_cores(cores(recording), edges, unrecorded(folder, start, end))


def of_cores(known: Sequence[Core], edges: Ints, gaps: Gaps = ()) -> Counted:
    """Ticks are spread evenly between two readings, but none over a gap."""
    if not known:
        return Counted([], np.zeros((0, len(CLASSES), len(edges) - 1)))
    gaps = _between_readings(np.concatenate([core.times for core in known]), gaps) if gaps else ()
    counts = np.stack([_between(core, edges, gaps) for core in known])
    if gaps:  # a column that is in part recorded is what that part was
        counts *= np.diff(edges) / np.maximum(_recorded_ns(edges, gaps), 1)
    return Counted([core.number for core in known], counts)


def _between(core: Core, edges: Ints, gaps: Gaps) -> Shares:
    # Times are so large that floats lose nanoseconds of them: from the first edge on they do not.
    at = (edges - edges[0]).astype(np.float64)
    times = (core.times - edges[0]).astype(np.float64)
    found = np.empty((len(CLASSES), len(edges) - 1))
    lost = _across(core.times, gaps) if gaps else None
    for place, states in enumerate(_STATES_OF_CLASSES):
        passed = core.passed(*states)
        if lost is not None:
            passed[lost] = 0
        reached = np.concatenate((np.zeros(1), np.cumsum(passed, dtype=np.float64)))
        found[place] = np.diff(np.interp(at, times, reached))
    return found


def of_samples(recording: Recording, edges: Ints, a_second: float = 0.0, each: Shares | None = None) -> Counted:
    """By stack samples, one by one; `each` says for how many one counts."""
    samples, stacks = recording["samples"], recording["stacks"]
    ids, time = stacks.ints("id"), samples.ints("time")
    width = len(edges) - 1
    inside = np.flatnonzero((time >= edges[0]) & (time < edges[-1]))
    if not len(inside) or not len(ids):
        return Counted([], np.zeros((0, len(CLASSES), width)), a_second)
    kinds = np.array([CLASSES.index(kind) if kind in CLASSES else 0 for kind in stacks.texts("class")], dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    kind = kinds[order][np.minimum(np.searchsorted(ids[order], samples.ints("stack")[inside]), len(ids) - 1)]
    numbers, core = np.unique(samples.ints("core")[inside], return_inverse=True)
    column = np.searchsorted(edges, time[inside], "right") - 1
    cell = (core * len(CLASSES) + kind) * width + column
    weights = None if each is None else each[inside]
    counts = np.bincount(cell, weights, minlength=len(numbers) * len(CLASSES) * width).astype(np.float64)
    return Counted(numbers.tolist(), counts.reshape(len(numbers), len(CLASSES), width), a_second)


# Lines: counters


class Line(NamedTuple):
    """A number over columns of time."""

    key: str
    title: str
    unit: str
    values: Shares


class Kind(NamedTuple):
    key: str
    title: str
    unit: str
    of: Callable[[Recording, Ints, Gaps], Shares | None]


def lines_around(folder: Readable, edges: Ints) -> list[Line]:
    """Every line that the recording knows anything of in a window, by the readings before it and after it, too."""
    start, end = int(edges[0]) - _HOLDS_NS, int(edges[-1]) + _HOLDS_NS
    recording, gaps = folder.load(start, end, ("memcg", "latency", "counters")), unrecorded(folder, start, end)
    found = ((kind, kind.of(recording, edges, gaps)) for kind in KINDS)
    return [Line(kind.key, kind.title, kind.unit, values) for kind, values in found if values is not None]


def node_counts(recording: Recording, column: str) -> tuple[Ints, Ints]:
    """Memory cgroups of the whole node, `live` or `dying`: when they were counted, and how many there were."""
    table = recording["memcg"]
    counts, times = table.ints(column), table.ints("time")
    root = np.array([path == "/" for path in table.texts("path")], dtype=np.bool_)
    keep = np.flatnonzero((counts >= 0) & (root if root.any() else True))
    keep = keep[np.argsort(times[keep], kind="stable")]
    return times[keep], counts[keep]


def held(times: Ints, counts: Ints, edges: Ints, holds_ns: int | None = None) -> Shares:
    """A count that stays as it was read: the most of a column, or the last one before it, if that is not too long ago."""
    values = np.full(len(edges) - 1, np.nan)
    if not len(times):
        return values
    low, high = np.searchsorted(times, edges[:-1]), np.searchsorted(times, edges[1:])
    last = np.maximum(high - 1, 0)
    fresh = high > 0
    if holds_ns is not None:
        fresh &= edges[1:] - times[last] <= np.maximum(holds_ns, np.diff(edges))
    values[fresh] = counts[last[fresh]]
    for column in np.flatnonzero(high - low > 1).tolist():
        values[column] = counts[low[column] : high[column]].max()
    return values


def _memcg(column: str) -> Callable[[Recording, Ints, Gaps], Shares | None]:
    def values(recording: Recording, edges: Ints, _: Gaps) -> Shares | None:
        times, counts = node_counts(recording, column)
        return held(times, counts, edges, _HOLDS_NS) if len(times) else None

    return values


def _napi(recording: Recording, edges: Ints, _: Gaps) -> Shares | None:
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


def _rate(name: str, scale: float, **wanted: str) -> Callable[[Recording, Ints, Gaps], Shares | None]:
    """How fast counters of that name grow, all that have these labels together."""

    def values(recording: Recording, edges: Ints, gaps: Gaps) -> Shares | None:
        found = [series for at, series in recording.counters(name).items() if _has(at, wanted)]
        return rate(recording, found, edges, scale, gaps)

    return values


def _has(at: Labels, wanted: dict[str, str]) -> bool:
    known = dict(at)
    return all(known.get(key, "") == value for key, value in wanted.items())


def rate(recording: Recording, series: Sequence[Series], edges: Ints, scale: float, gaps: Gaps) -> Shares | None:
    """A second, by what was added between two readings. One that stands still has no rows, and counts as zero, as long as
    any counter was read. What was added over a gap is of no known time."""
    if not series:
        return None
    read = recording["counters"].ints("time")
    gaps = _between_readings(read, gaps)
    at = (edges - edges[0]).astype(np.float64)
    passed = np.zeros(len(edges) - 1)
    first = min(int(one.times[0]) for one in series)
    for one in series:
        added = np.maximum(np.diff(one.values), 0)
        if gaps:
            added[_across(one.times, gaps)] = 0
        grown = np.concatenate((np.zeros(1), np.cumsum(added, dtype=np.float64)))
        passed += np.diff(np.interp(at, (one.times - edges[0]).astype(np.float64), grown))
    length = _recorded_ns(edges, gaps)
    known = (edges[1:] > first) & (edges[:-1] < int(read.max())) & (length > 0)
    return np.where(known, passed * SECOND / np.maximum(length, 1) * scale, np.nan)


def _reclaim(recording: Recording, edges: Ints, gaps: Gaps) -> Shares | None:
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


# Marks: lines of logs, waits, restarts

MOST_FLAGS = 400
MOST_SPANS = 2_000
MOST_RESTARTS = 1_000
_MOST_TEXT = 1_000
# A restart shows between two readings of a counter. A wait is told of when it is over, and lasts up to the end of what was
# loaded unless that is a minute later (diagnosis/findings/stalls.py): a little more than that.
_BEFORE_NS, _AFTER_NS = 90 * SECOND, 70 * SECOND
# Events that are bars.
_BARS = ("stall", "stall-begins")


class Flag(NamedTuple):
    """A line of a log."""

    time: int
    severity: Importance
    kind: str
    text: str


class Bar(NamedTuple):
    """When something that was due did not run: a device that was not polled, a softirq, a runnable thread."""

    name: str
    start: int
    end: int
    core: int
    text: str


class Reset(NamedTuple):
    """A reset of a network device, at the time its driver gave up."""

    time: int
    device: str
    reason: str


class Marks(NamedTuple):
    flags: tuple[Flag, ...]
    left_out: int
    """Flags that would have been too many."""
    bars: tuple[Bar, ...]
    restarts: tuple[Restart, ...]
    resets: tuple[Reset, ...]


def marks_around(folder: Readable, start: int, end: int) -> Marks:
    """What happened in a window, also where it is told of before it or after."""
    return marks(folder.load(start - _BEFORE_NS, end + _AFTER_NS, ("events", "units", "anchors")), start, end)


def marks(recording: Recording, start: int, end: int, most_flags: int = MOST_FLAGS) -> Marks:
    resets = tuple(Reset(one.time, one.device, one.reason) for one in nic_resets(recording))
    found = Marks(tuple(_flags(recording)), 0, tuple(_bars(recording)), tuple(restarts(recording)), resets)
    return joined([found], start, end, most_flags)


def joined(parts: Iterable[Marks], start: int, end: int, most_flags: int = MOST_FLAGS) -> Marks:
    """Those of a window; where there are too many, the critical lines, the longest waits, the last restarts."""
    parts = list(parts)
    flags = sorted({flag for part in parts for flag in part.flags if start <= flag.time < end})
    kept = flags
    if len(flags) > most_flags:
        kept = sorted(sorted(flags, key=lambda flag: (flag.severity != "critical", flag.time))[:most_flags])
    bars = {bar for part in parts for bar in part.bars if bar.start < end and bar.end > start}
    longest = sorted(bars, key=lambda bar: (bar.start - bar.end, bar))[:MOST_SPANS]
    restarted = {one for part in parts for one in part.restarts if start <= one.time < end}
    latest = sorted(restarted, key=lambda one: (one.time, one.unit))[-MOST_RESTARTS:]
    resets = sorted({one for part in parts for one in part.resets if start <= one.time < end})[-MOST_RESTARTS:]
    left_out = len(flags) - len(kept) + sum(part.left_out for part in parts)
    by_time = tuple(sorted(longest, key=lambda bar: (bar.start, bar)))
    return Marks(tuple(kept), left_out, by_time, tuple(latest), tuple(resets))


def together(one: Marks, other: Marks) -> Marks:
    return Marks(
        one.flags + other.flags,
        one.left_out + other.left_out,
        one.bars + other.bars,
        one.restarts + other.restarts,
        one.resets + other.resets,
    )


def by_name(bars: Iterable[Bar], most: int) -> list[tuple[str, list[Bar]]]:
    """The lanes of bars, the one with the longest wait first."""
    found: dict[str, list[Bar]] = {}
    for bar in bars:
        found.setdefault(bar.name, []).append(bar)
    return sorted(found.items(), key=lambda item: (-max(bar.end - bar.start for bar in item[1]), item[0]))[:most]


def _flags(recording: Recording) -> Iterable[Flag]:
    """All but information, and resets even so."""
    table = recording["events"]
    rows = zip(table.ints("time").tolist(), table.texts("severity"), table.texts("kind"), table.texts("message"), strict=True)
    for time, severity, kind, message in rows:
        if kind not in _BARS and (severity != "info" or kind.startswith("nic-reset")):
            importance: Importance = "info" if severity == "info" else "critical" if severity == "critical" else "warning"
            yield Flag(time, importance, kind, message[:_MOST_TEXT])


def _bars(recording: Recording) -> Iterable[Bar]:
    from exhume.diagnosis.findings.stalls import held_stalls  # the first picture does not wait for these

    for stall in held_stalls(recording):
        yield Bar(stall.device or stall.what or "softirq", stall.start, stall.end, stall.core, _told(stall))


def _told(stall: "HeldStall") -> str:
    told = milliseconds(stall.ms)
    if stall.who is not None:
        told += f", {stall.who.comm or 'somebody'} had the core"
    if stall.stack:
        told += f", in {stall.stack[-1]}"
    return told
