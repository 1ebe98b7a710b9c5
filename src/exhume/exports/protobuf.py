"""Protocol buffers, written: what pprof and Perfetto need of the wire format (protobuf.dev/programming-guides/encoding)."""

from collections.abc import Iterable

import numpy as np

from exhume.recording.recording import Ints

_MASK = (1 << 64) - 1
_VARINT, _LENGTH = 0, 2
STAMP = 9
"""Bytes of a number in `stamps`."""


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number is its two's complement of 64 bits."""
    value &= _MASK
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return varint(field << 3 | _LENGTH) + varint(len(data)) + data


def text(field: int, value: str) -> bytes:
    """A string must be UTF-8: readers refuse the whole file for one that is not."""
    return message(field, value.encode("utf-8", "backslashreplace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """A list of numbers."""
    return message(field, *map(varint, values))


def stamps(values: Ints) -> bytes:
    """Numbers from 0 to 2^63 - 1 as varints of nine bytes each, many at once. Longer than need be is allowed: zeros on top."""
    shifts = np.arange(0, 7 * STAMP, 7, dtype=np.uint64)
    parts = (values.astype(np.uint64)[:, None] >> shifts) & np.uint64(0x7F)
    parts[:, :-1] |= np.uint64(0x80)
    return parts.astype(np.uint8).tobytes()
