"""CFS bandwidth throttling of the cgroups that have a quota, on v1 and v2.

The quota is read first: it costs nothing, where cpu.stat of v2 flushes the statistics of everything below that group.
"""

import time as clock
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.node.cgroups import Hierarchy, Tree
from exhume.node.root import Root, key_values
from exhume.recording.recording import Recording, labels
from exhume.text import from_path

# Groups asked whether they have a quota, and groups with one that are followed.
MOST_CGROUPS = 2_000
MOST_LIMITED = 500
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
        self._limited: dict[str, Quota] | None = None

    def read(self, recording: Recording, time: int) -> str:
        hierarchy = self._tree.layout.of("cpu")
        if hierarchy is None:
            raise Unreadable("no hierarchy with the cpu controller is mounted here")
        walk = self._tree.walk(hierarchy)
        if self._limited is None:
            self._limited = self._with_quota(hierarchy, walk.paths[:MOST_CGROUPS])
        deadline = clock.monotonic_ns() + LONGEST_NS
        followed = 0
        for path, quota in list(self._limited.items())[:MOST_LIMITED]:
            if clock.monotonic_ns() > deadline:
                break
            self._add(recording, time, hierarchy, path, quota)
            followed += 1
        recording.count(time, "cpu_quota_groups", len(self._limited))
        if followed < len(self._limited):
            return f"{len(self._limited) - followed:,} of {len(self._limited):,} groups with a quota were left out"
        seen = min(len(walk.paths), MOST_CGROUPS)
        if not walk.complete or walk.directories > seen:
            return f"{seen:,} of at least {walk.directories:,} groups looked at"
        if not hierarchy.whole:
            return "only this container's part of the hierarchy is visible"
        return ""

    def _with_quota(self, hierarchy: Hierarchy, paths: tuple[str, ...]) -> dict[str, Quota]:
        found = {}
        for path in paths:
            quota = self._quota(hierarchy, hierarchy.path + path)
            if quota is not None:
                found[path] = quota
        return found

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

    def _add(self, recording: Recording, time: int, hierarchy: Hierarchy, path: str, quota: Quota) -> None:
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
            recording.count(time, name, min(value, (1 << 63) - 1), at)


def parse_cpu_max(raw: bytes) -> Quota | None:
    """`QUOTA PERIOD` in us; `max PERIOD` is no quota."""
    words = raw.split()
    if len(words) != 2 or not all(word.isdigit() and len(word) < 19 for word in words) or int(words[1]) == 0:
        return None
    return Quota(int(words[0]), int(words[1]))
