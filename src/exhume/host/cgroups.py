"""Which cgroup hierarchies a node has, where they are mounted, what of them is visible, and a bounded walk of them."""

import errno
import os
import re
import time
from collections import deque
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.text import decode

# A walk looks at no more directories than this. A stat of a kernfs directory costs about 4 us here, so the dearest walk
# stays below 0.1 s, and the inodes and dentries it makes the kernel allocate below 20 MB.
MOST_DIRECTORIES = 20_000

_GONE = (errno.ENOENT, errno.ENODEV)
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    version: int
    path: str
    """Where it is mounted, as the node sees it."""
    root: str
    """Which of its directories is mounted there, as the reader of mountinfo sees it."""
    controllers: frozenset[str]
    whole: bool
    """Whether the mounted directory is the root of the hierarchy, so that what is counted below it is the whole node."""


@dataclass(frozen=True, slots=True)
class Layout:
    version: str  # v1, v2, hybrid, none
    hierarchies: tuple[Hierarchy, ...]

    def of(self, controller: str) -> Hierarchy | None:
        """The hierarchy that holds a controller: each lives in exactly one. The whole one is preferred to a bind mount."""
        holders = [h for h in self.hierarchies if controller in h.controllers]
        return min(holders, key=lambda h: (not h.whole, len(h.path)), default=None)

    @property
    def unified(self) -> Hierarchy | None:
        holders = [h for h in self.hierarchies if h.version == 2]
        return min(holders, key=lambda h: (not h.whole, len(h.path)), default=None)


@dataclass(frozen=True, slots=True)
class Walk:
    """The directories of a hierarchy, breadth first."""

    paths: tuple[str, ...]
    """Those that were looked at, `/` first, as seen from the mounted directory."""
    inodes: tuple[int, ...]
    """The inode number of each, which is the id of its cgroup."""
    children: dict[str, int]
    """How many directories each of them holds, where that is more than none."""
    leaves: dict[str, tuple[str, ...]]
    """By parent: the paths among `paths` that hold no directory."""
    directories: int
    complete: bool
    """False if there were too many, or some could not be listed: `directories` is then at least so many."""


def layout(root: Root) -> Layout:
    """What is mounted, by mountinfo; by looking at the usual places where that is hidden."""
    try:
        found = _mounted(root, root.read(f"{root.proc_self()}/mountinfo"))
    except Unreadable:
        found = ()
    if not found:
        found = _usual_places(root)
    versions = {h.version for h in found}
    version = {frozenset({1}): "v1", frozenset({2}): "v2", frozenset({1, 2}): "hybrid"}.get(frozenset(versions), "none")
    return Layout(version, found)


def parse_mountinfo(raw: bytes) -> list[tuple[str, str, str, frozenset[str]]]:
    """(file system, mounted directory, mount point, super options) of every cgroup mount."""
    mounts = []
    for line in raw.split(b"\n"):
        before, separator, after = line.partition(b" - ")
        left, right = before.split(b" "), after.split(b" ")
        if not separator or len(left) < 6 or len(right) < 3 or right[0] not in (b"cgroup", b"cgroup2"):
            continue
        options = frozenset(decode(right[2]).split(","))
        mounts.append((right[0].decode(), _unescape(left[3]), _unescape(left[4]), options))
    return mounts


def _unescape(field: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda m: bytes([int(m[1], 8) & 0xFF]), field))


def _mounted(root: Root, raw: bytes) -> tuple[Hierarchy, ...]:
    found = []
    for kind, inner, point, options in parse_mountinfo(raw):
        if "\0" in point or not os.path.isdir(root.at(point)):
            continue
        if kind == "cgroup2":
            found.append(Hierarchy(2, point, inner, _controllers(root, point), _whole(root, point, 2)))
        else:
            found.append(Hierarchy(1, point, inner, options, _whole(root, point, 1)))
    return tuple(found)


def _usual_places(root: Root) -> tuple[Hierarchy, ...]:
    base = "/sys/fs/cgroup"
    if root.exists(f"{base}/cgroup.controllers"):
        return (Hierarchy(2, base, "/", _controllers(root, base), _whole(root, base, 2)),)
    found = []
    for name, file in (("memory", "memory.usage_in_bytes"), ("cpu", "cpu.shares"), ("cpu,cpuacct", "cpu.shares")):
        point = f"{base}/{name}"
        if root.exists(f"{point}/{file}"):
            found.append(Hierarchy(1, point, "/", frozenset(name.split(",")), _whole(root, point, 1)))
    if root.exists(f"{base}/unified/cgroup.controllers"):
        point = f"{base}/unified"
        found.append(Hierarchy(2, point, "/", _controllers(root, point), _whole(root, point, 2)))
    return tuple(found)


def _controllers(root: Root, point: str) -> frozenset[str]:
    try:
        return frozenset(decode(root.read(f"{point}/cgroup.controllers", 4096)).split())
    except Unreadable:
        return frozenset()


def _whole(root: Root, point: str, version: int) -> bool:
    """Whether a mount shows the hierarchy from its very root: a cgroup namespace or a bind mount shows less of it.

    mountinfo cannot tell inside a namespace, which shows `/` there. The files can: CFTYPE_ONLY_ON_ROOT gives release_agent
    to the v1 root alone, CFTYPE_NOT_ON_ROOT keeps cgroup.events (4.5) and cgroup.type (4.14) from the v2 root
    (cgroup_addrm_files in kernel/cgroup/cgroup.c looks at the real parent, not at the namespace).
    """
    if version == 1:
        return root.exists(f"{point}/release_agent")
    return root.exists(f"{point}/cgroup.procs") and not any(
        root.exists(f"{point}/{name}") for name in ("cgroup.events", "cgroup.type")
    )


def walk(root: Root, hierarchy: Hierarchy, most: int = MOST_DIRECTORIES) -> Walk:
    """Every directory, breadth first, up to `most`; what is beyond is counted by link counts and said to be incomplete.

    A directory of kernfs has two links and one for each child (kernfs_refresh_inode), so a leaf costs one stat and no
    listing, and a parent of 60,000 says so without being listed. File systems that do not count links (btrfs: always 1) only
    appear in fixture trees; there every directory is listed.
    """
    top = root.at(hierarchy.path)
    try:
        status = os.stat(top)
    except OSError as error:
        raise Unreadable(f"{hierarchy.path} cannot be read: {os.strerror(error.errno or 0)}") from None
    paths, inodes, children, leaves = ["/"], [status.st_ino], {}, {}
    directories, complete = 1, True
    queue = deque([("/", status.st_nlink)])
    while queue:
        path, links = queue.popleft()
        room = most - len(paths)
        known = links - 2 if links >= 2 else 0
        if room <= 0:
            # What is not listed is not known to be all.
            complete = False
            directories += known
            if known:
                children[path] = known
            continue
        listed, all_of_them = _subdirectories(top + path, room + 1, status.st_dev)
        complete &= all_of_them
        if len(listed) > room:
            complete = False
            listed = listed[:room]
        count = max(known, len(listed))
        directories += count
        children[path] = count
        here = []
        for name, inode, below in listed:
            child = f"{path.rstrip('/')}/{name}"
            paths.append(child)
            inodes.append(inode)
            if below == 2:
                here.append(child)
            else:
                queue.append((child, below))
        if here:
            leaves[path] = tuple(here)
    return Walk(tuple(paths), tuple(inodes), {p: n for p, n in children.items() if n}, leaves, directories, complete)


def _subdirectories(path: str, most: int, device: int) -> tuple[list[tuple[str, int, int]], bool]:
    """Names, inode numbers and link counts of at most `most` subdirectories, and whether what could be seen is all there is.

    A directory that went away meanwhile has none (ENODEV: a removed cgroup). What is mounted over one, from another file
    system, is not a cgroup; the group below it is in its parent's link count.
    """
    found = []
    complete = True
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError as error:
                        complete &= error.errno in _GONE
                        continue
                    if status.st_dev != device:
                        continue
                    found.append((entry.name, status.st_ino, status.st_nlink))
                    if len(found) >= most:
                        break
    except OSError as error:
        complete &= error.errno in _GONE
    return found, complete


class Tree:
    """The node's hierarchies and their directories, walked once for all readers that need them."""

    def __init__(self, root: Root, again_ns: int = 0) -> None:
        """What was walked is good for `again_ns`; 0 is for good."""
        self.root = root
        self.layout = layout(root)
        self._again_ns = again_ns
        self._walks: dict[str, tuple[int, Walk]] = {}

    def walk(self, hierarchy: Hierarchy, fresh: bool = False) -> Walk:
        now = time.monotonic_ns()
        known = self._walks.get(hierarchy.path)
        if fresh or known is None or (self._again_ns and now - known[0] > self._again_ns):
            known = self._walks[hierarchy.path] = now, walk(self.root, hierarchy)
        return known[1]
