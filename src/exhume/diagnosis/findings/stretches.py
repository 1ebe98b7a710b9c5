"""When something was going on: the stretches of time in which a counter grew fast enough, and the fastest it ever was.

A burst of twenty seconds drowns in the mean of ten minutes, so detectors judge stretches. Counters are judged by their own
readings: two in a row are a step, and a stretch is a run of steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.cores import maximal_runs
from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.spans import merged
from exhume.host.quantities import SECOND
from exhume.recording.recording import Ints, Labels, Recording, Series

Floats: TypeAlias = NDArray[np.float64]

# Two bursts that are further apart than this are two, however heavy they are.
_APART_NS: Final = 10 * SECOND
# Of a recording that is shorter than what is asked for, a stretch has to be so much: the first reading may come late.
_NEARLY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Stretch:
    start: int
    end: int
    ratio: float
    """What it came to, per second or per whatever it is counted against."""

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND


@dataclass(frozen=True, slots=True)
class Steps:
    """`amount` against `per`, step by step; step i is from times[i] to times[i + 1]."""

    times: Ints
    amount: Floats
    per: Floats

    @property
    def length_ns(self) -> int:
        return int(self.times[-1] - self.times[0])

    def mean(self, spans: Iterable[tuple[int, int]] | None = None) -> float:
        """Over all of it, or over the steps of which at least half lies in one of these times."""
        if spans is None:
            return _over(float(self.amount.sum()), float(self.per.sum()))
        within = self.within(spans)
        return _over(float(self.amount[within].sum()), float(self.per[within].sum()))

    def total(self, spans: Iterable[tuple[int, int]]) -> float:
        return float(self.amount[self.within(spans)].sum())

    def within(self, spans: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
        middles = (self.times[:-1] + self.times[1:]) // 2
        found = np.zeros(len(middles), dtype=np.bool_)
        for start, end in spans:
            found |= (middles >= start) & (middles <= end)
        if not found.any():  # shorter than a step: the steps that they touch
            for start, end in spans:
                found |= (self.times[:-1] <= end) & (self.times[1:] >= start)
        return found

    def most(self, shortest_ns: int) -> float:
        """The highest mean of any time of at least that length, or of all of it if it is shorter."""
        if self.length_ns <= shortest_ns:
            return self.mean()
        amount, per = (np.concatenate(([0.0], np.cumsum(each))) for each in (self.amount, self.per))
        after = np.searchsorted(self.times, self.times + shortest_ns, "left")
        first = np.flatnonzero(after < len(self.times))
        grown, against = amount[after[first]] - amount[first], per[after[first]] - per[first]
        return float(np.divide(grown, against, out=np.zeros_like(grown), where=against > 0).max(initial=0.0))

    def best(self, ratio: float, shortest_ns: int) -> list[tuple[int, int]]:
        """The time of that length with the highest mean, if that comes to `ratio`: short pauses in it do not make it less."""
        after = np.searchsorted(self.times, self.times + shortest_ns, "left")
        first = np.flatnonzero(after < len(self.times))
        if not len(first):
            return []
        amount, per = (np.concatenate(([0.0], np.cumsum(each))) for each in (self.amount, self.per))
        grown, against = amount[after[first]] - amount[first], per[after[first]] - per[first]
        means = np.divide(grown, against, out=np.zeros_like(grown), where=against > 0)
        at = int(means.argmax())
        return [(int(self.times[first[at]]), int(self.times[after[first[at]]]))] if means[at] >= ratio else []

    def above(self, ratio: float, shortest_ns: int) -> list[Stretch]:
        """The stretches that come to `ratio` or more: maximal-scoring runs (see cores.saturated), cut where it was quiet."""
        shortest = min(float(shortest_ns), _NEARLY * self.length_ns)
        slack = 1e-9 * ratio * self.per  # what is exactly that much counts
        weights = self.amount - ratio * self.per + slack
        found = []
        for first, last in maximal_runs(weights.tolist()):
            for begin, end in self._bursts(weights, first, last):
                start, stop = int(self.times[begin]), int(self.times[end + 1])
                if stop - start >= shortest:
                    part = slice(begin, end + 1)
                    mean = _over(float(self.amount[part].sum()), float(self.per[part].sum()))
                    found.append(Stretch(start, stop, mean))
        return found

    def _bursts(self, weights: Floats, first: int, last: int) -> list[tuple[int, int]]:
        """A run by its parts: a heavy burst makes up for a long silence, and is still one of two."""
        hot = (np.flatnonzero(weights[first : last + 1] > 0) + first).tolist()
        parts = [(hot[0], hot[0])]
        for at in hot[1:]:
            begin, end = parts[-1]
            if self.times[at] - self.times[end + 1] > _APART_NS:
                parts.append((at, at))
            else:
                parts[-1] = (begin, at)
        return parts


def _over(amount: float, per: float) -> float:
    return amount / per if per > 0 else 0.0


def times(stretches: Iterable[Stretch]) -> list[tuple[int, int]]:
    """In order, those that touch as one."""
    return merged(Span(-1, each.start, each.end) for each in stretches).get(-1, [])


def spans(parts: Iterable[tuple[int, int]], core: int = -1) -> tuple[Span, ...]:
    return tuple(Span(core, start, end) for start, end in parts)


def growth(recording: Recording, name: str, at: Labels = ()) -> Steps | None:
    """A counter's growth against seconds. None if it was not there, or its source was read but once."""
    found = _values(recording, name, at)
    if found is None:
        return None
    moments, values = found
    grown = np.diff(values)
    grown = np.where(grown < 0, values[1:], grown)  # it began anew: what it has since is what grew
    seconds = np.diff(moments) / SECOND
    if len(seconds) > 1 and seconds[0] < np.median(seconds[1:]) / 2:
        # A window that begins between two readings has the value of the first at its own begin: too much in too little time.
        moments, grown, seconds = moments[1:], grown[1:], seconds[1:]
    return Steps(moments, grown.astype(np.float64), seconds)


def gauge(recording: Recording, name: str, at: Labels = ()) -> tuple[Ints, Ints] | None:
    """The readings of something that goes up and down: when, and how much."""
    return _values(recording, name, at, least=1)


def ordered(series: Series) -> tuple[Ints, Ints]:
    """By time, whatever the order of the rows; of two readings at one time the larger."""
    order = np.lexsort((series.values, series.times))
    moments, values = series.times[order].astype(np.int64), series.values[order]
    last = np.append(moments[1:] != moments[:-1], True)
    return moments[last], values[last]


def _values(recording: Recording, name: str, at: Labels, least: int = 2) -> tuple[Ints, Ints] | None:
    series = recording.counter(name, at)
    if series is None or not len(series.times):
        return None
    known, values = ordered(series)
    # A series has a row only when it changes. When it was read is known by those that were read with it.
    moments = recording.derived("counters", _moments)[_source(name)]
    moments = moments[moments >= known[0]]
    if len(moments) < least:
        return None
    return moments, values[np.searchsorted(known, moments, "right") - 1]


def _source(name: str) -> str:
    """Counters of one reader have names that begin alike: vmstat_, pressure_, printk_, cpu_."""
    return name.partition("_")[0]


def _moments(recording: Recording) -> dict[str, Ints]:
    table = recording["counters"]
    found: dict[str, set[int]] = {}
    sources: dict[str, str] = {}
    for name, time in zip(table.texts("name"), table.ints("time").tolist(), strict=True):
        source = sources.get(name)
        if source is None:
            source = sources[name] = _source(name)
        found.setdefault(source, set()).add(time)
    return {source: np.array(sorted(moments), dtype=np.int64) for source, moments in found.items()}
