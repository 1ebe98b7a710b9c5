"""Which processes have a given file open for reading, by device and inode number.

No link of /proc/PID/fd is followed: a stat(2) of a file on a dead NFS server would block. The inode number and the mount come
from /proc/PID/fdinfo (`ino:`, 5.14, 3845f256a8b5), the device of that mount from /proc/PID/mountinfo. Where that does not say
the device, a file with the same inode number counts as the same file: in a container's overlay, whose files have the inode
numbers of the files below it (ovl_map_ino), and on a mount that the process does not see itself (after chroot).
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.host.mounts import devices_by_mount
from exhume.host.root import Root
from exhume.sources.processes import sees_only_a_container
from exhume.text import decode

MOST_FILES = 200_000
"""Open files that are looked at, of all processes together."""

_CAP_SYS_PTRACE = 1 << 19  # include/uapi/linux/capability.h
_NUMBER = (1 << 48) - 1  # overlay may put the number of a layer above this (xino)

Inode = tuple[int, int, int]
"""Major and minor number, inode number."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Processes by the file that they have open for reading."""

    by_file: dict[Inode, tuple[str, ...]]
    """Each as `comm[pid]`."""
    complete: bool = True
    """False if not all open files were looked at: they are too many, or not all are visible to us."""

    def of(self, inode: Inode) -> tuple[str, ...]:
        return self.by_file.get(inode, ())


NOBODY = Readers({})


def readers(root: Root, wanted: Iterable[Inode], pause: Callable[[], None] = lambda: None) -> Readers:
    """Who has these files open for reading. We ourselves and files that are open for writing only do not count."""
    inodes = set(wanted)
    if not inodes:
        return NOBODY
    numbers: dict[int, set[Inode]] = {}
    for inode in inodes:
        numbers.setdefault(inode[2] & _NUMBER, set()).add(inode)
    found: dict[Inode, set[str]] = {}
    left, complete = MOST_FILES, _all_visible(root)
    for pid in root.names("proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            place, open_files = _open_files(root, pid)
        except OSError:
            continue  # it is gone by now, or a security module hides it
        if len(open_files) > left:
            return Readers(_frozen(found), False)
        left -= len(open_files)
        for inode in _of_process(root, place, open_files, numbers):
            found.setdefault(inode, set()).add(_name(root, pid))
        pause()
    return Readers(_frozen(found), complete)


def _all_visible(root: Root) -> bool:
    """Whether we may see the open files of all processes of the node, and the kernel says which files these are."""
    here = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        says_which = b"\nino:" in root.read(f"proc/self/fdinfo/{here}", 4096)
        status = root.read("proc/self/status", 1 << 16).split(b"\n")
        mine = next(int(line.split()[1], 16) for line in status if line.startswith(b"CapEff:"))
    except (Unreadable, StopIteration):
        return False
    finally:
        os.close(here)
    return says_which and bool(mine & _CAP_SYS_PTRACE) and not sees_only_a_container(root)


def _open_files(root: Root, pid: str) -> tuple[str, list[str]]:
    """Where the open files of a process are, and their numbers. A process whose first thread has ended has them in another."""
    place = f"proc/{pid}"
    open_files = os.listdir(root.at(f"{place}/fdinfo"))
    if not open_files:
        for thread in os.listdir(root.at(f"{place}/task")):
            if thread != pid and (open_files := os.listdir(root.at(f"{place}/task/{thread}/fdinfo"))):
                return f"{place}/task/{thread}", open_files
    return place, open_files


def _of_process(root: Root, place: str, open_files: list[str], numbers: dict[int, set[Inode]]) -> set[Inode]:
    mounts: dict[int, tuple[int, int] | None] | None = None
    found: set[Inode] = set()
    for number in open_files:
        try:
            info = parse_fdinfo(root.read(f"{place}/fdinfo/{number}", 4096))
            same_number = numbers.get(info[0] & _NUMBER) if info is not None else None
            if info is None or same_number is None:
                continue
            if mounts is None:
                mounts = devices_by_mount(root.read(f"{place}/mountinfo"))
        except Unreadable:
            continue
        device = mounts.get(info[1])
        if device is not None:
            found |= same_number & {(*device, info[0])}
        elif info[1] in mounts or _has_path(root, f"{place}/fd/{number}"):
            found |= same_number
    return found


def _has_path(root: Root, link: str) -> bool:
    """Whether it is a file of a file system, and not a socket, a pipe or the like. The link is read, not followed."""
    try:
        return os.readlink(root.at(link)).startswith("/")
    except OSError:
        return False


def parse_fdinfo(raw: bytes) -> tuple[int, int] | None:
    """Inode number and mount of a file that is open for reading; None if it is not, or the kernel does not say."""
    fields = dict(line.split(b":", 1) for line in raw.split(b"\n") if b":" in line)
    flags, mount, ino = (fields.get(name, b"").strip() for name in (b"flags", b"mnt_id", b"ino"))
    if not (flags.isdigit() and mount.isdigit() and ino.isdigit()) or len(flags + mount + ino) > 64:
        return None
    try:
        access = int(flags, 8) & os.O_ACCMODE
    except ValueError:
        return None
    return None if access == os.O_WRONLY else (int(ino), int(mount))


def _name(root: Root, pid: str) -> str:
    try:
        return f"{decode(root.read(f'proc/{pid}/comm', 64)).strip()}[{pid}]"
    except Unreadable:
        return f"[{pid}]"


def _frozen(found: dict[Inode, set[str]]) -> dict[Inode, tuple[str, ...]]:
    return {inode: tuple(sorted(names)) for inode, names in found.items()}
