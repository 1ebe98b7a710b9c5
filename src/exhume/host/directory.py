"""A root that the kernel has mounted: a directory, a mounted image, or the live root. Links are the kernel's to follow, in it.

Devices, sockets and pipes are never opened: a file is looked at by O_PATH, which opens nothing (open(2)), and only a regular
one is opened then, by the same descriptor, so that no rename in between puts a device in its place.
"""

import errno
import heapq
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from exhume import budget
from exhume.errors import UsageError
from exhume.host.paths import LONGEST, decode, encode, open_in, reopen, resolve
from exhume.host.tree import LARGEST, MOST_NAMES, Entry, beyond, complain
from exhume.text import from_path, printable

_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
_UTF8: Final = sys.getfilesystemencoding() == "utf-8"
_KEPT: Final = 64  # directories whose descriptors are kept: the search path of units has about twelve


class NotRegular(OSError):
    """What would have been opened is a directory, a device, a socket or a pipe, and was not."""


class Directory:
    """A Tree (host/tree.py). Close it, or use it in a `with`: it keeps descriptors of the directories last used."""

    def __init__(self, path: str = "/", openat2: bool = True, most_names: int = MOST_NAMES) -> None:
        self.name = path
        self.troubles: list[str] = []
        self._openat2 = openat2
        self._most_names = most_names
        try:
            self._root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no path has a NUL in it"
            raise UsageError(f"{printable(from_path(path))} cannot be opened as a root directory: {why}") from None
        own, here = os.stat("/"), os.fstat(self._root)
        self.live = (own.st_dev, own.st_ino) == (here.st_dev, here.st_ino)
        self._directories: dict[str, int] = {}
        self._real_directories: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for fd in (*self._directories.values(), self._root):
            if fd >= 0:
                os.close(fd)
        self._directories.clear()
        self._root = -1

    def entry(self, path: str, follow: bool = True) -> Entry | None:
        try:
            return self._entry(path, follow)
        except OSError as error:
            self._complain(path, error)
            return None

    def real(self, path: str) -> str | None:
        parent, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            found = resolve(path, self._itself)
            return found[0] if found else None
        above = self._real_directory(parent)
        entry = None if above is None else self._itself(f"{above}/{name}")
        if entry is None:
            return None
        if entry.kind != "link":
            return f"{above}/{name}"
        found = resolve(path, self._itself)
        return found[0] if found else None

    def names(self, path: str) -> list[str]:
        try:
            fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            self._complain(path, error)
            return []
        try:
            with os.scandir(fd) as entries:
                found = heapq.nsmallest(self._most_names + 1, (_utf8(entry.name) for entry in entries))
        except OSError as error:
            self._complain(path, error)
            return []
        finally:
            os.close(fd)
        if len(found) > self._most_names:
            del found[self._most_names :]
            self._say(f"{_shown(path)} holds more than {self._most_names:,} names; the first of them were read.")
        return found

    def read(self, path: str, largest: int = LARGEST) -> bytes | None:
        try:
            with self.opened(path) as fd:
                length = os.fstat(fd).st_size
                if length > largest >= LARGEST:
                    self._say(f"{_shown(path)} has {beyond(length, largest)}")
                return _content(fd, largest)
        except NotRegular:
            return None
        except OSError as error:
            self._complain(path, error)
            return None

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """A descriptor of a regular file, to be read as it is; NotRegular or another OSError if there is none."""
        fd = self._open(path, os.O_PATH)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NotRegular(errno.EINVAL, "not a regular file")
            content = reopen(fd, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            budget.current().opened(content, self.name)
        finally:
            os.close(fd)
        try:
            yield content
        finally:
            os.close(content)

    def _itself(self, path: str) -> Entry | None:
        return self.entry(path, follow=False)

    def _real_directory(self, path: str) -> str | None:
        """With its links followed; "" for the root, so that a slash and a name can be put behind."""
        if path not in self._real_directories:
            if len(self._real_directories) >= 16 * _KEPT:
                self._real_directories.clear()
            found = resolve(path, self._itself)
            is_one = found is not None and found[1].kind == "directory"
            self._real_directories[path] = found[0].rstrip("/") if found and is_one else None
        return self._real_directories[path]

    def _entry(self, path: str, follow: bool) -> Entry | None:
        parent, raw = _split(path)
        if raw is not None:
            status = os.stat(raw, dir_fd=self._directory(parent), follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                return _entry_of(status)
        fd = self._anew(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
        try:
            status = os.fstat(fd)
            target = decode(os.readlink(b"", dir_fd=fd)) if stat.S_ISLNK(status.st_mode) else ""
            return _entry_of(status, target)
        finally:
            os.close(fd)

    def _open(self, path: str, flags: int) -> int:
        """Through the kept descriptor of its directory if it is no link; else from the root."""
        parent, raw = _split(path)
        if raw is None:
            return self._anew(path, flags)
        directory = self._directory(parent)
        try:
            fd = os.open(raw, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):  # a link, which O_DIRECTORY calls no directory
                return self._anew(path, flags)
            raise
        if flags & os.O_PATH and stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            return self._anew(path, flags)
        return fd

    def _directory(self, path: str) -> int:
        """A descriptor that stays open while its directory is among those last used."""
        if not path:
            return self._root
        fd = self._directories.pop(path, None)
        if fd is None:
            fd = self._anew(path, os.O_PATH | os.O_DIRECTORY)
            if len(self._directories) >= _KEPT:
                os.close(self._directories.pop(next(iter(self._directories))))
        self._directories[path] = fd
        return fd

    def _anew(self, path: str, flags: int) -> int:
        return open_in(self._root, path, flags, self._openat2)

    def _complain(self, path: str, error: OSError) -> None:
        if error.errno not in _ABSENT:
            self._say(f"{_shown(path)} cannot be read: {error.strerror}.")

    def _say(self, sentence: str) -> None:
        complain(self.troubles, sentence)


def _split(path: str) -> tuple[str, bytes | None]:
    """A directory, and the name to ask for in it; None where the kernel must walk: at the end is no name, or it is too long."""
    parent, _, name = path.rpartition("/")
    return parent, None if name in ("", ".", "..") or len(path) > LONGEST // 4 else encode(name)


def _entry_of(status: os.stat_result, target: str = "") -> Entry:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return Entry("file", stat.S_IMODE(mode), status.st_size)
    if stat.S_ISDIR(mode):
        return Entry("directory", stat.S_IMODE(mode))
    if stat.S_ISLNK(mode):
        return Entry("link", stat.S_IMODE(mode), 0, target)
    return Entry("other", stat.S_IMODE(mode))


def _content(fd: int, largest: int) -> bytes:
    chunks = []
    left = largest
    while left > 0 and (chunk := os.read(fd, min(left, 1 << 16))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _utf8(name: str) -> str:
    return name if name.isascii() or _UTF8 else decode(os.fsencode(name))


def _shown(path: str) -> str:
    return printable(from_path(path))
