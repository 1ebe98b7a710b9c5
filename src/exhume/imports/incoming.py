"""What every importer is: a file of another tool, read once from begin to end, as rows of a recording.

`Input` is the file, whether plain, gzip or a pipe. `Import` is what a format makes of it: who was recorded, on which clock, and
the rows, some at a time. imports/importing.py drives them into the store.
"""

import io
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple, Protocol

from exhume import budget
from exhume.errors import ExhumeError
from exhume.recording.recording import Node, Recording
from exhume.text import from_path, printable

Axis = Literal["boot", "wall"]
"""The clock of a file: since boot, as perf and dmesg have it, or the time of day, as syslog has it. Both in nanoseconds."""

HEAD = 1 << 16
"""So much of a file is looked at to tell what it is."""
_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
# What a file begins with that is none of those that are read, and what makes one of it.
_OTHERS = {
    b"\xfd7zXZ\0": ("packed by xz", "xz -dc"),
    b"BZh": ("packed by bzip2", "bzip2 -dc"),
    b"\x28\xb5\x2f\xfd": ("packed by zstd", "zstd -dc"),
    b"\x04\x22\x4d\x18": ("packed by lz4", "lz4 -dc"),
    b"PK\x03\x04": ("a zip", "unzip -p"),
    b"\xff\xfe": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
}
_WAITED_MS = 2000
"""After so long without anybody who writes to a FIFO it is said what is waited for."""
_READ = 1 << 20


class Damaged(ExhumeError):
    """A file that is not what it looks like. The sentence names the file and the byte."""


class Anchor(NamedTuple):
    """A moment of a file's clock, and the wall clock then."""

    time: int
    real: int
    how: str
    """Where that is from, for people: `given`, `the journal has both clocks`, `guessed from the time of the file` ..."""
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an importer is asked for."""

    event: str = ""
    """Of a file with several: whose samples. "" leaves it to the importer, which says what it chose."""
    symbols: bool = True
    """Names for addresses, where the files they are in can be found on this machine."""
    whose: bool = True
    """Whose samples are, and their stacks in user space. Without it is known only what each core did, which is less work:
    enough for a heat map. An importer may give more than was asked for."""
    boot: str = ""
    """Of a file with several boots: its id, or -1 for the one before the last, and so on; "" and 0 are the last."""


@dataclass(slots=True)
class Ids:
    """The next numbers to give: they are unique in a recording."""

    stacks: int = 1
    frames: int = 1
    threads: int = 1


class Import(Protocol):
    """One file. Made by its format's `open_*`, which has read as much as it takes to know these."""

    axis: Axis
    node: Node
    """What the file says of the machine; what it does not say is "" or 0."""
    about: dict[str, str | int | bool]
    """hz and event of the samples, 0 and "" if there are none or it is not known."""
    anchors: list[Anchor]
    """May grow while it is read."""
    notes: list[str]
    """What is missing or was passed over, for people; may grow while it is read."""

    def batches(self, ids: Ids) -> Iterator[Recording]:
        """Rows on the file's own clock, a few megabytes of memory at a time, roughly in order of time. `ids` is kept current.

        Damage in the middle ends it with a note, what is whole was given; Damaged only where nothing at all can be had.
        """
        ...

    @property
    def full(self) -> bool:
        """So many names are known that a new chapter is due: then `forget` is called before the next batch."""
        ...

    def forget(self) -> None:
        """All stacks, frames and threads are told anew, under new numbers."""
        ...


class Input:
    """A file, read from begin to end, unpacked if it is gzip; `-` is stdin. Knows where it is, for progress and errors."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "stdin" if path == "-" else printable(from_path(path))
        self.packed = False
        """It is gzip: places are those in what was unpacked."""
        self.at = 0
        """How much was read, unpacked."""
        self.cut = False
        """It is gzip and its end is missing: known once all was read."""
        self.heard: Callable[[], None] | None = None
        """Called whenever some of it was read, for progress."""
        self._begin()

    def _begin(self) -> None:
        self._ahead = b""
        self._raw = self._open()
        told = os.fstat(self._raw.fileno())
        self.size = told.st_size if _regular(told) else 0
        """Bytes on disk; 0 for a pipe."""
        budget.current().opened(self._raw.fileno(), self.path)
        self.changed_ns = told.st_mtime_ns if _regular(told) else 0
        self._unpacker: zlib._Decompress | None = None
        self._left = b""
        self._begun = False
        self._damage: Damaged | None = None
        begin = self.head(8)
        if begin.startswith(_UTF8_MARK):
            self._ahead = self._ahead[len(_UTF8_MARK) :]
            self.at = len(_UTF8_MARK)
        if begin.startswith(_GZIP):
            self.packed = True
            self._left, self._ahead = self._ahead, b""
            self._unpacker = zlib.decompressobj(31)

    @property
    def foreign(self) -> str:
        """What it is if that is known and not read, and how it can be; "" otherwise."""
        begin = self.head(8)
        found = next((known for mark, known in _OTHERS.items() if begin.startswith(mark)), None)
        if found is None:
            return ""
        return f"{self.name} is {found[0]}, which is not read as it is: {found[1]} {self.name} | exhume import - ..."

    def _open(self) -> BinaryIO:
        if self.path == "-":
            return sys.stdin.buffer
        try:
            fifo = stat.S_ISFIFO(os.stat(self.path).st_mode)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if fifo else 0))
        except OSError as error:
            raise ExhumeError(f"{self.name} cannot be read: {error.strerror}") from error
        if fifo:
            self._wait(descriptor)
        return open(descriptor, "rb", buffering=0)

    def _wait(self, descriptor: int) -> None:
        """For somebody who writes to the FIFO, perhaps for ever: then people should know."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(_WAITED_MS):
            sys.stderr.write(f"exhume: waiting for somebody to write to {self.name}\n")
            sys.stderr.flush()
            poll.poll()
        os.set_blocking(descriptor, True)

    @property
    def seekable(self) -> bool:
        """Whether `fileno` can be mapped or read at any place: a plain file."""
        return self.size > 0 and not self.packed

    def fileno(self) -> int:
        return self._raw.fileno()

    @property
    def done(self) -> float:
        """The share of the file that was read, for progress; 0 where nobody knows."""
        if not self.size:
            return 0.0
        try:
            return min(1.0, self._raw.tell() / self.size)
        except OSError:
            return 0.0

    def passed(self, at: int) -> None:
        """Somebody else has read so much of it, by a file of their own."""
        self._raw.seek(at)
        if self.heard is not None:
            self.heard()

    def head(self, length: int = HEAD) -> bytes:
        """The beginning, which is still there to be read."""
        try:
            while len(self._ahead) < length and (more := self._more()):
                self._ahead += more
        except Damaged:
            if not self._ahead:
                raise
        return self._ahead[:length]

    def read(self, length: int = _READ) -> bytes:
        """At most so much, at least a byte; b"" is the end."""
        if not self._ahead:
            self._ahead = self._more()
        taken, self._ahead = self._ahead[:length], self._ahead[length:]
        self.at += len(taken)
        return taken

    def exactly(self, length: int) -> bytes:
        """So much, or less at the end."""
        parts, left = [], length
        while left and (part := self.read(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self.path != "-":
            self._raw.close()
        self._ahead = self._left = b""
        self._unpacker = None

    def again(self) -> None:
        """From its begin once more, after it was closed: a plain file, packed or not."""
        self.packed, self.cut, self.at = False, False, 0
        self._begin()

    def _more(self) -> bytes:
        if self._unpacker is None:
            return self._plain()
        if self._damage is not None:
            raise self._damage
        while True:
            data = self._left or self._plain()
            before = self._unpacker.copy()
            try:
                found = self._unpacker.decompress(data, _READ)
            except zlib.error as error:
                found = _salvaged(before, data)
                at = self.at + len(self._ahead) + len(found)
                self._damage = Damaged(f"{self.name} is not whole: what gzip packed breaks at byte {at} of it ({error})")
                if found:
                    return found
                raise self._damage from None
            budget.current().unpacked(len(found))
            self._left = self._unpacker.unconsumed_tail
            self._begun = self._begun or bool(data)
            if self._unpacker.eof:  # another one may follow, as after `cat a.gz b.gz`
                self._left = self._unpacker.unused_data
                self._unpacker = zlib.decompressobj(31)
                self._begun = bool(self._left)
            if found or not (data or self._left):
                self.cut = self.cut or (self._begun and not found)
                return found

    def _plain(self) -> bytes:
        try:
            found = self._raw.read(_READ) or b""
        except OSError as error:
            raise ExhumeError(f"{self.name} cannot be read at byte {self.at}: {error.strerror}") from error
        if not self.size:
            budget.current().received(len(found))
        if self.heard is not None:
            self.heard()
        return found


class Readable(Protocol):
    """What lines can be read from: an input, or what stands for one."""

    @property
    def at(self) -> int: ...
    def read(self) -> bytes: ...


class Lines:
    """The lines of an input, many at a time, without what would not fit into memory: one that is too long is cut."""

    def __init__(self, source: Readable, longest: int = 1 << 16) -> None:
        self._source = source
        self._longest = longest
        self._kept = b""
        self.at = 0
        """Where the block that was given last begins, in bytes of the input. A line that was cut is the last of its block."""
        self.cut = 0
        """How many lines were longer."""
        self.ended = True
        """Whether the last line given had its newline."""

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, a megabyte or so of them, none longer than was said; the last may lack its newline.

        Where the input is damaged, what came before is given first.
        """
        rest, begin, damage = b"", self._source.at, None
        dropping = False  # the rest of a line of which the beginning was given
        while damage is None:
            try:
                part = self._gathered()
            except ExhumeError as error:
                part, damage = self._kept, error
            if not part:
                break
            if dropping:
                end = part.find(b"\n") + 1
                begin += end or len(part)
                dropping, part = not end, part[end:] if end else b""
            data = rest + part
            end = data.rfind(b"\n") + 1
            yield from self._cut(data[:end], begin)
            begin, rest = begin + end, data[end:]
            if len(rest) > self._longest:
                yield from self._cut(rest, begin)
                begin, rest, dropping = begin + len(rest), b"", True
        if rest:
            self.at, self.ended = begin, False
            yield rest
        if damage is not None:
            raise damage

    def _gathered(self) -> bytes:
        """About as much as one read of a file: a pipe gives little at a time."""
        self._kept = b""
        self._kept = part = self._source.read()
        while part and len(self._kept) < _READ // 2 and (part := self._source.read()):
            self._kept += part
        return self._kept

    def _cut(self, data: bytes, begin: int) -> Iterator[bytes]:
        """These lines, without what is too long in them."""
        first = at = 0
        while at + self._longest < len(data):
            end = data.rfind(b"\n", at, at + self._longest + 1) + 1
            if not end:
                self.at, self.ended = begin + first, True
                self.cut += 1
                yield data[first : at + self._longest] + b"\n"
                end = first = (data.find(b"\n", at) + 1) or len(data)
            at = end
        if first < len(data):
            self.at, self.ended = begin + first, True
            yield data[first:]


def _salvaged(unpacker: "zlib._Decompress", data: bytes) -> bytes:
    """What can be unpacked before the place that is damaged: an error takes all with it that one call would have given."""
    found = b""
    try:
        while data and (part := unpacker.decompress(data, 512)):
            found += part
            data = unpacker.unconsumed_tail
    except zlib.error:
        pass
    return found


def _regular(told: os.stat_result) -> bool:
    return stat.S_ISREG(told.st_mode)


def memory(data: bytes, name: str = "memory") -> Input:
    """An input from memory, for tests."""
    descriptor = os.memfd_create("exhume-input", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, io.SEEK_SET)
    found = Input(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
    found.name = name
    return found
