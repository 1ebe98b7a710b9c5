"""Defunct processes: who has not collected them, for how long at most, and what can be done about it.

A defunct process is dead already: no signal reaches it, and it goes when its parent calls wait(2) or ends. So it is the parent
that can be told (SIGCHLD, which a sleeping one may have missed) or started anew, by its unit.
"""

import os
from dataclasses import dataclass

from exhume.errors import Refused, Unreadable
from exhume.host.owners import innermost
from exhume.host.programs import protected_unit
from exhume.host.quantities import SECOND, ago
from exhume.host.root import Root
from exhume.remedy.plan_model import Relief, Step
from exhume.remedy.plan_unit import UnitPlanner
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.processes import signal_parent
from exhume.remedy.whose import elsewhere
from exhume.sources.processes import Stat, cgroup_of, stats
from exhume.text import printable


@dataclass(frozen=True, slots=True)
class Parent:
    """A process with children that it has not collected."""

    pid: int
    start: int
    comm: str
    cgroup: str
    """Empty where that is not known."""
    children: int
    oldest_s: float
    """Since the oldest of them was started: it has not been dead for longer."""

    def __str__(self) -> str:
        return f"{printable(self.comm)} [{self.pid}]"

    @property
    def unit(self) -> str:
        """The innermost, whoever's it is."""
        return innermost(self.cgroup)


def parents(root: Root) -> tuple[Parent, ...]:
    """The most children first."""
    known = dict(stats(root))
    now_s = _uptime_s(root)
    children: dict[int, list[Stat]] = {}
    for stat in known.values():
        if stat.state == "Z":
            children.setdefault(stat.ppid, []).append(stat)
    found = []
    for pid, dead in children.items():
        parent = known.get(pid)
        if parent is not None:
            oldest_s = max(0.0, now_s - min(stat.start for stat in dead) / os.sysconf("SC_CLK_TCK"))
            found.append(Parent(pid, parent.start, parent.comm, _cgroup(root, pid), len(dead), oldest_s))
    return tuple(sorted(found, key=lambda one: (-one.children, one.pid)))


def offers(root: Root, protection: Protection, planner: UnitPlanner | None) -> tuple[list[Step], list[Relief]]:
    """What can be done, the mildest first; for PID 1, which collects by itself, and for protected units nothing is.

    Without a planner nothing can be restarted.
    """
    steps: list[Step] = []
    relief: list[Relief] = []
    for one in parents(root):
        why = f"{one} has not collected {one.children:,} of its children, the oldest started {ago(one.oldest_s * SECOND)}"
        theirs = elsewhere(one.cgroup, protection.manager)
        if one.pid == 1:
            relief.append(Relief(str(one), why, "PID 1 collects them by itself: nothing is to be done"))
            continue
        if kept := _kept(one.unit, theirs, protection):
            relief.append(Relief(one.unit, kept, f"{why}; kill -CHLD {one.pid} tells it, if you want to"))
            continue
        steps.append(signal_parent(one.pid, one.start, f"{why}; it may have missed that they ended"))
        if theirs:
            relief.append(Relief(str(one), theirs, f"{why}; if SIGCHLD does not help, it has to be restarted there"))
        elif planner is None or not one.unit.endswith(".service"):
            relief.append(Relief(str(one), why, "if SIGCHLD does not help, only its own end does: they go to init then"))
        else:
            try:
                anew = f"{why}; with another parent they are collected at once"
                steps.append(planner.restart(one.unit, f"{one.pid}:{one.start}", anew))
            except Refused as refused:
                by_hand = f"{why}; if SIGCHLD does not help: systemctl restart {printable(one.unit)}"
                relief.append(Relief(one.unit, str(refused), by_hand))
    return steps, relief


def _kept(unit: str, theirs: str, protection: Protection) -> str:
    """Why nobody of a unit is told anything. Of a unit elsewhere the node's own files say nothing but what its name is."""
    if theirs:
        return f"{printable(unit)} is left alone: it is protected" if unit and protected_unit(unit) else ""
    guard = protection.built_in(unit) if unit else None
    return guard.sentence if guard is not None else ""


def _cgroup(root: Root, pid: int) -> str:
    try:
        return cgroup_of(root, pid)
    except Unreadable:
        return ""


def _uptime_s(root: Root) -> float:
    """Start times in /proc/PID/stat count from boot, suspended time included, as the first number here does (proc(5))."""
    try:
        return float(root.read("proc/uptime", 64).split()[0])
    except (Unreadable, ValueError, IndexError):
        return 0.0
