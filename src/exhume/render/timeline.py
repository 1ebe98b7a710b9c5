"""What lay side by side in time around an incident: cores, zombies, stalls, lines of the kernel log, restarts, as numbers.

The terminal, the HTML report and the Markdown one all draw from this; only here is it read out of a recording.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.cores import Core, cores
from exhume.diagnosis.findings.model import Facts, Finding, Span
from exhume.recording.events import Restart, restarts, stalls
from exhume.recording.recording import Recording
from exhume.render.lanes import ROWS, STATES, Bars, Flag, Line, Measure, Restarts, Shares, Strip, Timeline, measured

_TICKS = {"system": ("system",), "softirq": ("softirq", "irq"), "user": ("user", "nice"), "steal": ("steal",)}
# Classes of stacks, where no counters of the cores were kept: what a perf.data tells.
_CLASSES = {"system": "system", "softirq": "softirq", "irq": "softirq", "user": "user"}
# What a core is looked at for, by what the verdict begins with; of everything else it is the kernel.
_ABOUT: dict[str, Measure] = {"cpu-full": "busy", "steal": "steal"}
# The most of a core is told by steps of its own, so that it is the same whatever the picture's width. Ticks of 10 ms are read
# ten times a second: shorter steps show the rounding.
STEP_NS = 250_000_000
_MOST_STEPS = 4000
MOST_CORES = 6
MOST_FLAGS = 60
_MOST_DEVICES = 4
_MOST_UNITS = 4
_MOST_POINTS = 1200
# Events that other lanes tell already.
_ELSEWHERE = ("stall", "stall-begins")


def timeline(
    recording: Recording,
    start: int,
    end: int,
    focus: tuple[int, int],
    findings: Sequence[Finding[Facts]] = (),
    columns: int = 240,
) -> Timeline:
    """The lanes of a window. Cores that findings name come first, then the oddest."""
    end = max(end, start + 1)
    flags, hidden = _flags(recording, start, end)
    return Timeline(
        start,
        end,
        focus,
        _strips(recording, start, end, _named(findings, start, end), columns, _measure(findings)),
        _lines(recording, start, end),
        _bars(recording, start, end, findings),
        flags,
        _restarts(recording, start, end),
        hidden,
    )


def _named(findings: Sequence[Finding[Facts]], start: int, end: int) -> list[int]:
    """Cores by the order of the findings that name them."""
    named = [
        span.core for finding in findings for span in finding.spans if span.core >= 0 and span.start < end and span.end > start
    ]
    for finding in findings:
        core = finding.facts.focus_core
        if core is not None and core >= 0:
            named.append(core)
    return list(dict.fromkeys(named))


def _measure(findings: Sequence[Finding[Facts]]) -> Measure:
    return _ABOUT.get(findings[0].kind, "kernel") if findings else "kernel"


def _strips(
    recording: Recording, start: int, end: int, named: Sequence[int], columns: int, measure: Measure
) -> tuple[Strip, ...]:
    steps = max(1, min(_MOST_STEPS, (end - start) // STEP_NS))
    known = {core.number: core for core in cores(recording) if core.number >= 0}  # -1: nobody noted where a stack was taken
    if known:
        wanted = [tick for row in ROWS[measure] for tick in _TICKS[STATES[row]]]
        shares = {number: core.share(*wanted, start=start, end=end) for number, core in known.items()}
        drawn, apart = np.linspace(start, end, columns + 1), np.linspace(start, end, steps + 1)
        return tuple(
            Strip(number, _of_ticks(known[number], drawn), measure, _most(_of_ticks(known[number], apart), measure))
            for number in _shown(known, named, shares)
        )
    counted, finely = _sampled(recording, start, end, columns), _sampled(recording, start, end, steps)
    shares = {number: float(np.nan_to_num(measured(strip, measure)).sum()) for number, strip in counted.items()}
    return tuple(
        Strip(number, counted[number], measure, _most(finely[number], measure)) for number in _shown(counted, named, shares)
    )


def _most(shares: Shares, measure: Measure) -> float:
    known = measured(shares, measure)
    known = known[~np.isnan(known)]
    return float(known.max()) if len(known) else 0.0


def _shown(known: Collection[int], named: Sequence[int], most: dict[int, float]) -> list[int]:
    """Those that are named, and one that has most of it beside them, to compare."""
    first = [core for core in named if core in known][:MOST_CORES]
    others = sorted((core for core in known if core not in first), key=lambda core: (-most[core], core))
    return first + others[: max(1, 3 - len(first)) if len(first) < MOST_CORES else 0]


def _of_ticks(core: Core, edges: Shares) -> Shares:
    """Ticks are spread evenly between two readings. A column in which none passed was not accounted, or not recorded."""
    moments = core.times.astype(np.float64)

    def within(passed: NDArray[Any]) -> Shares:
        reached = np.concatenate((np.zeros(1), np.cumsum(passed, dtype=np.float64)))
        spread: Shares = np.diff(np.interp(edges, moments, reached))
        return spread

    whole = within(core.passed())
    parts = np.stack([within(core.passed(*_TICKS[state])) for state in STATES])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares: Shares = np.where(whole > 1e-9, parts / whole, np.nan)
    return shares


def _sampled(recording: Recording, start: int, end: int, columns: int) -> dict[int, Shares]:
    """By stack samples: shares of those that were taken, which of a core asleep may be few."""
    table, stacks = recording["samples"], recording["stacks"]
    if not len(table) or not len(stacks):
        return {}
    kinds = dict(zip(stacks.ints("id").tolist(), stacks.texts("class"), strict=True))
    ids = np.array(sorted(kinds), dtype=np.int64)
    rows = np.array([STATES.index(_CLASSES[kinds[one]]) if kinds[one] in _CLASSES else 4 for one in ids.tolist()])
    time, core, stack = table.ints("time"), table.ints("core"), table.ints("stack")
    inside = (time >= start) & (time < end)
    time, core, stack = time[inside], core[inside], stack[inside]
    row = rows[np.minimum(np.searchsorted(ids, stack), len(ids) - 1)]
    column = np.minimum(((time - start) / (end - start) * columns).astype(np.int64), columns - 1)
    found = {}
    for number in np.unique(core[core >= 0]).tolist():  # a number may be anything: nothing is as long as the largest
        mine = core == number
        counts = np.bincount(row[mine] * columns + column[mine], minlength=5 * columns).reshape(5, columns)
        with np.errstate(divide="ignore", invalid="ignore"):
            found[number] = np.where(counts.sum(axis=0) > 0, counts[:4] / counts.sum(axis=0), np.nan)
    return found


def _lines(recording: Recording, start: int, end: int) -> tuple[Line, ...]:
    """Zombies and live groups of the whole node, from a little before the window on, so that a count has a beginning."""
    table = recording["memcg"]
    if not len(table):
        return ()
    paths = np.array([path == "/" for path in table.texts("path")], dtype=np.bool_)
    time = table.ints("time")
    wanted = paths if paths.any() else np.ones(len(time), dtype=np.bool_)
    order = np.flatnonzero(wanted & (time < end))
    order = order[np.argsort(time[order], kind="stable")]
    before = int(np.searchsorted(time[order], start))
    order = order[max(0, before - 1) :]
    found = []
    for name, column in (("zombies", "dying"), ("live cgroups", "live")):
        values = table.ints(column)[order]
        known = np.flatnonzero(values >= 0)
        known = known[:: max(1, -(-len(known) // _MOST_POINTS))]
        if len(known):
            found.append(Line(name, np.maximum(time[order][known], start), values[known]))
    return tuple(found)


def _bars(recording: Recording, start: int, end: int, findings: Sequence[Finding[Facts]]) -> tuple[Bars, ...]:
    """Stalls that were measured, and times in which a driver says that it was not polled."""
    by_device: dict[str, set[Span]] = {}
    for stall in stalls(recording):
        if stall.start < end and stall.end > start:
            by_device.setdefault(stall.device or stall.what or "softirq", set()).add(Span(stall.core, stall.start, stall.end))
    for finding in findings:
        if finding.kind == "napi-starved" and finding.subject not in by_device:
            spans = {span for span in finding.spans if span.start < end and span.end > start}
            if spans:
                by_device[finding.subject] = spans
    longest = sorted(by_device, key=lambda name: (-max(span.end - span.start for span in by_device[name]), name))
    return tuple(Bars(name, tuple(sorted(by_device[name], key=lambda span: span[1:]))) for name in longest[:_MOST_DEVICES])


def _flags(recording: Recording, start: int, end: int) -> tuple[tuple[Flag, ...], int]:
    """All but information and what is a lane of its own; where there are too many, the critical ones and the first."""
    table = recording["events"]
    rows = zip(
        table.ints("time").tolist(),
        table.texts("severity"),
        table.texts("kind"),
        table.texts("subject"),
        table.texts("message"),
        strict=True,
    )
    found = sorted(
        Flag(time, "critical" if severity == "critical" else "warning", kind, subject, message)
        for time, severity, kind, subject, message in rows
        if start <= time < end and kind not in _ELSEWHERE and (severity != "info" or kind.startswith("nic-reset"))
    )
    if len(found) <= MOST_FLAGS:
        return tuple(found), 0
    kept = sorted(found, key=lambda flag: (flag.severity != "critical", flag.time))[:MOST_FLAGS]
    return tuple(sorted(kept)), len(found) - MOST_FLAGS


def _restarts(recording: Recording, start: int, end: int) -> tuple[Restarts, ...]:
    seen: dict[str, list[Restart]] = {}
    for one in restarts(recording):
        if start <= one.time < end:
            seen.setdefault(one.unit, []).append(one)
    found = [Restarts(unit, tuple(one.time for one in some), sum(one.times for one in some)) for unit, some in seen.items()]
    found.sort(key=lambda one: (-one.total, one.unit))
    return tuple(found[:_MOST_UNITS])
