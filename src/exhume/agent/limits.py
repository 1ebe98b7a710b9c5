"""The agent's own limits, which it watches itself: an agent that starves the node is the very thing it hunts.

Over its limit for a while, it gives up one thing after the other, the dearest first, and says so; when it has been well below
for long, it takes the last one back. Pure: times and figures come from outside.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from exhume.host.quantities import SECOND, compared, duration, percent, size

# Given up in this order, and taken back in the other: each with what it means for whoever reads the metrics.
STEPS = (
    ("user-stacks", "stacks of programs are left out, those of the kernel are kept"),
    ("latency-windows", "stalls and latencies are no longer watched"),
    ("most-samples", "stack samples are taken 11 times a second"),
    ("verdicts", "incidents are pinned, and `exhume diagnose` must be asked for the cause"),
    ("samples", "no stack samples are taken"),
)
FEW_HZ = 11
# A minute over the limit is needed to step down, and half an hour far below it to step up again.
OVER_S = 60.0
BELOW_S = 1800.0
FAR_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """What the agent and its children have used by now."""

    at_s: float
    cpu_s: float
    memory_bytes: int


def steps(user_stacks: bool, latency: bool, hz: int) -> tuple[tuple[str, str], ...]:
    """Those that make a difference: what is not on cannot be given up, and a minute would be lost by it."""
    made = {"user-stacks": user_stacks, "latency-windows": latency, "most-samples": hz > FEW_HZ, "samples": hz > 0}
    return tuple(step for step in STEPS if made.get(step[0], True))


class Limits:
    def __init__(self, cpu_ratio: float, memory_bytes: int, may_go: Sequence[tuple[str, str]] = STEPS) -> None:
        self.level = 0
        self._steps = may_go
        self._cpu_ratio, self._memory = cpu_ratio, memory_bytes
        self._costs: deque[Cost] = deque()
        self._quiet_since: float | None = None

    @property
    def given_up(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._steps[: self.level])

    def watch(self, cost: Cost) -> str:
        """Returns a sentence when something was given up or taken back."""
        self._costs.append(cost)
        while len(self._costs) > 2 and self._costs[1].at_s <= cost.at_s - OVER_S:
            self._costs.popleft()
        first = self._costs[0]
        lasted = cost.at_s - first.at_s
        if lasted < OVER_S:
            return ""
        cpu = (cost.cpu_s - first.cpu_s) / lasted
        memory = min(each.memory_bytes for each in self._costs)
        if cpu > self._cpu_ratio or memory > self._memory:
            self._quiet_since = None
            return self._down(cpu, memory)
        if self.level and cpu < self._cpu_ratio * FAR_BELOW and memory < self._memory * 0.9:
            if self._quiet_since is None:
                self._quiet_since = cost.at_s
            elif cost.at_s - self._quiet_since >= BELOW_S:
                return self._up()
        else:
            self._quiet_since = None
        return ""

    def _down(self, cpu: float, memory: int) -> str:
        self._costs.clear()
        if cpu > self._cpu_ratio:
            over, limit = compared(percent, cpu, self._cpu_ratio)
            over += " of a core"
        else:
            over, limit = compared(size, memory, self._memory)
        if self.level >= len(self._steps):
            return f"the agent uses {over}, its limit is {limit}, and there is nothing left to give up"
        name, meaning = self._steps[self.level]
        self.level += 1
        return f"the agent used {over} for a minute, its limit is {limit}: {name} is given up, {meaning}"

    def _up(self) -> str:
        self._costs.clear()
        self._quiet_since = None
        self.level -= 1
        back = self._steps[self.level][0]
        return f"the agent has been far below its limits for {duration(BELOW_S * SECOND)}: {back} is taken back"
