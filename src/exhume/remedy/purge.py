"""Let zombie memory cgroups go without a reboot: reclaim from the nearest live parent, in small bites.

Reclaim takes from the live groups below the same parent too. What works in our favour is that the kernel scrapes a dead
group clean on its first look, whatever its size, while it takes only a sliver of a live one (get_scan_count in mm/vmscan.c:
"If the cgroup's already been deleted, make sure to scrape out the remaining cache"). So the bites are small, what the live
ones lose is watched, and it ends before that is more than was agreed to.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.node.cgroups import Hierarchy
from exhume.node.owners import owner
from exhume.node.root import Root
from exhume.remedy.protected import protected

if TYPE_CHECKING:
    from exhume.node.memcg_walk import MemcgWalk

# Of the cache of the live groups below the same parent, so much may be lost without asking again.
ACCEPTED_LOSS = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """One live directory to reclaim from."""

    home: str
    zombies: int
    serials: frozenset[int]
    pinned_bytes: int
    live_groups: int
    cache_bytes: int
    """Page cache of the live groups below it (itself included), which reclaim takes from as well."""
    swap_bytes: int
    """Their anonymous memory, if there is swap to put it into."""
    watched: tuple[str, ...]
    """The live groups with the most cache, whose usage is watched."""
    protected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """Zombies that do not go this way, and the way that would work."""

    home: str
    zombies: int
    why: str
    way: str


@dataclass(frozen=True, slots=True)
class PurgePlan:
    targets: tuple[Target, ...]
    left: tuple[Left, ...]
    version: int

    @property
    def zombies(self) -> int:
        return sum(target.zombies for target in self.targets)

    def refusals(self) -> tuple[str, ...]:
        """Why it must not be done without --accept-cache-loss."""
        return tuple(
            f"{target.home}: {', '.join(target.protected[:3])} live{'s' if len(target.protected) == 1 else ''} below it "
            f"and would lose cache"
            for target in self.targets
            if target.protected
        )


MOST_WATCHED = 32

_TMPFS = "delete the files on tmpfs (/dev/shm, /run, emptyDir in memory) that they wrote, or add swap"
_KERNEL = "kernel objects hold them: echo 2 > /proc/sys/vm/drop_caches frees dentries and inodes, else a reboot"
_EMPTY = "nothing is charged to them: an open socket, a cgroup file or a BPF link does; end the process that holds it"
_ROOT = "the root of the hierarchy cannot be reclaimed from by itself: echo 1 > /proc/sys/vm/drop_caches, or a reboot"
_RECLAIM = "this kernel has no memory.reclaim (it came with 5.19): echo 1 > /proc/sys/vm/drop_caches, or a reboot"
_PARENT = "they only wait for zombies that lived inside them, and go with them"


def plan(root: Root, hierarchy: Hierarchy, seen: "MemcgWalk", under: str = "/", swap: bool = False) -> PurgePlan:
    """What would be reclaimed from where, and what is left out beforehand."""
    places = seen.places(seen.zombies)
    rows_by_home: dict[str, list[int]] = {}
    for (home, rest), row in zip(places, seen.zombies.tolist(), strict=True):
        if _below(home, under) or _below(home.rstrip("/") + rest, under):
            rows_by_home.setdefault(home, []).append(row)
    live_rows = np.flatnonzero(~seen.dying)
    live_paths = dict(zip(seen.paths(live_rows), live_rows.tolist(), strict=True))
    holders = set(seen.parent[seen.zombies].tolist())
    targets, left = [], []
    for home, rows in rows_by_home.items():
        here = np.array(rows)
        cache = here[seen.file_bytes[here] > 0]
        stuck = here[(seen.anon_bytes + seen.unevictable_bytes)[here] > 0]
        cache = np.setdiff1d(cache, stuck)
        others = np.setdiff1d(np.setdiff1d(here, cache), stuck)
        waiting = np.array([row for row in others.tolist() if row in holders and seen.empty[row]], dtype=int)
        empty = np.setdiff1d(others[seen.empty[others]], waiting)
        kernel = np.setdiff1d(np.setdiff1d(others, empty), waiting)
        for some, why, way in (
            (stuck, "shared memory or tmpfs", _TMPFS),
            (kernel, "kernel objects", _KERNEL),
            (empty, "nothing charged", _EMPTY),
            (waiting, "zombies below them", _PARENT),
        ):
            if len(some):
                left.append(Left(home, len(some), why, way))
        if not len(cache):
            continue
        if home == "/":
            left.append(Left(home, len(cache), "page cache, directly below the root", _ROOT))
        elif hierarchy.version == 2 and not root.exists(f"{hierarchy.path}{home}/memory.reclaim"):
            left.append(Left(home, len(cache), "page cache", _RECLAIM))
        else:
            targets.append(_target(seen, home, cache, live_paths, swap))
    targets.sort(key=lambda target: -target.zombies)
    return PurgePlan(tuple(targets), tuple(left), hierarchy.version)


def _target(
    seen: "MemcgWalk", home: str, cache: "np.ndarray[tuple[int], np.dtype[np.int64]]", live: dict[str, int], swap: bool
) -> Target:
    below = {path: row for path, row in live.items() if _below(path, home)}
    rows = np.array(list(below.values()), dtype=int)
    by_cache = sorted(below, key=lambda path: -int(seen.file_bytes[below[path]]))
    units = sorted({unit for path in below if (unit := owner(path).unit) and protected(unit)})
    return Target(
        home=home,
        zombies=len(cache),
        serials=frozenset(seen.serial[cache].tolist()),
        pinned_bytes=int(seen.file_bytes[cache].sum()),
        live_groups=len(below),
        cache_bytes=int(seen.file_bytes[rows].sum()),
        swap_bytes=int(seen.anon_bytes[rows].sum()) if swap else 0,
        watched=tuple(path for path in by_cache[:MOST_WATCHED] if seen.file_bytes[below[path]] > 0),
        protected=tuple(units),
    )


def _below(path: str, ancestor: str) -> bool:
    return ancestor == "/" or path == ancestor or path.startswith(ancestor.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target."""

    home: str
    zombies: int
    gone: int
    lost_bytes: int
    """What the live groups' usage fell by meanwhile; what they did themselves included."""
    bites: int
    ended: str


def outcome(target: Target, after: "MemcgWalk", lost_bytes: int, bites: int, ended: str) -> Outcome:
    """Counted by the zombies' own serial numbers: what came meanwhile is not mixed up with what stayed."""
    still = len(target.serials & frozenset(after.serial[after.zombies].tolist()))
    return Outcome(target.home, target.zombies, target.zombies - still, lost_bytes, bites, ended)


def total_left(left: Iterable[Left]) -> int:
    return sum(one.zombies for one in left)
