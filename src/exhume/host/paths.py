"""Paths inside a root: the one place where links are followed in a directory tree that is not our own.

All of it does as the kernel does for a process rooted there (path_resolution(7)): `..` of the root is the root, an absolute
link begins there again, what follows a name that is no directory is nowhere, and more than MOST_LINKS links are a circle.
A file is opened by openat2(2), or by single steps where the kernel or a sandbox does not know that call; names in archives and
disks, which no kernel knows, are resolved by the same steps over a lookup. Links of /proc that jump (/proc/1/root) are refused.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from exhume.errors import Unreadable
from exhume.kernel.file_system import PROC, file_system
from exhume.kernel.openat2 import open_in_root

if TYPE_CHECKING:
    from exhume.host.tree import Entry

MOST_LINKS: Final = 40
"""As many links as the kernel follows in one path (MAXSYMLINKS, include/linux/namei.h)."""
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


def open_in(root_fd: int, path: str, flags: int, openat2: bool = True) -> int:
    """A descriptor of `path` where `root_fd` is the root directory; OSError as the kernel has it."""
    raw = encode(path)
    if raw is None:
        raise _error(errno.ENOENT)
    if openat2:
        try:
            return open_in_root(root_fd, raw or b"/", flags)
        except Unreadable:
            pass
        except PermissionError as error:
            if error.errno != errno.EPERM:  # which is what old seccomp profiles answer to calls they do not know
                raise
    steps = _Descriptors(root_fd)
    try:
        steps.walk(path, follow=not flags & os.O_NOFOLLOW)
        return _again(steps.here, flags)
    finally:
        while steps.way:
            steps.leave()


def reopen(fd: int, flags: int) -> int:
    """The file behind an O_PATH descriptor, opened: the very one that was looked at, whatever has its name by now (proc(5))."""
    return os.open(f"/proc/self/fd/{fd}", (flags & ~os.O_NOFOLLOW) | os.O_CLOEXEC)


def resolve(path: str, lookup: "Callable[[str], Entry | None]", follow: bool = True) -> "tuple[str, Entry] | None":
    """The path without links, and what is there. `lookup` is asked for paths that have a link at their end at most."""
    top = lookup("/")
    if top is None or encode(path) is None:
        return None
    steps = _Names(top, lookup)
    try:
        steps.walk(path, follow)
    except OSError:
        return None
    return steps.way[-1] if steps.way else ("/", top)


class _Steps(ABC):
    """A walk from the root, one name at a time."""

    def walk(self, path: str, follow: bool) -> None:
        rest = path.split("/")[::-1]
        links = 0
        while rest:
            name = rest.pop()
            if not self.in_directory():
                raise _error(errno.ENOTDIR)
            if name in ("", "."):
                continue
            if name == "..":
                self.leave()
                continue
            target = self.enter(name, follow or bool(rest))
            if target is None:
                continue
            links += 1
            if links > MOST_LINKS:
                raise _error(errno.ELOOP)
            self.leave()
            if target.startswith("/"):
                self.restart()
            rest.extend(target.split("/")[::-1])

    @abstractmethod
    def in_directory(self) -> bool: ...

    @abstractmethod
    def enter(self, name: str, follow: bool) -> str | None:
        """Step to a name in this directory; the target if it is a link that is to be followed."""

    @abstractmethod
    def leave(self) -> None:
        """Step back to where we came from; the root stays."""

    @abstractmethod
    def restart(self) -> None:
        """Step back to the root."""


class _Names(_Steps):
    def __init__(self, top: "Entry", lookup: "Callable[[str], Entry | None]") -> None:
        self._top, self._lookup = top, lookup
        self.way: list[tuple[str, Entry]] = []

    def in_directory(self) -> bool:
        return (self.way[-1][1] if self.way else self._top).kind == "directory"

    def enter(self, name: str, follow: bool) -> str | None:
        path = f"{self.way[-1][0] if self.way else ''}/{name}"
        entry = self._lookup(path)
        if entry is None:
            raise _error(errno.ENOENT)
        self.way.append((path, entry))
        return entry.target if follow and entry.kind == "link" else None

    def leave(self) -> None:
        del self.way[-1:]

    def restart(self) -> None:
        self.way.clear()


class _Descriptors(_Steps):
    """By descriptors, so that a directory moved meanwhile leads nowhere else: `..` goes back to the one that we came from."""

    def __init__(self, root_fd: int) -> None:
        self._root = root_fd
        self.way: list[int] = []

    @property
    def here(self) -> int:
        return self.way[-1] if self.way else self._root

    def in_directory(self) -> bool:
        return stat.S_ISDIR(os.fstat(self.here).st_mode)

    def enter(self, name: str, follow: bool) -> str | None:
        raw = encode(name) or b""
        self.way.append(os.open(raw, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.here))
        if not follow or not stat.S_ISLNK(os.fstat(self.here).st_mode):
            return None
        target = decode(os.readlink(b"", dir_fd=self.here))
        # Links that jump lead to an absolute path or to none, as `mnt:[4026531841]`; the others in /proc (self, net, mounts)
        # are relative. openat2 refuses the same (RESOLVE_NO_MAGICLINKS).
        if (target.startswith("/") or ":" in target) and file_system(self.here) == PROC:
            raise _error(errno.ELOOP)
        return target

    def leave(self) -> None:
        if self.way:
            os.close(self.way.pop())

    def restart(self) -> None:
        while self.way:
            self.leave()


def _again(fd: int, flags: int) -> int:
    """The same file by another descriptor, as `flags` want it."""
    mode = os.fstat(fd).st_mode
    if flags & os.O_DIRECTORY and not stat.S_ISDIR(mode):
        raise _error(errno.ENOTDIR)
    if flags & os.O_PATH:
        return os.dup(fd)
    if stat.S_ISLNK(mode):
        raise _error(errno.ELOOP)
    return reopen(fd, flags)


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
