"""The root that readers read from: the live node, a host mounted into a container, or a fixture tree, by the same code."""

import errno
import os
from collections.abc import Iterator

from exhume.errors import Unreadable

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

    def __repr__(self) -> str:
        return f"Root({self.path!r})"

    def at(self, name: str) -> str:
        """The path to open for what the node calls /`name`."""
        return os.path.join(self.path, name.lstrip("/"))

    def read(self, name: str, largest: int = LARGEST) -> bytes:
        """A whole small file. Never blocks on a FIFO, never reads more than `largest`."""
        try:
            return read_at(self.at(name), largest)
        except OSError as error:
            raise unreadable(name, error) from None

    def names(self, name: str) -> list[str]:
        try:
            return os.listdir(self.at(name))
        except OSError as error:
            raise unreadable(name, error) from None

    def exists(self, name: str) -> bool:
        return os.path.exists(self.at(name))

    def open_itself(self, name: str, flags: int) -> int:
        """A descriptor of what is there by just that name. In another's root no link is followed, nor on the way: an absolute
        one would lead into ours, and what is found there would be taken for theirs."""
        if self.own:
            return os.open(self.at(name), flags | os.O_CLOEXEC)
        *above, last = name.strip("/").split("/")
        here = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in above:
                inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
                os.close(here)
                here = inner
            return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        finally:
            os.close(here)

    def same_kernel(self) -> bool:
        """Whether this is of the machine we run on: our own root, or the host's, mounted into our container."""
        if self.own:
            return True
        try:
            name = "proc/sys/kernel/random/boot_id"
            fd = self.open_itself(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                return os.read(fd, 64) == Root().read(name, 64)
            finally:
                os.close(fd)
        except (OSError, Unreadable):
            return False

    def proc_self(self) -> str:
        """The process whose mounts and namespaces are the node's: ourselves, or its init when the root is another's."""
        return "proc/self" if self.own else "proc/1"


def read_at(path: str, largest: int = LARGEST, dir_fd: int | None = None) -> bytes:
    """Read a file of /proc or /sys as it is now; O_NONBLOCK so that a FIFO in a strange tree cannot hold us."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=dir_fd)
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
    reason = _REASONS.get(error.errno or 0, f"cannot be read: {os.strerror(error.errno or 0)}")
    return Unreadable(f"/{name.lstrip('/')} {reason}")


def key_values(raw: bytes) -> Iterator[tuple[str, int]]:
    """Lines of `name value ...`, as vmstat, cpu.stat, cgroup.stat and meminfo have them; what does not parse is passed over."""
    for line in raw.split(b"\n"):
        words = line.split(None, 2)
        if len(words) >= 2 and words[1].isdigit() and len(words[1]) <= 20:
            value = int(words[1])
            if value < 1 << 63:
                yield words[0].rstrip(b":").decode("ascii", "backslashreplace"), value
