"""Every change that a remedy makes to a node: one small call each, so that a test can end the process after any of them.

The calls say nothing about order. That a change is journalled before it is made, that a file is on the disk before it gets
its name and that a directory is synced before the step counts as done is in `files`, `journal` and `carry_out`.
"""

import os
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


class Operations:
    """Changes by descriptors and names in directories, never by a path. `happened` is for tests."""

    def happened(self, what: str) -> None:
        """Called after each operation."""

    def create(self, name: str, at: int) -> int:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
        self.happened(f"create {name}")
        return fd

    def write(self, fd: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        self.happened("write")

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        self.happened("truncate")

    def own(self, fd: int, uid: int, gid: int, mode: int) -> None:
        """Owner first: chown(2) takes the set-user-ID bits away."""
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (uid, gid):
            os.fchown(fd, uid, gid)
            self.happened("chown")
        self.chmod(fd, mode)

    def chmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)
        self.happened("chmod")

    def own_link(self, name: str, at: int, uid: int, gid: int) -> None:
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
        if (status.st_uid, status.st_gid) != (uid, gid):
            os.chown(name, uid, gid, dir_fd=at, follow_symlinks=False)
            self.happened("chown")

    def set_attribute(self, where: int | str, name: str, value: bytes | None) -> None:
        """An extended attribute, of a descriptor or of a link by its path; None takes it away."""
        if isinstance(where, int):
            if value is None:
                os.removexattr(where, name)
            else:
                os.setxattr(where, name, value)
        elif value is None:
            os.removexattr(where, name, follow_symlinks=False)
        else:
            os.setxattr(where, name, value, follow_symlinks=False)
        self.happened(f"set {name}")

    def date(self, fd: int, mtime_ns: int) -> None:
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        self.happened("utime")

    def date_link(self, name: str, at: int, mtime_ns: int) -> None:
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=at, follow_symlinks=False)
        self.happened("utime")

    def sync(self, fd: int, what: str = "") -> None:
        os.fsync(fd)
        self.happened(f"sync {what}".rstrip())

    def link(self, target: str, name: str, at: int) -> None:
        os.symlink(target, name, dir_fd=at)
        self.happened(f"link {name}")

    def rename(self, old: str, new: str, at: int) -> None:
        os.rename(old, new, src_dir_fd=at, dst_dir_fd=at)
        self.happened(f"rename {new}")

    def unlink(self, name: str, at: int) -> None:
        os.unlink(name, dir_fd=at)
        self.happened(f"unlink {name}")

    def mkdir(self, name: str, at: int, mode: int) -> None:
        os.mkdir(name, mode, dir_fd=at)
        self.happened(f"mkdir {name}")

    def rmdir(self, name: str, at: int) -> None:
        os.rmdir(name, dir_fd=at)
        self.happened(f"rmdir {name}")

    def call(self, what: str, function: Callable[[], Answer]) -> Answer:
        """Something that another does at our word: systemd, the kernel."""
        answer = function()
        self.happened(f"call {what}")
        return answer
