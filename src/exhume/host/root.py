"""The root that readers read from: the live node, a host mounted into a container, or a fixture tree, by the same code."""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice

from exhume.errors import Unreadable
from exhume.host.paths import open_in, reopen, resolve
from exhume.host.tree import Entry
from exhume.text import from_path

# The largest file a reader takes in one go. /proc/interrupts of a 512-CPU machine is below 4 MiB.
LARGEST = 8 << 20

_REASONS = {
    errno.ENOENT: "is not there",
    errno.ENOTDIR: "is not there",
    errno.ESRCH: "is gone",
    errno.ENODEV: "is gone",
    errno.EACCES: "is not readable without root",
    errno.EPERM: "is not readable without root",
    errno.EOPNOTSUPP: "is switched off in this kernel",
}


class Root:
    """A directory that holds a node's /proc, /sys, /dev and /run."""

    def __init__(self, path: str = "/") -> None:
        self.path = os.path.abspath(path)
        self.own = self.path == "/"
        """Whether this is the root we run in ourselves; otherwise the mount and network namespaces are not ours."""
        self._tops: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Root({self.path!r})"

    def at(self, name: str) -> str:
        """The path of a file of the kernel's own file systems, whose links do not lead out. Of another's root, what /proc or
        /sys is is looked up inside of it; use `open` for everything else."""
        if self.own:
            return os.path.join(self.path, name.lstrip("/"))
        top, _, below = name.lstrip("/").partition("/")
        if top not in self._tops and (real := self.real(top)) is not None:
            self._tops[top] = real
        # Nothing is ever below a device: what leads nowhere in this root must not be found in ours.
        return os.path.join(self._tops.get(top, f"/dev/null/{top}"), below)

    def open(self, name: str, flags: int) -> int:
        """A descriptor of what the node calls /`name`; of another's root no link leads out of it (host/paths.py)."""
        if "\0" in name:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if self.own:
            return os.open(os.path.join(self.path, name.lstrip("/")), flags | os.O_CLOEXEC)
        here = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return open_in(here, name, flags)
        finally:
            os.close(here)

    def real(self, name: str) -> str | None:
        """The path, in our own root, that a name leads to; None if it leads nowhere. Ours is not looked up."""
        if self.own:
            return os.path.join(self.path, name.lstrip("/"))
        # Not by a descriptor's link in /proc: of another mount namespace (/proc/PID/root) that names a path which here is ours.
        found = resolve(name, self._entry)
        return None if found is None else self.path + found[0].rstrip("/")

    def _entry(self, path: str) -> Entry | None:
        try:
            mode = os.lstat(self.path + path).st_mode
            if stat.S_ISLNK(mode):
                return Entry("link", target=os.readlink(self.path + path))
        except OSError:
            return None
        return Entry("directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other")

    def status(self, name: str) -> os.stat_result:
        fd = self.open(name, os.O_PATH)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def read(self, name: str, largest: int = LARGEST) -> bytes:
        """A whole small file. Never blocks on a FIFO, never reads more than `largest`."""
        try:
            return _content(self._opened(name), largest)
        except OSError as error:
            raise unreadable(name, error) from None

    def regular(self, name: str, largest: int) -> bytes | None:
        """A whole regular file; None for one that is not there, not readable, not regular or larger than that."""
        try:
            with open(self._opened(name), "rb") as file:
                status = os.fstat(file.fileno())
                return file.read(largest) if stat.S_ISREG(status.st_mode) and status.st_size <= largest else None
        except OSError:
            return None

    def _opened(self, name: str) -> int:
        """For reading. Another's root may hold devices, which do things when they are opened: only what is regular is."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        if self.own:
            return self.open(name, flags)
        fd = self.open(name, os.O_PATH)
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "not a regular file")
            return reopen(fd, flags)
        finally:
            os.close(fd)

    def names(self, name: str) -> list[str]:
        try:
            fd = self.open(name, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise unreadable(name, error) from None
        try:
            return os.listdir(fd)
        except OSError as error:
            raise unreadable(name, error) from None
        finally:
            os.close(fd)

    def first_names(self, name: str, most: int) -> list[str]:
        """No more than so many names of a directory, in its own order; none if it cannot be read."""
        try:
            fd = self.open(name, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return []
        try:
            with os.scandir(fd) as entries:
                return [from_path(entry.name) for entry in islice(entries, most)]
        except OSError:
            return []
        finally:
            os.close(fd)

    def exists(self, name: str) -> bool:
        try:
            self.status(name)
        except OSError:
            return False
        return True

    def same_kernel(self) -> bool:
        """Whether this is of the machine we run on: our own root, or the host's, mounted into our container."""
        if self.own:
            return True
        try:
            name = "proc/sys/kernel/random/boot_id"
            return self.read(name, 64) == Root().read(name, 64)
        except Unreadable:
            return False

    def proc_self(self) -> str:
        """The process whose mounts and namespaces are the node's: ourselves, or its init when the root is another's."""
        return "proc/self" if self.own else "proc/1"


def read_at(path: str, largest: int = LARGEST, dir_fd: int | None = None) -> bytes:
    """Read a file of /proc or /sys as it is now; O_NONBLOCK so that a FIFO in a strange tree cannot hold us."""
    return _content(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=dir_fd), largest)


def _content(fd: int, largest: int) -> bytes:
    try:
        chunks = []
        left = largest
        while left > 0 and (chunk := os.read(fd, min(left, 1 << 16))):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def unreadable(name: str, error: OSError) -> Unreadable:
    reason = _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror or os.strerror(error.errno or 0)}")
    return Unreadable(f"/{name.lstrip('/')} {reason}")


def key_values(raw: bytes) -> Iterator[tuple[str, int]]:
    """Lines of `name value ...`, as vmstat, cpu.stat, cgroup.stat and meminfo have them; what does not parse is passed over."""
    for line in raw.split(b"\n"):
        words = line.split(None, 2)
        if len(words) >= 2 and words[1].isdigit() and len(words[1]) <= 20:
            value = int(words[1])
            if value < 1 << 63:
                yield words[0].rstrip(b":").decode("ascii", "backslashreplace"), value
