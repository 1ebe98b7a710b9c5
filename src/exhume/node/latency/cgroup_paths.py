"""Which directory a cgroup has whose number a program saw: the kernel opens it by that number, nothing is walked."""

import os
import sys
from typing import Self

from exhume.errors import Unreadable
from exhume.kernel.file_handle import Handle, handle_of, open_handle
from exhume.node.cgroups import layout
from exhume.node.root import Root
from exhume.text import from_path

_ID_BYTES = 8


class CgroupPaths:
    """Of the hierarchy that has the memory controller. A context manager.

    The handle of a cgroup is its number (kernfs_encode_fh; before 5.5 the same eight bytes are inode number and generation),
    so only the type of it has to be learnt, from the directory that is mounted.
    """

    def __init__(self, root: Root | None = None) -> None:
        root = root or Root()
        hierarchy = layout(root).of("memory")
        if hierarchy is None:
            raise Unreadable("no hierarchy with the memory controller is mounted, so cgroups have numbers and no paths")
        self._top = os.path.realpath(root.at(hierarchy.path))
        handle = handle_of(self._top)
        if len(handle.raw) != _ID_BYTES:
            raise Unreadable(f"{hierarchy.path} does not find cgroups by their numbers")
        self._kind = handle.kind
        try:
            self._fd = os.open(self._top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"{hierarchy.path} cannot be opened: {os.strerror(error.errno or 0)}") from None

    def path(self, number: int) -> str:
        """`/` for the mounted directory; empty for a cgroup that is gone, or is not below that directory."""
        try:
            handle = Handle(self._kind, number.to_bytes(_ID_BYTES, sys.byteorder))
            fd = open_handle(self._fd, handle, os.O_PATH | os.O_CLOEXEC)
        except (OSError, OverflowError):
            return ""
        try:
            whole = os.readlink(f"/proc/self/fd/{fd}")
            # What is removed, or out of sight, is not found again at the place that the kernel names.
            if not os.path.samestat(os.stat(whole), os.fstat(fd)):
                return ""
        except (OSError, ValueError):
            return ""
        finally:
            os.close(fd)
        if whole == self._top:
            return "/"
        return from_path(whole[len(self._top) :]) if whole.startswith(self._top + "/") else ""

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
