"""Memory that the C library keeps after large tables were read goes back to the node."""

import ctypes
from contextlib import suppress


def give_back() -> None:
    with suppress(AttributeError, OSError):  # a C library other than glibc
        ctypes.CDLL(None).malloc_trim(0)
