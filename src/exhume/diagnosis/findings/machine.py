"""What all cores together did, second by second: to tell a machine that was full for a minute from one that is idle."""

from collections.abc import Iterable

import numpy as np

from exhume.diagnosis.findings.cores import BUSY, KERNEL, STATES, cores
from exhume.diagnosis.findings.sampled import unfit
from exhume.diagnosis.findings.stretches import Floats, Steps
from exhume.host.quantities import SECOND
from exhume.record import record
from exhume.recording.recording import Ints, Recording

IDLE = ("idle", "iowait")
__all__ = ["BUSY", "IDLE", "KERNEL", "Machine", "machine"]


@record(frozen=True, slots=True)
class Machine:
    """Shares of time by state, the mean of the cores that were accounted then, and of each core what was stolen."""

    times: Ints
    shares: Floats
    accounted: Floats
    """How many cores' time is known, step by step."""
    stolen: dict[int, Floats]
    cores: int
    sampled: bool
    """Counted from stack samples: of steal and iowait nothing is known then."""

    @property
    def source(self) -> str:
        return "stack samples" if self.sampled else "/proc/stat"

    def steps(self, *states: str) -> Steps:
        """The share of all cores' time in these states."""
        wanted = [STATES.index(state) for state in states]
        return Steps(self.times, self.shares[:, wanted].sum(axis=1), (self.accounted > 0).astype(np.float64))

    def share(self, *states: str, during: Iterable[tuple[int, int]] | None = None) -> float:
        return self.steps(*states).mean(during)

    def full(self) -> Steps:
        """How busy the cores were, of the time that they had: what the hypervisor took is nobody's to be idle in."""
        had = np.maximum(0.01, 1.0 - self.shares[:, STATES.index("steal")])
        busy = self.steps(*BUSY)
        return Steps(self.times, np.minimum(1.0, busy.amount / had), busy.per)

    def stolen_from(self, core: int) -> Steps:
        return Steps(self.times, self.stolen[core], np.ones(len(self.times) - 1))


def machine(recording: Recording) -> Machine | None:
    """None where the cores are not known, as from samples of one command."""
    return recording.derived("cpu" if len(recording["cpu"]) else "samples", _machine)


def _machine(recording: Recording) -> Machine | None:
    everyone = cores(recording)
    if not everyone or (everyone[0].sampled and unfit(recording)):
        return None
    start = min(int(core.times[0]) for core in everyone)
    end = max(int(core.times[-1]) for core in everyone)
    edges = np.linspace(start, end, max(1, round((end - start) / SECOND)) + 1).astype(np.int64)
    shares = np.zeros((len(edges) - 1, len(STATES)))
    accounted = np.zeros(len(edges) - 1)
    stolen: dict[int, Floats] = {}
    steal = STATES.index("steal")
    for core in everyone:
        before = np.vstack((np.zeros((1, len(STATES))), np.cumsum(core.ticks, axis=0, dtype=np.float64)))
        passed = np.diff([np.interp(edges, core.times, before[:, i]) for i in range(len(STATES))], axis=1).T
        total = passed.sum(axis=1, keepdims=True)
        known = total[:, 0] > 0
        part = np.divide(passed, total, out=np.zeros_like(passed), where=total > 0)
        shares += part
        accounted += known
        stolen[core.number] = part[:, steal].copy()
    shares = np.divide(shares, accounted[:, None], out=np.zeros_like(shares), where=accounted[:, None] > 0)
    return Machine(edges, shares, accounted, stolen, len(everyone), everyone[0].sampled)
