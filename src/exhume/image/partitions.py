"""Where the parts of a disk begin: the table of MBR with its logical partitions, and GPT (UEFI specification, chapter 5)."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from exhume.image.blocks import Blocks

_MBR_ENTRY: Final = struct.Struct("<4xB3xII")  # kind, first sector, sectors
_EXTENDED: Final = (0x05, 0x0F, 0x85)
_GPT: Final = 0xEE
_SECTORS: Final = (512, 4096)
_MOST: Final = 128  # as many as a GPT has room for by default; a chain of logical partitions may go round in circles
_GPT_HEADER: Final = struct.Struct("<8sIIIIQQQQ16sQIII")


@dataclass(frozen=True, slots=True)
class Partition:
    number: int
    begin: int
    size: int


def partitions(disk: Blocks) -> list[Partition]:
    """In the order of their numbers; what does not lie on the disk, or has no bytes, is left out."""
    found = list(_gpt(disk)) or list(_mbr(disk))
    return [one for one in found if 0 < one.begin < disk.size and one.size > 0][:_MOST]


def _mbr(disk: Blocks) -> Iterator[Partition]:
    for number, (kind, first, count) in enumerate(_mbr_entries(disk.read(0, 512)), 1):
        if kind in _EXTENDED:
            yield from _logical(disk, first)
        elif kind not in (0, _GPT):
            yield Partition(number, first * 512, count * 512)


def _logical(disk: Blocks, extended: int) -> Iterator[Partition]:
    """A chain: each link has a partition, counted from itself, and the next link, counted from the first."""
    at, seen = extended, set[int]()
    while at not in seen and len(seen) < _MOST:
        seen.add(at)
        entries = _mbr_entries(disk.read(at * 512, 512))
        for kind, first, count in entries[:1]:
            if kind:
                yield Partition(4 + len(seen), (at + first) * 512, count * 512)
        if len(entries) < 2 or entries[1][0] not in _EXTENDED:
            return
        at = extended + entries[1][1]


def _mbr_entries(sector: bytes) -> list[tuple[int, int, int]]:
    if sector[510:512] != b"\x55\xaa":
        return []
    return [_MBR_ENTRY.unpack_from(sector, 446 + 16 * number) for number in range(4)]


def _gpt(disk: Blocks) -> Iterator[Partition]:
    for sector in _SECTORS:
        for at in (sector, disk.size - sector):  # the first one, or the copy at the end
            rows = _gpt_rows(disk, sector, at)
            if rows:
                yield from rows
                return


def _gpt_rows(disk: Blocks, sector: int, at: int) -> list[Partition]:
    raw = disk.read(at, _GPT_HEADER.size)
    if len(raw) < _GPT_HEADER.size or not raw.startswith(b"EFI PART"):
        return []
    (_, _, header_size, said, _, _, _, _, _, _, table, count, size, table_sum) = _GPT_HEADER.unpack(raw)
    if not _GPT_HEADER.size <= header_size <= sector or not 128 <= size <= 4096 or not 0 < count <= 1024:
        return []
    header = disk.read(at, header_size)
    rows = disk.read(table * sector, count * size)
    if zlib.crc32(header[:16] + bytes(4) + header[20:]) != said or zlib.crc32(rows) != table_sum:
        return []
    found = []
    for number in range(count):
        kind, _, first, last = struct.unpack_from("<16s16sQQ", rows, number * size)
        if any(kind):
            found.append(Partition(number + 1, first * sector, (last - first + 1) * sector))
    return found
