"""How many memory cgroups there are, alive and dying, by the best count that this kernel and this view of it allow.

Nothing here opens memory.stat or memory.numa_stat: on kernels before 5.8 one read of those at the root walks every
group, dead ones included, for seconds. cgroup.stat and /proc/cgroups print counters that the kernel keeps anyway.
"""

from exhume.errors import Unreadable
from exhume.host.cgroups import Hierarchy, Tree
from exhume.host.root import Root, key_values
from exhume.recording.recording import Recording
from exhume.recording.source_state import ContainerOnly, Limit, Note, Reasons
from exhume.text import from_path

# cgroup.stat files read to find below which directory the dying ones were.
MOST_PARENTS = 200
# A lazy reader looks at the directories only when the kernel's own count has changed, and after so many readings: each zombie
# more changes it, while a group that was there and dies as a zombie does not.
AT_LATEST = 5


class Memcg:
    name = "memcg"
    every_ns = 0

    def __init__(self, root: Root, tree: Tree, lazy: bool = False) -> None:
        """`lazy` is for whoever reads every second for hours."""
        self._root = root
        self._tree = tree
        self._lazy = lazy
        self._seen: object = None
        """What the kernel counted when the directories were last looked at."""
        self._again = 0
        self._below: list[tuple[str, tuple[int, int]]] = []

    def _changed(self, count: object) -> bool:
        """Whether the directories are to be looked at."""
        self._again -= 1
        if self._lazy and self._again > 0 and count == self._seen:
            return False
        self._seen, self._again = count, AT_LATEST
        return True

    def read(self, recording: Recording, time: int) -> Reasons:
        hierarchy = self._tree.layout.of("memory")
        if hierarchy is None:
            raise Unreadable("no hierarchy with the memory controller is mounted (cgroup_disable=memory, or hidden here)")
        if hierarchy.version == 2 and (notes := self._by_cgroup_stat(recording, time, hierarchy)) is not None:
            return notes
        return self._by_subtraction(recording, time, hierarchy)

    def _by_cgroup_stat(self, recording: Recording, time: int, hierarchy: Hierarchy) -> Reasons | None:
        """v2 from 4.14: every directory tells how many live and dying ones it has below it."""
        stat = self._cgroup_stat(hierarchy.path)
        if "nr_dying_descendants" not in stat:
            return None
        # nr_subsys_* and nr_dying_subsys_* came with 6.12 (ab0312526867, "cgroup: Show # of subsystem CSSes in cgroup.stat").
        exact = "nr_dying_subsys_memory" in stat
        method = "cgroup-stat-memory" if exact else "cgroup-stat"
        table = recording["memcg"]
        scope = "node" if hierarchy.whole else "container"
        live, dying = _counts(stat, exact)
        total = live + dying if hierarchy.whole else self._node_total()
        table.add(time, "/", live, dying, total, method, scope, 1)
        if self._changed((live, dying)):
            self._below = self._parents(hierarchy, exact)
        for path, below in self._below:
            table.add(time, from_path(path), *below, sum(below), method, scope, 1)
        if not hierarchy.whole:
            return (ContainerOnly("hierarchy", "zombies elsewhere on the node are not counted"),)
        return (Note("counted by cgroup.stat" + ("" if exact else ", which counts the dying groups of every controller")),)

    def _parents(self, hierarchy: Hierarchy, exact: bool) -> list[tuple[str, tuple[int, int]]]:
        """Follow the dying ones down from the root: only directories that have some below them are looked into."""
        walk = self._tree.walk(hierarchy)
        leaves = {leaf for group in walk.leaves.values() for leaf in group}
        below: dict[str, list[str]] = {}
        for path in walk.paths[1:]:
            below.setdefault(path.rsplit("/", 1)[0] or "/", []).append(path)
        found: list[tuple[str, tuple[int, int]]] = []
        queue, left = ["/"], MOST_PARENTS
        while queue:
            for path in below.get(queue.pop(0), ()):
                if left <= 0:
                    return found
                left -= 1
                counts = _counts(self._cgroup_stat(hierarchy.path + path), exact)
                if counts[1] > 0:
                    found.append((path, counts))
                    if path not in leaves:
                        queue.append(path)
        return found

    def _by_subtraction(self, recording: Recording, time: int, hierarchy: Hierarchy) -> Reasons:
        """v1: the kernel counts live and dying together, the directories are the live ones. Only subtracted when both cover
        the same root: in a cgroup namespace /proc/cgroups still counts the node, the directories only the container."""
        total = self._node_total()
        walk = self._tree.walk(hierarchy, fresh=self._changed(total))
        scope = "node" if hierarchy.whole else "container"
        dying = max(0, total - walk.directories) if hierarchy.whole and total >= 0 else -1
        recording["memcg"].add(time, "/", walk.directories, dying, total, "proc-cgroups", scope, 1 if walk.complete else 0)
        if not hierarchy.whole:
            return (ContainerOnly("hierarchy", "the node's zombies cannot be told from its live groups"),)
        if total < 0:
            raise Unreadable("/proc/cgroups has no row for memory, so the dying groups of a v1 hierarchy cannot be counted")
        if not walk.complete:
            more = f"more than {walk.directories:,} directories"
            return (Limit(f"{more}, counting stopped: zombies are at most the difference"),)
        return (Note("counted by /proc/cgroups less the directories"),)

    def _cgroup_stat(self, path: str) -> dict[str, int]:
        try:
            return dict(key_values(self._root.read(f"{path}/cgroup.stat", 4096)))
        except Unreadable:
            return {}

    def _node_total(self) -> int:
        try:
            return parse_proc_cgroups(self._root.read("proc/cgroups", 1 << 16)).get("memory", -1)
        except Unreadable:
            return -1


def _counts(stat: dict[str, int], exact: bool) -> tuple[int, int]:
    if exact:
        return stat.get("nr_subsys_memory", stat.get("nr_descendants", 0)), stat.get("nr_dying_subsys_memory", 0)
    return stat.get("nr_descendants", 0) + 1, stat.get("nr_dying_descendants", 0)


def parse_proc_cgroups(raw: bytes) -> dict[str, int]:
    """Controller to number of cgroups, live and dying, of the hierarchy it is in; disabled ones are left out."""
    found = {}
    for line in raw.split(b"\n"):
        words = line.split()
        if len(words) == 4 and words[3] == b"1" and words[2].isdigit() and len(words[2]) < 19:
            found[words[0].decode("ascii", "backslashreplace")] = int(words[2])
    return found
