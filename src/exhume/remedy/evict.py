"""Evict the pages that pin zombies, file by file, and no page that the living use.

A page is charged to the group that touched it first, and stays so after that group died, whoever reads it since. So a page of
a zombie may well be in use:

- mapped into a program: the kernel does not evict it (mapping_evict_folio in mm/truncate.c);
- hot: PG_active or PG_workingset, set by a second use;
- read before (PG_referenced), of a file that a process has open for reading, or mapped.

Pages in use are evicted only if the caller accepts it. Otherwise their zombie is left alone altogether: one page that stays
keeps it. One exception is made, and counted: small zombies whose pages were used more than once, but whose file no process has
open or mapped now. They are usually held by metadata of a file system that the dead group itself used twice.

What is evicted is clean page cache. Dirty pages are written back first, as the kernel would do within seconds. Pages that have
more references than the cache's own are not asked for: posix_fadvise() would fail on them and then drain every CPU. An answer
about a page that is old by now evicts a page for nothing. Files on tmpfs are never touched.
"""

import ctypes
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.host.mounts import Mount, mounts
from exhume.host.root import Root
from exhume.kernel.file_handle import FileSystem
from exhume.remedy.cores import Pace
from exhume.sources.memcg_pins import BDEVFS_MAGIC, TMPFS_MAGIC, Pinning, Pins
from exhume.sources.memcg_walk import MemcgWalk
from exhume.sources.open_files import NOBODY, Inode, Readers, readers

# The kernel frees the groups that lost their last page by itself, at some 20 us each: no more than this between two rests.
GROUPS = 64
PAGES_AT_ONCE = 1024
MOST_FILES = 20_000
# Rounds in which no page could be evicted, because all were being written or held for a moment; of all groups together.
MOST_WAITS = 250
READERS_OLD_S = 2.0
# Small zombies that were used more than once are evicted without asking, up to this size each and in all.
SMALL_BYTES = 64 << 10
MOST_SMALL_BYTES = 16 << 20

# File systems that may be asked for handles. Others either have none that we know, or could keep us waiting (NFS, FUSE).
FILE_SYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "f2fs"})

MAPPED = "mapped into a running program"
IN_USE = "used by the living"
HELD = "held by the kernel or a process"
TMPFS = "shared memory or tmpfs"
WRITING = "still being written to the disk"
SPENT = "the size that was agreed to is used up"

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LARGEST_INDEX = (1 << 63) // _PAGE - (1 << 20)
_SYNC_FILE_RANGE_WRITE = 2  # include/uapi/linux/fs.h: begins to write, waits for nothing
_LIBC = ctypes.CDLL(None, use_errno=True)

FileKey = tuple[int, int, int, int]
"""Magic, device, inode number, generation."""
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Evicted:
    files: int
    pages: int
    failed: dict[str, int]
    """Pages that were not evicted, by the reason."""

    @property
    def bytes(self) -> int:
        return self.pages * _PAGE


@dataclass(frozen=True, slots=True)
class Sorted:
    """Zombies by what evicting their pages would cost, as far as the first pages of each list show."""

    cold: Rows
    """No page of them is in use."""
    small: Rows
    """Of the cold ones: small, and used more than once, but not open or mapped now."""
    in_use: Rows
    """They are freed only by evicting pages that the living use."""
    users: dict[int, tuple[str, ...]]
    """Of those in use: processes that have a file of theirs open, by row."""


class Files:
    """Opens what pins a group: a regular file by its inode, or the block device whose own pages (metadata) they are."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._mounts: tuple[Mount, ...] | None = None
        self._known: dict[int, FileSystem | Unreadable] = {}

    def open(self, key: FileKey) -> int:
        magic, dev, ino, generation = key
        if magic == TMPFS_MAGIC:
            raise Unreadable(TMPFS)
        return self._device(dev) if magic == BDEVFS_MAGIC else self._file_system(dev).open(ino, generation)

    def why_not(self, magic: int, dev: int) -> str:
        """Why nothing can be opened there; empty if it can."""
        try:
            if magic == TMPFS_MAGIC:
                return TMPFS
            if magic == BDEVFS_MAGIC:
                os.close(self._device(dev))
            else:
                self._file_system(dev)
        except Unreadable as reason:
            return str(reason)
        return ""

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, *_: object) -> None:
        for known in self._known.values():
            if isinstance(known, FileSystem):
                known.__exit__()

    def _file_system(self, dev: int) -> FileSystem:
        if dev not in self._known:
            self._known[dev] = self._find(dev >> 20, dev & 0xFFFFF)
        known = self._known[dev]
        if isinstance(known, Unreadable):
            raise known
        return known

    def _find(self, major: int, minor: int) -> FileSystem | Unreadable:
        if self._mounts is None:
            try:
                self._mounts = mounts(self._root)
            except Unreadable as reason:
                return reason
        here = [mount for mount in self._mounts if mount.device == (major, minor)]
        why = Unreadable(f"the file system {major}:{minor} is not mounted where it could be reached")
        for mount in here[:100]:
            if mount.kind not in FILE_SYSTEMS:
                return Unreadable(f"files on {mount.kind} cannot be opened by their inode number")
            try:
                return FileSystem(self._root.at(mount.point), (major, minor))
            except Unreadable as refused:
                why = refused
        return why

    def _device(self, dev: int) -> int:
        number = f"{dev >> 20}:{dev & 0xFFFFF}"
        words = self._root.read(f"sys/dev/block/{number}/uevent", 4096).split(b"\n")
        name = next((os.fsdecode(word[8:]) for word in words if word.startswith(b"DEVNAME=")), "")
        try:
            fd = self._root.open(f"dev/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (OSError, ValueError):
            raise Unreadable(f"the block device {number} cannot be opened") from None
        told = os.fstat(fd)
        if not stat.S_ISBLK(told.st_mode) or (os.major(told.st_rdev), os.minor(told.st_rdev)) != (dev >> 20, dev & 0xFFFFF):
            os.close(fd)
            raise Unreadable(f"/dev/{name} is not the block device {number}")
        return fd


def obstacles(pins: Pins, why_not: Callable[[int, int], str]) -> list[str]:
    """For each page why it cannot be evicted; empty where it can."""
    places = list(zip(pins["magic"].tolist(), pins["dev"].tolist(), strict=True))
    refused = {place: why_not(*place) for place in set(places)}
    # A file system decides itself when its metadata may be written, so that dirty pages of a device are not waited for.
    writing = (pins["magic"] == BDEVFS_MAGIC) & (pins["dirty"] | pins["writeback"])
    return [
        refused[place] or (MAPPED if mapped else WRITING if written else "")
        for place, mapped, written in zip(places, pins["mapped"].tolist(), writing.tolist(), strict=True)
    ]


def inodes(pins: Pins) -> list[Inode]:
    return [(dev >> 20, dev & 0xFFFFF, ino) for dev, ino in zip(pins["dev"].tolist(), pins["ino"].tolist(), strict=True)]


def used(pins: Pins, open_now: Readers, small: Iterable[int] = ()) -> Flags:
    """Which pages the living use; of the `small` rows only what is open or mapped now."""
    opened = np.array([bool(open_now.of(inode)) for inode in inodes(pins)], bool)
    busy = opened | pins["file_mapped"] | (not open_now.complete)
    hot = pins["hot"] & ~np.isin(pins["row"], np.fromiter(small, np.int64))
    flags: Flags = hot | ((pins["hot"] | pins["referenced"]) & busy)
    return flags


def sort_by_use(root: Root, pinning: Pinning, seen: MemcgWalk, rows: Rows) -> Sorted:
    """Of these groups, those that eviction frees, and at what cost. Groups with a page that eviction cannot reach are left
    out: only reclaim frees those."""
    pace = Pace()
    pins = pinning.read(seen, rows.tolist(), pause=pace)
    with Files(root) as files:
        stuck = np.array([bool(why) for why in obstacles(pins, files.why_not)], bool)
    within_reach = np.setdiff1d(pins["row"], pins["row"][stuck])
    pins = pins[np.isin(pins["row"], within_reach)]
    open_now = readers(root, inodes(pins[pins["hot"] | pins["referenced"]]), pace)
    hot = np.intersect1d(pins["row"], pins["row"][pins["hot"]])
    little = hot[seen.file_bytes[hot] <= SMALL_BYTES]
    little = np.setdiff1d(little, pins["row"][used(pins, open_now, little)])
    little = little[np.cumsum(seen.file_bytes[little]) <= MOST_SMALL_BYTES]
    in_use = np.intersect1d(pins["row"], pins["row"][used(pins, open_now, little)])
    users: dict[int, set[str]] = {}
    for row, inode in zip(pins["row"].tolist(), inodes(pins), strict=True):
        users.setdefault(row, set()).update(open_now.of(inode))
    return Sorted(
        cold=np.setdiff1d(within_reach, in_use),
        small=little,
        in_use=in_use,
        users={int(row): tuple(sorted(users[int(row)])) for row in in_use if users[int(row)]},
    )


def by_file(pins: Pins) -> Iterator[tuple[FileKey, Pins]]:
    """Each file with its pages, in the order of their place in it."""
    pins = pins[pins["index"] < _LARGEST_INDEX]
    order = np.lexsort((pins["index"], pins["generation"], pins["ino"], pins["dev"], pins["magic"]))
    pins = pins[order]
    keys = list(zip(*(pins[name].tolist() for name in ("magic", "dev", "ino", "generation")), strict=True))
    begin = 0
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end] != keys[begin]:
            yield keys[begin], pins[begin:end]
            begin = end


def ranges(pins: Pins, most: int = PAGES_AT_ONCE) -> Iterator[tuple[int, int]]:
    """Byte offset and length of what the pages, in order, cover; only neighbours are joined, and only up to a size."""
    start = stop = -1
    for index, pages in zip(pins["index"].tolist(), pins["pages"].tolist(), strict=True):
        if index > stop or max(stop, index + pages) - start > most:
            if stop > start:
                yield start * _PAGE, (stop - start) * _PAGE
            start, stop = index, index + pages
        else:
            stop = max(stop, index + pages)
    if stop > start:
        yield start * _PAGE, (stop - start) * _PAGE


@dataclass(frozen=True, slots=True)
class Request:
    """What may be evicted."""

    rows: Rows
    small: Rows
    """Of these rows: those whose pages may be evicted although they were used more than once."""
    in_use: Rows
    """Of these rows: those whose pages may be evicted although the living use them."""
    most_bytes: int


def evict(
    root: Root, pinning: Pinning, seen: MemcgWalk, request: Request, progress: Callable[[float], None] = lambda _: None
) -> Evicted:
    """Evict what pins these groups, a few groups at a time, until nothing pins them or what is left cannot go. `progress` is
    called at least once a round, which takes some 10 ms."""
    rows = request.rows
    with Files(root) as files:
        work = _Eviction(root, files, pinning, seen, request)
        work.find_readers(rows, partial(progress, 0.0))
        for begin in range(0, len(rows), GROUPS):
            work.groups(rows[begin : begin + GROUPS], partial(progress, begin / len(rows)))
            work.pace.rest()
    progress(1.0)
    return Evicted(len(work.evicted_from), work.pages, dict(work.failed))


class _Eviction:
    """What was done so far."""

    def __init__(self, root: Root, files: Files, pinning: Pinning, seen: MemcgWalk, request: Request) -> None:
        self._root, self._files, self._pinning, self._seen, self._request = root, files, pinning, seen, request
        self._waits = 0
        self._looked_for: set[Inode] = set()
        self._readers, self._look_again = NOBODY, 0.0
        self._left = request.most_bytes // _PAGE
        self.pace = Pace()
        self.evicted_from: set[FileKey] = set()
        self.pages = 0
        self.failed = Counter[str]()

    def find_readers(self, rows: Rows, alive: Callable[[], None]) -> None:
        """Of the files of all rows at once: each search goes through the open files of all processes."""

        def pause() -> None:
            alive()
            self.pace()

        self._open_now(self._pinning.read(self._seen, rows.tolist(), pause=pause))

    def groups(self, rows: Rows, alive: Callable[[], None]) -> None:
        """Round by round, because a round sees the first pages of each list. In every round a page is evicted, or a group is
        given up, or it waits; so it ends. Pages are counted when they are seen to be gone."""
        asked: dict[tuple[int, ...], int] = {}
        while True:
            alive()
            pins = self._pinning.read(self._seen, rows.tolist(), most=64, pause=self.pace)
            pages = list(zip(*(pins[name].tolist() for name in ("dev", "ino", "index")), strict=True))
            self.pages += sum(asked.values()) - sum(asked[page] for page in asked.keys() & set(pages))
            whys = obstacles(pins, self._files.why_not)
            whys = [HELD if page in asked else why for page, why in zip(pages, whys, strict=True)]
            busy = used(pins, self._open_now(pins), self._request.small) & ~np.isin(pins["row"], self._request.in_use)
            whys = [why or (IN_USE if one else "") for why, one in zip(whys, busy.tolist(), strict=True)]
            rows, pins = self._without(rows, pins, whys)
            if not len(pins):
                return
            ready = ~(pins["dirty"] | pins["writeback"] | pins["held"])
            if not ready.any():
                self._waits += 1
                if self._waits > MOST_WAITS:
                    self.failed[WRITING] += int((pins["dirty"] | pins["writeback"]).sum())
                    self.failed[HELD] += int((pins["held"] & ~pins["dirty"] & ~pins["writeback"]).sum())
                    return
                self.pace.rest()
            asked = {}
            for key, of_file in by_file(pins):
                why = self._evict(key, of_file)
                if why:
                    rows, _ = self._without(rows, of_file, [why] * len(of_file))
                else:
                    clean = of_file[~(of_file["dirty"] | of_file["writeback"] | of_file["held"])]
                    asked |= {(key[1], key[2], int(pin["index"])): int(pin["pages"]) for pin in clean}

    def _open_now(self, pins: Pins) -> Readers:
        """Looked up again for files that are new to it, and for all of them when it is old."""
        wanted = set(inodes(pins[pins["hot"] | pins["referenced"]]))
        began = time.monotonic()
        if not wanted <= self._looked_for or began > self._look_again:
            self._looked_for |= wanted
            self._readers = readers(self._root, self._looked_for, self.pace)
            ended = time.monotonic()
            self._look_again = ended + max(READERS_OLD_S, 20 * (ended - began))
        return self._readers

    def _without(self, rows: Rows, pins: Pins, whys: list[str]) -> tuple[Rows, Pins]:
        """What is left when the groups are given up that have a page which stays."""
        self.failed.update(why for why in whys if why)
        stuck = pins["row"][np.array([bool(why) for why in whys], bool)]
        pins = pins[~np.isin(pins["row"], stuck)]
        return np.intersect1d(np.setdiff1d(rows, stuck), pins["row"]), pins

    def _evict(self, key: FileKey, pins: Pins) -> str:
        """Why it could not be done; empty if it was."""
        if key not in self.evicted_from and len(self.evicted_from) >= MOST_FILES:
            return f"they are of more than {MOST_FILES:,} files"
        clean = pins[~(pins["dirty"] | pins["writeback"] | pins["held"])]
        if int(clean["pages"].sum()) > self._left:
            return SPENT
        self._left -= int(clean["pages"].sum())
        try:
            fd = self._files.open(key)
        except Unreadable as reason:
            return str(reason)
        try:
            for offset, length in ranges(pins[pins["dirty"] & ~pins["writeback"]]):
                _LIBC.sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(length), _SYNC_FILE_RANGE_WRITE)
                self.pace()
            for offset, length in ranges(clean):
                os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
                self.pace()
        except OSError as error:
            return f"the kernel declined to evict them: {os.strerror(error.errno or 0)}"
        finally:
            os.close(fd)
        self.evicted_from.add(key)
        return ""
