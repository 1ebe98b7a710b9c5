"""Evict exactly the pages that pin zombies, file by file, so that no live group loses anything.

Harmless by nature: what is dropped is clean page cache, which is read again if somebody needs it (and is then charged to whom
it serves); dirty pages are only sent on their way to the disk, as the kernel would do in a few seconds. An answer about a page
that is old by now evicts a page for nothing. Pages that a running program has mapped stay (mapping_evict_folio in
mm/truncate.c), and with them their zombie: for those there is reclaim. Files on tmpfs are never touched.
"""

import ctypes
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.kernel.file_handle import FileSystem
from exhume.node.memcg_pins import BDEVFS_MAGIC, TMPFS_MAGIC, Pinning, Pins
from exhume.node.memcg_walk import MemcgWalk
from exhume.node.mounts import Mount, mounts
from exhume.node.root import Root

# No core is to be kept in the kernel: after so long at work, so long a rest. The kernel frees the groups that we let go of by
# itself, at some 20 us each, hence also no more than so many before a rest.
WORK_S = 0.01
REST_S = 0.02
GROUPS = 64
PAGES_AT_ONCE = 1024
MOST_FILES = 20_000
MOST_ROUNDS = 20_000
# Rounds in which nothing could go, because all pages were on their way to the disk; of all groups together.
MOST_WAITS = 250

# File systems that may be asked for handles. Others either have none that we know, or could keep us waiting (NFS, FUSE).
FILE_SYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "f2fs"})

MAPPED = "mapped into a running program"
HELD = "in use by the kernel or a process just now"
TMPFS = "shared memory or tmpfs"
WRITING = "still being written to the disk"

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LARGEST_INDEX = (1 << 63) // _PAGE - (1 << 20)
_SYNC_FILE_RANGE_WRITE = 2  # include/uapi/linux/fs.h: begins to write, waits for nothing
_LIBC = ctypes.CDLL(None, use_errno=True)

FileKey = tuple[int, int, int, int]
"""Magic, device, inode number, generation."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evicted:
    files: int
    pages: int
    failed: dict[str, int]
    """Pages that did not go, by the reason."""

    @property
    def bytes(self) -> int:
        return self.pages * _PAGE


class Pace:
    """Called often while at work, it rests when it is time to."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._began >= WORK_S:
            self.rest()

    def rest(self) -> None:
        time.sleep(REST_S)
        self._began = time.monotonic()


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
            fd = os.open(self._root.at(f"dev/{name}"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW)
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


def goes_by_file(root: Root, pinning: Pinning, seen: MemcgWalk, rows: Rows) -> Rows:
    """Of these groups, those that will go by evicting their pages, as far as the first few of them tell. One page that must
    stay is enough to keep a group."""
    pins = pinning.read(seen, rows.tolist(), pause=Pace())
    with Files(root) as files:
        stuck = np.array([bool(why) for why in obstacles(pins, files.why_not)], bool)
    return np.setdiff1d(pins["row"], pins["row"][stuck])


def evict(
    root: Root, pinning: Pinning, seen: MemcgWalk, rows: Rows, progress: Callable[[float], None] = lambda _: None
) -> Evicted:
    """Evict what pins these groups, a few groups at a time, until nothing pins them or what is left cannot go."""
    with Files(root) as files:
        work = _Eviction(files, pinning, seen)
        for begin in range(0, len(rows), GROUPS):
            work.groups(rows[begin : begin + GROUPS])
            progress(min(1.0, (begin + GROUPS) / len(rows)))
            work.pace.rest()
    return Evicted(len(work.evicted_from), work.pages, dict(work.failed))


class _Eviction:
    """What was done so far."""

    def __init__(self, files: Files, pinning: Pinning, seen: MemcgWalk) -> None:
        self._files, self._pinning, self._seen = files, pinning, seen
        self._waits = 0
        self.pace = Pace()
        self.evicted_from: set[FileKey] = set()
        self.pages = 0
        self.failed = Counter[str]()

    def groups(self, rows: Rows) -> None:
        """Round by round, because a round sees the first pages of each list. Every round something goes, or is given up, or is
        waited for; pages are counted when they are seen to be gone."""
        asked: dict[tuple[int, ...], int] = {}
        for _ in range(MOST_ROUNDS):
            pins = self._pinning.read(self._seen, rows.tolist(), most=64, pause=self.pace)
            pages = list(zip(*(pins[name].tolist() for name in ("dev", "ino", "index")), strict=True))
            self.pages += sum(asked.values()) - sum(asked[page] for page in asked.keys() & set(pages))
            whys = obstacles(pins, self._files.why_not)
            whys = [HELD if page in asked else why for page, why in zip(pages, whys, strict=True)]
            self.failed.update(why for why in whys if why)
            rows = np.setdiff1d(pins["row"], pins["row"][np.array([bool(why) for why in whys], bool)])
            pins = pins[np.isin(pins["row"], rows)]
            if not len(pins):
                return
            if (pins["dirty"] | pins["writeback"]).all():
                self._waits += 1
                if self._waits > MOST_WAITS:
                    self.failed[WRITING] += len(pins)
                    return
                self.pace.rest()
            asked = {}
            for key, of_file in by_file(pins):
                why = self._evict(key, of_file)
                if why:
                    self.failed[why] += len(of_file)
                    rows = np.setdiff1d(rows, of_file["row"])
                else:
                    clean = of_file[~(of_file["dirty"] | of_file["writeback"])]
                    asked |= {(key[1], key[2], int(pin["index"])): int(pin["pages"]) for pin in clean}

    def _evict(self, key: FileKey, pins: Pins) -> str:
        """Why it could not be done; empty if it was."""
        if key not in self.evicted_from and len(self.evicted_from) >= MOST_FILES:
            return f"they are of more than {MOST_FILES:,} files"
        try:
            fd = self._files.open(key)
        except Unreadable as reason:
            return str(reason)
        try:
            for offset, length in ranges(pins[pins["dirty"] & ~pins["writeback"]]):
                _LIBC.sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(length), _SYNC_FILE_RANGE_WRITE)
                self.pace()
            for offset, length in ranges(pins[~(pins["dirty"] | pins["writeback"])]):
                os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
                self.pace()
        except OSError as error:
            return f"the kernel declined to evict them: {os.strerror(error.errno or 0)}"
        finally:
            os.close(fd)
        self.evicted_from.add(key)
        return ""


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """This thread on one core, such as one that serves no network queue."""
    before = os.sched_getaffinity(0)
    try:
        if core is not None:
            os.sched_setaffinity(0, {core})
        yield
    finally:
        os.sched_setaffinity(0, before)
