"""Which file system a descriptor is of: fstatfs(2), whose type Python does not tell."""

import ctypes
import os
from typing import Final

CGROUP: Final = (0x27E0EB, 0x63677270)
"""CGROUP_SUPER_MAGIC and CGROUP2_SUPER_MAGIC of include/uapi/linux/magic.h."""
PROC: Final = 0x9FA0
"""PROC_SUPER_MAGIC of the same file."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def file_system(fd: int) -> int:
    """The number of its type; OSError as the kernel has it."""
    room = ctypes.create_string_buffer(256)  # struct statfs is 120 bytes on 64-bit machines and begins with f_type, a long
    if _LIBC.fstatfs(fd, room) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return ctypes.c_long.from_buffer(room).value & 0xFFFFFFFF


def is_cgroup(fd: int) -> bool:
    return file_system(fd) in CGROUP
