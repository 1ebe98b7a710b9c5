"""Bytes of a disk, by their place: a raw image as it is, a qcow2 image by its tables (QEMU's docs/interop/qcow2.txt).

A qcow2 image that needs another file (a backing file, an external data file) is refused: the name of that file stands in the
image, and no file that an image names is opened.
"""

import os
import struct
import zlib
from collections import OrderedDict
from typing import Final, Protocol

from exhume import budget
from exhume.errors import UsageError
from exhume.image.streams import Damaged, zstd

_QCOW2: Final = b"QFI\xfb"
_HEADER: Final = struct.Struct(">4sIQIIQIIQQIIQ")
_DIRTY, _CORRUPT, _EXTERNAL, _COMPRESSION, _EXTENDED = (1 << bit for bit in range(5))
_OFFSET: Final = (1 << 56) - (1 << 9)  # bits 9 to 55
_CONVERT: Final = "make it a plain one by qemu-img convert -O raw"
_KEPT: Final = 16  # tables and unpacked clusters, each up to 2 MiB
_SMALLEST, _LARGEST = 9, 21  # bits of a cluster


class Blocks(Protocol):
    size: int

    def read(self, at: int, size: int) -> bytes:
        """That many bytes from there; fewer only where the disk ends."""


class Raw:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read(self, at: int, size: int) -> bytes:
        if not 0 <= at < self.size or size <= 0:
            return b""
        try:
            return os.pread(self._fd, min(size, self.size - at), at)
        except OSError as error:
            raise Damaged(f"reading it fails at byte {at:,} ({error.strerror})") from None


class Part:
    """A partition."""

    def __init__(self, blocks: Blocks, begin: int, size: int) -> None:
        self._blocks = blocks
        self._begin = begin
        self.size = max(0, min(size, blocks.size - begin))

    def read(self, at: int, size: int) -> bytes:
        return self._blocks.read(self._begin + at, min(size, self.size - at)) if 0 <= at < self.size else b""


class Qcow2:
    def __init__(self, fd: int) -> None:
        self._file = Raw(fd)
        head = self._file.read(0, 112).ljust(112, b"\0")
        (_, version, backing, _, bits, self.size, crypt, self._l1_size, self._l1_at, *_) = _HEADER.unpack_from(head)
        if version not in (2, 3):
            raise UsageError(f"it is a qcow2 image of version {version}, which is not known here; {_CONVERT}")
        features = int.from_bytes(head[72:80], "big") if version == 3 else 0
        for refused, why in (
            (backing, "stands on a backing file"),
            (crypt, "is encrypted"),
            (features & _EXTERNAL, "keeps its data in another file"),
            (features & _EXTENDED, "has extended tables"),
            (features & _CORRUPT, "is marked as corrupt"),
            (features & ~(_DIRTY | _CORRUPT | _EXTERNAL | _COMPRESSION | _EXTENDED), "uses what is not known here"),
        ):
            if refused:
                raise UsageError(f"it is a qcow2 image that {why}; {_CONVERT}")
        if not _SMALLEST <= bits <= _LARGEST or self.size >= 1 << 56:
            raise Damaged("its qcow2 header is damaged")
        self._zstd = bool(features & _COMPRESSION) and head[104] == 1
        self._bits = bits
        self._tables: OrderedDict[int, bytes] = OrderedDict()
        self._clusters: OrderedDict[int, bytes] = OrderedDict()

    def read(self, at: int, size: int) -> bytes:
        chunks = []
        cluster = 1 << self._bits
        end = min(at + size, self.size)
        while 0 <= at < end:
            inside = at % cluster
            length = min(cluster - inside, end - at)
            chunks.append(self._part(at >> self._bits, inside, length))
            at += length
        return b"".join(chunks)

    def _part(self, number: int, inside: int, length: int) -> bytes:
        entry = self._entry(number)
        if entry >> 62 & 1:
            return self._compressed(entry)[inside : inside + length].ljust(length, b"\0")
        at = entry & _OFFSET
        if not at or entry & 1:  # never written, or zeros by a flag
            return bytes(length)
        return self._file.read(at + inside, length).ljust(length, b"\0")

    def _entry(self, number: int) -> int:
        per_table = self._bits - 3
        row = number >> per_table
        if row >= self._l1_size:
            return 0
        table_at = int.from_bytes(self._file.read(self._l1_at + 8 * row, 8), "big") & _OFFSET
        if not table_at:
            return 0
        if table_at not in self._tables:
            self._tables[table_at] = self._file.read(table_at, 1 << self._bits)
            if len(self._tables) > _KEPT:
                self._tables.popitem(last=False)
        column = 8 * (number & ((1 << per_table) - 1))
        return int.from_bytes(self._tables[table_at][column : column + 8], "big")

    def _compressed(self, entry: int) -> bytes:
        place = entry & ((1 << 62) - 1)
        if place not in self._clusters:
            bits = 62 - (self._bits - 8)
            at = place & ((1 << bits) - 1)
            data = self._file.read(at, ((place >> bits) + 1) * 512 - at % 512)
            self._clusters[place] = self._unpack(data)
            budget.current().unpacked(len(self._clusters[place]))
            if len(self._clusters) > _KEPT:
                self._clusters.popitem(last=False)
        return self._clusters[place]

    def _unpack(self, data: bytes) -> bytes:
        most = 1 << self._bits
        if self._zstd:
            inner = zstd()
            try:
                return bytes(inner.decompress(data, max_length=most))
            except Exception as error:
                raise Damaged(f"a compressed cluster of it is damaged ({type(error).__name__})") from None
        try:
            return zlib.decompressobj(wbits=-12).decompress(data, most)
        except zlib.error as error:
            raise Damaged(f"a compressed cluster of it is damaged ({error})") from None


def blocks_of(fd: int) -> Blocks:
    return Qcow2(fd) if os.pread(fd, 4, 0) == _QCOW2 else Raw(fd)
