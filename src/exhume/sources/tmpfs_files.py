"""Names for the files on tmpfs and other shared memory that pin zombies: only who deletes them lets the zombies go.

A file on tmpfs cannot be opened by its inode number unless NFS has handed it out before (shmem_encode_fh hashes the inode
only then), so the mount is searched, and the open files of the processes for what has no name any more. Both are bounded.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.host.mounts import Mount, mounts
from exhume.host.root import Root
from exhume.sources.memcg_pins import TMPFS_MAGIC, Pins
from exhume.text import decode, from_path

MOST_NAMED = 5
MOST_ENTRIES = 50_000
"""So many names on tmpfs, and so many open files, are looked at."""

Inode = tuple[int, int, int]  # major and minor number, inode number

# How /proc/PID/fd calls shared memory that no mount shows: memfd_create(2), shmget(2), mmap(2) of shared anonymous memory.
_UNMOUNTED = (b"/memfd:", b"/SYSV", b"/dev/zero (deleted)")
_DELETED = b" (deleted)"


@dataclass(frozen=True, slots=True)
class TmpfsFile:
    path: str
    """Empty where it could not be found."""
    size_bytes: int
    zombies: int
    """So many have pages of it; one that has pages of others too is counted with each."""
    deleted: bool
    """It has no name any more, and is there only because a process has it open or mapped."""
    holder: str
    """Such a process, where one was found."""


def tmpfs_files(root: Root, pins: Pins, most: int = MOST_NAMED) -> tuple[TmpfsFile, ...]:
    """The files that pin the most zombies, those first."""
    pins = pins[pins["magic"] == TMPFS_MAGIC]
    of = {
        (dev >> 20, dev & 0xFFFFF, ino): (size, nlink)
        for dev, ino, size, nlink in _columns(pins, "dev", "ino", "size", "nlink")
    }
    zombies = Counter((dev >> 20, dev & 0xFFFFF, ino) for dev, ino, _ in set(_columns(pins, "dev", "ino", "row")))
    first = [inode for inode, _ in zombies.most_common(most)]
    try:
        mounted = mounts(root)
    except Unreadable:
        mounted = ()
    paths = _named(root, mounted, {inode for inode in first if of[inode][1]})
    held = _held(root, mounted, {inode for inode in first if inode not in paths})
    found = []
    for inode in first:
        size, nlink = of[inode]
        path, holder = held.get(inode, (paths.get(inode, ""), ""))
        found.append(TmpfsFile(path, max(0, size), zombies[inode], not nlink, holder))
    return tuple(found)


def _columns(pins: Pins, *names: str) -> Iterator[tuple[int, ...]]:
    return zip(*(pins[name].tolist() for name in names), strict=True)


def _named(root: Root, mounted: tuple[Mount, ...], wanted: set[Inode]) -> dict[Inode, str]:
    found: dict[Inode, str] = {}
    left = MOST_ENTRIES
    for mount in mounted:
        here = {ino for major, minor, ino in wanted if (major, minor) == mount.device}
        waiting = [mount.point] if here and mount.root == "/" else []
        while waiting and here and left > 0:
            directory = waiting.pop()
            try:
                with os.scandir(root.at(directory)) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            break
                        path = f"{directory.rstrip('/')}/{entry.name}"
                        if entry.inode() in here and _is(root.at(path), (*mount.device, entry.inode())):
                            here.discard(entry.inode())
                            found[*mount.device, entry.inode()] = from_path(path)
                        elif entry.is_dir(follow_symlinks=False) and not os.path.ismount(root.at(path)):
                            waiting.append(path)
            except OSError:
                continue
    return found


def _held(root: Root, mounted: tuple[Mount, ...], wanted: set[Inode]) -> dict[Inode, tuple[str, str]]:
    """By path and holder, from the open files of all processes. A link is followed only where it leads to shared memory: what
    is open on a network file system whose server is gone would hold us."""
    found: dict[Inode, tuple[str, str]] = {}
    shared = tuple(os.fsencode(mount.point.rstrip("/") + "/") for mount in mounted if mount.kind == "tmpfs")
    left = MOST_ENTRIES if wanted else 0
    for pid in root.names("proc") if wanted else ():
        if not pid.isdigit() or left <= 0 or len(found) == len(wanted):
            continue
        try:
            numbers = os.listdir(root.at(f"proc/{pid}/fd"))
        except OSError:
            continue
        for number in numbers[:left]:
            left -= 1
            link = root.at(f"proc/{pid}/fd/{number}")
            try:
                name = os.readlink(os.fsencode(link))
                if not name.startswith(_UNMOUNTED) and not (name.endswith(_DELETED) and name.startswith(shared)):
                    continue
                told = os.stat(link)
                inode = os.major(told.st_dev), os.minor(told.st_dev), told.st_ino
                if inode in wanted and inode not in found:
                    comm = decode(root.read(f"proc/{pid}/comm", 64)).strip()
                    found[inode] = decode(name.removesuffix(_DELETED)), f"{comm}[{pid}]"
            except (OSError, Unreadable):
                continue
    return found


def _is(path: str, inode: Inode) -> bool:
    try:
        told = os.lstat(path)
    except OSError:
        return False
    return (os.major(told.st_dev), os.minor(told.st_dev), told.st_ino) == inode
