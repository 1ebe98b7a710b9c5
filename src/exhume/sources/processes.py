"""Processes: the busiest (and which core their threads were on), the defunct, the blocked, and who has most major faults.

Everybody's stat is read twice a second, so that one that burns a core for a second and exits is still seen; threads only
of those that are busy, cgroups only of those that are kept. A scan costs more the more processes there are, so it is
bounded, and where it is dear it is only done at the beginning and at the end.
"""

import os
import time as clock
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from exhume.errors import Unreadable
from exhume.host.root import Root, read_at, unreadable
from exhume.recording.recording import Recording, labels
from exhume.recording.source_state import ContainerOnly, Limit, Reasons
from exhume.text import decode

MOST_PROCESSES = 6_000
MOST_LISTED = 1 << 16
MOST_THREADS = 512
# Kept in the recording: those that used most CPU time between two readings, and so many defunct ones.
BUSIEST = 16
MOST_DEFUNCT = 64
# The same of those that wait for a disk (state D), and of those whose major faults are counted: so many at a reading.
MOST_BLOCKED = 8
MOST_FAULTING = 8
FEWEST_FAULTS = 50
# A scan dearer than this is not repeated within a check.
DEAREST_NS = 10_000_000


class Stat(NamedTuple):
    """What /proc/PID/stat says, as far as it is used."""

    comm: str
    state: str
    ppid: int
    user: int
    system: int
    start: int
    core: int
    major_faults: int


@dataclass(frozen=True, slots=True)
class _Scan:
    time: int
    ticks: int
    """The same moment as start times are given: USER_HZ ticks since boot."""
    processes: dict[int, Stat]
    threads: dict[tuple[int, int], Stat]
    total: int


class Processes:
    name = "processes"

    def __init__(self, root: Root) -> None:
        self._root = root
        self._before: _Scan | None = None
        self._cgroups: dict[tuple[int, int], str] = {}
        self.every_ns = 500_000_000

    def read(self, recording: Recording, time: int) -> Reasons:
        start = clock.thread_time_ns()
        scan = self._scan(time)
        busiest = self._busiest(self._before, scan)
        scan = replace(scan, threads=self._threads(busiest))
        if self._before is not None:
            self._keep(recording, self._before, scan, busiest)
        self._before = scan
        if clock.thread_time_ns() - start > DEAREST_NS:
            self.every_ns = 0  # thousands of processes: only at the beginning and at the end
        defunct = sum(stat.state == "Z" for stat in scan.processes.values())
        recording.count(time, "processes", scan.total)
        recording.count(time, "processes_defunct", defunct)
        if scan.total > MOST_PROCESSES:
            return (Limit(f"only {MOST_PROCESSES:,} of {scan.total:,} processes looked at"),)
        if self._root.own and sees_only_a_container(self._root):
            return (ContainerOnly("processes"),)
        return ()

    @staticmethod
    def _busiest(before: _Scan | None, now: _Scan) -> list[int]:
        """Who used most since the last scan; at first who runs now or has used most ever, to compare with later."""
        if before is None:
            weights = {
                pid: stat.user + stat.system + (1 << 62 if stat.state == "R" else 0) for pid, stat in now.processes.items()
            }
        else:
            weights = {pid: _used(before.processes.get(pid), stat, before.ticks) for pid, stat in now.processes.items()}
        return [pid for pid in sorted(weights, key=lambda pid: -weights[pid])[:BUSIEST] if weights[pid] > 0]

    def _scan(self, time: int) -> _Scan:
        pids = [int(name) for name in self._root.names("proc") if name.isascii() and name.isdigit()]
        pids.sort()
        if not pids:
            raise Unreadable("/proc shows no process (hidepid, or not a proc file system)")
        processes = {}
        try:
            proc = self._root.open("proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable("proc", error) from None
        try:
            for pid in _bounded(pids):
                if (stat := _stat(f"{pid}/stat", proc)) is not None:
                    processes[pid] = stat
        finally:
            os.close(proc)
        if not processes:
            raise Unreadable("/proc/PID/stat is not readable")
        return _Scan(time, int(clock.clock_gettime(clock.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")), processes, {}, len(pids))

    def _threads(self, pids: list[int]) -> dict[tuple[int, int], Stat]:
        found: dict[tuple[int, int], Stat] = {}
        for pid in pids:
            try:
                fd = os.open(self._root.at(f"proc/{pid}/task"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                for name in os.listdir(fd):
                    if len(found) >= MOST_THREADS:
                        return found
                    if name.isdigit() and (stat := _stat(f"{name}/stat", fd)) is not None:
                        found[pid, int(name)] = stat
            except OSError:
                continue
            finally:
                os.close(fd)
        return found

    def _keep(self, recording: Recording, before: _Scan, now: _Scan, busiest: list[int]) -> None:
        """The busiest with both readings; their threads likewise, if they have several; and the defunct."""

        def add(pid: int, tid: int, earlier: Stat | None, stat: Stat, cgroup: str) -> None:
            if earlier is None or earlier.start != stat.start:
                earlier = stat._replace(user=0, system=0)  # it began in between
            _add(recording, before.time, pid, tid, earlier, cgroup)
            _add(recording, now.time, pid, tid, stat, cgroup)

        for pid in busiest:
            add(pid, 0, before.processes.get(pid), now.processes[pid], self._cgroup(pid, now.processes[pid].start))
        counts = Counter(pid for pid, _ in now.threads)
        for (pid, tid), stat in now.threads.items():
            earlier = before.threads.get((pid, tid))
            if counts[pid] > 1 and _used(earlier, stat, before.ticks) > 0:
                add(pid, tid, earlier, stat, "")
        for pid in [pid for pid, stat in now.processes.items() if stat.state == "D" and pid not in busiest][:MOST_BLOCKED]:
            _add(recording, now.time, pid, 0, now.processes[pid], self._cgroup(pid, now.processes[pid].start))
        self._count_faults(recording, before, now)
        defunct = [pid for pid, stat in now.processes.items() if stat.state == "Z"]
        for pid in defunct[:MOST_DEFUNCT]:
            _add(recording, now.time, pid, 0, now.processes[pid], "")
        for pid in {now.processes[pid].ppid for pid in defunct[:MOST_DEFUNCT]} - set(busiest):
            if pid in now.processes:
                _add(recording, now.time, pid, 0, now.processes[pid], self._cgroup(pid, now.processes[pid].start))

    def _count_faults(self, recording: Recording, before: _Scan, now: _Scan) -> None:
        """Counters, not columns: hardly anybody has major faults, and who has them need not be busy."""
        grown = {pid: _faults(before.processes.get(pid), stat, before.ticks) for pid, stat in now.processes.items()}
        for pid in sorted((pid for pid in grown if grown[pid] >= FEWEST_FAULTS), key=lambda pid: -grown[pid])[:MOST_FAULTING]:
            stat = now.processes[pid]
            at = labels(pid=pid, comm=stat.comm, cgroup=self._cgroup(pid, stat.start))
            recording.count(before.time, "process_major_faults", stat.major_faults - grown[pid], at)
            recording.count(now.time, "process_major_faults", stat.major_faults, at)

    def _cgroup(self, pid: int, start: int) -> str:
        """Once a process: proc_cgroup_show takes cgroup_mutex, which whoever makes or removes groups holds for long."""
        if (pid, start) not in self._cgroups:
            try:
                self._cgroups[pid, start] = parse_cgroup(self._root.read(f"proc/{pid}/cgroup", 1 << 16))
            except Unreadable:
                return ""
            if len(self._cgroups) > MOST_PROCESSES:
                del self._cgroups[next(iter(self._cgroups))]
        return self._cgroups[pid, start]


def _bounded(pids: list[int]) -> list[int]:
    """Daemons have low numbers, what was started last high ones."""
    if len(pids) <= MOST_PROCESSES:
        return pids
    return pids[: MOST_PROCESSES // 2] + pids[-(MOST_PROCESSES // 2) :]


def _add(recording: Recording, time: int, pid: int, tid: int, stat: Stat, cgroup: str) -> None:
    recording["processes"].add(
        time, pid, tid, stat.start, stat.ppid, stat.comm, stat.state, stat.core, stat.user, stat.system, cgroup
    )


def _used(before: Stat | None, after: Stat, since: int) -> int:
    """Ticks used between two readings. One that began in between has used all it has; of one that was not read before
    nothing is known, and a number that went to another process is not the same process."""
    total = after.user + after.system
    if before is not None and before.start == after.start:
        return total - before.user - before.system
    return total if after.start >= since else 0


def _faults(before: Stat | None, after: Stat, since: int) -> int:
    """Major faults between two readings, by the same rule."""
    if before is not None and before.start == after.start:
        return after.major_faults - before.major_faults
    return after.major_faults if after.start >= since else 0


def _stat(name: str, directory: int) -> Stat | None:
    try:
        return parse_stat(read_at(name, 4096, dir_fd=directory))
    except OSError:
        return None


def parse_stat(raw: bytes) -> Stat | None:
    """/proc/PID/stat: the name is between the first ( and the last ), and may itself hold both (proc(5))."""
    left, right = raw.find(b"("), raw.rfind(b")")
    if left < 0 or right < left:
        return None
    words = raw[right + 1 :].split()
    try:
        # Field 3 of proc(5) is words[0]: state; 4 ppid, 14 utime, 15 stime, 22 starttime, 39 processor, 12 majflt.
        state = words[0].decode("ascii")
        numbers = [int(words[i]) for i in (1, 11, 12, 19, 36, 9)]
    except (IndexError, ValueError):
        return None
    if any(not 0 <= number < 1 << 63 for number in numbers):
        return None
    return Stat(decode(raw[left + 1 : right]), state, *numbers)


def parse_cgroup(raw: bytes) -> str:
    """The most telling path of /proc/PID/cgroup: of the memory hierarchy if it is below the root, else the deepest."""
    best = ""
    for line in raw.split(b"\n"):
        parts = line.split(b":", 2)
        if len(parts) != 3:
            continue
        path = decode(parts[2])
        if b"memory" in parts[1].split(b",") and path != "/":
            return path
        if path.count("/") > best.count("/") or not best or best == "/":
            best = path
    return best


def stats(root: Root) -> Iterator[tuple[int, Stat]]:
    """Every process, at most MOST_LISTED."""
    pids = sorted(int(name) for name in root.names("proc") if name.isascii() and name.isdigit())
    for pid in pids[:MOST_LISTED]:
        try:
            stat = parse_stat(root.read(f"proc/{pid}/stat", 4096))
        except Unreadable:  # gone meanwhile
            continue
        if stat is not None:
            yield pid, stat


def cgroup_of(root: Root, pid: int) -> str:
    """Where systemd has put it, which tells its unit; with cgroup v1 a controller's path may end above that."""
    raw = root.read(f"proc/{pid}/cgroup", 1 << 16)
    lines = [line.split(b":", 2) for line in raw.split(b"\n")]
    paths = {parts[1]: decode(parts[2]) for parts in lines if len(parts) == 3 and parts[2] != b"/"}
    return paths.get(b"name=systemd") or paths.get(b"") or parse_cgroup(raw)


# PROC_PID_INIT_INO in include/linux/proc_ns.h: the number of the first PID namespace never changes.
INIT_PID_NAMESPACE = "pid:[4026531836]"


def sees_only_a_container(root: Root) -> bool:
    """Whether /proc shows the processes of a PID namespace below the node's."""
    try:
        if os.readlink(root.at("proc/self/ns/pid")) == INIT_PID_NAMESPACE:
            return False
        status = root.read("proc/self/status", 1 << 16)
    except (OSError, Unreadable):
        return False
    # A /proc shows the namespace that it was mounted in. NSpid has our number in that one first, and in each below it down
    # to our own: one number is our own namespace's /proc, several are an outer one's (task_state in fs/proc/array.c, 4.1).
    numbers = next((line.split()[1:] for line in status.split(b"\n") if line.startswith(b"NSpid:")), [])
    return len(numbers) < 2
