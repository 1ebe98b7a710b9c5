"""Who used most system time on a core, by /proc: second best to stack samples, and all there is where nobody took any."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.cores import TICK_NS, Stretch
from exhume.recording.recording import Ints, Recording

_KSOFTIRQD = "ksoftirqd/"


class Suspect(NamedTuple):
    comm: str
    pid: int
    system_ms: int
    cgroup: str


class _Used(NamedTuple):
    """What was used from one reading of a task to its next, one entry each."""

    task: Ints
    since: Ints
    until: Ints
    was_on: Ints
    is_on: Ints
    ticks: Ints


class _Tasks(NamedTuple):
    """Threads, and processes that have but one: a core is kept busy by a thread, and a process has but one last core."""

    named: tuple[tuple[str, int, str], ...]
    """Its last name, its process and its cgroup."""
    of_softirqs: NDArray[np.bool_]
    used: _Used


def suspect(recording: Recording, stretch: Stretch, interrupts: bool) -> Suspect | None:
    """Who used most system time around that stretch on that core. Nobody, unless it is at least half of the stretch.

    Without CONFIG_IRQ_TIME_ACCOUNTING the time of an interrupt is charged to the task that it interrupted: of a core that
    was busy with interrupts only ksoftirqd can be believed, any other is a victim.
    """
    tasks = recording.derived("processes", _tasks)
    used = tasks.used
    there = ((used.was_on == stretch.core) | (used.is_on == stretch.core)) & (used.since < stretch.end)
    there &= used.until > stretch.start
    if interrupts:
        there &= tasks.of_softirqs[used.task]
    if not there.any():
        return None
    ticks = np.bincount(used.task[there], weights=used.ticks[there]).astype(np.int64)
    comm, pid, cgroup = min(tasks.named[i] for i in np.flatnonzero(ticks == ticks.max()).tolist())
    system_ms = int(ticks.max()) * TICK_NS // 1_000_000
    return Suspect(comm, pid, system_ms, cgroup) if system_ms > 0 and system_ms >= stretch.ms / 2 else None


def _tasks(recording: Recording) -> _Tasks:
    rows: dict[tuple[int, int, int], set[tuple[int, int, int, str]]] = {}
    cgroups: dict[int, tuple[int, str]] = {}
    table = recording["processes"]
    numbers = (table.ints(name).tolist() for name in ("pid", "tid", "start", "time", "system", "core"))
    for pid, tid, start, time, system, core, comm, cgroup in zip(
        *numbers, table.texts("comm"), table.texts("cgroup"), strict=True
    ):
        rows.setdefault((pid, tid, start), set()).add((time, system, core, comm))
        if cgroup:
            cgroups[pid] = max(cgroups.get(pid, (time, cgroup)), (time, cgroup))
    threaded = {pid for pid, tid, _ in rows if tid}
    named: list[tuple[str, int, str]] = []
    parts: list[NDArray[np.int64]] = [np.empty((6, 0), dtype=np.int64)]
    for (pid, tid, _), mine in sorted(rows.items()):
        if tid or pid not in threaded:
            in_order = sorted(mine)
            times, system, core = np.array([row[:3] for row in in_order], dtype=np.int64).T
            task = np.full(len(times) - 1, len(named), dtype=np.int64)
            parts.append(np.stack((task, times[:-1], times[1:], core[:-1], core[1:], np.maximum(0, np.diff(system)))))
            named.append((in_order[-1][3], pid, cgroups.get(pid, (0, ""))[1]))
    of_softirqs = np.array([comm.startswith(_KSOFTIRQD) for comm, _, _ in named], dtype=np.bool_)
    return _Tasks(tuple(named), of_softirqs, _Used(*np.concatenate(parts, axis=1)))
