"""What happened at moments: lines of logs, waits that were too long, restarts of units."""

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from exhume.host.quantities import SECOND, milliseconds
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording

if TYPE_CHECKING:
    from exhume.diagnosis.findings.stalls import Stall

TABLES = ("events", "units", "anchors")
MOST_FLAGS = 400
MOST_SPANS = 2_000
MOST_RESTARTS = 1_000
_MOST_BARS = 12
# A restart shows between two readings of a counter. A wait is told of when it is over, and lasts up to the end of what was
# loaded unless that is a minute later (diagnosis/findings/stalls.py): a little more than that.
_BEFORE_NS, _AFTER_NS = 90 * SECOND, 70 * SECOND
# Events that are bars.
_BARS = ("stall", "stall-begins")


class Flag(NamedTuple):
    """A line of a log."""

    time: int
    severity: str
    kind: str
    text: str


class Bar(NamedTuple):
    """When something that was due did not run."""

    title: str
    start: int
    end: int
    core: int
    text: str


class Restart(NamedTuple):
    """When a unit was started again, as far as that was seen: between two readings of its counter."""

    time: int
    unit: str


class Marks(NamedTuple):
    flags: tuple[Flag, ...]
    left_out: int
    """Flags that would have been too many."""
    bars: tuple[Bar, ...]
    restarts: tuple[Restart, ...]


NONE = Marks((), 0, (), ())


def around(folder: Folder, start: int, end: int) -> Marks:
    """What happened in a window, also where it is told of before it or after."""
    return marks(folder.load(start - _BEFORE_NS, end + _AFTER_NS, TABLES), start, end)


def marks(recording: Recording, start: int, end: int) -> Marks:
    return joined([Marks(tuple(_flags(recording)), 0, tuple(_bars(recording)), tuple(_restarts(recording)))], start, end)


def joined(parts: Iterable[Marks], start: int, end: int) -> Marks:
    """Those of a window; where there are too many, the critical lines, the longest waits, the last restarts."""
    parts = list(parts)
    flags = sorted({flag for part in parts for flag in part.flags if start <= flag.time < end})
    kept = flags
    if len(flags) > MOST_FLAGS:
        kept = sorted(sorted(flags, key=lambda flag: (flag.severity != "critical", flag.time))[:MOST_FLAGS])
    bars = {bar for part in parts for bar in part.bars if bar.start < end and bar.end > start}
    longest = sorted(bars, key=lambda bar: (bar.start - bar.end, bar))[:MOST_SPANS]
    restarts = sorted({one for part in parts for one in part.restarts if start <= one.time < end})[-MOST_RESTARTS:]
    left_out = len(flags) - len(kept) + sum(part.left_out for part in parts)
    return Marks(tuple(kept), left_out, tuple(sorted(longest, key=lambda bar: (bar.start, bar))), tuple(restarts))


def together(one: Marks, other: Marks) -> Marks:
    return Marks(one.flags + other.flags, one.left_out + other.left_out, one.bars + other.bars, one.restarts + other.restarts)


def by_title(bars: Iterable[Bar]) -> list[tuple[str, list[Bar]]]:
    """The lanes of bars, the one with the longest wait first."""
    found: dict[str, list[Bar]] = {}
    for bar in bars:
        found.setdefault(bar.title, []).append(bar)
    return sorted(found.items(), key=lambda item: (-max(bar.end - bar.start for bar in item[1]), item[0]))[:_MOST_BARS]


def _flags(recording: Recording) -> Iterable[Flag]:
    """All but information, and resets even so."""
    table = recording["events"]
    rows = zip(table.ints("time").tolist(), table.texts("severity"), table.texts("kind"), table.texts("message"), strict=True)
    for time, severity, kind, message in rows:
        if kind not in _BARS and (severity != "info" or kind.startswith("nic-reset")):
            yield Flag(time, severity if severity in ("info", "critical") else "warning", kind, message[:1_000])


def _bars(recording: Recording) -> Iterable[Bar]:
    from exhume.diagnosis.findings.stalls import stalls  # the first picture does not wait for these

    for stall in stalls(recording):
        name = stall.device or {"runqueue": "runnable threads"}.get(stall.what, stall.what) or "softirq"
        yield Bar(f"{name} late", stall.start, stall.end, stall.core, _told(stall))


def _told(stall: "Stall") -> str:
    told = milliseconds(stall.ms)
    if stall.who is not None:
        told += f", {stall.who.comm or 'somebody'} had the core"
    if stall.stack:
        told += f", in {stall.stack[-1]}"
    return told


def _restarts(recording: Recording) -> Iterable[Restart]:
    table = recording["units"]
    seen: dict[str, list[tuple[int, int]]] = {}
    rows = zip(table.ints("time").tolist(), table.texts("unit"), table.ints("restarts").tolist(), strict=True)
    for time, unit, count in rows:
        if count >= 0:
            seen.setdefault(unit, []).append((time, count))
    for unit, readings in seen.items():
        readings.sort()
        yield from (Restart(now, unit) for (_, before), (now, count) in pairwise(readings) if count > before)
