"""What a purge watches while it works, cheaply: how many zombies are left, and what the live groups have lost."""

from exhume.errors import Unreadable
from exhume.node.cgroups import Hierarchy
from exhume.node.memcg import parse_proc_cgroups
from exhume.node.root import Root, key_values


class Usage:
    """The memory of the live groups that have most to lose. Page counters only: no statistics file is opened."""

    def __init__(self, root: Root, hierarchy: Hierarchy, paths: tuple[str, ...]) -> None:
        self._root = root
        name = "memory.usage_in_bytes" if hierarchy.version == 1 else "memory.current"
        # A group's counter includes its children's: of those on one path only the topmost counts.
        tops = [path for path in paths if not any(path.startswith(other + "/") for other in paths)]
        self._files = [f"{hierarchy.path}{path}/{name}" for path in tops]
        self._before = {file: self._read(file) for file in self._files}

    def _read(self, file: str) -> int:
        try:
            raw = self._root.read(file, 64).strip()
        except Unreadable:
            return 0
        return int(raw) if raw.isdigit() and len(raw) < 19 else 0

    def lost(self) -> int:
        """By how much those that lost something fell; what others gained does not make up for it."""
        return sum(max(0, before - self._read(file)) for file, before in self._before.items())


class Zombies:
    """How many of those that were to go are left, by the kernel's own counters. What comes and goes elsewhere blurs it on v1;
    the result is counted by a walk."""

    def __init__(self, root: Root, hierarchy: Hierarchy, home: str, expected: int) -> None:
        self._root, self._hierarchy, self._home = root, hierarchy, home
        self._base = self._count() - expected

    def _count(self) -> int:
        try:
            if self._hierarchy.version == 2:
                stat = self._root.read(f"{self._hierarchy.path}{self._home}/cgroup.stat", 4096)
                return dict(key_values(stat)).get("nr_dying_descendants", 0)
            return parse_proc_cgroups(self._root.read("proc/cgroups", 1 << 16)).get("memory", 0)
        except Unreadable:
            return 0

    def left(self) -> int:
        return self._count() - self._base
