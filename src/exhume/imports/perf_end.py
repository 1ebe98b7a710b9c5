"""When the last sample of a perf.data was taken, where the file does not say so: most are written without a second look at them
(to a pipe, -z, -B, --buildid-mmap, --switch-output), and the time of the file is then the only guess at the time of day.
"""

import os
from typing import Final

import numpy as np

from exhume.imports import perf_file
from exhume.imports.incoming import Input
from exhume.imports.perf_stream import Stream
from exhume.sources.sampling.records import Index, index

_END: Final = 1 << 20
_LARGEST_RECORD: Final = 1 << 16
_SAMPLE: Final = 9
_ENOUGH: Final = 64
"""Records that follow each other are no accident."""


class _Again:
    """What was opened, read once more from a place on, without moving who reads it."""

    def __init__(self, source: Input, at: int) -> None:
        self._fileno = source.fileno()
        self.at = at

    def read(self, length: int) -> bytes:
        part = os.pread(self._fileno, length, self.at)
        self.at += len(part)
        return part


def last_time(source: Input, begin: int, size: int, place: int) -> int:
    """The records are `size` bytes from `begin` on, -1 for all that follow; samples have their time at the word `place`. 0 if
    there is none."""
    if place < 0 or not source.seekable:
        return 0
    size = source.size - begin if size < 0 else min(size, source.size - begin)
    try:
        first = begin + max(0, size - _END) // 8 * 8
        found = _whole(os.pread(source.fileno(), begin + size - first, first), begin == first)
        if found is not None and not _packed(found) and (last := _last(found, place)):
            return last
        stream = Stream(_Again(source, begin), b"", size)
        return max((_last(chunk, place) for chunk in stream.chunks()), default=0)
    except OSError:
        return 0


def _packed(found: Index) -> bool:
    return bool(np.isin(found.kind, (perf_file.COMPRESSED, perf_file.COMPRESSED2)).any())


def _last(found: Index, place: int) -> int:
    samples = found.at[(found.kind == _SAMPLE) & (found.size > place)]
    times = found.words[samples + place]
    return int(times[times < 1 << 62].max(initial=0))


def _whole(data: bytes, begins: bool) -> Index | None:
    """The records of the end of a file, of which it is not known where the first begins: from where on each is followed by
    another up to the end. None if nowhere."""
    if begins:
        return index(data)
    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    kind, size = words.astype(np.uint32), (words >> np.uint64(48)).astype(np.int64)
    likely = (kind > 0) & (kind < 128) & (size >= 8) & (size % 8 == 0)
    ends, failed = (size // 8).tolist(), set[int]()
    for start in np.flatnonzero(likely[: _LARGEST_RECORD // 8]).tolist():
        at, passed = start, []
        while at < len(words) and likely[at] and at not in failed:
            passed.append(at)
            at += ends[at]
        if at >= len(words) and len(passed) >= _ENOUGH:
            return index(data[8 * start :])
        failed.update(passed)
    return None
