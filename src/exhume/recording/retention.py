"""What is kept: whole segments go, oldest first, until a recording fits its budget and its age; what is pinned stays,
or goes last."""

import os
import threading
import time
from dataclasses import dataclass

from exhume.recording import files, layout
from exhume.recording.sealing import Sealed

_PINS = 1_000


@dataclass(slots=True)
class _Kept:
    chapter: str
    name: str
    start: int
    end: int
    size: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class _Pin:
    start: int
    end: int
    reason: str


@dataclass(slots=True)
class _Chapter:
    size: int
    """Of its own files: the dictionaries and chapter.json."""
    boot_id: str = ""
    begin: int = 0
    real_offset: int = 0
    """Wall clock minus the recording's clock, when it began."""


class Retention:
    """Knows the size of everything in a recording without looking again. The writer and the sealing thread both use it."""

    def __init__(self, path: str, budget_bytes: int, keep_ns: int, boot_id: str, pins_go: bool = False) -> None:
        """`pins_go`: for a recorder that nobody watches, to which what is new is worth more than the oldest pins."""
        self._path = path
        self._pins_go = pins_go
        self._budget = budget_bytes
        self._keep_ns = keep_ns
        self._boot_id = boot_id
        self._lock = threading.RLock()
        self._kept: list[_Kept] = []
        self._chapters: dict[str, _Chapter] = {}
        self._open: dict[tuple[str, str], int] = {}
        self._pins: list[_Pin] = []
        self.size_bytes = 0
        """Of everything there is."""
        self._largest_seal = 0
        self.current = ""
        """The chapter that is being written: it stays, even without a segment."""

    def limit(self, budget_bytes: int, keep_ns: int) -> None:
        """From now on; what is too much goes when room is made next."""
        with self._lock:
            self._budget, self._keep_ns = budget_bytes, keep_ns

    def walk(self) -> list[tuple[str, str]]:
        """Look at what there is, and clear away what was not finished. Says which open segments (chapter, name) were left."""
        with self._lock, files.directory(self._path) as at:
            self._kept, self._chapters, self._open = [], {}, {}
            self.size_bytes = files.size(at)
            for chapter in sorted(filter(layout.is_chapter, os.listdir(at))):
                try:
                    with files.directory(chapter, at) as fd:
                        self._walk_chapter(chapter, fd)
                except OSError:
                    continue
            self._kept.sort(key=self._age)
            return list(self._open)

    def _walk_chapter(self, chapter: str, fd: int) -> None:
        names = os.listdir(fd)
        for name in names:
            if name.startswith(layout.TEMPORARY):
                if layout.span(name.removeprefix(layout.TEMPORARY)):
                    files.remove_segment(name, fd)
                elif name in layout.CHAPTER_FILES:
                    os.unlink(name, dir_fd=fd)
        self._resize_chapter(chapter, files.size(fd))
        self._read_about(chapter)
        for one in map(layout.span, sorted(names)):
            if one is None:
                continue
            try:
                with files.directory(one.name, fd) as inside:
                    size, pinned = files.size(inside), layout.PINNED in os.listdir(inside)
            except OSError:
                continue  # a link, or a file: not made by us
            if one.sealed:
                self._kept.append(_Kept(chapter, one.name, one.start, one.end, size, pinned))
            else:
                self._open[chapter, one.name] = size
            self.size_bytes += size

    def _read_about(self, chapter: str) -> None:
        try:
            read = layout.read_chapter(os.path.join(self._path, chapter))
        except Exception:  # whatever is wrong with it: it then goes by size alone
            return
        self._chapters[chapter].boot_id = read.node.boot_id
        self._chapters[chapter].begin = read.begin["time"]
        self._chapters[chapter].real_offset = read.begin["real"] - read.begin["time"]

    def _resize_chapter(self, chapter: str, size: int) -> None:
        known = self._chapters.setdefault(chapter, _Chapter(0))
        self.size_bytes += size - known.size
        known.size = size

    @property
    def headroom(self) -> int:
        """What sealing needs beside what is there: another copy of the dictionaries and of a sealed segment."""
        current = self._chapters.get(self.current)
        return min(self._largest_seal + (current.size if current else 0) + self._budget // 64, self._budget // 4)

    def begin_chapter(self, chapter: str, size: int) -> None:
        with self._lock:
            self.current = chapter
            self._resize_chapter(chapter, size)
            self._read_about(chapter)
            self._drop_empty_chapters()

    def open(self, chapter: str, name: str, size: int) -> None:
        """How large an open segment is now."""
        with self._lock:
            self.size_bytes += size - self._open.get((chapter, name), 0)
            self._open[chapter, name] = size

    def sealed(self, chapter: str, name: str, sealed: Sealed | None) -> None:
        """An open segment became a sealed one, or nothing."""
        with self._lock:
            self.size_bytes -= self._open.pop((chapter, name), 0)
            if sealed is None:
                self._drop_empty_chapters()
                return
            if chapter in self._chapters:
                self._resize_chapter(chapter, sealed.dictionaries)
            self._largest_seal = max(sealed.size, self._largest_seal)
            kept = _Kept(chapter, sealed.name, sealed.start, sealed.end, sealed.size, sealed.pinned)
            self._kept.append(kept)
            self.size_bytes += kept.size
            self._kept.sort(key=self._age)
            for pin in self._pins:
                self._pin(kept, pin)

    def pin(self, start: int, end: int, reason: str) -> None:
        with self._lock:
            pin = _Pin(start, end, reason)
            self._pins = [*self._pins[1 - _PINS :], pin]
            for kept in self._kept:
                self._pin(kept, pin)

    def pinned(self, start: int) -> str:
        """Why a segment that begins now is pinned, empty if it is not."""
        with self._lock:
            return next((pin.reason for pin in self._pins if pin.start <= start < pin.end), "")

    def _pin(self, kept: _Kept, pin: _Pin) -> None:
        chapter = self._chapters.get(kept.chapter)
        if kept.pinned or kept.start >= pin.end or kept.end <= pin.start or (chapter and chapter.boot_id != self._boot_id):
            return
        reason = pin.reason.encode("utf-8", "backslashreplace")
        with files.directory(os.path.join(self._path, kept.chapter)) as at, files.directory(kept.name, at) as fd:
            files.write(layout.PINNED, reason, fd)
        kept.pinned = True
        kept.size += len(reason)
        self.size_bytes += len(reason)

    def free(self, need: int = 0, now: int | None = None, at_least: int = 0) -> int:
        """Remove the oldest segments until `need` more bytes fit the budget, and `at_least` so many; says how many bytes went.

        `now`, on the recording's clock, is for the age; without it only the size counts.
        """
        with self._lock:
            before = self.size_bytes
            limit = self._budget - self.headroom - need
            for kept in [one for one in self._kept if not one.pinned]:
                if not self._too_old(kept, now):
                    break
                self._remove(kept)
                at_least -= 1
            while (over := self.size_bytes > limit) or at_least > 0:
                if (first := self._first_to_go(over)) is None:
                    break
                self._remove(first)
                at_least -= 1
            self._drop_empty_chapters()
            return before - self.size_bytes

    def _first_to_go(self, over: bool) -> _Kept | None:
        """The oldest that is not pinned. Where pins go, they have half of the budget: the last minutes are wanted, too. On a
        disk that others fill (it is not `over` the budget) no pin goes: that would only make room for them."""
        loose = next((one for one in self._kept if not one.pinned), None)
        if self._pins_go and over and (loose is None or self.pinned_bytes > self._budget // 2):
            return next((one for one in self._kept if one.pinned), loose)
        return loose

    def over(self, need: int) -> bool:
        """Whether this much more would leave too little of the budget."""
        return self.size_bytes + need > self._budget - self.headroom

    @property
    def pinned_bytes(self) -> int:
        with self._lock:
            return sum(one.size for one in self._kept if one.pinned)

    def _too_old(self, kept: _Kept, now: int | None) -> bool:
        """By the recording's clock, and by the wall clock (which may have been stepped) only for what is of an earlier boot."""
        if not self._keep_ns or now is None:
            return False
        chapter = self._chapters.get(kept.chapter)
        if chapter is None or chapter.boot_id == self._boot_id:
            return kept.end < now - self._keep_ns
        return kept.end + chapter.real_offset < time.time_ns() - self._keep_ns

    def _age(self, kept: _Kept) -> tuple[bool, int, str, int]:
        """Oldest first. Chapters are named by the wall clock, which may be stepped: of this boot our own clock counts."""
        chapter = self._chapters.get(kept.chapter)
        now = chapter is not None and chapter.boot_id == self._boot_id
        return now, chapter.begin if chapter is not None and now else 0, kept.chapter, kept.start

    def _remove(self, kept: _Kept) -> None:
        try:
            with files.directory(os.path.join(self._path, kept.chapter)) as at:
                files.remove_segment(kept.name, at)
        except OSError:
            pass  # it is not ours any more, or not there: either way it is not counted
        self._kept.remove(kept)
        self.size_bytes -= kept.size

    def _drop_empty_chapters(self) -> None:
        used = {one.chapter for one in self._kept} | {chapter for chapter, _ in self._open} | {self.current}
        for name in [name for name in self._chapters if name not in used]:
            try:
                with files.directory(self._path) as at:
                    files.remove_chapter(name, at)
            except OSError:
                pass  # something of somebody else's is in it
            self.size_bytes -= self._chapters.pop(name).size
