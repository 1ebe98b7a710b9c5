"""Open a file by the number of its inode, as an NFS server does: name_to_handle_at(2) and open_by_handle_at(2).

How a handle is laid out is the file system's own business, so it is learnt from the handle of a directory that is there: it
has to say what stat(2) says. The generation keeps us from a file that got the same number later.
"""

import ctypes
import os
import platform
import stat
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from exhume.errors import Unreadable

# arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h
_CALLS: Final = {"x86_64": (303, 304), "aarch64": (264, 265)}
_MAX_HANDLE_SZ: Final = 128  # include/linux/exportfs.h
_AT_FDCWD: Final = -100
_HEADER: Final = struct.Struct("=Ii")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Layout(Enum):
    """Handles that are made of an inode number and a generation alone: type and form."""

    INO32 = (1, "=II")
    """FILEID_INO32_GEN of generic_encode_ino32_fh: ext2, ext3, ext4, f2fs, XFS with 32-bit numbers."""
    XFS64 = (0x81, "=QI")
    """FILEID_INO32_GEN | XFS_FILEID_TYPE_64FLAG of fs/xfs/xfs_export.c: struct xfs_fid64."""

    def pack(self, ino: int, generation: int) -> bytes:
        try:
            return struct.pack(self.value[1], ino, generation)
        except struct.error:
            raise Unreadable(f"inode {ino} has no number that this file system could have given") from None


@dataclass(frozen=True, slots=True)
class Handle:
    kind: int
    raw: bytes

    def layout(self, ino: int) -> Layout | None:
        """Which it has, shown by the inode number in it; None if it has another."""
        for layout in Layout:
            kind, form = layout.value
            if self.kind == kind and len(self.raw) == struct.calcsize(form) and struct.unpack(form, self.raw)[0] == ino:
                return layout
        return None


def handle_of(path: str) -> Handle:
    """The handle of a file or directory; raises Unreadable where its file system has none."""
    room = ctypes.create_string_buffer(_HEADER.pack(_MAX_HANDLE_SZ, 0), _HEADER.size + _MAX_HANDLE_SZ)
    mount = ctypes.c_int()
    if _LIBC.syscall(_calls()[0], _AT_FDCWD, os.fsencode(path), room, ctypes.byref(mount), 0) != 0:
        raise Unreadable(f"{path} has no file handle: {os.strerror(ctypes.get_errno())}")
    size, kind = _HEADER.unpack_from(room.raw)
    return Handle(kind, room.raw[_HEADER.size : _HEADER.size + min(size, _MAX_HANDLE_SZ)])


def open_handle(mount: int, handle: Handle, flags: int) -> int:
    """A file descriptor of what the handle is of; `mount` is one of anything in that file system. Needs CAP_DAC_READ_SEARCH.

    Raises OSError, with ESTALE if there is no such file any more.
    """
    room = ctypes.create_string_buffer(_HEADER.pack(len(handle.raw), handle.kind) + handle.raw)
    fd: int = _LIBC.syscall(_calls()[1], mount, room, flags)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


class FileSystem:
    """A mounted file system whose files can be opened by inode number and generation. A context manager."""

    def __init__(self, point: str, device: tuple[int, int]) -> None:
        """`device` is major and minor number as the kernel has them; a mount that another covers is thereby told apart."""
        self._point = point
        try:
            self._fd = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"{point} cannot be opened: {os.strerror(error.errno or 0)}") from None
        try:
            told = os.fstat(self._fd)
            if (os.major(told.st_dev), os.minor(told.st_dev)) != device:
                raise Unreadable(f"{point} is covered by another mount, or gives its files another device number (btrfs)")
            layout = handle_of(f"/proc/self/fd/{self._fd}/.").layout(told.st_ino)
            if layout is None:
                raise Unreadable(f"the file system at {point} does not find files by inode number alone")
        except BaseException:
            os.close(self._fd)
            raise
        self._layout = layout

    def open(self, ino: int, generation: int) -> int:
        """A file descriptor for reading of a regular file. Needs CAP_DAC_READ_SEARCH."""
        handle = Handle(self._layout.value[0], self._layout.pack(ino, generation))
        try:
            fd = open_handle(self._fd, handle, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"a file on {self._point} cannot be opened by its inode number: {error.strerror}") from None
        told = os.fstat(fd)
        if told.st_ino != ino or not stat.S_ISREG(told.st_mode):
            os.close(fd)
            raise Unreadable(f"a file on {self._point} is not there any more: its inode number is now another's")
        return fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _calls() -> tuple[int, int]:
    machine = platform.machine()
    if machine not in _CALLS:
        raise Unreadable(f"the numbers of the system calls for file handles are not known for {machine}")
    return _CALLS[machine]
