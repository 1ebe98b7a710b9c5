"""Where a path ends when its links are followed in a root: by text for archives and disks, by descriptors on old kernels.

Both do as the kernel does (path_resolution(7)): `..` of the root is the root, an absolute link begins there again, what follows
a name that is no directory is nowhere, and more than MOST_LINKS links are a circle.
"""

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from exhume.host.tree import MOST_LINKS, Entry

LONGEST: Final = 4095
"""Bytes of a path (PATH_MAX of include/uapi/linux/limits.h, without the NUL that ends it)."""


def encode(path: str) -> bytes | None:
    """A path as the kernel takes it; None for what no path can be."""
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return None if len(raw) > LONGEST or b"\0" in raw else raw


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def resolve(path: str, lookup: Callable[[str], Entry | None], follow: bool = True) -> tuple[str, Entry] | None:
    """The path without links, and what is there. `lookup` is asked for paths that have a link at their end at most."""
    top = lookup("/")
    if top is None or encode(path) is None:
        return None
    way: list[tuple[str, Entry]] = []
    rest = path.split("/")[::-1]
    links = 0
    while rest:
        name = rest.pop()
        here, entry = way[-1] if way else ("", top)
        if entry.kind != "directory":
            return None
        if name in ("", "."):
            continue
        if name == "..":
            del way[-1:]
            continue
        found = lookup(f"{here}/{name}")
        if found is None:
            return None
        if found.kind != "link" or not (follow or rest):
            way.append((f"{here}/{name}", found))
            continue
        links += 1
        if links > MOST_LINKS:
            return None
        if found.target.startswith("/"):
            way.clear()
        rest.extend(found.target.split("/")[::-1])
    return way[-1] if way else ("/", top)


def open_by_steps(root_fd: int, path: bytes, flags: int) -> int:
    """What kernel/openat2.open_in_root does, for kernels that have no openat2: one name at a time, no link left to the kernel.

    `..` goes back to the descriptor that we came from, so that a directory moved meanwhile leads nowhere else.
    """
    if len(path) > LONGEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    way: list[int] = []
    rest = path.split(b"/")[::-1]
    links = 0
    at = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        while rest:
            name = rest.pop()
            here = way[-1] if way else root_fd
            if not stat.S_ISDIR(os.fstat(here).st_mode):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if name == b"..":
                if way:
                    os.close(way.pop())
                continue
            if name in (b"", b"."):
                continue
            fd = os.open(name, at, dir_fd=here)
            way.append(fd)
            if not stat.S_ISLNK(os.fstat(fd).st_mode) or (flags & os.O_NOFOLLOW and not rest):
                continue
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(b"", dir_fd=fd)
            os.close(way.pop())
            if target.startswith(b"/"):
                while way:
                    os.close(way.pop())
            rest.extend(target.split(b"/")[::-1])
        return _again(way[-1] if way else root_fd, flags)
    finally:
        for fd in way:
            os.close(fd)


def _again(fd: int, flags: int) -> int:
    """The same file by another descriptor, as `flags` want it."""
    mode = os.fstat(fd).st_mode
    if flags & os.O_DIRECTORY and not stat.S_ISDIR(mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if flags & os.O_PATH:
        return os.dup(fd)
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return reopen(fd, flags)


def reopen(fd: int, flags: int) -> int:
    """The file behind an O_PATH descriptor, opened: the very one that was looked at, whatever has its name by now (proc(5))."""
    return os.open(f"/proc/self/fd/{fd}", (flags & ~os.O_NOFOLLOW) | os.O_CLOEXEC)
