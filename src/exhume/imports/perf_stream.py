"""The records of a perf.data as one run of bytes, whole ones only, whatever they were packed in.

Between records there may be what is none (the payload of a hardware trace), and inside of some there are others, packed by
zstd as one stream that goes on from record to record and has no end (tools/perf/util/zstd.c).
"""

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np

from exhume import budget
from exhume.imports import perf_file
from exhume.imports.incoming import Damaged
from exhume.sources.sampling import records
from exhume.sources.sampling.records import Index

_READ: Final = 1 << 20
# The same of what is packed, which is many times as much.
_READ_PACKED: Final = 1 << 17
# Unpacked in small steps, since a step that fails gives nothing, and looked at in larger ones.
_STEP: Final = 1 << 14
_UNPACKED: Final = 1 << 19
# Records that come between packed ones are few: those of perf itself.
_MOST_BETWEEN: Final = 64 << 20
# perf packs about 4 to 1, at best some 50 to 1. More than that is made to fill memory and time.
# The last block of a frame, raw and empty (RFC 8878, 3.1.1.2). perf leaves its frame open.
_LAST_BLOCK: Final = b"\x01\x00\x00"
_RECORD = struct.Struct("<IHH")
_LARGEST: Final = 0xFFF8
_ROUND: Final = _RECORD.pack(perf_file.FINISHED_ROUND, 0, _RECORD.size)
_OWN: Final = range(perf_file.OWN, 128)
_PACKED: Final = (perf_file.COMPRESSED, perf_file.COMPRESSED2)
_SPECIAL: Final = (*_PACKED, perf_file.HEADER_TRACING_DATA, perf_file.RECORD_AUXTRACE)


class Source(Protocol):
    """An Input, or what stands for one."""

    @property
    def at(self) -> int: ...
    def read(self, length: int) -> bytes: ...


class Stream:
    """Read it once. What is wrong with it ends it, and is in `notes`."""

    def __init__(self, source: Source, begin: bytes, left: int) -> None:
        """`begin` is what was read already, `left` how many bytes follow, -1 for all."""
        self._source = source
        self._begin = begin
        self._left = left
        self.notes: list[str] = []
        self.traced = 0
        """Bytes of hardware traces that were passed over."""
        self._packed = bytearray()
        self._careful = False
        # Of what is packed, so many rounds end in what is read now, and so many in what was unpacked since one was told.
        self._rounds = self._over = 0
        self._between: deque[Index] = deque()
        self._taken = 0
        self._outer: Iterator[Index] | None = None

    def chunks(self) -> Iterator[Index]:
        """Whole records, about a megabyte of them at a time."""
        self._outer = self._plain()
        for chunk in self._outer:
            yield chunk
            if self._packed:
                yield from self._unpacked()
                return

    @property
    def packed(self) -> bool:
        """Whether records came that have others in them."""
        return self._taken > 0 or bool(self._packed)

    def _unpacked(self) -> Iterator[Index]:
        import pyarrow as pa

        rest, ended = b"", False
        stream = pa.CompressedInputStream(pa.PythonFile(_Payload(self), "r"), "zstd")
        while not ended:
            steps: list[pa.Buffer] = []  # of bytes, one would be lost in memory with each error
            over = self._over
            while not ended and len(steps) < _UNPACKED // _STEP:
                try:
                    steps.append(stream.read_buffer(_STEP))
                    ended = not len(steps[-1])
                except (OSError, pa.ArrowException) as error:
                    reason = "it ends in the middle of it" if "Truncated" in str(error) else "zstd cannot read it"
                    self._note(f"what is packed in it is not whole before byte {self._source.at}: {reason}")
                    ended = True
            while self._between:
                yield self._between.popleft()
            part = b"".join(steps)
            budget.current().unpacked(len(part))
            data = rest + part
            found, used, wrong = whole(data)
            rest = data[used:]
            if used:
                yield found
            if over > 1:  # two that began after the last one that was told
                self._over = self._rounds = 0
                yield records.index(_ROUND)
            if wrong:
                self._note(f"what is packed in it is damaged before byte {self._source.at}: it ends there")
                return
        if rest:
            self._note(f"what is packed in it ends in the middle of a record, at byte {self._source.at}")

    def _plain(self) -> Iterator[Index]:
        """What is not packed; what is goes to `_packed`."""
        data, skip = self._begin, 0
        self._begin = b""
        at = self._source.at - len(data)  # where `data` begins
        while True:
            passed = min(skip, len(data))
            data, at, skip = data[passed:], at + passed, skip - passed
            if data:
                found, used, skip, wrong = self._by_bytes(data) if self._careful else self._by_words(data)
                data, at = data[used:], at + used
                if used:
                    yield found
                    continue
                if wrong:
                    self._note(f"the file is damaged at byte {at}: what comes after that is not read")
                    return
            more = self._more()
            if not more:
                break
            data += more
        if data:
            self._note(f"the file is cut: it ends in the middle of the record that begins at byte {at}")
            if len(data) >= 16 and (kind := _RECORD.unpack_from(data)[0]) in _PACKED:
                self._pack(kind, data)  # what is in it may be whole up to there
                yield records.index(b"")
        elif skip or self._left > 0:
            self._note(f"the file is cut: it ends at byte {at}")

    def _more(self) -> bytes:
        if not self._left:
            return b""
        try:
            most = _READ_PACKED if self._careful else _READ
            more = self._source.read(most if self._left < 0 else min(most, self._left))
        except Damaged as error:  # gzip
            self._note(str(error))
            return b""
        if self._left > 0:
            self._left -= len(more)
        return more

    def _by_words(self, data: bytes) -> tuple[Index, int, int, bool]:
        """The records before one that is special; how much of the data they are, what to pass over then; what is wrong."""
        found, used, wrong = whole(data)
        special = np.zeros(len(found.kind), dtype=bool)
        for kind in _SPECIAL:
            special |= found.kind == kind
        if special.any():
            first = int(special.argmax())
            used, wrong = 8 * int(found.at[first]), False
            found = found.only(np.arange(len(found.at)) < first)
        if not used and len(data) >= 8 and ((kind := _RECORD.unpack_from(data)[0]) in _SPECIAL or (wrong and kind in _OWN)):
            # What perf writes itself has any size, and what follows it begins at any byte: words do no longer.
            return self._by_bytes(data)
        return found, used, 0, wrong

    def _by_bytes(self, data: bytes) -> tuple[Index, int, int, bool]:
        """The same one by one, and packed ones are taken out."""
        parts: list[bytes] = []
        at, skip, wrong = 0, 0, False
        while len(data) - at >= _RECORD.size:
            kind, _, size = _RECORD.unpack_from(data, at)
            end = at + size
            if size < _RECORD.size or (size % 8 and kind not in _OWN):
                wrong = True
                break
            if end > len(data):
                break
            if kind in _PACKED:
                self._careful = True
                self._pack(kind, data[at:end])
            elif kind in _SPECIAL:
                skip = _payload_size(kind, data[at:end])
                self.traced += skip if kind == perf_file.RECORD_AUXTRACE else 0
            elif kind == perf_file.FINISHED_ROUND and self._careful:
                self._rounds += 1
            else:
                parts.append(data[at:end] if not size % 8 else _in_words(data[at:end]))
            at = end
            if skip:
                passed = min(skip, len(data) - at)
                at, skip = at + passed, skip - passed
        return records.index(b"".join(parts)), at, skip, wrong and not at

    def _pack(self, kind: int, raw: bytes) -> None:
        if kind == perf_file.COMPRESSED2 and len(raw) >= 16:
            self._packed += raw[16 : 16 + min(struct.unpack_from("<Q", raw, 8)[0], len(raw))]
        else:
            self._packed += raw[8:]

    def payload(self, most: int) -> bytes:
        """What zstd packed, some of it; the records that come between are put aside."""
        held = 0
        while not self._packed:
            self._over, self._rounds = self._over + self._rounds, 0
            chunk = next(self._outer, None) if self._outer is not None else None
            if chunk is None:
                self._outer = None
                return b""
            held += len(chunk.data)
            if chunk.data:
                self._between.append(chunk)
            if held > _MOST_BETWEEN:
                self._note(f"packed and plain records are mixed as perf does not mix them, before byte {self._source.at}")
                self._outer = None
                return b""
        part = bytes(self._packed[:most])
        del self._packed[:most]
        self._taken += len(part)
        return part

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


class _Payload:
    """What pyarrow reads from: a file, as far as it looks."""

    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ended = False

    def read(self, size: int = _READ) -> bytes:
        part = self._stream.payload(max(size, 1))
        if not part and not self._ended:
            self._ended = True
            return _LAST_BLOCK
        return part

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _payload_size(kind: int, raw: bytes) -> int:
    """What follows a record without being part of it."""
    size = "<Q" if kind == perf_file.RECORD_AUXTRACE else "<I"
    return int(struct.unpack_from(size, raw, 8)[0]) if len(raw) >= 8 + struct.calcsize(size) else 0


def _in_words(raw: bytes) -> bytes:
    """A record of perf's own whose size is no whole number of words, with zeros after it."""
    kind, misc, size = _RECORD.unpack_from(raw)
    size = min(-(-size // 8) * 8, _LARGEST)
    return _RECORD.pack(kind, misc, size) + raw[_RECORD.size : size].ljust(size - _RECORD.size, b"\0")


def whole(data: bytes) -> tuple[Index, int, bool]:
    """The whole records, how many bytes they are, and whether what follows cannot be one."""
    found = records.index(data)
    end = 8 * int(found.at[-1] + found.size[-1]) if len(found.at) else 0
    if len(data) - end < _RECORD.size:
        return found, end, False
    size = _RECORD.unpack_from(data, end)[2]
    return found, end, size < _RECORD.size or size % 8 != 0
