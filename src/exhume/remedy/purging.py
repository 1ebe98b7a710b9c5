"""A purge from its plan to its result: what `zombies purge` asks about first, and what a step of a remedy does as agreed."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

import numpy as np

from exhume.errors import Unreadable
from exhume.host.cgroups import layout
from exhume.host.root import Root, key_values
from exhume.remedy.child import Child, Stuck
from exhume.remedy.cores import Pace, quiet_core, visit_cores
from exhume.remedy.evict import Evicted, Request, Sorted, evict, sort_by_use
from exhume.remedy.purge import Outcome, Part, PurgePlan, Rows, Way, live_below, plan, rows_by_home, stayed
from exhume.remedy.reclaim import Limit, Reclaimed, Usage, largest_folio_bytes, reclaim
from exhume.sources.memcg_pins import Pinning
from exhume.sources.memcg_walk import MemcgWalk, walk
from exhume.sources.tmpfs_files import tmpfs_files
from exhume.sources.zombie_holders import Holder, holders

Progress = Callable[[float], None]
Sent = TypeVar("Sent")

SILENT_S = 1.25
"""A child from which nothing comes for this long is moved to another core; if it waits in the kernel for as long again, it is
given up."""
_NICE = 10


class Purging:
    """The zombies below a path, looked at and planned for. A context manager: what pins them stays known while it is open."""

    plan: PurgePlan

    def __init__(self, root: Root, under: str = "/") -> None:
        hierarchy = layout(root).of("memory")
        if hierarchy is None or not hierarchy.whole:
            raise Unreadable("the root of the memory hierarchy is not visible here, so nothing can be purged; try --host")
        if not root.same_kernel():
            raise Unreadable(f"{root.path} is not of the running kernel: its zombies are out of reach")
        self._root = root
        self._hierarchy = hierarchy
        self._under = under

    def __enter__(self) -> Self:
        visit_cores()
        self._seen = walk()
        try:
            self._pinning: Pinning | None = Pinning().__enter__()
        except Unreadable:
            self._pinning = None  # the pages cannot be read: all is reclaimed, as the plan then says
        self._by_use: Sorted | None = None
        try:
            self.plan = self._plan()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._pinning is not None:
            self._pinning.__exit__(None, None, None)

    def carry_out(self, parts: tuple[Part, ...], progress: Progress) -> tuple[Evicted | None, tuple[Outcome, ...]]:
        """Do these parts of the plan, and no more than they say. Raises Refused, having done nothing, if a core is starved."""
        visit_cores().refuse_if_starved()
        core = quiet_core(self._root)
        evicting = tuple(part for part in parts if part.way.evicts)
        evicted = self._evict(evicting, core, progress) if evicting else None
        after = self._settled(evicting) if evicting else self._seen
        reasons = _reasons(evicted)
        outcomes = []
        for part in evicting:
            left = len(stayed(part.serials, after))
            outcomes.append(Outcome(part, part.zombies - left, ended=reasons if left else ""))
        outcomes += [self._reclaim(part, core, progress) for part in parts if not part.way.evicts]
        return evicted, tuple(outcomes)

    def _evict(self, parts: tuple[Part, ...], core: int | None, progress: Progress) -> Evicted:
        assert self._pinning is not None
        assert self._by_use is not None
        pinning, by_use, rows = self._pinning, self._by_use, self._rows(parts)
        request = Request(
            rows,
            np.intersect1d(rows, by_use.small) if any(part.way is Way.EVICT_SMALL for part in parts) else rows[:0],
            self._rows(tuple(part for part in parts if part.way is Way.EVICT_IN_USE)),
            sum(part.pinned_bytes for part in parts),
        )

        def work(send: Callable[[float | Evicted], None]) -> None:
            _settle_on(core)
            send(evict(self._root, pinning, self._seen, request, send))

        result: Evicted | None = None
        for message in _messages(work):
            if isinstance(message, Evicted):
                result = message
            else:
                progress(message)
        if result is None:
            raise Unreadable("the evicting process ended early")
        return result

    def _rows(self, parts: tuple[Part, ...]) -> Rows:
        """Of the walk: the zombies of these parts."""
        serials = frozenset[int]().union(*(part.serials for part in parts))
        return np.flatnonzero(np.isin(self._seen.serial, np.fromiter(serials, np.uint64)) & self._seen.dying)

    def _reclaim(self, part: Part, core: int | None, progress: Progress) -> Outcome:
        live, folio_bytes = live_below(walk(), part.home), largest_folio_bytes(self._root)
        bounded = part.way is Way.RECLAIM
        if bounded and not live.can_be_kept_to(part.most_lost_bytes, folio_bytes):
            return Outcome(part, 0, ended="the live groups there have changed since the plan was made: plan again")
        usage = Usage(self._root, self._hierarchy, live.watched)
        limit = Limit(part.most_lost_bytes if bounded else None, len(live.watched), folio_bytes)

        def work(send: Callable[[Reclaimed], None]) -> None:
            _settle_on(core)
            reclaim(
                self._root,
                self._hierarchy,
                part.home,
                usage,
                limit,
                lambda: len(stayed(part.serials, walk())),
                send,
            )

        last = Reclaimed(part.zombies, 0, 0)
        for last in _messages(work):
            progress(1 - last.left / part.zombies)
        visit_cores()
        left = len(stayed(part.serials, walk()))
        ended = last.end.value if left and last.end is not None else ""
        return Outcome(part, part.zombies - left, last.lost_bytes, last.steps, ended)

    def _plan(self) -> PurgePlan:
        seen, swap = self._seen, _has_swap(self._root)
        chosen = np.concatenate([np.zeros(0, np.int64), *rows_by_home(seen, self._under).values()])
        held = holders(seen, self._root, chosen.tolist())
        if self._pinning is None:
            return plan(self._root, self._hierarchy, seen, held, self._under, None, swap)
        self._by_use = sort_by_use(self._root, self._pinning, seen, held.of(Holder.PAGE_CACHE))
        shared = self._pinning.read(seen, held.of(Holder.SHARED_MEMORY).tolist(), most=4, file=False, pause=Pace())
        files = tmpfs_files(self._root, shared)
        return plan(self._root, self._hierarchy, seen, held, self._under, self._by_use, swap, files)

    def _settled(self, parts: tuple[Part, ...]) -> MemcgWalk:
        """A walk after eviction: the kernel frees groups a little later, and those must not count as stayed."""
        going = frozenset[int]().union(*(part.serials for part in parts))
        for pause_s in (0.1, 0.3, 0.6):
            visit_cores()  # a page in a CPU's batch is held by it, although its file has lost it
            time.sleep(pause_s)
            after = walk()
            if not stayed(going, after):
                break
        return after


def _messages(work: Callable[[Callable[[Sent], None]], None]) -> Iterator[Sent]:
    """What a child sends, until it ends."""
    with Child(work) as child:
        waited_in = ""
        while True:
            try:
                message = child.receive(SILENT_S)
            except EOFError:
                return
            if message is not None:
                waited_in = ""
                yield message
                continue
            child.rescue()
            before, waited_in = waited_in, child.waits_in_kernel()
            if waited_in and before:
                raise Stuck(
                    f"the purge was stopped: the kernel does not return from {waited_in}, which no signal ends. It waits for "
                    "a core that runs no tasks, or for a disk. What was freed stays freed; exhume check shows what holds a core"
                )


def _settle_on(core: int | None) -> None:
    os.nice(_NICE)
    if core is not None:
        os.sched_setaffinity(0, {core})


def _reasons(evicted: Evicted | None) -> str:
    if evicted is None or not evicted.failed:
        return "the kernel has not freed them yet"
    return "; ".join(why for why, _ in sorted(evicted.failed.items(), key=lambda item: -item[1])[:3])


def _has_swap(root: Root) -> bool:
    try:
        return dict(key_values(root.read("proc/meminfo", 1 << 16))).get("SwapTotal", 0) > 0
    except Unreadable:
        return True
