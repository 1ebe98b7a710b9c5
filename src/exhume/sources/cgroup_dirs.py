"""Visible cgroup directories that nobody removed: many children of one parent, without a process in them."""

import os

from exhume.errors import Unreadable
from exhume.host.cgroups import Hierarchy, Tree
from exhume.host.root import Root
from exhume.recording.recording import Recording
from exhume.recording.source_state import Limit, Reasons
from exhume.sources.processes import INIT_PID_NAMESPACE
from exhume.text import from_path

# Only the parents with the most children are looked into, and of each only a sample, spread evenly.
MOST_PARENTS = 16
SAMPLE = 64


class CgroupDirs:
    name = "cgroup-dirs"
    every_ns = 0

    def __init__(self, root: Root, tree: Tree) -> None:
        self._root = root
        self._tree = tree

    def read(self, recording: Recording, time: int) -> Reasons:
        hierarchy = self._tree.layout.of("memory") or self._tree.layout.unified
        if hierarchy is None:
            raise Unreadable("no cgroup hierarchy is mounted here")
        if hierarchy.version == 1 and not _sees_all_processes(self._root):
            raise Unreadable(
                "cgroup v1 lists only the processes of our own PID namespace: from here every group of another looks empty"
            )
        walk = self._tree.walk(hierarchy)
        crowded = sorted(walk.leaves, key=lambda path: -walk.children.get(path, 0))[:MOST_PARENTS]
        mount = from_path(hierarchy.path)
        for path in crowded:
            leaves = walk.leaves[path]
            sample = leaves[:: max(1, len(leaves) // SAMPLE)][:SAMPLE]
            empty = [leaf for leaf in sample if self._empty(hierarchy, leaf)]
            recording["cgroup_dirs"].add(
                time,
                from_path(path),
                mount,
                walk.children[path],
                len(leaves),
                len(sample),
                len(empty),
                from_path(empty[0]) if empty else "",
            )
        if not walk.complete:
            return (Limit(f"more than {walk.directories:,} directories: a part was looked at"),)
        return ()

    def _empty(self, hierarchy: Hierarchy, leaf: str) -> bool:
        """v2 says it in cgroup.events; v1 by an empty list of processes, which is short to read exactly when it is empty."""
        try:
            if hierarchy.version == 2:
                return b"populated 0" in self._root.read(f"{hierarchy.path}{leaf}/cgroup.events", 4096)
            return not self._root.read(f"{hierarchy.path}{leaf}/cgroup.procs", 64).strip()
        except Unreadable:
            return False


def _sees_all_processes(root: Root) -> bool:
    """Whether cgroup.procs of v1 tells us of everybody: it leaves out who has no number in the reader's own PID namespace
    (pidlist_array_load in kernel/cgroup/cgroup-v1.c), whatever root we read below. Files of another machine are just files.
    """
    if not root.same_kernel():
        return True
    try:
        return os.readlink("/proc/self/ns/pid") == INIT_PID_NAMESPACE
    except OSError:
        return False
