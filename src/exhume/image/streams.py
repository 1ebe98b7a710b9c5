"""Bytes of an archive, forward only, packed or not: what is read is bounded by the caller, never by what the archive says.

A packed file of some megabytes can hold terabytes of zeros: what is unpacked draws on the budget of the command.
"""

import bz2
import importlib
import lzma
import os
import zlib
from typing import Any, Final, Protocol

from exhume import budget
from exhume.errors import ExhumeError

CHUNK: Final = 1 << 16
_LZMA_MEMORY: Final = 128 << 20  # xz -9 needs 65 MiB to unpack (xz(1))

PACKED: Final = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
"""First bytes: RFC 1952, bzip2, the .xz file format 1.2, RFC 8878."""


class Damaged(ExhumeError):
    """An archive or a disk image that is not what it says it is, or ends before its end."""


class Source(Protocol):
    def read(self, size: int) -> bytes:
        """That many bytes; fewer only at the end."""

    def skip(self, size: int) -> int:
        """How many bytes were passed over; fewer only at the end."""


class Plain:
    """A part of an open file, by its descriptor; passing over costs nothing."""

    def __init__(self, fd: int, begin: int = 0, size: int | None = None) -> None:
        self._fd = fd
        self._at = begin
        self._end = os.fstat(fd).st_size if size is None else begin + size

    def read(self, size: int) -> bytes:
        chunks = []
        left = max(0, min(size, self._end - self._at))
        while left > 0 and (chunk := os.pread(self._fd, left, self._at)):
            chunks.append(chunk)
            self._at += len(chunk)
            left -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def skip(self, size: int) -> int:
        passed = max(0, min(size, self._end - self._at))
        self._at += passed
        return passed


class Limited:
    """The next bytes of another source, as a source of their own."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self.left = size

    def read(self, size: int) -> bytes:
        chunk = self._source.read(min(size, self.left))
        self.left -= len(chunk)
        return chunk

    def skip(self, size: int) -> int:
        passed = self._source.skip(min(size, self.left))
        self.left -= passed
        return passed


class _Zlib:
    """zlib's decompressor, with the manners of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)  # 16 + 15: gzip's header, the largest window
        self.eof = False
        self.unused_data = b""

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.eof, self.unused_data = self._inner.eof, self._inner.unused_data
        return out


class Unpacked:
    """A packed source, unpacked as it is read; several packed streams one behind the other are one, as gzip -d has it."""

    def __init__(self, source: Source, how: str) -> None:
        self._source = source
        self._how = how
        self._inner = _decompressor(how)
        self._room = bytearray()
        self._over = False

    def read(self, size: int) -> bytes:
        while len(self._room) < size and not self._over:
            self._more(max(CHUNK, size - len(self._room)))
        chunk = bytes(self._room[:size])
        del self._room[:size]
        return chunk

    def skip(self, size: int) -> int:
        passed = 0
        while passed < size and (chunk := self.read(min(CHUNK, size - passed))):
            passed += len(chunk)
        return passed

    def _more(self, most: int) -> None:
        data = b""
        if self._inner.eof:
            data = self._inner.unused_data or self._take()
            while data and not data.strip(b"\0"):  # gzip(1): zeros behind the end are padding
                data = self._take()
            if not data:
                self._over = True
                return
            self._inner = _decompressor(self._how)
        elif self._inner.needs_input:
            data = self._take()
            if not data:
                raise Damaged(f"its {self._how} stream ends in the middle")
        try:
            out = self._inner.decompress(data, max_length=min(most, 1 << 20))
        except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            raise Damaged(f"its {self._how} stream is damaged ({error})") from None
        except Exception as error:  # the zstd modules have error types of their own
            raise Damaged(f"its {self._how} stream is damaged ({type(error).__name__})") from None
        budget.current().unpacked(len(out))
        self._room += out

    def _take(self) -> bytes:
        return self._source.read(CHUNK)


def packing(head: bytes) -> str | None:
    return next((how for magic, how in PACKED if head.startswith(magic)), None)


def _decompressor(how: str) -> Any:
    if how == "gzip":
        return _Zlib()
    if how == "bzip2":
        return bz2.BZ2Decompressor()
    if how == "xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY)
    return zstd()


def zstd() -> Any:
    """Python 3.14 has it; before, the package backports.zstd is the same."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name).ZstdDecompressor()
        except ImportError:
            continue
    raise ExhumeError(
        "it is packed by zstd, which this Python cannot unpack: install backports.zstd, or unpack it by zstd -d first"
    )
