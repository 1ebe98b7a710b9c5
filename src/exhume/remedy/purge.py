"""Plan how to free zombie memory cgroups without a reboot: which go, by which way, at what cost to the living, and which stay.

Two ways free a zombie that page cache pins. Eviction by file (`evict`) drops the pages of that zombie and no others. Reclaim
(`reclaim`) works on the live directory above it and takes from live groups too; it is for pages that eviction does not reach.
Every part of a plan says the most that it can cost, and the purge keeps to that. Where the kernel's interface allows no limit,
or the living use the pages, the part is carried out only if the loss was accepted.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exhume.host.cgroups import Hierarchy
from exhume.host.owners import units
from exhume.host.programs import protected_unit
from exhume.host.root import Root
from exhume.remedy.reclaim import largest_folio_bytes, worst_step_bytes
from exhume.sources.zombie_holders import Holder, Holders, UnreapedProcess, listed_elsewhere

if TYPE_CHECKING:
    from exhume.remedy.evict import Sorted
    from exhume.sources.memcg_walk import MemcgWalk
    from exhume.sources.tmpfs_files import TmpfsFile

Rows = NDArray[np.int64]

ACCEPTED_LOSS = 0.05
"""The share of the page cache of live groups that reclaim may take without asking."""
MOST_EVICTED_BYTES = 1 << 30
"""Page cache that is evicted without asking, in all."""
MOST_WATCHED = 1024
"""Live groups whose usage is watched during reclaim; more than these cannot be promised anything."""
MOST_USERS = 3


class Way(Enum):
    EVICT = "evict"
    EVICT_SMALL = "evict-small"
    """Small zombies whose pages were used more than once, but that no process has open or mapped now."""
    EVICT_IN_USE = "evict-in-use"
    """Pages that live groups use: they will read them again."""
    EVICT_LARGE = "evict-large"
    """Cold pages, but more of them than are evicted without asking."""
    RECLAIM = "reclaim"
    """In steps, up to a limit."""
    RECLAIM_ALL = "reclaim-all"
    """Without a limit that could be kept."""

    @property
    def evicts(self) -> bool:
        return self not in (Way.RECLAIM, Way.RECLAIM_ALL)


@dataclass(frozen=True, slots=True)
class Live:
    """What a reclaim takes from: the live groups at and below a directory."""

    groups: int
    cache_bytes: int
    dead_cache_bytes: int
    """Of all zombies below it. Live groups may use it, and reclaim takes it with the rest."""
    own_cache_bytes: int
    """Of the directory itself. Its loss would not show: the counter falls with that of the zombies, too."""
    swap_bytes: int
    """Their anonymous memory, if there is swap to put it into."""
    watched: tuple[str, ...]
    """Those below it with page cache, whose usage is read around each step."""
    protected: tuple[str, ...]
    """Units among them that no remedy touches."""

    def can_be_kept_to(self, limit_bytes: int, folio_bytes: int) -> bool:
        """Whether every loss shows, and even the first step takes no more than the limit."""
        seen = self.own_cache_bytes <= limit_bytes and len(self.watched) <= MOST_WATCHED and not self.protected
        return seen and worst_step_bytes(len(self.watched), folio_bytes) <= limit_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """Zombies of one live directory that go by one way."""

    home: str
    way: Way
    serials: frozenset[int]
    pinned_bytes: int
    most_lost_bytes: int
    """The most that live groups lose or have to read again. For RECLAIM_ALL it is all they have."""
    why: str = ""
    """Why eviction does not do; empty where it does."""
    users: tuple[str, ...] = ()
    """Processes that have the files open."""
    live: Live | None = None

    @property
    def zombies(self) -> int:
        return len(self.serials)

    @property
    def needs_acceptance(self) -> bool:
        return self.way in (Way.EVICT_IN_USE, Way.EVICT_LARGE, Way.RECLAIM_ALL)


@dataclass(frozen=True, slots=True)
class Left:
    """Zombies that no purge frees, and what would."""

    home: str
    zombies: int
    holder: Holder
    frees: str
    commands: tuple[str, ...] = ()
    processes: tuple[tuple[UnreapedProcess, int], ...] = ()
    """Parents that do not reap, each by one of its dead children and with their number."""


@dataclass(frozen=True, slots=True)
class PurgePlan:
    parts: tuple[Part, ...]
    left: tuple[Left, ...]
    version: int
    files: tuple["TmpfsFile", ...] = ()
    """On tmpfs: those that pin the most zombies."""

    @property
    def zombies(self) -> int:
        return sum(part.zombies for part in self.parts)

    def allowed(self, accept_loss: bool = False, most_lost_bytes: int | None = None) -> tuple[Part, ...]:
        """Parts that may be carried out; with a limit only as many as cost no more than that together."""
        parts = tuple(part for part in self.parts if accept_loss or not part.needs_acceptance)
        if most_lost_bytes is None:
            return parts
        by_cost = sorted(parts, key=lambda part: part.most_lost_bytes)
        cost = accumulate(part.most_lost_bytes for part in by_cost)
        return tuple(part for part, so_far in zip(by_cost, cost, strict=True) if so_far <= most_lost_bytes)


_MAPPED = "programs have the pages mapped, or the file system cannot be asked for its files"
_UNREADABLE = "this kernel does not let the pages be found"
_ROOT = "the root of the hierarchy cannot be reclaimed from"
_NO_RECLAIM = "this kernel has no memory.reclaim (it came with 5.19)"
_DROP_CACHES = ("echo 1 > /proc/sys/vm/drop_caches",)
_FREED_BY_ALL = "dropping the page cache of the whole node frees them, or a reboot"


def rows_by_home(seen: "MemcgWalk", under: str = "/") -> dict[str, Rows]:
    """The zombies below a path, by the live directory that they are below."""
    rows: dict[str, list[int]] = {}
    for (home, rest), row in zip(seen.places(seen.zombies), seen.zombies.tolist(), strict=True):
        if _below(home, under) or _below(home + rest, under):
            rows.setdefault(home, []).append(row)
    return {home: np.array(some, np.int64) for home, some in rows.items()}


def plan(
    root: Root,
    hierarchy: Hierarchy,
    seen: "MemcgWalk",
    held: Holders,
    under: str = "/",
    by_use: "Sorted | None" = None,
    swap: bool = False,
    files: tuple["TmpfsFile", ...] = (),
) -> PurgePlan:
    """`by_use` has the zombies that eviction can free; None where the kernel does not let pages be read."""
    kind = np.full(len(seen), -1, np.int8)
    kind[held.rows] = held.kind
    parts: list[Part] = []
    left: list[Left] = []
    budget = MOST_EVICTED_BYTES
    for home, here in sorted(rows_by_home(seen, under).items(), key=lambda item: -len(item[1])):
        for holder in Holder:
            rows = here[kind[here] == holder]
            if holder is not Holder.PAGE_CACHE and len(rows):
                processes = tuple(held.parents(rows)) if holder is Holder.UNREAPED_PROCESS else ()
                left.append(Left(home, len(rows), holder, holder.frees, holder.commands, processes))
        cache = here[kind[here] == Holder.PAGE_CACHE]
        rest = cache
        if by_use is not None:
            cold = np.intersect1d(cache, by_use.cold)
            # Small ones first, so that as many as possible are freed within the budget.
            cold = cold[np.argsort(seen.file_bytes[cold], kind="stable")]
            fits = np.cumsum(seen.file_bytes[cold]) <= budget
            budget -= int(seen.file_bytes[cold[fits]].sum())
            in_use = np.intersect1d(cache, by_use.in_use)
            small = np.isin(cold, by_use.small)
            users = tuple(dict.fromkeys(user for row in in_use.tolist() for user in by_use.users.get(row, ())))
            parts += [
                part
                for part in (
                    _evicted(seen, home, Way.EVICT, cold[fits & ~small]),
                    _evicted(seen, home, Way.EVICT_SMALL, cold[fits & small]),
                    _evicted(seen, home, Way.EVICT_LARGE, cold[~fits]),
                    _evicted(seen, home, Way.EVICT_IN_USE, in_use, users),
                )
                if part.zombies
            ]
            rest = np.setdiff1d(np.setdiff1d(cache, cold), in_use)
        if not len(rest):
            continue
        why = _no_reclaim(root, hierarchy, home)
        if why:
            left.append(Left(home, len(rest), Holder.PAGE_CACHE, f"{why}; {_FREED_BY_ALL}", _DROP_CACHES))
        else:
            reachable = by_use is not None and not listed_elsewhere(seen)
            parts.append(_reclaimed(root, hierarchy, seen, home, rest, live_below(seen, home, swap), reachable))
    parts.sort(key=lambda part: (not part.way.evicts, part.needs_acceptance, -part.zombies))
    return PurgePlan(tuple(parts), tuple(left), hierarchy.version, files)


def _no_reclaim(root: Root, hierarchy: Hierarchy, home: str) -> str:
    if home == "/":
        return _ROOT
    if hierarchy.version == 2 and not root.exists(f"{hierarchy.path}{home}/memory.reclaim"):
        return _NO_RECLAIM
    return ""


def _evicted(seen: "MemcgWalk", home: str, way: Way, rows: Rows, users: tuple[str, ...] = ()) -> Part:
    pinned = int(seen.file_bytes[rows].sum())
    lost = 0 if way is Way.EVICT else pinned
    return Part(home, way, frozenset(seen.serial[rows].tolist()), pinned, lost, users=users)


def _reclaimed(root: Root, hierarchy: Hierarchy, seen: "MemcgWalk", home: str, rows: Rows, live: Live, reachable: bool) -> Part:
    """`reachable`: eviction looked at the pages of these zombies and cannot evict them."""
    pinned = int(seen.file_bytes[rows].sum() or seen.usage_bytes[rows].sum())
    limit = int(live.cache_bytes * ACCEPTED_LOSS)
    # No limit can be kept with force_empty, nor with pages that programs have mapped.
    if hierarchy.version == 1 or reachable or not live.can_be_kept_to(limit, largest_folio_bytes(root)):
        way, most = Way.RECLAIM_ALL, live.cache_bytes + max(pinned, live.dead_cache_bytes) + live.swap_bytes
    else:
        way, most = Way.RECLAIM, limit
    why = _MAPPED if reachable else _UNREADABLE
    return Part(home, way, frozenset(seen.serial[rows].tolist()), pinned, most, why, live=live)


def live_below(seen: "MemcgWalk", home: str, swap: bool = False) -> Live:
    """The live groups at and below a directory."""
    live_rows = np.flatnonzero(~seen.dying)
    dead = rows_by_home(seen, home).values()
    below = {path: row for path, row in zip(seen.paths(live_rows), live_rows.tolist(), strict=True) if _below(path, home)}
    rows = np.array(list(below.values()), dtype=int)
    by_cache = sorted(below, key=lambda path: -int(seen.file_bytes[below[path]]))
    names = sorted({unit for path in below for unit in units(path) if protected_unit(unit)})
    return Live(
        groups=len(below),
        cache_bytes=int(seen.file_bytes[rows].sum()),
        dead_cache_bytes=sum(int(seen.file_bytes[some].sum()) for some in dead),
        own_cache_bytes=int(seen.file_bytes[below[home]]) if home in below else 0,
        swap_bytes=int(seen.anon_bytes[rows].sum()) if swap else 0,
        watched=tuple(path for path in by_cache if path != home and seen.file_bytes[below[path]] > 0),
        protected=tuple(names),
    )


def _below(path: str, ancestor: str) -> bool:
    return ancestor == "/" or path == ancestor or path.startswith(ancestor.rstrip("/") + "/")


def stayed(serials: frozenset[int], after: "MemcgWalk") -> frozenset[int]:
    """Which of these zombies are still there, by their own serial numbers: those that came meanwhile do not count."""
    return serials & frozenset(after.serial[after.zombies].tolist())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one part."""

    part: Part
    gone: int
    lost_bytes: int = 0
    """By how much the live groups' memory fell around the steps of reclaim."""
    steps: int = 0
    ended: str = ""
    """Why not all of them went; empty if they did."""
