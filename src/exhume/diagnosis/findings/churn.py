"""cgroups that came and went while we looked, by place: what loops are made of, and what leaks leave behind."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from exhume.recording.recording import Recording
from exhume.sources.cgroup_events import SETTLE_NS, Life, lives, parent
from exhume.sources.zombie_groups import Shapes


@dataclass(frozen=True, slots=True)
class Group:
    """One cgroup of those: its life, its place, and who made it where that was seen."""

    life: Life
    parent: str
    shape: str
    """Its path without what a machine made up in it."""
    comm: str
    pid: int


@dataclass(frozen=True, slots=True)
class Churned:
    groups: tuple[Group, ...]
    start: int
    end: int
    lost: int
    """Events that the kernel could not tell: what looks like a zombie may then be none."""

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9

    def settled(self, groups: Iterable[Group]) -> list[Group]:
        """Those of them that were removed long enough ago to be released by now, if they are going to be."""
        return [group for group in groups if 0 <= group.life.removed <= self.end - SETTLE_NS]

    def unreleased(self, groups: Iterable[Group]) -> list[Group]:
        return [group for group in groups if group.life.zombie(self.end)]

    def steady(self, groups: Iterable[Group]) -> bool:
        """Whether they were removed all along, and not at once: each third of the time has its part of them."""
        thirds = [0, 0, 0]
        length = max(1, self.end - SETTLE_NS - self.start)
        for group in groups:
            thirds[min(2, max(0, (group.life.removed - self.start) * 3 // length))] += 1
        return min(thirds) * 10 >= sum(thirds) > 0


def churned(recording: Recording) -> Churned:
    lost = recording.counter("cgroup_events_lost")
    return replace(recording.derived("cgroup_events", _churned), lost=lost.last if lost is not None else 0)


def _churned(recording: Recording) -> Churned:
    table = recording["cgroup_events"]
    times = table.ints("time")
    start, end = recording.window
    if not len(times):
        return Churned((), start, end, 0)
    start = min(start, int(times.min())) if end > start else int(times.min())
    end = max(end, int(times.max()))
    makers: dict[tuple[int, int, int], tuple[str, int]] = {}
    numbers = (table.ints(name).tolist() for name in ("time", "hierarchy", "id", "pid"))
    for time, hierarchy, number, pid, kind, comm in zip(*numbers, table.texts("kind"), table.texts("comm"), strict=True):
        if kind == "mkdir":
            makers[hierarchy, number, time] = comm, pid
    shapes = Shapes()
    groups = []
    for life in lives(table):
        comm, pid = makers.get((life.hierarchy, life.id, life.made), ("", 0))
        groups.append(Group(life, parent(life.path), shapes[life.path], "systemd" if pid == 1 and not comm else comm, pid))
    # Those that began at once, in an order that does not depend on that of the rows.
    groups.sort(key=lambda group: (group.life.made, group.life.removed, group.life.released, group.life.path, group.life.id))
    return Churned(tuple(groups), start, end, 0)


def within(home: str, path: str) -> bool:
    """Whether a cgroup path lies in another, by whole names."""
    return path == home or path.startswith(home.rstrip("/") + "/")
