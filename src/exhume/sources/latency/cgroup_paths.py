"""Which directory a cgroup has whose number a program saw: the number is the inode number of that directory."""

import os
import time
from typing import Final

from exhume.errors import Unreadable
from exhume.host.cgroups import layout, walk
from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.text import from_path

_PAUSE: Final = 200
"""After a walk of the hierarchy so many times its duration passes before the next: 0.5 % of a core."""


class CgroupPaths:
    """Of the hierarchy that has the memory controller.

    open_by_handle_at(2) would find a directory by its number without a walk, but needs CAP_DAC_READ_SEARCH, and a process with
    that can open every file of a file system of which it sees one directory. So the directories are walked when an unknown
    number comes, within the bound of `cgroups.walk`, and seldom. Before Linux 5.5 the number is not the inode number
    (40430452fd5d): there no path is found.
    """

    def __init__(self, root: Root | None = None) -> None:
        self._root = root or Root()
        hierarchy = layout(self._root).of("memory")
        if hierarchy is None:
            raise Unreadable("no hierarchy with the memory controller is mounted, so cgroups have numbers and no paths")
        self._hierarchy = hierarchy
        self._top = self._root.at(hierarchy.path)
        self._paths: dict[int, str] = {}
        self._not_before_ns = 0

    def path(self, number: int) -> str:
        """`/` for the mounted directory; empty for a cgroup that is gone, or was not reached by the walk."""
        found = self._known(number)
        if not found and time.monotonic_ns() >= self._not_before_ns:
            self._walk()
            found = self._known(number)
        return from_path(found)

    def _known(self, number: int) -> str:
        """As it was walked, if that directory is still there."""
        path = self._paths.get(number)
        if path is None:
            return ""
        try:
            return path if os.stat(self._top + path).st_ino == number else ""
        except OSError:
            return ""

    def _walk(self) -> None:
        begin = time.monotonic_ns()
        try:
            walked = walk(self._root, self._hierarchy)
            self._paths = dict(zip(walked.inodes, walked.paths, strict=True))
        except Unreadable:
            self._paths = {}
        now = time.monotonic_ns()
        self._not_before_ns = now + max(SECOND, _PAUSE * (now - begin))
