"""The node's zombies by name: the walk where the kernel allows it, else the best count per directory, with their owners.

Falls back in this order: walking the kernel's tree by BPF; `cgroup.stat` of every directory (v2); what cgroup events have shown
since we listen, if anybody does; one count for the node. Each row of `memcg_walk` says which way it was found.
"""

from contextlib import suppress
from dataclasses import dataclass
from time import thread_time_ns
from typing import TYPE_CHECKING

import numpy as np

from exhume.errors import Unreadable
from exhume.node.cgroups import Tree
from exhume.node.memcg import Memcg
from exhume.node.owners import Owner, owner
from exhume.node.root import Root
from exhume.recording.recording import Node, Recording

if TYPE_CHECKING:
    from exhume.node.memcg_walk import MemcgWalk

# A walk is repeated at most so often, and only if there are more or fewer zombies by this share: it is cheap, not free (0.2 s
# for 60,000). Who adds to them meanwhile is seen by cgroup events. After so long it is repeated in any case.
AGAIN_NS = 60_000_000_000
CHANGED = 0.02
AT_LATEST_NS = 600_000_000_000
# Sooner only for as little of a core as this; if it is dearer it waits, unless there are more or fewer by a fifth. But not
# for longer: verdicts are made of what is on disk, and an agent keeps a quarter of an hour.
COST = 0.0005
MUCH_CHANGED = 0.2
# Groups that are kept; what is beyond is summed into one row, so that the sum stays true.
MOST_GROUPS = 200


@dataclass(frozen=True, slots=True)
class _Owned:
    unit: str
    pod: str
    container: str
    image: str
    confidence: int
    how: str


class Zombies:
    name = "zombies"
    every_ns = 0

    def __init__(self, root: Root, tree: Tree, again_ns: int = AGAIN_NS, few: int = 0) -> None:
        """Fewer than `few` by the kernel's count are not named: it would cost more than it tells."""
        self._root = root
        self._tree = tree
        self._again_ns = again_ns
        self._few = few
        self._walked = self._asked = -1
        self._found = -1
        """Zombies when it was last walked, by the kernel's count."""
        self._cost_ns = 0
        """What that took of a core."""
        self._note = ""

    def read(self, recording: Recording, time: int) -> str:
        if self._walked >= 0 and time - self._asked < self._again_ns:
            return self._note
        self._asked = time
        if self._again_ns and self._as_they_were(recording.node, time):
            return self._note
        self._walked = time
        begun, found = thread_time_ns(), self._found
        self._found, self._cost_ns = -1, 0  # if nothing comes of it, it is tried again
        try:
            self._note = self._if_few(recording, time) or self._by_walk(recording, time)
        except Unreadable as error:
            self._note = f"not named, {error}; {self._by_count(recording, time)}"
        self._found, self._cost_ns = found, thread_time_ns() - begun
        return self._note

    def _as_they_were(self, node: Node, time: int) -> bool:
        """Whether another walk would find what the last one found, or too little else for what it costs."""
        counted = Recording(node)
        found = -1
        with suppress(Unreadable):
            Memcg(self._root, self._tree).read(counted, time)
            found = next(counted["memcg"].rows())["dying"]
        since = time - self._walked
        known = found >= 0 and self._found >= 0
        changed = abs(found - self._found)
        if self._cost_ns > COST * since:
            same = not known or changed <= MUCH_CHANGED * self._found
        else:
            same = known and changed < CHANGED * self._found
        if same and since < AT_LATEST_NS:
            return True
        self._found = found
        return False

    def _if_few(self, recording: Recording, time: int) -> str:
        if not self._few:
            return ""
        counted = Recording(recording.node)
        try:
            Memcg(self._root, self._tree).read(counted, time)
        except Unreadable:
            return ""
        whole = next(counted["memcg"].rows())
        if not 0 <= whole["dying"] < self._few or whole["scope"] != "node":
            return ""
        recording.count(time, "memcg_walk_live", whole["live"])
        recording.count(time, "memcg_walk_zombies", whole["dying"])
        return f"fewer than {self._few}, so they were not named: exhume zombies does"

    def _by_walk(self, recording: Recording, time: int) -> str:
        from exhume.node.memcg_walk import walk
        from exhume.node.zombie_groups import collapse

        if not self._root.same_kernel():
            raise Unreadable("because only the running kernel can be walked, and this root is another's")
        seen = walk()
        rows = seen.zombies
        places = seen.places(rows)
        groups = collapse(places)
        live = np.bincount(seen.parent[1:][~seen.dying[1:]], minlength=len(seen)) if len(seen) > 1 else np.zeros(1, int)
        owners = _Owners(self._root)
        table = recording["memcg_walk"]
        other = seen.unevictable_bytes + seen.swap_bytes
        if seen.kernel_pins:
            other = other + seen.kernel_bytes
        for group in groups[:MOST_GROUPS]:
            members = rows[np.array(group.members)]
            file, anon, kernel = (int(kind[members].sum()) for kind in (seen.file_bytes, seen.anon_bytes, other))
            home = places[group.members[0]][0]
            siblings = int(live[_home(seen, int(members[0]))])
            owned = owners.of(group.example)
            table.add(
                time, group.path, group.example, home, len(members), siblings, file, anon, kernel,
                int(seen.empty[members].sum()), owned.unit, owned.pod, owned.container, owned.image, owned.confidence,
                owned.how, seen.method,
            )  # fmt: skip
        if rest := groups[MOST_GROUPS:]:
            many = rows[np.array([member for group in rest for member in group.members])]
            file, anon, kernel = (int(kind[many].sum()) for kind in (seen.file_bytes, seen.anon_bytes, other))
            table.add(
                time, f"({len(rest):,} more places)", rest[0].example, "/", len(many), 0, file, anon, kernel,
                int(seen.empty[many].sum()), "", "", "", "", 0, "", seen.method,
            )  # fmt: skip
        recording.count(time, "memcg_walk_live", len(seen) - len(rows))
        recording.count(time, "memcg_walk_zombies", len(rows))
        recording.count(time, "memcg_walk_moved", int(seen.moved))
        recording.count(time, "memcg_walk_longest_ns", seen.longest_call_ns)
        moved = "; groups came and went meanwhile" if seen.moved else ""
        return f"named by walking the kernel's own tree{moved}" + (
            "" if seen.complete else "; not to its end, it grew too fast"
        )

    def _by_count(self, recording: Recording, time: int) -> str:
        """What can be said without names: on v2 by directory, on v1 one number for the node."""
        counted = Recording(recording.node)
        note = Memcg(self._root, self._tree).read(counted, time)
        rows = list(counted["memcg"].rows())
        whole = rows[0]
        if whole["dying"] < 0:
            raise Unreadable(note)
        left = whole["dying"]
        owners = _Owners(self._root)
        table = recording["memcg_walk"]
        method = "cgroup-stat" if whole["method"].startswith("cgroup-stat") else "count"
        below = {row["path"]: row["dying"] for row in rows[1:]}
        for path, dying in sorted(below.items(), key=lambda item: -item[1]):
            # A directory's number includes those of the directories in it.
            own = dying - sum(n for other, n in below.items() if other.rsplit("/", 1)[0] == path)
            if own > 0:
                left -= own
                owned = owners.of(path)
                table.add(
                    time, f"{path}/*", "", path, own, 0, 0, 0, 0, 0, owned.unit, owned.pod, owned.container, owned.image,
                    owned.confidence, owned.how, method,
                )  # fmt: skip
        if method == "count":
            left -= self._by_events(recording, time, owners)
        if left > 0:
            table.add(time, "/*", "", "/", left, 0, 0, 0, 0, 0, "", "", "", "", 0, "", method)
        recording.count(time, "memcg_walk_live", whole["live"])
        recording.count(time, "memcg_walk_zombies", whole["dying"])
        return note

    def _by_events(self, recording: Recording, time: int, owners: "_Owners") -> int:
        """Groups whose removal was seen, and not their release; says how many that were."""
        if not len(recording["cgroup_events"]):
            return 0
        from exhume.node.cgroup_events import lives, parent
        from exhume.node.zombie_groups import collapse

        dead = [life.path for life in lives(recording["cgroup_events"]) if life.zombie(time)]
        for group in collapse([(parent(path), path[len(parent(path).rstrip("/")) :]) for path in dead]):
            owned = owners.of(group.example)
            recording["memcg_walk"].add(
                time, group.path, group.example, parent(group.example), len(group.members), 0, 0, 0, 0, 0, owned.unit,
                owned.pod, owned.container, owned.image, owned.confidence, owned.how, "events",
            )  # fmt: skip
        return len(dead)


def _home(seen: "MemcgWalk", row: int) -> int:
    """The row of the nearest directory above a zombie that is still there."""
    above = int(seen.parent[row])
    while above > 0 and seen.dying[above]:
        above = int(seen.parent[above])
    return max(0, above)


class _Owners:
    """Owners by path; what the runtime left on disk is read once."""

    def __init__(self, root: Root) -> None:
        from exhume.node.container_state import Containers

        self._containers = Containers(root)

    def of(self, path: str) -> _Owned:
        by_path: Owner = owner(path)
        if not by_path.container and not by_path.pod:
            # A unit's own cgroup is its own: systemd names it so.
            return _Owned(by_path.unit, "", "", "", 95 if by_path.unit else 0, "its path" if by_path.unit else "")
        state = self._containers.describe(by_path)
        pod = "/".join(part for part in (state.namespace, state.pod) if part) or by_path.pod
        sure = round(state.confidence * 100)
        return _Owned(state.started_by_unit, pod, by_path.container, state.image, sure, state.how or "its path")
