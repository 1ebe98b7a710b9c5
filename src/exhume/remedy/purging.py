"""A purge from its plan to its result: what `zombies purge` asks about first, and what a step of a remedy does as agreed."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np

from exhume.errors import Unreadable
from exhume.node.cgroups import layout
from exhume.node.memcg_pins import Pinning
from exhume.node.memcg_walk import MemcgWalk, walk
from exhume.node.root import Root, key_values
from exhume.node.tmpfs_files import tmpfs_files
from exhume.remedy.drain import drain_batches
from exhume.remedy.evict import Evicted, Pace, evict, goes_by_file, on_core
from exhume.remedy.purge import ACCEPTED_LOSS, Outcome, PurgePlan, Rows, Target, pinned_by, plan, rows_by_home, stayed
from exhume.remedy.reclaim import Reclaimer, bites, quiet_core
from exhume.remedy.usage import Usage, Zombies

Progress = Callable[[float], None]


class Purging:
    """The zombies below a path, looked at and planned for; what pins them stays known while this is open."""

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
        self._core: int | None = None

    def __enter__(self) -> Self:
        drain_batches()
        self._seen = walk()
        try:
            self._pinning: Pinning | None = Pinning().__enter__()
        except Unreadable:
            self._pinning = None  # a kernel that keeps its pages elsewhere: all are reclaimed, as the plan then says
        self._rows = np.zeros(0, np.int64)
        try:
            self.plan = self._plan()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._pinning is not None:
            self._pinning.__exit__(None, None, None)

    def evict(self, progress: Progress) -> Evicted | None:
        """The pages that can be, with nobody's loss; None where the kernel does not let them be named."""
        self._core = quiet_core(self._root)
        if self._pinning is None:
            return None
        with on_core(self._core):
            evicted = evict(self._root, self._pinning, self._seen, self._rows, progress)
        self._after = _settled(self._seen, self._rows)
        return evicted

    def reclaim(self, target: Target, accept_loss: bool, progress: Progress) -> Outcome:
        """What eviction left of a target, in bites, where that is allowed."""
        after = self._seen if self._pinning is None else self._after
        rest = stayed(target, after)
        by_file = target.zombies - rest.zombies
        done = Outcome(target.home, target.zombies, by_file, by_file, 0, 0, "all gone")
        if not rest.zombies:
            return done
        if target.no_reclaim:
            return replace(done, ended=target.no_reclaim)
        if target.refusal and not accept_loss:
            return replace(done, ended=f"{target.refusal}; --accept-cache-loss reclaims all the same")
        usage = Usage(self._root, self._hierarchy, target.watched)
        zombies = Zombies(self._root, self._hierarchy, target.home, rest.zombies)
        most_lost = 1 << 62 if accept_loss else int(target.cache_bytes * ACCEPTED_LOSS)
        ended, count = "", 0
        with Reclaimer(self._root, self._hierarchy.path + target.home, self._hierarchy.version, self._core) as reclaimer:
            for left, why in bites(reclaimer, zombies.left, usage.lost, most_lost):
                count, ended = count + 1, why
                progress(1 - max(0, left) / rest.zombies)
        gone = target.zombies - stayed(rest, walk()).zombies
        return replace(done, gone=gone, lost_bytes=usage.lost(), bites=count, ended=ended)

    def _plan(self) -> PurgePlan:
        swap = _has_swap(self._root)
        if self._pinning is None:
            return plan(self._root, self._hierarchy, self._seen, self._under, swap)
        chosen = np.concatenate([np.zeros(0, np.int64), *rows_by_home(self._seen, self._under).values()])
        cache, shared = pinned_by(self._seen, chosen)
        self._rows = goes_by_file(self._root, self._pinning, self._seen, cache)
        files = tmpfs_files(self._root, self._pinning.read(self._seen, shared, most=4, file=False, pause=Pace()))
        return plan(self._root, self._hierarchy, self._seen, self._under, swap, self._rows.tolist(), files)


def _settled(seen: MemcgWalk, rows: Rows) -> MemcgWalk:
    """A walk after eviction: the kernel frees groups in its own time, and what is about to go must not be reclaimed for."""
    going = frozenset(seen.serial[rows].tolist())
    for pause_s in (0.1, 0.3, 0.6):
        drain_batches()  # a page that is in a batch is held by it, even when its file has lost it
        time.sleep(pause_s)
        after = walk()
        if not going & frozenset(after.serial.tolist()):
            break
    return after


def _has_swap(root: Root) -> bool:
    try:
        return dict(key_values(root.read("proc/meminfo", 1 << 16))).get("SwapTotal", 0) > 0
    except Unreadable:
        return True
