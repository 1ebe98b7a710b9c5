"""Processes: the busiest (and which core their threads were on), and the defunct.

Everybody's stat is read at the beginning and at the end; threads only of those that look busy, cgroups only of those
that are kept. What a scan costs grows with the number of processes, so it is bounded.
"""

import os
import time as clock
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from exhume.errors import Unreadable
from exhume.node.root import Root, read_at, unreadable
from exhume.recording.recording import Recording
from exhume.text import decode

MOST_PROCESSES = 6_000
MOST_THREADS = 512
# Kept in the recording: those that used most CPU time between two readings, and so many defunct ones.
BUSIEST = 16
MOST_DEFUNCT = 64


class Stat(NamedTuple):
    """What /proc/PID/stat says, as far as it is used."""

    comm: str
    state: str
    ppid: int
    user: int
    system: int
    start: int
    core: int


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
    every_ns = 0

    def __init__(self, root: Root) -> None:
        self._root = root
        self._first: _Scan | None = None

    def read(self, recording: Recording, time: int) -> str:
        scan = self._scan(time)
        if self._first is None:
            # Threads of what runs now or has run most, so that there is something to compare with at the end.
            likely = sorted(scan.processes, key=lambda pid: -self._likely(scan.processes[pid]))[:BUSIEST]
            self._first = replace(scan, threads=self._threads(likely))
        else:
            self._keep(recording, self._first, scan)
            self._first = scan
        defunct = sum(stat.state == "Z" for stat in scan.processes.values())
        recording.count(time, "processes", scan.total)
        recording.count(time, "processes_defunct", defunct)
        if scan.total > len(scan.processes):
            return f"{len(scan.processes):,} of {scan.total:,} processes looked at"
        if self._root.own and not _is_node_pid_namespace(self._root):
            return "only this container's processes are visible"
        return ""

    @staticmethod
    def _likely(stat: Stat) -> int:
        return stat.user + stat.system + (1 << 62 if stat.state == "R" else 0)

    def _scan(self, time: int) -> _Scan:
        pids = [int(name) for name in self._root.names("proc") if name.isascii() and name.isdigit()]
        pids.sort()
        if not pids:
            raise Unreadable("/proc shows no process (hidepid, or not a proc file system)")
        processes = {}
        try:
            proc = os.open(self._root.at("proc"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable("proc", error) from None
        try:
            for pid in pids[:MOST_PROCESSES]:
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

    def _keep(self, recording: Recording, first: _Scan, last: _Scan) -> None:
        """The busiest of the window with both readings; their threads likewise; and the defunct."""
        used = {pid: _used(first.processes.get(pid), stat, first.ticks) for pid, stat in last.processes.items()}
        busiest = [pid for pid in sorted(used, key=lambda pid: -used[pid])[:BUSIEST] if used[pid] > 0]
        for pid in busiest:
            self._add(recording, first, last, pid, pid, first.processes.get(pid), last.processes[pid])
        threads = self._threads(busiest)
        counts = Counter(pid for pid, _ in threads)
        for (pid, tid), stat in threads.items():
            before = first.threads.get((pid, tid))
            if counts[pid] > 1 and _used(before, stat, first.ticks) > 0:
                self._add(recording, first, last, pid, tid, before, stat, thread=True)
        defunct = [pid for pid, stat in last.processes.items() if stat.state == "Z"]
        for pid in defunct[:MOST_DEFUNCT]:
            self._add(recording, first, last, pid, pid, None, last.processes[pid])

    def _add(
        self,
        recording: Recording,
        first: _Scan,
        last: _Scan,
        pid: int,
        tid: int,
        before: Stat | None,
        after: Stat,
        thread: bool = False,
    ) -> None:
        cgroup = "" if thread else self._cgroup(pid)
        for time, stat in ((first.time, before), (last.time, after)):
            if stat is not None and stat.start == after.start:
                recording["processes"].add(
                    time, pid, tid, stat.start, stat.ppid, stat.comm, stat.state, stat.core, stat.user, stat.system, cgroup
                )

    def _cgroup(self, pid: int) -> str:
        try:
            return parse_cgroup(self._root.read(f"proc/{pid}/cgroup", 1 << 16))
        except Unreadable:
            return ""


def _used(before: Stat | None, after: Stat, since: int) -> int:
    """Ticks used between two readings. One that began in between has used all it has; of one that was not read before
    nothing is known, and a number that went to another process is not the same process."""
    total = after.user + after.system
    if before is not None and before.start == after.start:
        return total - before.user - before.system
    return total if after.start >= since else 0


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
        # Field 3 of proc(5) is words[0]: state; 4 ppid, 14 utime, 15 stime, 22 starttime, 39 processor.
        state = words[0].decode("ascii")
        numbers = [int(words[i]) for i in (1, 11, 12, 19, 36)]
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


# PROC_PID_INIT_INO in include/linux/proc_ns.h: the number of the first PID namespace never changes.
_INIT_PID_NAMESPACE = "pid:[4026531836]"


def _is_node_pid_namespace(root: Root) -> bool:
    try:
        return os.readlink(root.at("proc/self/ns/pid")) == _INIT_PID_NAMESPACE
    except OSError:
        return True
