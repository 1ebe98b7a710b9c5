"""bbolt files as small as they can be, for tests: every bucket has a page of its own, or lies in its parent's."""

import struct
from typing import Union

PAGE = 4096
Buckets = dict[bytes, Union[bytes, "Buckets"]]


def write(buckets: Buckets, inline: bool = False) -> bytes:
    pages: list[bytes] = [b"", b"", _page(2, 16, 0, b""), b""]  # two meta pages, the free list, the root
    pages[3] = _leaf(3, buckets, pages, inline)
    for number in (0, 1):
        pages[number] = _meta(number, 3, len(pages), transaction=number)
    return b"".join(page.ljust(PAGE, b"\0") for page in pages)


def _leaf(number: int, buckets: Buckets, pages: list[bytes], inline: bool) -> bytes:
    items = []
    for name, value in sorted(buckets.items()):
        if isinstance(value, bytes):
            items.append((0, name, value))
        elif inline:
            items.append((1, name, struct.pack("<QQ", 0, 0) + _leaf(0, value, pages, inline)))
        else:
            pages.append(b"")
            place = len(pages) - 1
            pages[place] = _leaf(place, value, pages, inline)
            items.append((1, name, struct.pack("<QQ", place, 0)))
    elements, data = b"", b""
    for index, (flags, name, value) in enumerate(items):
        position = (len(items) - index) * 16 + len(data)
        elements += struct.pack("<IIII", flags, position, len(name), len(value))
        data += name + value
    return _page(number, 2, len(items), elements + data)


def _page(number: int, flags: int, count: int, body: bytes) -> bytes:
    assert 16 + len(body) <= PAGE, "one page a bucket"
    return struct.pack("<QHHI", number, flags, count, 0) + body


def _meta(number: int, root: int, count: int, transaction: int) -> bytes:
    body = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, PAGE, 0, root, 0, 2, count, transaction)
    value = 0xCBF29CE484222325
    for byte in body:
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return _page(number, 4, 0, body + struct.pack("<Q", value))
