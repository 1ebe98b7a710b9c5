"""syslog(2): the kernel's log as text, for whoever may not open /dev/kmsg. Reading it this way takes nothing out of it."""

import ctypes
import os
from typing import Final

# kernel/printk: include/linux/syslog.h
_READ_ALL: Final = 3
_SIZE_BUFFER: Final = 10
_LARGEST: Final = 8 << 20

_libc: Final = ctypes.CDLL(None, use_errno=True)


def read_all() -> bytes:
    """All that is in the buffer, each line as `<PRIORITY>[SECONDS] TEXT`; OSError as the kernel has it."""
    size = min(_call(_SIZE_BUFFER, None, 0), _LARGEST)
    room = ctypes.create_string_buffer(size)
    got = _call(_READ_ALL, room, size)
    return room.raw[:got]


def _call(action: int, room: "ctypes.Array[ctypes.c_char] | None", size: int) -> int:
    got: int = _libc.klogctl(action, room, size)
    if got < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return got
