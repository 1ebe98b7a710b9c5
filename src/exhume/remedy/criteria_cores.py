"""Whether cores are still held: by walks over memory cgroups, and by bursts of kernel time, in windows of a few seconds. Those
in which nobody looked are left out."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings import memcg_walk
from exhume.diagnosis.findings.cores import Stretch, cores, saturated
from exhume.diagnosis.findings.held import stack_of
from exhume.diagnosis.findings.kernel_work import FLUSH, WALK
from exhume.diagnosis.findings.sampled import by_core, period_ns
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, compared, duration
from exhume.recording.recording import Ints, Recording
from exhume.remedy.criteria import CONFIDENCE, Criterion, CriterionId, Status
from exhume.remedy.criteria_count import many
from exhume.remedy.criteria_looked import recorded, sampled
from exhume.remedy.criteria_statistics import Floats, ranked_lower

WINDOW_NS = 5_000_000_000
# Fewer windows say nothing of what comes every ten or fifteen seconds, as the kubelet's reading does.
_FEWEST = 3
# Drawn again and again from fewer, a mean hardly varies, whatever the truth is.
_FEWEST_DRAWN = 6
_DRAWS, _MOST_DRAWN = 2000, 4_000_000
# Core time that nobody minds, of each second.
HARMLESS = 0.01
# What is over has fallen to this part of what it was; what is not has not even fallen to the other.
_OVER, _NOT_OVER = 0.25, 0.5
# Of the samples of a burst so many must be of a walk for it to be one; and of its time so much must have been sampled to say.
_BLAMED, _SAMPLED = 0.3, 0.5
_UNIT = "s a minute"


@dataclass(frozen=True, slots=True)
class Held:
    """Seconds of core time, of each window of the recording that was looked at."""

    windows: Floats

    @property
    def a_minute(self) -> float:
        return float(self.windows.mean()) * 60e9 / WINDOW_NS if len(self.windows) else 0.0

    @property
    def hit(self) -> float:
        """The share of windows that have something in them."""
        return float((self.windows > 0).mean()) if len(self.windows) else 0.0

    @property
    def harmless(self) -> bool:
        return self.a_minute <= HARMLESS * 60


def walks(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    then = walked(before) if before is not None and len(before["samples"]) else None
    told_then = before is not None and then is not None and _told(before, thresholds)
    if not len(after["samples"]):
        left = many(after, thresholds)
        status: Status = "too-little" if told_then or left else "not-seen"
        because = f"who walks is seen by stack samples: {after.why_off('samples')}"
        because += f"; there are {left:,} zombies to walk" if left else ""
        return Criterion("walks", "cause", status, then.a_minute if then else None, None, _UNIT, None, None, because)
    now = walked(after)
    was = then.a_minute if then is not None else None
    told = _told(after, thresholds)
    limit = HARMLESS * 60
    if told_then and then is not None:
        outcome = reduced(then, now)
        if not told and memcg_walk.few(after) and _goes_on(then, now) and len(now.windows) >= _enough(then):
            # Who is in these functions is there for something else.
            outcome = Outcome("passed", None, "what is left is of no length")
        return _criterion("walks", then, now, outcome)
    if told:
        because = f"memory cgroups are walked: {_longest(after, thresholds)}"
        return Criterion("walks", "cause", "failed", was, now.a_minute, _UNIT, limit, None, because)
    if len(now.windows) < _FEWEST:
        return _too_short("walks", was, now)
    because = f"none that matters in {duration(len(now.windows) * WINDOW_NS)} of samples"
    return Criterion("walks", "cause", "passed", was, now.a_minute, _UNIT, limit, None, because)


def bursts(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    """Seconds of a core that is full of kernel time. Those that are not of walks are the fix's business only if they are worse
    than before."""
    then = _bursts(before, thresholds) if before is not None and cores(before) else None
    if not cores(after):
        was = then.every.held.a_minute if then is not None else None
        because = f"no core was read: {after.why_off('cpu')}"
        return Criterion("bursts", "cause", "not-seen", was, None, _UNIT, None, None, because)
    now = _bursts(after, thresholds)
    if then is None or then.every.held.harmless or (then.known and then.walks.held.harmless):
        return _by_limit(then.every if then is not None else None, now.every, thresholds)
    known = then.known and now.known
    was_held = (then.walks if then.known else then.every).held
    held = (now.walks if now.known else now.every).held
    outcome = reduced(was_held, held)
    if outcome.status == "passed" and now.known:
        others = _by_limit(then.others, now.others, thresholds) if known else _by_limit(then.every, now.every, thresholds)
        if others.status != "passed" or not known:
            return others
        if rest := now.others.held.a_minute:
            outcome = replace(
                outcome, because=f"{outcome.because}; {duration(rest * SECOND)} a minute are no walks: another matter"
            )
    if outcome.status == "failed" and not known and now.every.worst[1].a_minute <= _limit(thresholds):
        because = "it goes on as before, but who walks is seen by stack samples only: these may be something else"
        outcome = Outcome("too-little", None, because)
    return _criterion("bursts", was_held, held, outcome)


def _by_limit(then: "_Full | None", now: "_Full", thresholds: Thresholds) -> Criterion:
    """What is told of a core is a share of its own time, so the limit is that of the core that has most."""
    limit, (core, worst) = _limit(thresholds), now.worst
    was = then.worst[1].a_minute if then is not None else None
    if len(worst.windows) < _FEWEST:
        return _too_short("bursts", was, worst)
    if worst.a_minute <= limit:
        because = f"most is on core {core}, and less than is told" if worst.a_minute else "none"
        return Criterion("bursts", "cause", "passed", was, worst.a_minute, _UNIT, limit, None, because)
    if then is not None:
        worse = ranked_lower(then.held.windows, now.held.windows)
        status: Status = "failed" if worse <= 1 - CONFIDENCE else "passed"
        because = "worse than before" if status == "failed" else "no more than before, and no walk over cgroups: another matter"
        earlier, later = compared(duration, then.held.a_minute * SECOND, now.held.a_minute * SECOND)
        because += f" ({earlier} → {later} a minute on all cores, most on core {core})"
        sure = 1 - worse if status == "failed" else None
        return Criterion("bursts", "cause", status, was, worst.a_minute, _UNIT, limit, sure, because)
    above = _above(worst, limit)
    surely = above >= CONFIDENCE
    because = f"core {core} is full of kernel time for {duration(worst.a_minute * SECOND)} of each minute"
    needed = None if surely else _longer_s(worst)
    status = "failed" if surely else "too-little"
    return Criterion("bursts", "cause", status, was, worst.a_minute, _UNIT, limit, above if surely else None, because, needed)


def _limit(thresholds: Thresholds) -> float:
    return thresholds.core_saturated_warning_ratio * 60


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    confidence: float | None
    because: str
    needed_s: float | None = None


def reduced(then: Held, now: Held) -> Outcome:
    """Whether something that was there is over: the windows rank lower, for sure, and what is left is little. It goes on if
    what is left is half of it or more, and for sure more than little."""
    if len(now.windows) < _enough(then):
        because = f"it was in {then.hit:.0%} of windows of {duration(WINDOW_NS)} before: too few were looked at to miss it"
        return Outcome("too-little", None, because, _enough(then) * WINDOW_NS / 1e9)
    chance = ranked_lower(now.windows, then.windows)
    if now.a_minute <= max(HARMLESS * 60, _OVER * then.a_minute) and chance <= 1 - CONFIDENCE:
        return Outcome("passed", 1 - chance, f"it fell, by chance only once in {1 / max(chance, 1e-6):,.0f} times")
    if not _goes_on(then, now):
        return Outcome("too-little", None, "it is less, but that may be chance", _longer_s(now))
    sure = _above(now, HARMLESS * 60, then)
    if sure < CONFIDENCE:
        return Outcome("too-little", None, "it seems to go on, but that may be chance", _longer_s(now))
    return Outcome("failed", sure, "it goes on as before")


def _goes_on(then: Held, now: Held) -> bool:
    return now.a_minute > max(HARMLESS * 60, _NOT_OVER * then.a_minute)


def _enough(then: Held) -> int:
    """Windows that surely have something in them if as many of them do as of those before."""
    if then.hit <= 0 or then.hit >= 1:
        return _FEWEST
    return max(_FEWEST, math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - then.hit)))


def _longer_s(now: Held) -> float:
    return max(_FEWEST_DRAWN, 2 * len(now.windows)) * WINDOW_NS / 1e9


def walked(recording: Recording) -> Held:
    table = recording["samples"]
    times = table.ints("time")[np.isin(table.ints("stack"), _walk_stacks(recording))]
    edges = _edges(recording)
    if len(edges) < 2:
        return Held(np.empty(0))
    held = np.histogram(times, edges)[0] * (period_ns(recording) / 1e9)
    return Held(held[(held > 0) | (sampled(recording).mostly(edges) & recorded(recording).mostly(edges))])


def _walk_stacks(recording: Recording) -> Ints:
    """The stacks of who walks memory cgroups or flushes their statistics."""
    numbers = np.unique(recording["samples"].ints("stack"))
    walks_there = [stack_of(recording, number).work.key in (WALK.key, FLUSH.key) for number in numbers.tolist()]
    return numbers[np.array(walks_there, dtype=np.bool_)]


def full(recording: Recording, thresholds: Thresholds) -> Held:
    return _Full(recording, _stretches(recording, thresholds)).held


@dataclass(frozen=True, slots=True)
class _Full:
    """Stretches in which cores are full of kernel time."""

    recording: Recording
    stretches: list[Stretch]

    @property
    def held(self) -> Held:
        """Of all cores together."""
        edges = _edges(self.recording)
        windows = np.zeros(max(0, len(edges) - 1))
        for stretch in self.stretches:
            overlap = np.minimum(edges[1:], stretch.end) - np.maximum(edges[:-1], stretch.start)
            windows += np.clip(overlap, 0, None) / 1e9
        return Held(windows[(windows > 0) | recorded(self.recording).mostly(edges)])

    @property
    def worst(self) -> tuple[int, Held]:
        """The core that has most of it, by itself."""
        by_number: dict[int, list[Stretch]] = {}
        for stretch in self.stretches:
            by_number.setdefault(stretch.core, []).append(stretch)
        each = [(core, _Full(self.recording, its).held) for core, its in by_number.items()]
        return max(each, key=lambda one: (one[1].a_minute, -one[0]), default=(-1, self.held))


@dataclass(frozen=True, slots=True)
class _Bursts:
    """All of them, those of walks, and the others."""

    every: _Full
    walks: _Full
    others: _Full
    known: bool
    """Whether samples show of all but a little whether it is a walk."""


def _bursts(recording: Recording, thresholds: Thresholds) -> _Bursts:
    every, walk_stacks = _stretches(recording, thresholds), _walk_stacks(recording)
    taken, period = by_core(recording), period_ns(recording)
    of_walks: list[Stretch] = []
    others: list[Stretch] = []
    unseen: list[Stretch] = []
    for stretch in every:
        stacks = np.empty(0, dtype=np.int64)
        if (there := taken.get(stretch.core)) is not None:
            first, last = np.searchsorted(there.times, (stretch.start, stretch.end)).tolist()
            stacks = there.stacks[first:last]
        if len(stacks) * period < _SAMPLED * (stretch.end - stretch.start):
            unseen.append(stretch)
        elif np.isin(stacks, walk_stacks).mean() >= _BLAMED:
            of_walks.append(stretch)
        else:
            others.append(stretch)
    known = _Full(recording, unseen).held.harmless
    return _Bursts(_Full(recording, every), _Full(recording, of_walks), _Full(recording, others + unseen), known)


def _stretches(recording: Recording, thresholds: Thresholds) -> list[Stretch]:
    ratio, shortest = thresholds.core_saturated_ratio, thresholds.core_saturated_ms
    return [stretch for core in cores(recording) for stretch in saturated(core, ratio, shortest)]


def _edges(recording: Recording) -> NDArray[np.int64]:
    start, end = recording.window
    return np.arange(start, end + 1, WINDOW_NS, dtype=np.int64)


def _told(recording: Recording, thresholds: Thresholds) -> bool:
    return any(finding.severity != "info" for finding in memcg_walk.detect(recording, thresholds).findings)


def _longest(recording: Recording, thresholds: Thresholds) -> str:
    return memcg_walk.detect(recording, thresholds).findings[0].summary


def _above(now: Held, limit: float, then: Held | None = None) -> float:
    """How surely the mean is above the limit, and above what it must have fallen to since `then`: the share of times that it is
    when windows are drawn again and again from those that were seen. 0 where they are too few for that."""
    if len(now.windows) < _FEWEST_DRAWN:
        return 0.0
    generator = np.random.default_rng(len(now.windows))
    floor = np.maximum(limit, _OVER * _drawn(then, generator)) if then is not None and len(then.windows) else limit
    return float((_drawn(now, generator) > floor).mean())


def _drawn(held: Held, generator: np.random.Generator) -> Floats:
    """Means that as many windows could have had as well, s a minute."""
    many_windows = len(held.windows)
    means = np.empty(_DRAWS)
    step = max(1, _MOST_DRAWN // many_windows)
    for first in range(0, _DRAWS, step):
        part = means[first : first + step]
        part[:] = generator.choice(held.windows, (len(part), many_windows)).mean(axis=1)
    return means * 60e9 / WINDOW_NS


def _criterion(id_: CriterionId, then: Held, now: Held, outcome: Outcome) -> Criterion:
    limit = max(HARMLESS * 60, _OVER * then.a_minute)
    return Criterion(
        id_, "cause", outcome.status, then.a_minute, now.a_minute, _UNIT, limit, outcome.confidence, outcome.because,
        outcome.needed_s,
    )  # fmt: skip


def _too_short(id_: CriterionId, was: float | None, now: Held) -> Criterion:
    because = f"looked at for {duration(len(now.windows) * WINDOW_NS)} only"
    return Criterion(id_, "cause", "too-little", was, now.a_minute, _UNIT, None, None, because, _FEWEST * WINDOW_NS / 1e9)
