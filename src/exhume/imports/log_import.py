"""What the importers of logs share: lines of the kernel gathered into events, as the live reader makes them."""

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator

from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND
from exhume.imports.incoming import Anchor, Axis, Ids, Input, Lines
from exhume.recording.recording import Labels, Node, Recording
from exhume.sources.kernel_lines import Joiner

LONGEST = 16 << 10
"""Of a line so much is kept; the kernel's own are below 8 KiB (CONSOLE_EXT_LOG_MAX, later PRINTK_MESSAGE_MAX)."""
_LONGEST_CUT = 1 << 16
_BLOCK = 1 << 20
_MOST_LINES = 20_000
_MOST_TEXT = 8 << 20
_NEAR_NS = 3600 * SECOND
_LATE_NS = 120 * SECOND
"""A line is hardly received later than that; a clock that was wrong is set by more."""


class LogImport(ABC):
    """An Import (imports/incoming.py) without samples."""

    def __init__(self) -> None:
        self.axis: Axis = "boot"
        self.node = Node("", "", "", "", 0)
        self.about: dict[str, str | int | bool] = {"hz": 0, "event": ""}
        self.anchors: list[Anchor] = []
        self.notes: list[str] = []
        self._joiner = Joiner()
        self._lines: list[tuple[int, str]] = []
        self._text = 0
        self._events: list[tuple[int, str, str, str, str, Labels]] = []

    @property
    def full(self) -> bool:
        return False

    def forget(self) -> None:  # noqa: B027 - a log has no names to tell anew
        pass

    def batches(self, ids: Ids) -> Iterator[Recording]:
        for _ in self.gather():
            if len(self._lines) + len(self._events) >= _MOST_LINES or self._text >= _MOST_TEXT:
                yield from self._told()
        yield from self._told()

    @abstractmethod
    def gather(self) -> Iterator[None]:
        """Adds the lines that matter, and stops for breath now and then, a megabyte or so apart."""

    def add(self, time: int, text: str) -> None:
        self._lines.append((time, text[:LONGEST]))
        self._text += len(text)

    def add_event(self, event: tuple[int, str, str, str, str, Labels]) -> None:
        """One that is no line of the kernel's, as a row of `events`."""
        self._events.append(event)

    def add_to_last(self, text: str) -> None:
        """Another line of the message that was added last; nothing if that one was told already."""
        if self._lines and len(self._lines[-1][1]) + len(text) < LONGEST:
            time, begun = self._lines[-1]
            self._lines[-1] = time, f"{begun}\n{text}"
            self._text += len(text)

    def _told(self) -> Iterator[Recording]:
        rows = [line.row for line in self._joiner.join(self._lines)] + self._events
        self._lines, self._events, self._text = [], [], 0
        if rows:
            found = Recording(self.node)
            found["events"].add_rows(rows)
            yield found


def some(number: int, one: str, many: str) -> str:
    """`1 line is`, `2 lines are`."""
    return f"{number:,} {one if number == 1 else many}"


def wall_at_boot(pairs: Iterable[tuple[int, int]], resolution: int) -> int | None:
    """The wall clock when the other one was 0, from moments (boot, wall) on both, the wall clock cut to `resolution`.

    A line is stamped when it is received, so at its time or later, and the one that came with the least delay is right: the
    least difference, or up to `resolution` more. Within that, what all lines agree with. Only what was shortly before the last
    one counts: before that the wall clock may have been set, and the clocks drift apart.
    """
    pairs = list(pairs)
    if not pairs:
        return None
    last, real = max(pairs)
    differences = [
        wall - boot for boot, wall in pairs if last - boot <= _NEAR_NS and abs(wall - boot - real + last) <= _LATE_NS
    ]
    least, most = min(differences), max(differences)
    return (least + resolution + (most if most < least + resolution else least)) // 2


def same_boot(boot: int, wall: int, at_boot: int) -> bool:
    """Whether both are of the boot that began `at_boot`. The two clocks drift apart, lines of early boot come late."""
    return abs(wall - boot - at_boot) <= 600 * SECOND + boot // 1000


def forwards(source: Input, needle: bytes) -> Iterator[bytes]:
    """Blocks of lines that have the needle, from the begin, read without taking anything from `source`; none of a pipe."""
    if source.seekable:
        yield from (block for block in _pread(source, 0) if needle in block)
    elif source.packed and source.size:
        yield from _unpacked(source.path, needle)


def backwards(source: Input, needle: bytes = b"") -> Iterator[bytes]:
    """The same from the end. Of a gzip file, which must be unpacked for it once more, only the last two together."""
    if source.seekable:
        yield from (block for block in _pread(source, source.size) if needle in block)
    elif source.packed and source.size:
        yield b"".join(deque(_unpacked(source.path, needle), maxlen=2))


def _pread(source: Input, begin: int) -> Iterator[bytes]:
    """Blocks of whole lines: from the begin on, or from the end back. A line that is too long is cut."""
    rest, forward = b"", begin == 0
    try:
        while (begin < source.size) if forward else begin > 0:
            if forward:
                block = rest + os.pread(source.fileno(), _BLOCK, begin)
                begin += _BLOCK
                cut = block.rfind(b"\n") + 1 if begin < source.size else len(block)
                block, rest = block[:cut], block[cut:][:_LONGEST_CUT]
            else:
                end, begin = begin, max(0, begin - _BLOCK)
                block = os.pread(source.fileno(), end - begin, begin) + rest
                cut = block.find(b"\n") + 1 if begin else 0
                block, rest = block[cut:], block[:cut][-_LONGEST_CUT:]
            yield block
    except OSError:  # the one who reads the file says so
        return


def _unpacked(path: str, needle: bytes) -> Iterator[bytes]:
    try:
        again = Input(path)
    except ExhumeError:  # a descriptor that is gone by now
        return
    try:
        for block in Lines(again).blocks():
            if needle in block:
                yield block
    except ExhumeError:  # it is cut, which the one who reads it will say
        return
    finally:
        again.close()
