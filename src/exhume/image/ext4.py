"""ext2, ext3 and ext4 read without mounting (the kernel's Documentation/filesystems/ext4, fs/ext4/ext4.h): what a root needs.

Nothing is trusted: every number is checked against the disk, every walk is bounded, and the journal is not replayed.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from exhume.errors import UsageError
from exhume.image.blocks import Blocks
from exhume.image.streams import Damaged

ROOT: Final = 2
_SUPERBLOCK, _MAGIC, _EXTENT_MAGIC = 1024, 0xEF53, 0xF30A
_RECOVER, _META_BG, _64BIT, _FILETYPE = 0x4, 0x10, 0x80, 0x2
# filetype, recover, extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir, inline_data, encrypt, casefold
_KNOWN: Final = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x20000
_ENCRYPTED, _EXTENTS, _INLINE = 0x800, 0x80000, 0x10000000
_DEEPEST: Final = 5  # of a tree of extents (EXT4_MAX_EXTENT_DEPTH)
_UNWRITTEN: Final = 1 << 15  # longer extents are reserved space that reads as zeros
_ATTRIBUTES, _SYSTEM = 0xEA020000, 7  # fs/ext4/xattr.h
_MOST_RUNS: Final = 1 << 16
_MOST_NODES: Final = 1 << 12  # of the map of one file: enough for a gigabyte in single blocks


def is_ext(blocks: Blocks) -> bool:
    return blocks.read(_SUPERBLOCK + 0x38, 2) == _MAGIC.to_bytes(2, "little")


@dataclass(frozen=True, slots=True)
class Inode:
    mode: int
    size: int
    flags: int
    area: bytes
    """60 bytes: the map of its blocks, or a short link's target, or the beginning of a tiny file."""
    more: bytes = b""
    """The rest of a tiny file, which is kept as an attribute."""


class Ext4:
    def __init__(self, blocks: Blocks) -> None:
        raw = blocks.read(_SUPERBLOCK, 1024)
        if len(raw) < 1024:
            raise Damaged("its file system ends in the superblock")
        self._blocks = blocks
        self._inodes, _, _, _, _, first, shift, _, _, _, self._per_group = struct.unpack_from("<11I", raw)
        revision = _u32(raw, 0x4C)
        incompatible = _u32(raw, 0x60) if revision else 0
        if incompatible & ~_KNOWN:
            raise UsageError(f"its file system has features that are not known here ({incompatible & ~_KNOWN:#x}); {MOUNT}")
        self._inode_size = _u16(raw, 0x58) if revision else 128
        if shift > 6 or not self._per_group or self._inode_size < 128 or self._inode_size & (self._inode_size - 1):
            raise Damaged("its superblock is damaged")
        self.block = 1024 << shift
        if self._inode_size > self.block:
            raise Damaged("its superblock is damaged")
        self._wide = bool(incompatible & _64BIT)
        self._descriptor = _u16(raw, 0xFE) if self._wide else 32
        if not 32 <= self._descriptor <= 1024:
            raise Damaged("its superblock is damaged")
        count = _u32(raw, 0x04) | (_u32(raw, 0x150) << 32 if self._wide else 0)  # s_blocks_count_lo and _hi
        self.cut_off = count * self.block > blocks.size
        """Whether the disk is smaller than its file system: what is behind its end reads as if it were not there."""
        self._table = (first + 1) * self.block
        self.filetype = bool(incompatible & _FILETYPE)
        self.dirty = bool(incompatible & _RECOVER)
        """Whether the journal holds writes that are not yet in their places."""

    def inode(self, number: int) -> Inode:
        if not 0 < number <= self._inodes:
            raise Damaged(f"there is no inode {number}")
        group, index = divmod(number - 1, self._per_group)
        row = self._blocks.read(self._table + group * self._descriptor, self._descriptor)
        if len(row) < self._descriptor:
            raise Damaged(f"inode {number} is not on the disk")
        table = _u32(row, 0x8) | (_u32(row, 0x28) << 32 if self._wide and self._descriptor >= 64 else 0)
        raw = self._blocks.read(table * self.block + index * self._inode_size, self._inode_size)
        if not table or len(raw) < self._inode_size:
            raise Damaged(f"inode {number} is not on the disk")
        mode, flags = _u16(raw, 0), _u32(raw, 0x20)
        high = _u32(raw, 0x6C) if mode & 0xF000 == 0x8000 else 0  # of a regular file alone, in revision 0 of ext2
        return Inode(mode, _u32(raw, 4) | high << 32, flags, raw[0x28:0x64], _inline(raw) if flags & _INLINE else b"")

    def content(self, inode: Inode, largest: int) -> bytes:
        """The first bytes of a file; holes are zeros."""
        size = min(inode.size, largest)
        if inode.flags & _ENCRYPTED:
            raise Damaged("it is encrypted")
        if inode.flags & _INLINE:
            return (inode.area + inode.more)[:size]
        chunks: list[bytes] = []
        at = 0
        for logical, physical, count in self._runs(inode, -(-size // self.block)):
            begin = logical * self.block
            if begin < at:
                raise Damaged("the map of its blocks is not in order")
            if begin >= size:
                break
            chunks.append(bytes(begin - at))
            length = min(count * self.block, size - begin)
            data = self._blocks.read(physical * self.block, length) if physical else bytes(length)
            if len(data) < length:
                raise Damaged("it lies behind the end of the disk")
            chunks.append(data)
            at = begin + length
        chunks.append(bytes(size - at))
        return b"".join(chunks)

    def _runs(self, inode: Inode, end: int) -> Iterator[tuple[int, int, int]]:
        """Block of the file, block of the disk (0 for zeros) and count, in order; those from `end` on may be left out."""
        node = self._node(_MOST_NODES)
        if inode.flags & _EXTENTS:
            walk = self._extents(inode.area, _DEEPEST, end, node)
        else:
            walk = self._mapped(inode.area, end, node)
        for number, run in enumerate(walk):
            if number >= _MOST_RUNS:
                raise Damaged("it lies in too many pieces")
            yield run

    def _node(self, most: int) -> Callable[[int], bytes]:
        """What reads the blocks of a map; a map that is made to lead on for ever ends after as many."""
        left = most

        def read(at: int) -> bytes:
            nonlocal left
            left -= 1
            raw = self._blocks.read(at * self.block, self.block)
            if left < 0 or len(raw) < self.block:
                raise Damaged("the map of its blocks is damaged")
            return raw

        return read

    def _extents(self, node: bytes, deepest: int, end: int, read: Callable[[int], bytes]) -> Iterator[tuple[int, int, int]]:
        magic, count, _, depth = struct.unpack_from("<4H", node)
        if magic != _EXTENT_MAGIC or depth > deepest or 12 * (count + 1) > len(node):
            raise Damaged("its tree of extents is damaged")
        for at in range(12, 12 * (count + 1), 12):
            if depth:
                logical, low, high = struct.unpack_from("<IIH", node, at)
                if logical >= end:
                    return
                below = read(high << 32 | low)
                if _u16(below, 6) != depth - 1:
                    raise Damaged("its tree of extents is damaged")
                yield from self._extents(below, depth - 1, end, read)
            else:
                logical, length, high, low = struct.unpack_from("<IHHI", node, at)
                written = length <= _UNWRITTEN
                yield logical, (high << 32 | low) if written else 0, length if written else length - _UNWRITTEN

    def _mapped(self, area: bytes, end: int, read: Callable[[int], bytes]) -> Iterator[tuple[int, int, int]]:
        """Of ext2 and ext3: twelve blocks, then blocks of block numbers, one, two and three deep."""
        words = struct.unpack("<15I", area)
        for logical, physical in enumerate(words[:12]):
            if physical:
                yield logical, physical, 1
        per_block = self.block // 4
        logical = 12
        for depth, physical in enumerate(words[12:], 1):
            yield from self._indirect(physical, depth, logical, end, read)
            logical += per_block**depth

    def _indirect(
        self, physical: int, depth: int, logical: int, end: int, read: Callable[[int], bytes]
    ) -> Iterator[tuple[int, int, int]]:
        if not physical or logical >= end:
            return
        if not depth:
            yield logical, physical, 1
            return
        raw = read(physical)
        span = (self.block // 4) ** (depth - 1)
        for index, below in enumerate(struct.unpack(f"<{self.block // 4}I", raw)):
            yield from self._indirect(below, depth - 1, logical + index * span, end, read)

    def names(self, inode: Inode, most: int) -> Iterator[tuple[bytes, int]]:
        """Names of a directory and their inodes, up to as many bytes of it; . and .. are left out."""
        if inode.flags & _INLINE:
            yield from self._block_names(inode.area[4:])  # the parent's inode comes first
            yield from self._block_names(inode.more)
            return
        raw = self.content(inode, most)
        for begin in range(0, len(raw), self.block):
            yield from self._block_names(raw[begin : begin + self.block])

    def _block_names(self, block: bytes) -> Iterator[tuple[bytes, int]]:
        at = 0
        while at + 8 <= len(block):
            number, length, name_length = struct.unpack_from("<IHH", block, at)
            if self.filetype:
                name_length &= 0xFF
            if length < 8 or length % 4 or at + length > len(block) or name_length > length - 8:
                raise Damaged("it has entries that are damaged")
            name = block[at + 8 : at + 8 + name_length]
            if number and name not in (b".", b"..") and name and not (b"/" in name or b"\0" in name):
                yield name, number
            at += length


def _inline(raw: bytes) -> bytes:
    """The attribute system.data behind the fields of an inode (Documentation/filesystems/ext4/attributes.rst)."""
    begin = 128 + (_u16(raw, 128) if len(raw) > 130 else 0)
    if _u32(raw, begin) != _ATTRIBUTES:
        return b""
    first = at = begin + 4
    while at + 16 <= len(raw) and _u32(raw, at):
        length, index, offset, _, size = struct.unpack_from("<BBHII", raw, at)
        if (index, raw[at + 16 : at + 16 + length]) == (_SYSTEM, b"data"):
            return raw[first + offset : first + offset + size]
        at += 16 + -(-length // 4) * 4
    return b""


MOUNT: Final = "mount it read-only and give the directory as --root"


def _u16(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + 2], "little")


def _u32(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + 4], "little")
