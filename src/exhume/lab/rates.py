"""What passed since a moment, by the kernel's own counters, read plainly: pressure, /proc/vmstat, shares of a core's time."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from exhume.lab.measure import Sampled

# Columns of /proc/stat, Documentation/filesystems/proc.rst
USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL = range(8)
ALL_CORES: Final = -1
_PRESSURE = Path("/proc/pressure")


def ticks(core: int) -> tuple[int, ...]:
    """USER_HZ ticks of a core, or of all together, by the columns above."""
    wanted = f"cpu{core} " if core >= 0 else "cpu "
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(wanted):
            return tuple(int(word) for word in line.split()[1:9])
    return (0,) * 8


def share(before: Sequence[int], after: Sequence[int], *columns: int) -> float:
    """Of the time that the machine had, so without what the hypervisor took."""
    passed = [max(0, late - early) for early, late in zip(before, after, strict=True)]
    had = sum(passed) - passed[STEAL]
    return sum(passed[column] for column in columns) / had if had > 0 else 0.0


def named(text: str, name: str) -> int:
    """The number behind a name, in files like /proc/vmstat, cpu.stat and memory.events."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def vmstat(name: str) -> int:
    return named(Path("/proc/vmstat").read_text(), name)


def pressure_us(resource: str) -> int:
    """How long some task has waited for it, since the node started. psi_show in kernel/sched/psi.c."""
    first = (_PRESSURE / resource).read_text().partition("\n")[0]
    return int(first.rpartition("total=")[2])


def no_pressure() -> str:
    """Why this kernel does not tell how long tasks wait; "" if it does."""
    try:
        pressure_us("memory")
    except (OSError, ValueError):
        return "it takes pressure stall information (PSI): a kernel with CONFIG_PSI, started with psi=1 where that is off"
    return ""


class Rate:
    """How fast a counter grew on the mean since a moment, per second."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._first, self._since = read(), time.monotonic()

    @property
    def grown(self) -> int:
        return self._read() - self._first

    @property
    def per_second(self) -> float:
        return self.grown / max(1e-9, time.monotonic() - self._since)


class CoreTime:
    """The share of a core's time in some states: on the mean, the most over half a second, and how long it was above 95 %."""

    def __init__(self, core: int, *columns: int) -> None:
        self.highest = self.full_s = 0.0
        self._core, self._columns = core, columns
        self._first = self._last = ticks(core)
        self._at = time.monotonic()
        self._sampled = Sampled(0.5, self._read)

    def _read(self, now: float) -> None:
        ticked = ticks(self._core)
        part = share(self._last, ticked, *self._columns)
        self.highest = max(self.highest, part)
        self.full_s += (now - self._at) if part >= 0.95 else 0.0
        self._last, self._at = ticked, now

    @property
    def mean(self) -> float:
        return share(self._first, ticks(self._core), *self._columns)

    def close(self) -> None:
        self._sampled.close()
