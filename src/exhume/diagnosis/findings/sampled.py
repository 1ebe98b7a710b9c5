"""Stack samples by core: how often they were taken, and what the core did between them, where nobody read /proc/stat."""

from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from exhume.host.quantities import duration
from exhume.recording.recording import Ints, Recording

CLASSES: Final = ("user", "system", "softirq", "irq", "idle")
_IDLE: Final = CLASSES.index("idle")
# What perf and exhume are asked for is between 10 Hz and 10 kHz.
_SHORTEST_NS, _LONGEST_NS, _USUAL_NS = 100_000, 100_000_000, 10_000_000
# A core that was sampled while idle has this share of idle samples, against the time in which it has none at all.
_SAMPLED_IDLE: Final = 0.25
# Nobody on any core for so long: nothing was recorded then, since some daemon or other always wakes. Captures may be several.
_HOLE_NS: Final = 10_000_000_000
# Fewer samples, or less than about a second, say nothing about a machine: 19 a second and core are some people's rate.
_FEWEST: Final = 20
BRIEFEST_NS: Final = 900_000_000


class OfCore(NamedTuple):
    """The samples of a core, in order of time."""

    times: Ints
    threads: Ints
    stacks: Ints


class Passed(NamedTuple):
    """A core over time, in periods: what passed between times[i] and times[i + 1]. Of time that nobody knows there is none."""

    core: int
    times: Ints
    states: Ints
    """Which of CLASSES the sample that ends the step was of; -1 for the step that no sample ends."""
    idle: Ints
    """Periods without a sample, in which the core was idle."""


_Cores: TypeAlias = dict[int, OfCore]


def made_up(recording: Recording) -> str:
    """Why the times of samples mean nothing; empty where they do. Whoever imported them says so."""
    return _off(recording, "sample-times")


def _off(recording: Recording, source: str) -> str:
    state = recording.source(source)
    return state.reason if state is not None and not state.up else ""


def unfit(recording: Recording) -> str:
    """Why the samples say nothing about the machine as a whole, for people; empty where they do, or where they need not."""
    if why := made_up(recording) or _off(recording, "every-core"):
        return why
    times = recording["samples"].ints("time")
    if len(recording["cpu"]) or not len(times):
        return ""
    if int(recording["samples"].ints("core").min()) < 0:
        return "the samples do not say which core they are of"
    lasted = int(times.max()) - int(times.min())
    if len(times) < _FEWEST or lasted < BRIEFEST_NS:
        return f"too few samples, {len(times):,} in {duration(lasted)}"
    return ""


def by_core(recording: Recording) -> _Cores:
    return recording.derived("samples", _by_core) if len(recording["samples"]) else {}


def _by_core(recording: Recording) -> _Cores:
    table = recording["samples"]
    times, cores = table.ints("time"), table.ints("core")
    order = np.lexsort((times, cores))
    times, cores, threads, stacks = times[order], cores[order], table.ints("thread")[order], table.ints("stack")[order]
    borders = [0, *(np.flatnonzero(np.diff(cores)) + 1).tolist(), len(cores)]
    return {
        int(cores[first]): OfCore(times[first:after], threads[first:after], stacks[first:after])
        for first, after in pairwise(borders)
    }


def period_ns(recording: Recording) -> int:
    """How long a sample stands for: what lies between two of them, mostly, on the core that has most."""
    return recording.derived("samples", _period_ns) if len(recording["samples"]) else _USUAL_NS


def _period_ns(recording: Recording) -> int:
    busiest = max(by_core(recording).values(), key=lambda of_core: len(of_core.times))
    apart = np.diff(busiest.times)
    apart = apart[apart > 0]
    return int(np.clip(np.median(apart), _SHORTEST_NS, _LONGEST_NS)) if len(apart) >= 2 else _USUAL_NS


def passed(recording: Recording) -> list[Passed]:
    """Of every core that was sampled.

    An idle core has no samples where the clock of the samples stands still with it, as that of cycles does, and on some
    machines that happens to all cores but one: then time without samples was idle. Where it does have samples, time without
    is time in which none could be taken (interrupts off, a virtual CPU that did not run).
    """
    found = by_core(recording)
    if not found:
        return []
    period = period_ns(recording)
    times = np.sort(recording["samples"].ints("time"))
    ends = int(times[0]) - period, int(times[-1])
    holes, kinds = _Holes(times), _Kinds(recording)
    return [_passed(core, of_core.times, kinds.of(of_core.stacks), ends, period, holes) for core, of_core in found.items()]


def _passed(core: int, times: Ints, states: Ints, ends: tuple[int, int], period: int, holes: "_Holes") -> Passed:
    behind = ends[1] > int(times[-1])
    # An empty tuple would be one of floats, and make floats of all: they do not hold nanoseconds.
    times = np.concatenate((ends[:1], times, ends[1:] if behind else times[:0])).astype(np.int64)
    states = np.concatenate((states, [-1] if behind else states[:0])).astype(np.int64)
    unseen = np.diff(times) - np.diff(holes.before(times))
    idle = np.maximum(0, (unseen + period // 2) // period - (states >= 0))
    if int((states == _IDLE).sum()) >= _SAMPLED_IDLE * max(1, int(idle.sum())):
        idle = np.zeros(len(states), dtype=np.int64)
    return Passed(core, times, states, idle)


class _Holes:
    """Stretches in which no core has any sample."""

    def __init__(self, times: Ints) -> None:
        gaps = np.diff(times)
        at = np.flatnonzero(gaps > _HOLE_NS)
        self._edges = np.stack((times[at], times[at + 1]), axis=1).ravel()
        self._lost = np.stack((np.cumsum(gaps[at]) - gaps[at], np.cumsum(gaps[at])), axis=1).ravel()

    def before(self, moments: Ints) -> Ints:
        """How much of them lies before each of these moments, all of which are samples or the ends of everything."""
        if not len(self._edges):
            return np.zeros(len(moments), dtype=np.int64)
        behind = np.searchsorted(self._edges, moments, "right")
        return np.concatenate(([0], self._lost))[behind]


class _Kinds:
    """Which of CLASSES the stacks are of."""

    def __init__(self, recording: Recording) -> None:
        table = recording["stacks"]
        ids = table.ints("id")
        order = np.argsort(ids, kind="stable")
        known = {name: i for i, name in enumerate(CLASSES)}
        self._ids = ids[order]
        self._kinds = np.array([known.get(name, 0) for name in table.texts("class")], dtype=np.int64)[order]

    def of(self, stacks: Ints) -> Ints:
        """A stack that nobody describes is not called the kernel's."""
        if not len(self._ids):
            return np.zeros(len(stacks), dtype=np.int64)
        at = np.minimum(np.searchsorted(self._ids, stacks), len(self._ids) - 1)
        return np.where(self._ids[at] == stacks, self._kinds[at], 0)
