"""Address spaces: what of which file a process has mapped where, as far as it can be executed."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.sources.sampling.records import Mapped

# Processes of machine learning have thousands of mappings; what is executable of them are hundreds.
LARGEST_MAPS = 4 << 20
MOST_MAPPINGS = 8192
_FEW = 64
_MOST_WAITING = 256
_BITS = 48  # of a user address: 47 on x86-64, 48 on arm64; more is only given to those who ask (Documentation/arch/*/mm)

Ints = NDArray[np.int64]
Locate = Callable[[Mapped], int]
"""The number of the image that a mapping shows."""


class Space:
    """One address space. Those of processes that ran before we did are read from /proc when first needed."""

    __slots__ = ("_maps", "_shared", "_table", "hidden", "number", "pid", "seen", "unread", "waiting")

    def __init__(self, number: int, pid: int, unread: int = 0) -> None:
        self.number = number
        self.pid = pid
        self.unread = unread
        """The process whose /proc/PID/maps are still to be read; 0 if there is none."""
        self.hidden = False
        """What ran in it is not to be looked at: frames of user space are left out."""
        self.seen = False
        """Somebody goes by its number: what it is then may be added to, and not be changed."""
        self.waiting: list[Mapped] = []
        """What was mapped since, and nobody has asked for: most of short processes is never asked for."""
        self._maps: list[tuple[int, int, int, int]] = []  # start, end, offset, image; sorted
        self._shared = False
        self._table: NDArray[np.int64] | None = None

    def copy(self, number: int, pid: int) -> "Space":
        """What a fork inherits."""
        other = Space(number, pid, self.unread)
        other._maps, other._table = self._maps, self._table
        other._shared = self._shared = True
        other.hidden = self.hidden
        other.waiting = self.waiting.copy()
        return other

    def hear(self, mapped: Mapped, locate: Locate) -> bool:
        """Something is mapped; False where it takes the place of something else, which who has seen this needs as it is."""
        if not self.seen:
            self.waiting.append(mapped)
            if len(self.waiting) > _MOST_WAITING:
                self.settle(locate)
            return True
        self.settle(locate)
        place = mapped.start, mapped.length, mapped.offset, locate(mapped)
        if self.replaces(*place):
            return False
        self.add(*place)
        return True

    def settle(self, locate: Locate) -> None:
        """What waits is mapped, in its order."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        made = [(one[2], one[2] + one[3], one[4], locate(one)) for one in waiting]
        if not self._maps:
            ordered = sorted(made)
            if _plain(ordered):
                self._maps, self._shared, self._table = ordered, False, None
                return
        for start, end, offset, image in made:
            self.add(start, end - start, offset, image)

    def replaces(self, start: int, length: int, offset: int, image: int) -> bool:
        """Whether something else is where this would be mapped."""
        maps, end = self._maps, start + length
        at = bisect_left(maps, (start,))
        if at and maps[at - 1][1] > start:
            at -= 1
        while at < len(maps) and maps[at][0] < end:
            begin, _, from_, what = maps[at]
            if what != image or from_ - begin != offset - start:
                return True
            at += 1
        return False

    def add(self, start: int, length: int, offset: int, image: int) -> None:
        """What is there already stays to the left and to the right (maps__fixup_overlappings in tools/perf/util/maps.c)."""
        end = start + length
        if length <= 0 or start >= 1 << _BITS or end > 1 << _BITS or offset >= 1 << 63:
            return  # [vsyscall]; a device may be mapped at any offset (file_mmap_size_max in mm/mmap.c)
        maps = self._maps
        first = last = bisect_left(maps, (start,))
        if last < len(maps) and maps[last][0] < end:
            last = bisect_left(maps, (end,))
        if first and maps[first - 1][1] > start:
            first -= 1
        if first == last and len(maps) >= MOST_MAPPINGS:
            return
        if self._shared:
            self._maps = maps = maps.copy()
            self._shared = False
        self._table = None
        if first == last:
            maps.insert(first, (start, end, offset, image))
            return
        pieces = [(start, end, offset, image)]
        begin, _, from_, what = maps[first]
        if begin < start:
            pieces.insert(0, (begin, start, from_, what))
        begin, after, from_, what = maps[last - 1]
        if after > end and from_ + end - begin < 1 << 63:
            pieces.append((end, after, from_ + end - begin, what))
        maps[first:last] = pieces if len(maps) + 2 < MOST_MAPPINGS else [(start, end, offset, image)]

    def read(self, root: Root, locate: Locate) -> None:
        """Take over what /proc says of a process that was there before us; nothing if it is gone. And what waits."""
        if self.unread:
            pid, self.unread = self.unread, 0
            try:
                raw = root.read(f"proc/{pid}/maps", LARGEST_MAPS)
            except Unreadable:
                raw = b""
            for mapped in parse_maps(raw, pid):
                self.add(mapped.start, mapped.length, mapped.offset, locate(mapped))
        self.settle(locate)

    def table(self) -> NDArray[np.int64]:
        """Start, end, offset and image of each mapping, sorted."""
        if self._table is None:
            self._table = np.array(self._maps, dtype=np.int64).reshape(-1, 4)
        return self._table


def _plain(maps: list[tuple[int, int, int, int]]) -> bool:
    """Whether these, sorted, can be had as they are: none over another, none that `add` would leave out."""
    last = 0
    for start, end, offset, _ in maps:
        if start < last or end <= start or offset >= 1 << 63:
            return False
        last = end
    return last <= 1 << _BITS and len(maps) < MOST_MAPPINGS


def find(spaces: Sequence[Space], which: NDArray[np.int64], addresses: NDArray[np.int64]) -> tuple[Ints, Ints]:
    """The image of each address in the space it is of (0 for none), and the offset in the image's file.

    All spaces are looked through at once: each gets a range of its own, of as many addresses as a process has.
    """
    owner, table = _tables(spaces)
    number = owner << _BITS
    nothing = np.zeros(len(addresses), dtype=np.int64)
    if not len(table):
        return nothing, nothing
    starts, ends = number + table[:, 0], number + table[:, 1]
    within = (addresses >= 0) & (addresses < 1 << _BITS)
    wanted = (which << _BITS) + np.where(within, addresses, 0)
    at = np.searchsorted(starts, wanted, side="right") - 1
    inside = within & (at >= 0) & (wanted < ends[at])
    return np.where(inside, table[at, 3], 0), np.where(inside, wanted - starts[at] + table[at, 2], 0)


def _tables(spaces: Sequence[Space]) -> tuple[Ints, Ints]:
    """The tables of all spaces, one after the other, and which each row is of. Short ones are made together: a file has
    those of thousands of processes that lived for some milliseconds."""
    lengths = [len(space._maps) for space in spaces]
    owner = np.repeat(np.arange(len(spaces), dtype=np.int64), lengths)
    long = np.array(lengths, dtype=np.int64) > _FEW
    short = chain.from_iterable(chain.from_iterable(space._maps for space in spaces if len(space._maps) <= _FEW))
    made = np.fromiter(short, dtype=np.int64).reshape(-1, 4)
    if not long.any():
        return owner, made
    table = np.empty((len(owner), 4), dtype=np.int64)
    apart = long[owner]
    table[~apart] = made
    table[apart] = np.concatenate([space.table() for space in spaces if len(space._maps) > _FEW])
    return owner, table


def parse_maps(raw: bytes, pid: int) -> Iterator[Mapped]:
    """The executable mappings of /proc/PID/maps, as the kernel tells of new ones. A line that was cut ends it."""
    for line in raw.split(b"\n")[:-1]:
        words = line.split(None, 5)
        if len(words) < 5 or words[1][2:3] != b"x":
            continue
        try:
            start, end = (int(word, 16) for word in words[0].split(b"-"))
            offset = int(words[2], 16)
            major, minor = (int(word, 16) for word in words[3].split(b":"))
            inode = int(words[4])
        except ValueError:
            continue
        if not 0 <= start < end < 1 << 64 or not 0 <= offset < 1 << 63 or not 0 <= inode < 1 << 64:
            continue
        path = words[5] if len(words) > 5 else b"//anon"
        # The kernel writes a newline in a path as \012 (mangle_path in fs/seq_file.c).
        yield Mapped(0, pid, start, end - start, offset, (major, minor), inode, 0, path.replace(b"\\012", b"\n"))
