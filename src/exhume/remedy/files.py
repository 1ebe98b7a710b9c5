"""Files and links of a node, looked at and put in place: whole or not at all, on the disk when it returns, never outside.

Links on the way to a file are followed as a process in that root would follow them (host/paths.py), so that an absolute
link in a mounted image leads into the image. The file at the end of the path is never followed: it is replaced itself.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from exhume.errors import ExhumeError, Refused
from exhume.host.paths import encode, open_in
from exhume.host.quantities import size
from exhume.remedy.found import ABSENT, Found, raises_privilege
from exhume.remedy.operations import Operations
from exhume.text import from_path, printable

LARGEST = 1 << 20
"""Unit files and drop-ins have a few KiB. What is larger is no configuration, and not ours to keep in a journal."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OURS = ".exhume-"  # systemd passes over names that begin with a dot (hidden_or_backup_file in src/basic/path-util.c)


@dataclass(frozen=True, slots=True)
class Parent:
    """The directory that a path ends in, or the nearest one above that is there."""

    fd: int
    missing: tuple[str, ...]
    """Directories between it and the file that are not there, outermost first."""
    name: str


class Files:
    """The files below one root directory."""

    def __init__(self, root: str, operations: Operations) -> None:
        self.root = root
        self._operations = operations

    def look(self, path: str) -> Found:
        """What is there now. Refused for what cannot be put back: large files, and files that have other names too."""
        with self.parent(path) as parent:
            return ABSENT if parent.missing else _look(parent.name, parent.fd, path)

    def missing_parents(self, path: str) -> tuple[str, ...]:
        """The directories that `put` would have to make, outermost first."""
        with self.parent(path) as parent:
            parts = _parts(path)
            there = len(parts) - 1 - len(parent.missing)
            return tuple("/" + "/".join(parts[: there + 1 + more]) for more in range(len(parent.missing)))

    def read_only(self, path: str) -> bool:
        """Whether nothing can be changed there, whoever asks: an image that is mounted so, a root that is immutable."""
        try:
            with self.parent(path) as parent:
                return bool(os.fstatvfs(parent.fd).f_flag & os.ST_RDONLY)
        except ExhumeError:
            return False  # a path that is none is told by the step itself

    def put(self, path: str, wanted: Found, token: str) -> None:
        """Make it so. What is half made when we die bears a name with `token`, and `clear` removes it."""
        do = self._operations
        with self._making(path) as (fd, name):
            if wanted.kind == "absent":
                with suppress(FileNotFoundError):
                    do.unlink(name, fd)
            else:
                try:
                    self._place(wanted, name, fd, _OURS + token)
                except OSError:
                    with suppress(OSError):
                        do.unlink(_OURS + token, fd)
                    raise
            do.sync(fd, "directory")

    def clear(self, path: str, token: str) -> None:
        """Remove what was half made, and have the disk know the rest."""
        with self.parent(path) as parent:
            if not parent.missing:
                with suppress(FileNotFoundError):
                    self._operations.unlink(_OURS + token, parent.fd)
                self._operations.sync(parent.fd, "directory")

    def sync_above(self, path: str) -> None:
        """Have the disk know what is in the directory of a path: a former attempt may have died before it did."""
        with self.parent(path) as parent:
            self._operations.sync(parent.fd, "directory")

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty; whether it is gone."""
        with self.parent(path) as parent:
            if parent.missing:
                return True
            try:
                self._operations.rmdir(parent.name, parent.fd)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                    return False
                raise _failed(path, error) from None
            self._operations.sync(parent.fd, "directory")
            return True

    @contextmanager
    def parent(self, path: str) -> Iterator[Parent]:
        *above, name = _parts(path)
        try:
            root = os.open(self.root, _DIRECTORY)
        except OSError as error:
            raise Refused(f"the root directory {_shown(self.root)} cannot be opened: {error.strerror}") from None
        try:
            fd, there = self._nearest(root, above, path)
        finally:
            os.close(root)
        try:
            yield Parent(fd, tuple(above[there:]), name)
        except OSError as error:
            raise _failed(path, error) from None
        finally:
            os.close(fd)

    def _nearest(self, root: int, above: list[str], path: str) -> tuple[int, int]:
        """The nearest directory that is there, and how many of the names lead to it."""
        for there in range(len(above), -1, -1):
            try:
                fd = open_in(root, "/".join(above[:there]), _DIRECTORY)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _failed(path, error) from None
            if there < len(above):
                try:
                    os.stat(above[there], dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    return fd, there
                # Something has that name, and yet it is not there: a link that ends nowhere in this root.
                os.close(fd)
                link = "/" + "/".join(above[: there + 1])
                raise Refused(f"{_shown(path)} is left alone: {_shown(link)} is a link that leads nowhere in this root")
            return fd, there
        raise Refused(f"{_shown(path)} is left alone: its root directory is gone")

    @contextmanager
    def _making(self, path: str) -> Iterator[tuple[int, str]]:
        """The directory of a path, made with those above it if need be."""
        do = self._operations
        with self.parent(path) as parent:
            fd = os.dup(parent.fd)
            try:
                for missing in parent.missing:
                    do.mkdir(missing, fd, 0o755)
                    inner = os.open(missing, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                    try:
                        do.chmod(inner, 0o755)  # whatever the umask is
                        do.sync(inner, "directory")
                        do.sync(fd, "directory")
                    except BaseException:
                        os.close(inner)
                        raise
                    os.close(fd)
                    fd = inner
                yield fd, parent.name
            finally:
                os.close(fd)

    def _place(self, wanted: Found, name: str, at: int, temporary: str) -> None:
        do = self._operations
        with suppress(FileNotFoundError):
            do.unlink(temporary, at)
        if wanted.kind == "link":
            do.link(wanted.target, temporary, at)
            do.own_link(temporary, at, wanted.uid, wanted.gid)
            self._attributes(f"/proc/self/fd/{at}/{temporary}", wanted)
            if wanted.mtime_ns is not None:
                do.date_link(temporary, at, wanted.mtime_ns)
        else:
            fd = do.create(temporary, at)
            try:
                do.write(fd, wanted.content)
                do.own(fd, wanted.uid, wanted.gid, wanted.mode)
                self._attributes(fd, wanted)
                if wanted.mtime_ns is not None:
                    do.date(fd, wanted.mtime_ns)
                do.sync(fd, "file")
            finally:
                os.close(fd)
        do.rename(temporary, name, at)

    def _attributes(self, where: int | str, wanted: Found) -> None:
        """Exactly those that are wanted, of a file that was there before; what a new one gets by itself is right."""
        if wanted.mtime_ns is None and not wanted.attributes:
            return
        here = dict(_attributes(where))
        for name, value in wanted.attributes:
            if here.pop(name, None) != value:
                self._operations.set_attribute(where, name, value)
        for name in here:
            # A label that the security policy gives to every file cannot be taken away, and needs not be.
            if not name.startswith("security."):
                self._operations.set_attribute(where, name, None)


def new_file(content: bytes, mode: int) -> Found:
    return Found("file", content, mode=mode, uid=os.geteuid(), gid=os.getegid())


def new_link(target: str) -> Found:
    return Found("link", target=target, mode=0o777, uid=os.geteuid(), gid=os.getegid())


def changed(before: Found, content: bytes, mode: int) -> Found:
    """A file with other content and mode; whose it is and its labels stay."""
    return replace(before, content=content, mode=mode, mtime_ns=None)


def _look(name: str, at: int, path: str) -> Found:
    try:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError:
        return ABSENT
    try:
        status = os.fstat(fd)
        whose = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns)
        if stat.S_ISLNK(status.st_mode):
            return Found("link", b"", os.readlink("", dir_fd=fd), *whose, _attributes(f"/proc/self/fd/{at}/{name}"))
        if not stat.S_ISREG(status.st_mode):
            return Found("other")
        if status.st_size > LARGEST:
            raise Refused(f"{_shown(path)} is left alone: it has {size(status.st_size)}, more than any configuration")
        if status.st_nlink != 1:
            raise Refused(f"{_shown(path)} is left alone: the file has {status.st_nlink} names, and a change would part them")
        opened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb", buffering=0) as file:
            chunks = []
            while chunk := file.read(LARGEST):
                chunks.append(chunk)
                if sum(map(len, chunks)) > LARGEST:
                    raise Refused(f"{_shown(path)} is left alone: it grows while it is read")
            found = Found("file", b"".join(chunks), "", *whose, _attributes(opened))
        if raises_privilege(found):
            raise Refused(f"{_shown(path)} is left alone: it has set-id bits or capabilities, so it is no configuration")
        return found
    finally:
        os.close(fd)


def _attributes(where: int | str) -> tuple[tuple[str, bytes], ...]:
    try:
        if isinstance(where, int):
            return tuple((name, os.getxattr(where, name)) for name in sorted(os.listxattr(where)))
        names = sorted(os.listxattr(where, follow_symlinks=False))
        return tuple((name, os.getxattr(where, name, follow_symlinks=False)) for name in names)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOENT):
            return ()
        raise


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if encode(path) is None or parts[0] or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):
        raise Refused(f"{_shown(path)} is left alone: a path must begin with a slash and have plain names only")
    return parts[1:]


def _failed(path: str, error: OSError) -> ExhumeError:
    return ExhumeError(f"{_shown(path)}: {os.strerror(error.errno or 0)}")


def _shown(path: str) -> str:
    return printable(path if encode(path) is None else from_path(path))
