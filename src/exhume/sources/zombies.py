"""The node's zombies by name: the walk where the kernel allows it, else the best count per directory, with their owners.

Falls back in this order: walking the kernel's tree by BPF; `cgroup.stat` of every directory (v2); what cgroup events have shown
since we listen, if anybody does; one count for the node. Each row of `memcg_walk` says which way it was found.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from time import thread_time_ns
from typing import TYPE_CHECKING

import numpy as np

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree
from exhume.host.owners import Owner, owner
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Limit, Note, NotNamed, Reasons, sentences
from exhume.sources.memcg import Memcg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from exhume.sources.cgroup_events import KeptEvents
    from exhume.sources.memcg_walk import MemcgWalk
    from exhume.sources.zombie_holders import UnreapedProcess

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
    unit: str = ""
    pod: str = ""
    container: str = ""
    image: str = ""
    confidence: int = 0
    how: str = ""


_NOBODY = _Owned()


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    example: str
    home: str
    zombies: int
    siblings: int = 0


@dataclass(frozen=True, slots=True)
class _Charged:
    """What holds the zombies of a place, as far as it could be seen."""

    file: int = 0
    anon: int = 0
    kernel: int = 0
    empty: int = 0
    swap: int = 0
    unreaped: int = 0
    parent_pid: int = 0
    parent_comm: str = ""
    parent_cgroup: str = ""


def _add(recording: Recording, time: int, place: _Place, owned: _Owned, method: str, charged: _Charged | None = None) -> None:
    held = charged or _Charged()
    recording["memcg_walk"].add(
        time, place.path, place.example, place.home, place.zombies, place.siblings, held.file, held.anon, held.kernel,
        held.empty, owned.unit, owned.pod, owned.container, owned.image, owned.confidence, owned.how, method, held.swap,
        held.unreaped, held.parent_pid, held.parent_comm, held.parent_cgroup,
    )  # fmt: skip


class Zombies:
    name = "zombies"
    every_ns = 0

    def __init__(
        self, root: Root, tree: Tree, again_ns: int = AGAIN_NS, few: int = 0, events: "KeptEvents | None" = None
    ) -> None:
        """Fewer than `few` by the kernel's count are not named: it would cost more than it tells. `events` name those whose
        removal they have seen, where the kernel cannot be walked."""
        self._events = events
        self._root = root
        self._tree = tree
        self._again_ns = again_ns
        self._few = few
        self._walked = self._asked = -1
        self._found = -1
        """Zombies when it was last walked, by the kernel's count."""
        self._cost_ns = 0
        """What that took of a core."""
        self._notes: Reasons = ()

    def read(self, recording: Recording, time: int) -> Reasons:
        if self._walked >= 0 and time - self._asked < self._again_ns:
            return self._notes
        self._asked = time
        if self._again_ns and self._as_they_were(recording.node, time):
            return self._notes
        self._walked = time
        begun, found = thread_time_ns(), self._found
        self._found, self._cost_ns = -1, 0  # if nothing comes of it, it is tried again
        try:
            self._notes = self._if_few(recording, time) or self._by_walk(recording, time)
        except Unreadable as error:
            self._notes = (NotNamed(str(error)), *self._by_count(recording, time))
        self._found, self._cost_ns = found, thread_time_ns() - begun
        return self._notes

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

    def _if_few(self, recording: Recording, time: int) -> Reasons:
        if not self._few:
            return ()
        counted = Recording(recording.node)
        try:
            Memcg(self._root, self._tree).read(counted, time)
        except Unreadable:
            return ()
        whole = next(counted["memcg"].rows())
        if not 0 <= whole["dying"] < self._few or whole["scope"] != "node":
            return ()
        recording.count(time, "memcg_walk_live", whole["live"])
        recording.count(time, "memcg_walk_zombies", whole["dying"])
        return (Note(f"fewer than {self._few}, so they were not named: exhume zombies does"),)

    def _by_walk(self, recording: Recording, time: int) -> Reasons:
        from exhume.sources.memcg_walk import walk
        from exhume.sources.zombie_groups import collapse
        from exhume.sources.zombie_holders import Holder, holders

        if not self._root.same_kernel():
            raise Unreadable("because only the running kernel can be walked, and this root is another's")
        seen = walk()
        rows = seen.zombies
        places = seen.places(rows)
        groups = collapse(places)
        live = np.bincount(seen.parent[1:][~seen.dying[1:]], minlength=len(seen)) if len(seen) > 1 else np.zeros(1, int)
        held = holders(seen, self._root)
        unreaped = np.zeros(len(seen), bool)
        unreaped[rows] = held.behind == Holder.UNREAPED_PROCESS
        of_row = {one.row: one for one in held.processes}
        anybody = next((one for one, _ in held.parents()), None)
        owners = _Owners(self._root)

        def charged(members: "NDArray[np.int64]") -> _Charged:
            count = int(unreaped[members].sum())
            parent = _parent(of_row, members.tolist()) or anybody if count else None
            return _Charged(
                file=int(seen.file_bytes[members].sum()),
                anon=int((seen.anon_bytes + seen.unevictable_bytes)[members].sum()),
                kernel=int(seen.pinning_kernel_bytes[members].sum()),
                empty=int(seen.empty[members].sum()),
                swap=int(seen.swap_bytes[members].sum()),
                unreaped=count,
                parent_pid=parent.parent_pid if parent is not None else 0,
                parent_comm=parent.parent_comm if parent is not None else "",
                parent_cgroup=parent.parent_cgroup if parent is not None else "",
            )

        for group in groups[:MOST_GROUPS]:
            members = rows[np.array(group.members)]
            home = places[group.members[0]][0]
            siblings = int(live[_home(seen, int(members[0]))])
            owned = owners.of(group.example)
            place = _Place(group.path, group.example, home, len(members), siblings)
            _add(recording, time, place, owned, seen.method, charged(members))
        if rest := groups[MOST_GROUPS:]:
            many = rows[np.array([member for group in rest for member in group.members])]
            place = _Place(f"({len(rest):,} more places)", rest[0].example, "/", len(many))
            _add(recording, time, place, _NOBODY, seen.method, charged(many))
        recording.count(time, "memcg_walk_live", len(seen) - len(rows))
        recording.count(time, "memcg_walk_zombies", len(rows))
        recording.count(time, "memcg_walk_moved", int(seen.moved))
        recording.count(time, "memcg_walk_longest_ns", seen.longest_call_ns)
        if held.exact:
            recording.count(time, "memcg_walk_unreaped", int(unreaped.sum()))
        notes: list[Note | Limit] = [Note("named by walking the kernel's own tree")]
        if seen.moved:
            notes.append(Note("groups came and went meanwhile"))
        if held.processes and not held.exact:
            notes.append(Note(f"which processes hold zombies is estimated: {held.note}"))
        if not seen.complete:
            notes.append(Limit("not to its end, it grew too fast"))
        return tuple(notes)

    def _by_count(self, recording: Recording, time: int) -> Reasons:
        """What can be said without names: on v2 by directory, on v1 one number for the node."""
        counted = Recording(recording.node)
        notes = Memcg(self._root, self._tree).read(counted, time)
        rows = list(counted["memcg"].rows())
        whole = rows[0]
        if whole["dying"] < 0:
            raise Unreadable(sentences(notes))
        left = whole["dying"]
        owners = _Owners(self._root)
        method = "cgroup-stat" if whole["method"].startswith("cgroup-stat") else "count"
        below = {row["path"]: row["dying"] for row in rows[1:]}
        for path, dying in sorted(below.items(), key=lambda item: -item[1]):
            # A directory's number includes those of the directories in it.
            own = dying - sum(n for other, n in below.items() if other.rsplit("/", 1)[0] == path)
            if own > 0:
                left -= own
                _add(recording, time, _Place(f"{path}/*", "", path, own), owners.of(path), method)
        if method == "count":
            left -= self._by_events(recording, time, owners)
        if left > 0:
            _add(recording, time, _Place("/*", "", "/", left), _NOBODY, method)
        recording.count(time, "memcg_walk_live", whole["live"])
        recording.count(time, "memcg_walk_zombies", whole["dying"])
        return notes

    def _by_events(self, recording: Recording, time: int, owners: "_Owners") -> int:
        """Groups whose removal was seen, and not their release; says how many that were."""
        if self._events is None:
            return 0
        from exhume.sources.cgroup_events import lives, parent
        from exhume.sources.zombie_groups import collapse

        dead = [life.path for life in lives(self._events.kept) if life.zombie(time)]
        for group in collapse([(parent(path), path[len(parent(path).rstrip("/")) :]) for path in dead]):
            place = _Place(group.path, group.example, parent(group.example), len(group.members))
            _add(recording, time, place, owners.of(group.example), "events")
        return len(dead)


def _home(seen: "MemcgWalk", row: int) -> int:
    """The row of the nearest directory above a zombie that is still there."""
    above = int(seen.parent[row])
    while above > 0 and seen.dying[above]:
        above = int(seen.parent[above])
    return max(0, above)


def _parent(of_row: "dict[int, UnreapedProcess]", rows: list[int]) -> "UnreapedProcess | None":
    """One of the processes whose parent has not reaped most of those that hold these."""
    known = [one for row in rows if (one := of_row.get(row)) is not None]
    (pid, _), *_ = Counter(one.parent_pid for one in known).most_common(1) or [(0, 0)]
    return next((one for one in known if one.parent_pid == pid), None)


class _Owners:
    """Owners by path; what the runtime left on disk is read once."""

    def __init__(self, root: Root) -> None:
        from exhume.sources.container_state import Containers

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
