"""What a command costs, and a row of the table."""

import os
import statistics
import subprocess
import time
from dataclasses import dataclass

# As a user has it: modules are compiled once, not at every start.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `bar` is the highest ratio (or value) that is good enough; None where there is none."""

    what: str
    ours: float
    theirs: float | None
    unit: str
    bar: float | None = None

    @property
    def measured(self) -> float:
        return self.ours / self.theirs if self.theirs else self.ours

    @property
    def holds(self) -> bool | None:
        return None if self.bar is None else self.measured <= self.bar


def cost(command: list[str]) -> Cost:
    """One run of a command, its children included."""
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=ENVIRONMENT)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(c.wall_s for c in costs),
        statistics.median(c.cpu_s for c in costs),
        max(c.peak_mb for c in costs),
    )


def interleaved(commands: list[list[str]], runs: int) -> list[Cost]:
    """The median cost of each command, run in turns so that a noisy moment hits all of them; the first turn warms caches."""
    for command in commands:
        cost(command)
    seen: list[list[Cost]] = [[] for _ in commands]
    for _ in range(runs):
        for costs, command in zip(seen, commands, strict=True):
            costs.append(cost(command))
    return [median(costs) for costs in seen]
