"""The timeline of an incident: which lanes are worth a place beside it, for the terminal and the reports."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from exhume.diagnosis.findings.cores import cores
from exhume.diagnosis.findings.model import Facts, Finding, Span
from exhume.recording.events import Restart
from exhume.recording.recording import Ints, Recording
from exhume.render.lanes import (
    STATES,
    Bar,
    Counted,
    Flag,
    Gaps,
    Shares,
    by_name,
    edges_of,
    held,
    marks,
    node_counts,
    of_cores,
    of_samples,
)

Measure = Literal["kernel", "busy", "steal"]
"""What a core is looked at for."""
_STATES: dict[Measure, tuple[str, ...]] = {
    "kernel": ("system", "softirq"),
    "busy": ("system", "softirq", "user"),
    "steal": ("steal",),
}
_TICKS = {"system": ("system",), "softirq": ("softirq", "irq"), "user": ("user", "nice"), "steal": ("steal",)}
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
# A count that changes by less than this share of itself, or by fewer than so many, does not fill the height of its lane.
_SWING = 0.05
_FEWEST = 4
_MIDDLE = 0.45  # not on the edge between two blocks of a terminal, which a change of one would cross


class Strip(NamedTuple):
    """A core: by state (row, as STATES) and column of time its share, not a number where nothing is known of it."""

    core: int
    shares: Shares
    measure: Measure = "kernel"
    """What it is shown for."""
    most: float = 0.0
    """The most of that, by steps that have nothing to do with the columns."""

    @property
    def shown(self) -> Shares:
        """The share of what it is shown for."""
        return measured(self.shares, self.measure)


def measured(shares: Shares, measure: Measure) -> Shares:
    """The shares of what a core is looked at for, by column."""
    together: Shares = shares[[STATES.index(state) for state in _STATES[measure]]].sum(axis=0)
    return together


class Count(NamedTuple):
    """A count over time."""

    name: str
    values: Shares
    """By column; not a number before it was first read."""
    readings: Ints
    """In the window, and the last one before it: what is said of it does not depend on the columns."""

    @property
    def told(self) -> str:
        """From what to what it went; between what and what, where it went both ways."""
        first, last, least, most = (int(value) for value in (self.readings[0], self.readings[-1], *self._ends))
        if least == most:
            return f"{most:,}"
        if (first, last) == (least, most):
            return f"{first:,} to {last:,}"
        return f"{first:,} down to {last:,}" if (first, last) == (most, least) else f"between {least:,} and {most:,}"

    @property
    def heights(self) -> Shares:
        """Between 0 and 1: from its least to its most, where that is a change worth the whole height; a small one stays small,
        around the middle."""
        least, most = self._ends
        span = max(most - least, _SWING * most, _FEWEST)
        heights: Shares = _MIDDLE * (1 - (most - least) / span) + (self.values - np.float64(least)) / span
        return heights

    @property
    def _ends(self) -> tuple[int, int]:
        return int(self.readings.min()), int(self.readings.max())


class Bars(NamedTuple):
    """When something that was due did not run, by device."""

    name: str
    spans: tuple[Span, ...]


class Restarts(NamedTuple):
    """When a unit was seen to have been restarted, between two readings of its counter, and how often."""

    unit: str
    times: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes over one window, on the recording's clock; the end is outside."""

    start: int
    end: int
    focus: tuple[int, int]
    """The incident itself."""
    columns: int
    strips: tuple[Strip, ...]
    counts: tuple[Count, ...]
    bars: tuple[Bars, ...]
    flags: tuple[Flag, ...]
    restarts: tuple[Restarts, ...]
    hidden_flags: int = 0

    @property
    def empty(self) -> bool:
        return not (self.strips or self.counts or self.bars or self.flags or self.restarts)


def timeline(
    recording: Recording,
    start: int,
    end: int,
    focus: tuple[int, int],
    findings: Sequence[Finding[Facts]] = (),
    columns: int = 240,
    gaps: Gaps = (),
) -> Timeline:
    """The lanes of a window. Cores that findings name come first, then those that have most of what they are looked at for."""
    end = max(end, start + 1)
    happened = marks(recording, start, end, MOST_FLAGS)
    units: dict[str, list[Restart]] = {}
    for restart in happened.restarts:
        units.setdefault(restart.unit, []).append(restart)
    found = [Restarts(unit, tuple(one.time for one in some), sum(one.times for one in some)) for unit, some in units.items()]
    restarts = sorted(found, key=lambda one: (-one.total, one.unit))
    return Timeline(
        start,
        end,
        focus,
        columns,
        _strips(recording, start, end, _named(findings, start, end), columns, _measure(findings), gaps),
        _counts(recording, start, end, columns),
        _bars(happened.bars, start, end, findings),
        happened.flags,
        tuple(restarts[:_MOST_UNITS]),
        happened.left_out,
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
    recording: Recording, start: int, end: int, named: Sequence[int], columns: int, measure: Measure, gaps: Gaps
) -> tuple[Strip, ...]:
    steps = max(1, min(_MOST_STEPS, (end - start) // STEP_NS))
    drawn, apart = edges_of(start, end, columns), edges_of(start, end, steps)
    known = {core.number: core for core in cores(recording) if core.number >= 0}  # -1: nobody noted where a stack was taken
    if known:
        wanted = [tick for state in _STATES[measure] for tick in _TICKS[state]]
        most = {number: core.share(*wanted, start=start, end=end) for number, core in known.items()}
        shown = _shown(known, named, most)
        chosen = [known[number] for number in shown]
        counted, finely = of_cores(chosen, drawn, gaps), of_cores(chosen, apart, gaps)
    else:
        counted, finely = of_samples(recording, drawn), of_samples(recording, apart)
        shares = _by_core(counted, drawn)
        most = {number: float(np.nan_to_num(measured(strip, measure)).sum()) for number, strip in shares.items()}
        shown = _shown(most, named, most)
    by_column, by_step = _by_core(counted, drawn), _by_core(finely, apart)
    return tuple(Strip(number, by_column[number], measure, _most(by_step[number], measure)) for number in shown)


def _by_core(counted: Counted, edges: Ints) -> dict[int, Shares]:
    return {number: shares for number, shares in zip(counted.cores, counted.states(edges), strict=True) if number >= 0}


def _most(shares: Shares, measure: Measure) -> float:
    known = measured(shares, measure)
    known = known[~np.isnan(known)]
    return float(known.max()) if len(known) else 0.0


def _shown(known: Collection[int], named: Sequence[int], most: dict[int, float]) -> list[int]:
    """Those that are named, and one that has most of it beside them, to compare."""
    first = [core for core in named if core in known][:MOST_CORES]
    others = sorted((core for core in known if core not in first), key=lambda core: (-most[core], core))
    return first + others[: max(1, 3 - len(first)) if len(first) < MOST_CORES else 0]


def _counts(recording: Recording, start: int, end: int, columns: int) -> tuple[Count, ...]:
    """Zombies and live groups of the whole node, from the last reading before the window on."""
    found = []
    for name, column in (("zombies", "dying"), ("live cgroups", "live")):
        times, counts = node_counts(recording, column)
        first, last = max(0, int(np.searchsorted(times, start)) - 1), int(np.searchsorted(times, end))
        if first < last:
            values = held(times[first:last], counts[first:last], edges_of(start, end, columns))
            found.append(Count(name, values, counts[first:last]))
    return tuple(found)


def _bars(waits: Sequence[Bar], start: int, end: int, findings: Sequence[Finding[Facts]]) -> tuple[Bars, ...]:
    """Waits that were measured, and times in which a driver says that it was not polled."""
    measured_of = {bar.name for bar in waits}
    reported = [
        Bar(finding.subject, span.start, span.end, span.core, "")
        for finding in findings
        if finding.kind == "napi-starved" and finding.subject not in measured_of
        for span in finding.spans
        if span.start < end and span.end > start
    ]
    lanes = by_name([*waits, *reported], _MOST_DEVICES)
    return tuple(
        Bars(name, tuple(sorted({Span(bar.core, bar.start, bar.end) for bar in bars}, key=lambda span: span[1:])))
        for name, bars in lanes
    )
