"""What the recorder, the opener and the reader of symbols say to each other: one packet a message, numbers and bytes alone."""

import struct
from array import array
from enum import IntEnum
from typing import Final, NamedTuple

LARGEST: Final = 128 << 10
"""The largest packet; the kernel's usual limit is 208 KiB (net.core.wmem_default)."""
MOST_ADDRESSES: Final = 8192
MOST_PIDS: Final = 16
LAST: Final = (1 << 63) - 1
"""The end of a range that has none."""

BUILD_ID: Final = 20
"""As many bytes of a build id as perf has place for: that of SHA-1, which linkers write."""

_REQUEST = struct.Struct("<BqIIQHHI20s")  # what, key, major, minor, inode, pids, length of the path, addresses, build id
_REPLY = struct.Struct("<Bq")
_FUNCTION = struct.Struct("<QQH")  # start, end, length of the name
_LONGEST_NAME = 4096


class Garbled(Exception):
    """A packet that none of ours would send."""


class What(IntEnum):
    """Of a request. Those that open go to the opener, which hands them on to the reader with the file."""

    IMAGE = 1
    DEBUG = 2
    """The path is a build id."""
    PERF_MAP = 3
    ASK = 4
    """Of an image that the reader has."""
    ASK_FINAL = 5
    """The same, and there is no separate debug file."""


class Told(IntEnum):
    """Of a reply."""

    READY = 1
    """With what of its sandbox the child could not have."""
    BEGIN = 2
    FUNCTIONS = 3
    END = 4
    WANT = 5
    """A separate debug file, by build id."""
    GONE = 6
    """The reader does not have the image, or not any more."""
    FAILED = 7
    """For good. Before READY: the child cannot start, and why."""
    MISSED = 8
    """Not this time."""
    OPENED = 9
    CLOSED = 11
    """The opener is done with a file that the reader has."""
    DENIED = 12
    """For good, because a capability is not held."""
    LATER = 10
    """The answer needs more of a file that grows, which is not read again at once."""


class Request(NamedTuple):
    what: What
    key: int
    addresses: "array[int]"
    pids: tuple[int, ...] = ()
    path: bytes = b""
    device: tuple[int, int] = (0, 0)
    inode: int = 0
    build_id: bytes = b""
    """The file must have it; b"" where it is not known."""

    def pack(self) -> bytes:
        counts = len(self.pids), len(self.path), len(self.addresses)
        head = _REQUEST.pack(self.what, self.key, *self.device, self.inode, *counts, self.build_id)
        return b"".join((head, array("I", self.pids).tobytes(), self.path, self.addresses.tobytes()))


def unpack_request(packet: bytes) -> Request:
    try:
        what, key, major, minor, inode, pids, path, addresses, build_id = _REQUEST.unpack_from(packet)
        after_pids = _REQUEST.size + 4 * pids
        after_path = after_pids + path
        if len(packet) != after_path + 8 * addresses:
            raise Garbled("a request of another length than it says")
        asked, of = array("Q"), array("I")
        asked.frombytes(packet[after_path:])
        of.frombytes(packet[_REQUEST.size : after_pids])
        where = packet[after_pids:after_path]
        return Request(What(what), key, asked, tuple(of), where, (major, minor), inode, build_id.rstrip(b"\0"))
    except (struct.error, ValueError) as error:
        raise Garbled(str(error)) from None


class Reply(NamedTuple):
    told: Told
    key: int
    body: bytes = b""

    def pack(self) -> bytes:
        return _REPLY.pack(self.told, self.key) + self.body


def unpack_reply(packet: bytes) -> Reply:
    try:
        told, key = _REPLY.unpack_from(packet)
        return Reply(Told(told), key, packet[_REPLY.size :])
    except (struct.error, ValueError) as error:
        raise Garbled(str(error)) from None


class Named(NamedTuple):
    """A range of addresses, and the name of what is there, as UTF-8."""

    start: int
    end: int
    name: bytes


def pack_functions(functions: list[Named]) -> list[bytes]:
    """The bodies of as many replies as it takes."""
    bodies: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for start, end, name in functions:
        name = name[:_LONGEST_NAME]
        if size + _FUNCTION.size + len(name) > LARGEST - _REPLY.size:
            bodies.append(b"".join(parts))
            parts, size = [], 0
        parts += (_FUNCTION.pack(start, end, len(name)), name)
        size += _FUNCTION.size + len(name)
    return [*bodies, b"".join(parts)] if parts else bodies


def unpack_functions(body: bytes) -> list[Named]:
    found = []
    at = 0
    while at < len(body):
        try:
            start, end, length = _FUNCTION.unpack_from(body, at)
        except struct.error as error:
            raise Garbled(str(error)) from None
        at += _FUNCTION.size
        if at + length > len(body) or not start < end <= LAST:
            raise Garbled("a function that is no range")
        found.append(Named(start, end, body[at : at + length]))
        at += length
    return found
