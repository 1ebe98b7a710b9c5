"""openat2(2): open a path as a process in another root would, whatever links that root holds, and never out of it."""

import ctypes
import errno
import os
import struct
import sys
from typing import Final

from exhume.errors import Unreadable

_OPENAT2: Final = 437  # the same on every machine: include/uapi/asm-generic/unistd.h, arch/x86/entry/syscalls/syscall_64.tbl
_MACHINES: Final = ("x86_64", "aarch64")
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10  # include/uapi/linux/openat2.h
_HOW: Final = struct.Struct("=QQQ")  # struct open_how: flags, mode, resolve
_TRIES: Final = 8  # a rename at the same moment makes the kernel say EAGAIN

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def open_in_root(root_fd: int, path: bytes, flags: int) -> int:
    """The file descriptor of `path` where `root_fd` is the root directory; a link like /proc/1/root is refused.

    OSError as the kernel has it; Unreadable where the kernel (before 5.6) or a sandbox does not know the call.
    """
    if os.uname().machine not in _MACHINES or sys.maxsize < 1 << 32:
        raise Unreadable(f"openat2 is not known on {os.uname().machine}")
    how = _HOW.pack(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    code = 0
    for _ in range(_TRIES):
        size = ctypes.c_size_t(len(how))
        fd: int = _LIBC.syscall(ctypes.c_long(_OPENAT2), ctypes.c_int(root_fd), ctypes.c_char_p(path), how, size)
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    if code == errno.ENOSYS:
        raise Unreadable("the kernel has no openat2, which came with Linux 5.6")
    raise OSError(code, os.strerror(code))
