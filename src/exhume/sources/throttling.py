"""CFS bandwidth throttling of the cgroups that have a quota, on v1 and v2.

The quota is read first: it costs nothing, where cpu.stat of v2 flushes the statistics of everything below that group.
"""

import time as clock
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.host.cgroups import Hierarchy, Tree
from exhume.host.root import Root, key_values
from exhume.recording.recording import Recording, labels
from exhume.recording.source_state import ContainerOnly, Limit, Reasons
from exhume.text import from_path

# Groups asked whether they have a quota, and groups with one that are followed.
MOST_CGROUPS = 2_000
MOST_LIMITED = 500
# At every so many-th reading all groups are asked again: a quota can be set later.
ALL_EVERY = 6
# One pass over their cpu.stat takes no longer: where flushing is slow, it is slow for everybody who waits for its lock.
LONGEST_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Quota:
    quota_us: int
    period_us: int


class Throttling:
    name = "throttling"
    every_ns = 0

    def __init__(self, root: Root, tree: Tree) -> None:
        self._root = root
        self._tree = tree
        self._asked: dict[str, Quota | None] = {}
        """Every group that was asked for its quota, and what it said."""
        self._reads = 0
        self._before = 0
        self._whole = False
        """Whether all groups there were had been asked at the last reading: one that is not among them was made since."""

    def read(self, recording: Recording, time: int) -> Reasons:
        hierarchy = self._tree.layout.of("cpu")
        if hierarchy is None:
            raise Unreadable("no hierarchy with the cpu controller is mounted here")
        walk = self._tree.walk(hierarchy)
        fresh = self._ask(hierarchy, walk.paths[:MOST_CGROUPS])
        limited = {path: quota for path, quota in self._asked.items() if quota is not None}
        deadline = clock.monotonic_ns() + LONGEST_NS
        followed = 0
        for path, quota in list(limited.items())[:MOST_LIMITED]:
            if clock.monotonic_ns() > deadline:
                break
            self._add(recording, time, hierarchy, path, quota, path in fresh)
            followed += 1
        recording.count(time, "cpu_quota_groups", len(limited))
        self._before, self._whole = time, walk.complete and len(walk.paths) <= MOST_CGROUPS
        if followed < len(limited):
            return (Limit(f"{len(limited) - followed:,} of {len(limited):,} groups with a quota were left out"),)
        seen = min(len(walk.paths), MOST_CGROUPS)
        if not walk.complete or walk.directories > seen:
            return (Limit(f"{seen:,} of at least {walk.directories:,} groups looked at"),)
        if not hierarchy.whole:
            return (ContainerOnly("hierarchy"),)
        return ()

    def _ask(self, hierarchy: Hierarchy, paths: tuple[str, ...]) -> set[str]:
        """Of groups that are new and now and then of all, whether they have a quota. Returns those made since the last time."""
        known = self._asked
        if self._reads % ALL_EVERY:
            self._asked = {
                path: known[path] if path in known else self._quota(hierarchy, hierarchy.path + path) for path in paths
            }
        else:
            self._asked = {path: self._quota(hierarchy, hierarchy.path + path) for path in paths}
        self._reads += 1
        return set(paths) - known.keys() if self._whole else set()

    def _quota(self, hierarchy: Hierarchy, path: str) -> Quota | None:
        try:
            if hierarchy.version == 2:
                return parse_cpu_max(self._root.read(f"{path}/cpu.max", 256))
            quota = self._root.read(f"{path}/cpu.cfs_quota_us", 64).strip()
            if not quota.isdigit():  # -1: no quota
                return None
            return parse_cpu_max(quota + b" " + self._root.read(f"{path}/cpu.cfs_period_us", 64))
        except Unreadable:
            return None

    def _add(self, recording: Recording, time: int, hierarchy: Hierarchy, path: str, quota: Quota, fresh: bool) -> None:
        try:
            stat = dict(key_values(self._root.read(f"{hierarchy.path}{path}/cpu.stat", 4096)))
        except Unreadable:
            return
        at = labels(cgroup=from_path(path))
        throttled_ns = stat.get("throttled_time", 0) if hierarchy.version == 1 else stat.get("throttled_usec", 0) * 1000
        for name, value in (
            ("cpu_quota_us", quota.quota_us),
            ("cpu_period_us", quota.period_us),
            ("cpu_periods", stat.get("nr_periods", 0)),
            ("cpu_throttled_periods", stat.get("nr_throttled", 0)),
            ("cpu_throttled_ns", throttled_ns),
        ):
            if fresh and not name.endswith("_us"):
                recording.count(self._before, name, 0, at)  # it has counted from zero since
            recording.count(time, name, min(value, (1 << 63) - 1), at)


def parse_cpu_max(raw: bytes) -> Quota | None:
    """`QUOTA PERIOD` in us; `max PERIOD` is no quota."""
    words = raw.split()
    if len(words) != 2 or not all(word.isdigit() and len(word) < 19 for word in words) or int(words[1]) == 0:
        return None
    return Quota(int(words[0]), int(words[1]))
