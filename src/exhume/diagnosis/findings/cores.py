"""What the cores did in a recording: shares of time, stretches in which one was full of kernel time, and missing time.

/proc/stat says it where it was read. A capture of perf's has stack samples only: then they are counted instead.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.sampled import CLASSES, passed, period_ns
from exhume.record import record
from exhume.recording.recording import Ints, Recording
from exhume.recording.schema import CPU_STATES

# guest and guest_nice are contained in user and nice already (account_guest_time in kernel/sched/cputime.c).
STATES = CPU_STATES[:8]
KERNEL = ("system", "irq", "softirq")
# What the hypervisor took (steal) is not this machine's work.
BUSY = ("user", "nice", *KERNEL)

TICK_NS = 10_000_000  # USER_HZ is 100 on every architecture that has a perf clock
# A step with fewer ticks than this share of its wall time is empty; a stretch needs at least the other share. Between the
# two is what sampling by ticks misses anyway: work in pieces shorter than a tick (account_process_tick) is not counted.
EMPTY, _ACCOUNTED = 0.1, 0.8
_ALL = (0, 1 << 62)
_AROUND_NS = 500_000_000
_MOST_TICKS = np.iinfo(np.int32).max


@record(frozen=True, slots=True)
class Core:
    """One core over time. Row i of `ticks` is what passed between times[i] and times[i + 1]."""

    number: int
    times: NDArray[np.int64]
    ticks: NDArray[np.signedinteger[Any]]
    tick_ns: int = TICK_NS
    sampled: bool = False
    """A tick is a stack sample: of steal and iowait nothing is known then."""

    @property
    def source(self) -> str:
        return "stack samples" if self.sampled else "/proc/stat"

    def passed(self, *states: str) -> NDArray[np.int64]:
        """Ticks of each step in these states, or in any."""
        passed: NDArray[np.int64] = (self.ticks[:, _columns(states)] if states else self.ticks).sum(axis=1)
        return passed

    def spent(self, *states: str, start: int = _ALL[0], end: int = _ALL[1]) -> tuple[int, int]:
        """Ticks in these states, and in all, of the steps that lie between two moments."""
        first, last = np.searchsorted(self.times[:-1], start, "left"), np.searchsorted(self.times[1:], end, "right")
        by_state = self.ticks[first:last].sum(axis=0)
        return int(by_state[_columns(states)].sum()), int(by_state.sum())

    def share(self, *states: str, start: int = _ALL[0], end: int = _ALL[1]) -> float:
        """Share of the time accounted between two moments that was spent in these states."""
        spent, total = self.spent(*states, start=start, end=end)
        return spent / total if total else 0.0


def _columns(states: tuple[str, ...]) -> list[int]:
    return [STATES.index(state) for state in states]


@record(frozen=True, slots=True)
class Stretch:
    """A time in which a core did almost nothing but kernel work, or in which nobody knows what it did."""

    core: int
    start: int
    end: int
    ratio: float

    @property
    def ms(self) -> int:
        return (self.end - self.start) // 1_000_000


def cores(recording: Recording) -> list[Core]:
    """Every core that was read twice; none at all where the counters of all stand still (a file, not a node). Where nothing
    was read, every core that was sampled."""
    return recording.derived("samples", _of_samples) if not len(recording["cpu"]) else recording.derived("cpu", _cores)


def _of_samples(recording: Recording) -> list[Core]:
    period = period_ns(recording)
    found = []
    for core, times, states, idle in passed(recording):
        ticks = np.zeros((len(states), len(STATES)), dtype=np.int32)
        for i, name in enumerate(CLASSES):
            ticks[:, STATES.index(name)] = states == i
        ticks[:, STATES.index("idle")] += np.minimum(idle, _MOST_TICKS - 1).astype(np.int32)
        found.append(Core(core, times, ticks, period, True))
    return found


def _cores(recording: Recording) -> list[Core]:
    table = recording["cpu"]
    if not len(table):
        return []
    times, numbers = table.ints("time"), table.ints("core")
    order = np.lexsort((times, numbers))
    times, numbers = times[order], numbers[order]
    borders = np.flatnonzero(np.diff(numbers))
    steps: NDArray[np.signedinteger[Any]] = np.empty((len(times) - 1, len(STATES)), dtype=np.int16)
    for i, state in enumerate(STATES):  # one after the other: a copy of all is a hundred megabytes after ten minutes
        # idle and iowait can step back by a tick (get_idle_time reads two clocks); time does not run backwards.
        passed = np.diff(table.ints(state)[order]).clip(0, _MOST_TICKS)
        passed[borders] = 0  # from one core's last reading to the next one's first
        if passed.max(initial=0) > np.iinfo(steps.dtype).max:  # five minutes in one step
            steps = steps.astype(np.int32)
        steps[:, i] = passed
    bounds = [0, *(borders + 1).tolist(), len(numbers)]
    found = [
        Core(int(numbers[first]), times[first:after], steps[first : after - 1])
        for first, after in pairwise(bounds)
        if after - first >= 2
    ]
    return found if any(core.ticks.any() for core in found) else []


def busy(all_cores: list[Core], start: int = _ALL[0], end: int = _ALL[1]) -> float:
    """Share of the whole machine's time that was spent on work of its own."""
    return share(all_cores, *BUSY, start=start, end=end)


def share(all_cores: list[Core], *states: str, start: int = _ALL[0], end: int = _ALL[1]) -> float:
    """Mean share of the cores that were accounted at all: one that is offline or stands still is not an idle one."""
    counted = [core.spent(*states, start=start, end=end) for core in all_cores]
    shares = [spent / total for spent, total in counted if total]
    return sum(shares) / len(shares) if shares else 0.0


def others_share(all_cores: list[Core], stretches: Sequence[Stretch], *states: str) -> NDArray[np.float64]:
    """The same of all cores but the stretch's own, for each of many stretches."""
    starts, ends = (np.array([getattr(stretch, edge) for stretch in stretches], dtype=np.int64) for edge in ("start", "end"))
    own = np.array([stretch.core for stretch in stretches], dtype=np.int64)
    shares, counted = np.zeros(len(stretches)), np.zeros(len(stretches))
    for core, first, last in looked_up(all_cores, starts, ends):
        spent, total = (before(ticks) for ticks in (core.passed(*states), core.passed()))
        whole = total[last] - total[first]
        there = (whole > 0) & (own != core.number)
        shares[there] += ((spent[last] - spent[first])[there]) / whole[there]
        counted += there
    return shares / np.maximum(1, counted)


def looked_up(all_cores: Sequence[Core], starts: Ints, ends: Ints) -> Iterator[tuple[Core, Ints, Ints]]:
    """Each core with its steps that lie within these stretches: from the first to before the last. Cores are mostly read all at
    once, and then they are the same for all of them."""
    times, first, last = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for core in all_cores:
        if not np.array_equal(times, core.times):
            times = core.times
            first = np.searchsorted(times[:-1], starts, "left").astype(np.int64)
            last = np.maximum(first, np.searchsorted(times[1:], ends, "right"))
        yield core, first, last


def before(ticks: NDArray[Any]) -> Ints:
    """Sums of all steps before each, and of all."""
    return np.concatenate(([0], np.cumsum(ticks, dtype=np.int64)))


def saturated(core: Core, ratio: float, shortest_ms: int) -> list[Stretch]:
    """The stretches in which kernel time was at least `ratio` of a core's time.

    Ticks are coarse (10 ms) and readings are 50 ms apart, so a single reading says little. A step weighs its kernel ticks
    less `ratio` of all its ticks, and the maximal-scoring runs of steps (Ruzzo and Tompa, 1999; linear) are the stretches:
    one stray tick does not cut a long stretch in two, and a run as a whole never falls below `ratio`.

    Time without ticks belongs to the next step that has some: on a nohz_full core of kernels before 5.5 a burst is accounted
    all at once when it ends (kcpustat_cpu_fetch does it since). If the ticks do not make up for the time, it was not spent
    as they say, so at least four fifths of the wall time count as total.

    What the hypervisor took was not the core's to spend. It is left out, unless it is most of the time around: then what is
    left over says little.
    """
    total, tick_ns = core.passed(), core.tick_ns
    wall = np.diff(core.times)
    full = np.flatnonzero(total * tick_ns >= EMPTY * wall)
    if len(full) == 0:
        return []
    starts = np.concatenate(([0], full[:-1] + 1))
    after = int(full[-1]) + 1
    kernel = np.add.reduceat(core.passed(*KERNEL)[:after], starts)
    total = np.add.reduceat(total[:after], starts)
    expected = _ACCOUNTED / tick_ns * np.add.reduceat(wall[:after], starts)
    stolen = np.add.reduceat(core.passed("steal")[:after], starts)
    if stolen.any():
        stolen = np.where(_mostly_own(core, core.times[starts], core.times[full + 1]), stolen, 0)
        total, expected = total - stolen, expected - stolen
    weights = kernel - ratio * np.maximum(total, expected)
    # Neighbours of one sign are always in one run, or in none: there are far fewer of those than steps.
    signs = np.concatenate(([0], np.flatnonzero(np.diff(weights > 0)) + 1))
    ends_at = np.concatenate((signs[1:], [len(weights)])) - 1
    # Sums up to each step, as plain numbers: there can be thousands of short runs, and each is asked for its sums.
    kernel_before, total_before = ([0, *np.cumsum(np.add.reduceat(ticks, signs)).tolist()] for ticks in (kernel, total))
    begins, ends = core.times[starts[signs]].tolist(), core.times[full[ends_at] + 1].tolist()
    stretches = []
    for first, last in maximal_runs(np.add.reduceat(weights, signs).tolist()):
        start, end = begins[first], ends[last]
        spent = kernel_before[last + 1] - kernel_before[first]
        if spent * tick_ns * _ACCOUNTED > end - start and not core.sampled:
            start = end - spent * tick_ns  # accounted late: most of it was before the reading that we have
        if end - start >= shortest_ms * 1_000_000:
            ratio_here = spent / max(1, total_before[last + 1] - total_before[first])
            stretches.append(Stretch(core.number, start, end, ratio_here))
    return stretches


def _mostly_own(core: Core, starts: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Of each step, whether in the second around it the core had at least half of the time to itself."""
    ((_, first, last),) = looked_up([core], starts - _AROUND_NS, ends + _AROUND_NS)
    own = before(core.passed() - core.passed("steal"))
    mostly: NDArray[np.bool_] = (own[last] - own[first]) * core.tick_ns * 2 >= core.times[last] - core.times[first]
    return mostly


def together(all_cores: Sequence[Core]) -> Core:
    """All cores as one that has as many ticks as they have, on the clock of the one that was read most."""
    clock = max(all_cores, key=lambda core: (len(core.times), -core.number))
    ticks = np.zeros((len(clock.times) - 1, len(STATES)), dtype=np.int64)
    for core in all_cores:
        if np.array_equal(core.times, clock.times):
            ticks += core.ticks
            continue
        for i in np.flatnonzero(core.ticks.any(axis=0)).tolist():
            sums = np.round(np.interp(clock.times, core.times, before(core.ticks[:, i])))
            ticks[:, i] += np.diff(sums).astype(np.int64)
    return Core(-1, clock.times, ticks, max(1, clock.tick_ns // len(all_cores)), clock.sampled)


def maximal_runs(weights: list[float]) -> list[tuple[int, int]]:
    """All maximal-scoring contiguous runs, as (first, last) index."""
    # First, last, sum before it, sum up to and with it, and the nearest run before it with a smaller sum before it: all in
    # between have a larger one, so whoever looks for a smaller one need not look at them again.
    runs: list[tuple[int, int, float, float, int]] = []
    total = 0.0
    for i, weight in enumerate(weights):
        before, total = total, total + weight
        if weight <= 0:
            continue
        first, left = i, before
        j = len(runs) - 1
        while j >= 0 and runs[j][2] >= left:
            j = runs[j][4]
        while j >= 0 and runs[j][3] < total:
            first, _, left, _, further = runs[j]
            del runs[j:]
            j = further
        runs.append((first, i, left, total, j))
    return [(first, last) for first, last, _, _, _ in runs]
