"""The members of a tar archive, one after the other: ustar, GNU and pax (pax(1), GNU tar's manual, "Basic Tar Format").

Python's tarfile keeps every member and takes in headers of any size; an archive of a million names, or with a header of ten
gigabytes, must cost no more memory than another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from exhume.host.quantities import counted
from exhume.image.streams import Damaged, Limited, Source

BLOCK: Final = 512
_MOST_HEADER: Final = 1 << 20  # of a long name or of pax records; a path has 4,095 bytes
_LARGEST: Final = 1 << 62

Kind = Literal["file", "directory", "link", "hard", "other"]
_KINDS: Final[dict[bytes, Kind]] = {b"1": "hard", b"2": "link", b"3": "other", b"4": "other", b"5": "directory", b"6": "other"}
# Records that say something about a member; others may be many, and are not kept.
_KNOWN: Final = frozenset(
    (
        b"path",
        b"linkpath",
        b"size",
        b"GNU.sparse.major",
        b"GNU.sparse.map",
        b"GNU.sparse.name",
        b"GNU.sparse.realsize",
        b"GNU.sparse.size",
    )
)
_NO_DATA: Final = (b"1", b"2", b"3", b"4", b"5", b"6")


@dataclass(frozen=True, slots=True)
class Member:
    name: bytes
    kind: Kind
    mode: int
    size: int
    target: bytes
    """Of a link as it is written, of a hard link the other name in the archive."""
    data: Source
    """To be read before the next member is asked for."""
    sparse: bool = False
    """Whether the data is a map of holes and what is between them, not the file as it is."""


@dataclass(slots=True)
class _Ahead:
    """What the headers before a member say about it."""

    name: bytes | None = None
    target: bytes | None = None
    pax: dict[bytes, bytes] = field(default_factory=dict)


def is_header(block: bytes) -> bool:
    """Whether a block is the header of a member: its sum is right."""
    if len(block) < BLOCK or not block[0]:
        return False
    try:
        said = _number(block[148:156])
    except Damaged:
        return False
    others = block[:148] + b" " * 8 + block[156:BLOCK]
    return said == sum(others) or said == sum(
        byte - 256 if byte > 127 else byte for byte in others
    )  # old ones sum signed bytes


def members(source: Source) -> Iterator[Member]:
    ahead, everywhere = _Ahead(), dict[bytes, bytes]()
    while len(block := source.read(BLOCK)) == BLOCK and any(block):
        if not is_header(block):
            raise Damaged("it has a member whose header is damaged")
        flag, size = block[156:157], _number(block[124:136])
        if flag in (b"L", b"K", b"x", b"X", b"g"):
            content = _header(source, size)
            if flag == b"L":
                ahead.name = content.rstrip(b"\0")
            elif flag == b"K":
                ahead.target = content.rstrip(b"\0")
            elif flag == b"g":
                everywhere.update(_records(content))
            else:
                ahead.pax.update(_records(content))
            continue
        member, stored = _member(source, block, flag, size, ahead, {**everywhere, **ahead.pax})
        ahead = _Ahead()
        data = Limited(source, stored)
        if flag != b"V":  # the name of the volume
            yield Member(*member[:-1], data, member[-1])
        left = data.left + -stored % BLOCK
        if source.skip(left) < data.left:
            raise Damaged("it ends in the middle of a file")
    if block and len(block) < BLOCK:
        raise Damaged("it ends in the middle of a header")
    if (ahead.name or ahead.target or ahead.pax) and not block:
        raise Damaged("it ends behind a header that has no member")
    if not block:
        # Cut off between two members it looks whole: nothing of what is missing may pass for not being there.
        raise Damaged("it has no end: the block of zeros after the last member is missing")


def _member(
    source: Source, block: bytes, flag: bytes, size: int, ahead: _Ahead, pax: dict[bytes, bytes]
) -> tuple[tuple[bytes, Kind, int, int, bytes, bool], int]:
    """The member without its data, and how many bytes of data the archive holds."""
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    if prefix and block[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    name = pax.get(b"path", ahead.name or name)
    target = pax.get(b"linkpath", ahead.target or block[157:257].partition(b"\0")[0])
    if b"size" in pax:
        size = _decimal(pax[b"size"])
    kind = _KINDS.get(flag, "file")
    if kind == "file" and (flag == b"D" or name.endswith(b"/")):  # GNU's dump of a directory; before ustar, a slash said it
        kind = "directory"
    sparse = flag == b"S" or b"GNU.sparse.major" in pax or b"GNU.sparse.map" in pax
    real = size
    if flag == b"S":
        real = _number(block[483:495])
        more = block[482:483]
        while more != b"\0":
            extension = source.read(BLOCK)
            if len(extension) < BLOCK:
                raise Damaged("it ends in the middle of a header")
            more = extension[504:505]
    elif sparse:
        name = pax.get(b"GNU.sparse.name", name)
        real = _decimal(pax.get(b"GNU.sparse.realsize", pax.get(b"GNU.sparse.size", b"0")))
    stored = 0 if flag in _NO_DATA else size
    return (name, kind, _number(block[100:108]) & 0o7777, real, target, sparse), stored


def _header(source: Source, size: int) -> bytes:
    if size > _MOST_HEADER:
        raise Damaged(f"it has a header of {counted(size, 'byte')}")
    content = source.read(size)
    padding = -size % BLOCK
    if len(content) < size or source.skip(padding) < padding:
        raise Damaged("it ends in the middle of a header")
    return content


def _number(text: bytes) -> int:
    """Octal digits, or binary when the first bit is set (GNU)."""
    if text[0] & 0x80:
        value = int.from_bytes(text, "big") & ((1 << (8 * len(text) - 1)) - 1)
        if text[0] & 0x40 or value > _LARGEST:
            raise Damaged("it has a header with a negative or a giant number")
        return value
    digits = text.partition(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        raise Damaged("it has a header with a number that is none")
    return int(digits, 8) if digits else 0


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise Damaged("it has a header with a number that is none")
    return int(text)


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Of pax: the length of the record in decimal, a blank, key=value and a newline."""
    at = 0
    while at < len(content):
        digits = content[at : at + 8].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        record = content[at : at + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if length < len(digits) + 3 or len(record) < length or record[-1:] != b"\n" or not equals:
            raise Damaged("it has pax records that are damaged")
        if key in _KNOWN:
            yield key, value
        at += length
