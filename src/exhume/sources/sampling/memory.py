"""Memory that the C library keeps after large tables were read goes back to the node."""

import ctypes
from contextlib import suppress

_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def in_one_place() -> None:
    """All threads share one heap: those of their own keep what they once needed, tens of megabytes, for good."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def give_back() -> None:
    with suppress(AttributeError, OSError):  # a C library other than glibc
        ctypes.CDLL(None).malloc_trim(0)
