"""Loops by processes that start and die in a rhythm: the same program in the same place, one at a time.

Only those are seen that used the CPU enough to be kept or sampled, and how they ended is not: this tells, and accuses nobody.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from exhume.diagnosis.findings.loops import Loop, ProcessStarts
from exhume.diagnosis.findings.makers import is_hand
from exhume.diagnosis.findings.rhythm import rhythm
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.owners import owner
from exhume.host.programs import commands
from exhume.recording.recording import Recording
from exhume.sources.zombie_groups import Shapes
from exhume.text import printable

# /proc/PID/stat counts in USER_HZ, which is 100 on every architecture but alpha and ia64 (asm-generic/param.h).
_TICK_NS = 10_000_000
_KTHREADD = 2


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    start: int
    seen: int
    """When it was last seen, on the clock of its start."""
    comm: str
    cgroup: str
    ppid: int = -1


def by_processes(recording: Recording, thresholds: Thresholds) -> list[Loop]:
    table = recording["processes"]
    names = dict(sorted(zip(table.ints("pid").tolist(), table.texts("comm"), strict=True)))
    found = _loops(recording.derived("processes", _kept), names, thresholds.crash_restarts)
    found += _loops(recording.derived("samples", _sampled), names, thresholds.crash_restarts)
    return found


def _loops(processes: Iterable[_Process], names: dict[int, str], fewest: int) -> list[Loop]:
    shapes = Shapes()
    places: dict[tuple[str, str, int], list[_Process]] = {}
    for process in processes:
        places.setdefault((process.comm, shapes[process.cgroup], process.ppid), []).append(process)
    found = []
    for (comm, shape, ppid), members in places.items():
        if len(members) < fewest or not _suspect(comm, shape, ppid, names):
            continue
        beat = rhythm(((one.start, one.seen) for one in members), fewest)
        if beat is None:
            continue
        last = max(members, key=lambda one: (one.start, one.pid))
        owned = owner(last.cgroup)
        unit = "" if owned.pod else owned.unit
        same = len({one.cgroup for one in members}) == 1
        cgroup = last.cgroup if same else shape
        ids = {one.cgroup for one in members if owner(one.cgroup).container}
        found.append(
            Loop(
                unit or (cgroup if cgroup not in ("", "/") else printable(comm)),
                "containers" if len(ids) >= fewest else "processes",
                beat.starts,
                False,
                beat.first,
                beat.last,
                ProcessStarts(printable(comm), beat.starts, beat.period_ns),
                period_ns=beat.period_ns,
                cgroup=cgroup,
                unit=unit,
                process=Process(printable(comm)) if comm else None,
                supervisor=_supervisor(ppid, names),
            )
        )
    return found


def _supervisor(ppid: int, names: dict[int, str]) -> Process | None:
    return Process(printable(names.get(ppid, "")), ppid) if ppid > 0 or ppid in names else None


def _suspect(comm: str, cgroup: str, ppid: int, names: dict[int, str]) -> bool:
    """Neither the kernel's own, nor what waits, nor what a clock or a probe starts: a shim that starts the same program again
    in a container that goes on is asked to by an exec probe."""
    if comm in commands("waits") or is_hand(comm) or ppid == _KTHREADD or (ppid < 0 and cgroup in ("", "/")):
        return False
    starter = names.get(ppid, "")
    return (
        starter not in commands("starts-by-clock")
        and not is_hand(starter)
        and not cgroup.rsplit("/", 1)[-1].startswith("session-")
    )


def _kept(recording: Recording) -> list[_Process]:
    """Of the table of processes; starts and the times of readings both on the clock of the boot."""
    table, anchors = recording["processes"], recording["anchors"]
    if not len(table) or not len(anchors):
        return []
    times = anchors.ints("time")
    nearest = int(times.argmin())
    offset = int(anchors.ints("boot")[nearest]) - int(times[nearest])
    begin = recording.window[0]
    whole: dict[tuple[int, int], _Process] = {}
    numbers = (table.ints(name).tolist() for name in ("time", "pid", "tid", "start", "ppid"))
    rows = zip(*numbers, table.texts("comm"), table.texts("cgroup"), strict=True)
    for time, pid, tid, ticks, ppid, comm, cgroup in sorted(rows):
        start = ticks * _TICK_NS - offset
        if tid == 0 and start >= begin:
            before = whole.get((pid, ticks))
            group = cgroup or (before.cgroup if before is not None else "")
            # A reading before it began says that it was not there (sources/processes.py writes both ends of a time).
            whole[pid, ticks] = _Process(pid, start, max(time, start), comm, group, ppid)
    return list(whole.values())


def _sampled(recording: Recording) -> list[_Process]:
    """Of the threads that stack samples have; begun while we looked, with the last sample of any of its threads."""
    table, samples = recording["threads"], recording["samples"]
    begin = recording.window[0]
    starts = table.ints("start")
    if not len(samples) or not len(new := np.flatnonzero(starts > max(0, begin))):
        return []
    ids = table.ints("id")
    threads, times = samples.ints("thread"), samples.ints("time")
    order = np.lexsort((times, threads))
    last = np.flatnonzero(np.append(np.diff(threads[order]) != 0, True))
    seen = dict(zip(threads[order][last].tolist(), times[order][last].tolist(), strict=True))
    pids, names, cgroups = table.ints("pid"), table.texts("process"), table.texts("cgroup")
    whole: dict[tuple[int, int], _Process] = {}
    for at in sorted(new.tolist(), key=lambda at: (int(pids[at]), int(starts[at]), names[at], cgroups[at])):
        pid, start = int(pids[at]), int(starts[at])
        before = whole.get((pid, start))
        until = max(seen.get(int(ids[at]), start), before.seen if before is not None else start, start)
        if pid > 0:
            whole[pid, start] = _Process(pid, start, until, names[at], cgroups[at])
    return list(whole.values())
