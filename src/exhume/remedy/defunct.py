"""Defunct processes: who has not collected them, for how long at most, and what can be done about it.

A defunct process is dead already: no signal reaches it, and it goes when its parent calls wait(2) or ends. So it is the parent
that can be told (SIGCHLD, which a sleeping one may have missed) or started anew, by its unit.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.node.owners import owner
from exhume.node.processes import Stat, parse_cgroup, parse_stat
from exhume.node.root import Root
from exhume.remedy.plan_model import Relief, Step
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.processes import signal_parent
from exhume.remedy.steps.units import restart_unit
from exhume.text import printable

MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Parent:
    """A process with children that it has not collected."""

    pid: int
    start: int
    comm: str
    unit: str
    children: int
    oldest_s: float
    """Since the oldest of them was started: it has not been dead for longer."""

    def __str__(self) -> str:
        return f"{printable(self.comm)} [{self.pid}]"


def parents(root: Root) -> tuple[Parent, ...]:
    """The most children first."""
    stats = dict(_stats(root))
    now_s = _uptime_s(root)
    children: dict[int, list[Stat]] = {}
    for stat in stats.values():
        if stat.state == "Z":
            children.setdefault(stat.ppid, []).append(stat)
    found = []
    for pid, dead in children.items():
        parent = stats.get(pid)
        if parent is not None:
            oldest_s = max(0.0, now_s - min(stat.start for stat in dead) / os.sysconf("SC_CLK_TCK"))
            found.append(Parent(pid, parent.start, parent.comm, _unit(root, pid), len(dead), oldest_s))
    return tuple(sorted(found, key=lambda one: (-one.children, one.pid)))


def offers(root: Root, protection: Protection, running: bool) -> tuple[list[Step], list[Relief]]:
    """What can be done, the mildest first; for PID 1, which collects by itself, and for protected units nothing is."""
    steps: list[Step] = []
    relief: list[Relief] = []
    for one in parents(root):
        why = f"{one} has not collected {one.children:,} of its children, the oldest started {one.oldest_s:,.0f} s ago"
        if one.pid == 1:
            relief.append(Relief(str(one), why, "PID 1 collects them by itself: nothing is to be done"))
        elif one.unit and (guard := protection.built_in(one.unit)) is not None:
            relief.append(Relief(one.unit, guard.sentence, f"{why}; kill -CHLD {one.pid} tells it, if you want to"))
        else:
            steps.append(signal_parent(one.pid, one.start, f"{why}; it may have missed that they ended"))
            if running and one.unit.endswith(".service"):
                steps.append(restart_unit(one.unit, f"{why}; with another parent they are collected at once", "high"))
            elif not one.unit:
                relief.append(Relief(str(one), why, "if SIGCHLD does not help, only its own end does: they go to init then"))
    return steps, relief


def _stats(root: Root) -> Iterator[tuple[int, Stat]]:
    pids = sorted(int(name) for name in root.names("proc") if name.isascii() and name.isdigit())
    for pid in pids[:MOST]:
        try:
            stat = parse_stat(root.read(f"proc/{pid}/stat", 4096))
        except Unreadable:  # gone meanwhile
            continue
        if stat is not None:
            yield pid, stat


def _unit(root: Root, pid: int) -> str:
    try:
        return owner(parse_cgroup(root.read(f"proc/{pid}/cgroup", 1 << 16))).unit
    except Unreadable:
        return ""


def _uptime_s(root: Root) -> float:
    """Start times in /proc/PID/stat count from boot, suspended time included, as the first number here does (proc(5))."""
    try:
        return float(root.read("proc/uptime", 64).split()[0])
    except (Unreadable, ValueError, IndexError):
        return 0.0
