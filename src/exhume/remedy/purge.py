"""Let zombie memory cgroups go without a reboot: evict the very pages that pin them, and reclaim what does not go that way.

Eviction by file (see `evict`) costs the living nothing, and so is always allowed. Reclaim, from the nearest live parent, takes
from the live groups below it too. What works in our favour is that the kernel scrapes a dead group clean on its first look,
whatever its size, while it takes only a sliver of a live one (get_scan_count in mm/vmscan.c: "If the cgroup's already been
deleted, make sure to scrape out the remaining cache"). So the bites are small, what the live ones lose is watched, and it ends
before that is more than was agreed to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exhume.node.cgroups import Hierarchy
from exhume.node.owners import owner
from exhume.node.root import Root
from exhume.remedy.protected import protected

if TYPE_CHECKING:
    from exhume.node.memcg_walk import MemcgWalk
    from exhume.node.tmpfs_files import TmpfsFile

Rows = NDArray[np.int64]

# Of the cache of the live groups below the same parent, so much may be lost without asking again.
ACCEPTED_LOSS = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """The zombies of one live directory that can go."""

    home: str
    zombies: int
    serials: frozenset[int]
    by_file: int
    """So many of them go by evicting their pages, as far as the first few of these tell; the others only by reclaim."""
    no_reclaim: str
    """Why there is no reclaiming from this directory; empty if there is."""
    pinned_bytes: int
    live_groups: int
    cache_bytes: int
    """Page cache of the live groups below it (itself included), which reclaim takes from as well."""
    swap_bytes: int
    """Their anonymous memory, if there is swap to put it into."""
    watched: tuple[str, ...]
    """The live groups with the most cache, whose usage is watched."""
    protected: tuple[str, ...]

    @property
    def by_reclaim(self) -> int:
        return self.zombies - self.by_file

    @property
    def refusal(self) -> str:
        """Why it must not be reclaimed from without --accept-cache-loss; empty if it may."""
        if not self.protected:
            return ""
        live = "lives" if len(self.protected) == 1 else "live"
        return f"{self.home}: {', '.join(self.protected[:3])} {live} below it and would lose cache"


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
    files: tuple["TmpfsFile", ...] = ()
    """On tmpfs, those that pin the most of what is left."""

    @property
    def zombies(self) -> int:
        return sum(target.zombies for target in self.targets)

    @property
    def by_file(self) -> int:
        return sum(target.by_file for target in self.targets)

    def refusals(self) -> tuple[str, ...]:
        """Why what can only be reclaimed must not be without --accept-cache-loss."""
        return tuple(target.refusal for target in self.targets if target.by_reclaim and target.refusal)


MOST_WATCHED = 32
# So few zombies without a page prove nothing about the kernel.
ENOUGH = 5

_TMPFS = (
    "delete the files on tmpfs (/dev/shm, /run, emptyDir in memory) that they wrote, or add swap; "
    "what a process took before it was moved elsewhere goes when that process ends"
)
_KERNEL = "kernel objects hold them: echo 2 > /proc/sys/vm/drop_caches frees dentries and inodes, else a reboot"
# cgroup v2: an inode that was dirtied in a group keeps a reference to it for writeback (struct bdi_writeback, memcg_css).
_EMPTY = (
    "no page holds them: an inode that they dirtied, a socket, a cgroup file or a BPF link does; inodes go in time, "
    "or by echo 2 > /proc/sys/vm/drop_caches; for the others end the process that holds it"
)
_ROOT = "the root of the hierarchy cannot be reclaimed from by itself: echo 1 > /proc/sys/vm/drop_caches, or a reboot"
_RECLAIM = "this kernel has no memory.reclaim (it came with 5.19): echo 1 > /proc/sys/vm/drop_caches, or a reboot"
_PARENT = "they only wait for zombies that lived inside them, and go with them"


def rows_by_home(seen: "MemcgWalk", under: str = "/") -> dict[str, Rows]:
    """The zombies below a path, by the live directory that they are below."""
    rows: dict[str, list[int]] = {}
    for (home, rest), row in zip(seen.places(seen.zombies), seen.zombies.tolist(), strict=True):
        if _below(home, under) or _below(home + rest, under):
            rows.setdefault(home, []).append(row)
    return {home: np.array(some, np.int64) for home, some in rows.items()}


def pinned_by(seen: "MemcgWalk", rows: Rows) -> tuple[Rows, Rows]:
    """Those that only page cache pins, and those that shared memory does, which has no way out but swap."""
    stuck = (seen.anon_bytes + seen.unevictable_bytes)[rows] > 0
    cache = (seen.file_bytes[rows] > 0) | (seen.usage_bytes[rows] > 0 if listed_elsewhere(seen) else False)
    return rows[cache & ~stuck], rows[stuck]


def listed_elsewhere(seen: "MemcgWalk") -> bool:
    """Whether this kernel moves a dying group's pages to its parent's lists (7.1 does, f1cf8d2f36dc): something is charged to
    the zombies, and not one of them has a page on a list of its own. They go when the parent is reclaimed from."""
    charged = seen.zombies[seen.usage_bytes[seen.zombies] > 0]
    pages = (seen.file_bytes + seen.anon_bytes + seen.unevictable_bytes)[seen.zombies]
    return seen.kinds and len(charged) >= ENOUGH and not pages.any()


def plan(
    root: Root,
    hierarchy: Hierarchy,
    seen: "MemcgWalk",
    under: str = "/",
    swap: bool = False,
    by_file: Iterable[int] = (),
    files: tuple["TmpfsFile", ...] = (),
) -> PurgePlan:
    """What would go from where and by which way, and what is left out beforehand. `by_file` are rows that eviction frees."""
    live_rows = np.flatnonzero(~seen.dying)
    live_paths = dict(zip(seen.paths(live_rows), live_rows.tolist(), strict=True))
    holders = set(seen.parent[seen.zombies].tolist())
    evicted = np.fromiter(by_file, np.int64)
    targets, left = [], []
    for home, here in rows_by_home(seen, under).items():
        cache, stuck = pinned_by(seen, here)
        others = np.setdiff1d(np.setdiff1d(here, cache), stuck)
        waiting = np.array([row for row in others.tolist() if row in holders and seen.empty[row]], dtype=int)
        empty = np.setdiff1d(others[seen.empty[others]], waiting)
        kernel = np.setdiff1d(np.setdiff1d(others, empty), waiting)
        no_reclaim = ""
        if home == "/":
            no_reclaim = _ROOT
        elif hierarchy.version == 2 and not root.exists(f"{hierarchy.path}{home}/memory.reclaim"):
            no_reclaim = _RECLAIM
        going = np.intersect1d(cache, evicted) if no_reclaim else cache
        for some, why, way in (
            (stuck, "shared memory or tmpfs", _TMPFS),
            (kernel, "kernel objects", _KERNEL),
            (empty, "nothing charged", _EMPTY),
            (waiting, "zombies below them", _PARENT),
            (np.setdiff1d(cache, going), "page cache" + (", directly below the root" if home == "/" else ""), no_reclaim),
        ):
            if len(some):
                left.append(Left(home, len(some), why, way))
        if len(going):
            targets.append(_target(seen, home, going, evicted, no_reclaim, live_paths, swap))
    targets.sort(key=lambda target: -target.zombies)
    return PurgePlan(tuple(targets), tuple(left), hierarchy.version, files)


def _target(
    seen: "MemcgWalk", home: str, cache: Rows, evicted: Rows, no_reclaim: str, live: dict[str, int], swap: bool
) -> Target:
    below = {path: row for path, row in live.items() if _below(path, home)}
    rows = np.array(list(below.values()), dtype=int)
    by_cache = sorted(below, key=lambda path: -int(seen.file_bytes[below[path]]))
    units = sorted({unit for path in below if (unit := owner(path).unit) and protected(unit)})
    return Target(
        home=home,
        zombies=len(cache),
        serials=frozenset(seen.serial[cache].tolist()),
        by_file=len(np.intersect1d(cache, evicted)),
        no_reclaim=no_reclaim,
        pinned_bytes=int(seen.file_bytes[cache].sum() or seen.usage_bytes[cache].sum()),
        live_groups=len(below),
        cache_bytes=int(seen.file_bytes[rows].sum()),
        swap_bytes=int(seen.anon_bytes[rows].sum()) if swap else 0,
        # Not the home itself: what the zombies lose is lost to it too.
        watched=tuple(path for path in by_cache[:MOST_WATCHED] if path != home and seen.file_bytes[below[path]] > 0),
        protected=tuple(units),
    )


def _below(path: str, ancestor: str) -> bool:
    return ancestor == "/" or path == ancestor or path.startswith(ancestor.rstrip("/") + "/")


def stayed(target: Target, after: "MemcgWalk") -> Target:
    """What is left of a target, by the zombies' own serial numbers: what came meanwhile is not mixed up with what stayed."""
    serials = target.serials & frozenset(after.serial[after.zombies].tolist())
    return replace(target, zombies=len(serials), serials=serials, by_file=0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target."""

    home: str
    zombies: int
    gone: int
    by_file: int
    """So many of those that are gone were gone before anything was reclaimed."""
    lost_bytes: int
    """What the live groups' usage fell by while it was reclaimed; what they did themselves included."""
    bites: int
    ended: str
