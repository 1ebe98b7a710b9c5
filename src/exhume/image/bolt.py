"""bbolt databases, read from their bytes: where containerd and podman keep which containers are to be started again.

The format is that of go.etcd.io/bbolt: a copy-on-write B+tree of pages (page.go), two meta pages that take turns (db.go),
buckets inside of buckets (bucket.go). Nothing is locked or written; a file that is being written is read as of its last commit.
"""

import struct
from collections.abc import Iterator

LARGEST = 64 << 20
"""Bytes of a database that is taken in."""

_MAGIC, _VERSION = 0xED0CDAED, 2
_PAGE = struct.Struct("<QHHI")  # id, flags, count, overflow
_META = struct.Struct("<IIIIQQQQQQ")  # magic, version, page size, flags, root, sequence, freelist, pages, transaction, checksum
_BRANCH_ELEMENT = struct.Struct("<IIQ")  # position, key size, page
_LEAF_ELEMENT = struct.Struct("<IIII")  # flags, position, key size, value size
_BUCKET = struct.Struct("<QQ")  # root page, sequence
_BRANCH, _LEAF, _IS_BUCKET = 1, 2, 1
_DEEPEST = 32
_MOST_VISITS = 500_000
_BYTES_A_VISIT = 1024


class Malformed(Exception):
    """Why the file is no database that can be read, as the end of a sentence."""


class Bolt:
    """A database. Every walk is bounded, so that pages which point in circles end it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._visits = 0
        metas = []
        for page_size in (4096, 16384, 65536, 8192, 2048, 1024, 512):
            metas += [meta for meta in (self._meta(0), self._meta(page_size)) if meta is not None]
            if metas:
                break
        if not metas:
            raise Malformed("it has no valid meta page")
        # Page 0 tells the size; the other meta page is one page further on.
        size = metas[0][0]
        metas += [meta for meta in [self._meta(size)] if meta is not None]
        _, self._page_size, self._root = max((transaction, size, root) for size, root, transaction in metas)

    def _meta(self, offset: int) -> tuple[int, int, int] | None:
        start = offset + _PAGE.size
        if start + _META.size > len(self._data):
            return None
        magic, version, page_size, _, root, _, _, _, transaction, checksum = _META.unpack_from(self._data, start)
        if (magic, version) != (_MAGIC, _VERSION) or not 512 <= page_size <= 65536:
            return None
        if checksum != _fnv(self._data[start : start + _META.size - 8]):
            return None
        return page_size, root, transaction

    def root(self) -> "Bucket":
        return Bucket(self, self._root)

    def leaves(self, page: int | bytes, depth: int = 0) -> Iterator[tuple[bytes, "bytes | Bucket"]]:
        if depth > _DEEPEST:
            raise Malformed("its pages are nested too deep")
        if isinstance(page, int):
            start = page * self._page_size
            if start + _PAGE.size > len(self._data):
                raise Malformed("it is cut short")
            overflow = _PAGE.unpack_from(self._data, start)[3]
            raw = memoryview(self._data)[start : start + (overflow + 1) * self._page_size]
        else:
            raw = memoryview(page)
            if len(raw) < _PAGE.size:
                raise Malformed("a bucket is cut short")
        _, flags, count, _ = _PAGE.unpack_from(raw)
        for index in range(count):
            self._visit()
            at = _PAGE.size + index * 16
            if at + 16 > len(raw):
                raise Malformed("a page is cut short")
            if flags & _BRANCH:
                yield from self.leaves(_BRANCH_ELEMENT.unpack_from(raw, at)[2], depth + 1)
            elif flags & _LEAF:
                kind, position, key_size, value_size = _LEAF_ELEMENT.unpack_from(raw, at)
                key = at + position
                if key + key_size + value_size > len(raw):
                    raise Malformed("a page is cut short")
                self._visit((key_size + value_size) // _BYTES_A_VISIT)
                name, value = bytes(raw[key : key + key_size]), bytes(raw[key + key_size : key + key_size + value_size])
                yield name, self._bucket(value) if kind & _IS_BUCKET else value
            else:
                raise Malformed("a page is of no known kind")

    def _visit(self, count: int = 1) -> None:
        self._visits += count
        if self._visits > _MOST_VISITS:
            raise Malformed("it has more entries than can be meant, or goes round in circles")

    def _bucket(self, value: bytes) -> "Bucket":
        """A bucket's page, or the page itself where it is small enough to lie inside of its parent's."""
        if len(value) < _BUCKET.size:
            raise Malformed("a bucket is cut short")
        root = int(_BUCKET.unpack_from(value)[0])
        return Bucket(self, root if root else value[_BUCKET.size :])


class Bucket:
    """Names with values or with buckets, in order."""

    def __init__(self, database: Bolt, page: int | bytes) -> None:
        self._database = database
        self._page = page

    def values(self) -> Iterator[tuple[bytes, bytes]]:
        for name, value in self._database.leaves(self._page):
            if isinstance(value, bytes):
                yield name, value

    def buckets(self) -> Iterator[tuple[bytes, "Bucket"]]:
        for name, value in self._database.leaves(self._page):
            if isinstance(value, Bucket):
                yield name, value

    def bucket(self, name: bytes) -> "Bucket | None":
        return next((value for key, value in self.buckets() if key == name), None)

    def value(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.values() if key == name), None)


def _fnv(data: bytes) -> int:
    """FNV-1a of 64 bits, as hash/fnv of Go has it."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
