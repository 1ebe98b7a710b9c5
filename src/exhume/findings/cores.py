"""What the cores did in a recording: shares of time, and stretches in which one was full of kernel time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.recording.recording import Recording
from exhume.recording.schema import CPU_STATES

# guest and guest_nice are contained in user and nice already (account_guest_time in kernel/sched/cputime.c).
_STATES = CPU_STATES[:8]
_KERNEL = ("system", "irq", "softirq")
_IDLE = ("idle", "iowait")


@dataclass(frozen=True, slots=True)
class Core:
    """One core over time. Row i of `ticks` is what passed between times[i] and times[i + 1]."""

    number: int
    times: NDArray[np.int64]
    ticks: NDArray[np.int64]

    def passed(self, *states: str) -> NDArray[np.int64]:
        passed: NDArray[np.int64] = self.ticks[:, [_STATES.index(state) for state in states]].sum(axis=1)
        return passed

    def share(self, *states: str, start: int = 0, end: int = 1 << 62) -> float:
        """Share of the time between two moments that was spent in these states."""
        inside = (self.times[:-1] >= start) & (self.times[1:] <= end)
        total = int(self.ticks[inside].sum())
        return float(self.passed(*states)[inside].sum() / total) if total else 0.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a core did almost nothing but kernel work."""

    core: int
    start: int
    end: int
    ratio: float

    @property
    def ms(self) -> int:
        return (self.end - self.start) // 1_000_000


def cores(recording: Recording) -> list[Core]:
    table = recording["cpu"]
    if not len(table):
        return []
    times, numbers = table.ints("time"), table.ints("core")
    counters = np.stack([table.ints(state) for state in _STATES], axis=1)
    found = []
    for number in sorted(set(numbers.tolist())):  # np.unique would import numpy.ma, 25 ms of it
        mine = numbers == number
        if mine.sum() < 2:
            continue
        # idle and iowait can step back by a tick (get_idle_time reads two clocks); time does not run backwards.
        steps = np.maximum(np.diff(counters[mine], axis=0), 0)
        if steps.any():  # a counter that stands still (a file, a core without a tick) tells nothing
            found.append(Core(number, times[mine], steps))
    return found


def busy(all_cores: list[Core], start: int = 0, end: int = 1 << 62) -> float:
    """Share of the whole machine's time that was not idle."""
    if not all_cores:
        return 0.0
    return 1.0 - float(np.mean([core.share(*_IDLE, start=start, end=end) for core in all_cores]))


def share(all_cores: list[Core], *states: str) -> float:
    return float(np.mean([core.share(*states) for core in all_cores])) if all_cores else 0.0


def saturated(core: Core, ratio: float, shortest_ms: int) -> list[Stretch]:
    """The stretches in which kernel time was at least `ratio` of a core's time.

    Ticks are coarse (10 ms) and readings are 50 ms apart, so a single reading says little. A step weighs its kernel ticks
    less `ratio` of all its ticks, and the maximal-scoring runs of steps (Ruzzo and Tompa, 1999; linear) are the stretches:
    one stray tick does not cut a long stretch in two, and a run as a whole never falls below `ratio`.
    """
    kernel, total = core.passed(*_KERNEL), core.ticks.sum(axis=1)
    stretches = []
    for first, last in _maximal_runs((kernel - ratio * total).tolist()):
        start, end = int(core.times[first]), int(core.times[last + 1])
        if end - start >= shortest_ms * 1_000_000:
            part = slice(first, last + 1)
            stretches.append(Stretch(core.number, start, end, float(kernel[part].sum() / max(1, total[part].sum()))))
    return stretches


def _maximal_runs(weights: list[float]) -> list[tuple[int, int]]:
    """All maximal-scoring contiguous runs, as (first, last) index."""
    runs: list[tuple[int, int, float, float]] = []  # first, last, sum before it, sum up to and with it
    total = 0.0
    for i, weight in enumerate(weights):
        before, total = total, total + weight
        if weight <= 0:
            continue
        first, left = i, before
        while True:
            j = next((k for k in range(len(runs) - 1, -1, -1) if runs[k][2] < left), None)
            if j is None or runs[j][3] >= total:
                break
            first, left = runs[j][0], runs[j][2]
            del runs[j:]
        runs.append((first, i, left, total))
    return [(first, last) for first, last, _, _ in runs]
