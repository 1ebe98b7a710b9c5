"""A recording on disk, read: whether it is being written, was killed, or is finished. A window costs what it holds."""

import fcntl
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from exhume import budget
from exhume.errors import ExhumeError
from exhume.recording import layout, plain
from exhume.recording.arrays import among, unique
from exhume.recording.carry import settled
from exhume.recording.chapters import ChapterReader, Moved
from exhume.recording.layout import Span
from exhume.recording.plain import Columns
from exhume.recording.recording import Ints, Node, Recording
from exhume.recording.schema import TABLES
from exhume.recording.sealing import order_of
from exhume.recording.summary import Summary, between, join
from exhume.recording.tally import Tally, merge, tally
from exhume.text import decode, printable

Answer = TypeVar("Answer")

_LOOKS = 5
# Segments follow each other within a batch or two; more between them was not recorded.
_GAP_NS = 5_000_000_000
_SAMPLES = ("time", "core", "thread", "stack")


class Segment(NamedTuple):
    path: str
    start: int
    end: int
    sealed: bool
    pinned: str  # why, empty if it is not
    size: int


class Folder:
    """Opens read-only; damaged tails are passed over and told in `notes`."""

    def __init__(self, path: str, boot: int = 0) -> None:
        """`boot`: 0 is the last one, -1 the one before it, as journalctl counts them."""
        self.path = path
        self._boot = boot
        self.notes: list[str] = []
        """What was found damaged or incomplete, for people."""
        self.boots: list[str] = []
        """Boot ids found, oldest first. Everything else is about one of them."""
        self._chapters: list[ChapterReader] = []
        self._clock: dict[str, tuple[Ints, Ints]] = {}
        self._list()
        last = self._chapters[-1].chapter
        self.node: Node = last.node
        self.about: dict[str, Any] = last.about

    def _list(self) -> None:
        shown = printable(self.path)
        try:
            names = sorted(filter(layout.is_chapter, os.listdir(self.path)))
            layout.check_mark(self.path)
        except FileNotFoundError:
            if os.path.isdir(self.path):
                raise ExhumeError(f"{shown} is not a recording: it has no {layout.MARK}") from None
            raise ExhumeError(f"there is no recording at {shown}") from None
        except NotADirectoryError:
            raise ExhumeError(f"{shown} is not a recording: name the directory that exhume record wrote") from None
        except PermissionError:
            raise ExhumeError(f"{shown} is readable by root alone: run this as root (sudo)") from None
        except OSError as error:
            raise ExhumeError(f"{shown} cannot be read: {error.strerror}") from error
        found = [chapter for name in names if (chapter := self._open_chapter(name)) is not None]
        if not found:
            raise ExhumeError(f"{shown} holds nothing yet: the recorder writes its first rows after a second")
        self.boots = list(dict.fromkeys(one.chapter.node.boot_id for one in found))
        if not -len(self.boots) < self._boot <= 0:
            many = f"{len(self.boots)} boots: 0 is the last one, {1 - len(self.boots)} the first"
            raise ExhumeError(f"{shown} has {'one boot: it is 0' if len(self.boots) == 1 else many}")
        wanted = [one for one in found if one.chapter.node.boot_id == self.boots[self._boot - 1]]
        self._chapters = sorted(wanted, key=lambda one: one.chapter.begin["time"])
        self.__dict__.pop("window", None)
        self.__dict__.pop("segments", None)

    def _open_chapter(self, name: str) -> ChapterReader | None:
        path = os.path.join(self.path, name)
        try:
            return ChapterReader(path, self.notes)
        except (OSError, ValueError) as error:
            # One without chapter.json and without segments is what a recorder left that was killed as it began.
            if os.path.isdir(path) and layout.spans(os.listdir(path)):
                self.notes.append(f"chapter {name} was passed over: {printable(str(error), 80)}")
            return None

    @cached_property
    def window(self) -> tuple[int, int]:
        """From the first segment to the last row, on the recording's clock."""
        spans = [span for chapter in self._chapters for span in chapter.spans]
        if not spans:
            begin = self._chapters[-1].chapter.begin["time"]
            return begin, begin
        return min(span.start for span in spans), self._looking(lambda: max(self._end(*part) for part in self._all()))

    @cached_property
    def segments(self) -> list[Segment]:
        """Oldest first, the open one last."""
        return self._looking(self._segments)

    def _segments(self) -> list[Segment]:
        found = []
        for chapter, span in self._all():
            path = os.path.join(chapter.path, span.name)
            try:
                size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))
            except OSError:
                continue
            found.append(Segment(path, span.start, self._end(chapter, span), span.sealed, _pinned(path), size))
        return found

    @property
    def spans(self) -> list[Span]:
        """The same by their names alone."""
        return [span for _, span in self._all()]

    @property
    def has_samples(self) -> bool:
        return any(chapter.sampled(span) for chapter, span in self._all())

    @property
    def boot_id(self) -> str:
        """Of the boot that was asked for."""
        return self.boots[self._boot - 1]

    @cached_property
    def sampled(self) -> tuple[int, int]:
        """From the first segment that has samples to the last; the whole window where there are none."""
        spans = self._looking(
            lambda: [(span.start, self._end(chapter, span)) for chapter, span in self._all() if chapter.sampled(span)]
        )
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else self.window

    def gaps(self, start: int | None = None, end: int | None = None, sampled: bool = False) -> list[tuple[int, int]]:
        """When inside of a window no recorder wrote, for more than five seconds; or, `sampled`, nobody took samples."""
        begin = self.window[0] if start is None else start
        until = self.window[1] if end is None else end
        spans = self._looking(
            lambda: sorted(
                (span.start, self._end(chapter, span))
                for chapter, span in self._parts(begin, until)
                if not sampled or chapter.sampled(span)
            )
        )
        found, seen = [], begin
        for first, last in [*spans, (until, until)]:
            if min(first, until) - seen > (_GAP_NS if not sampled else _GAP_NS // 5):
                found.append((seen, min(first, until)))
            seen = max(seen, last)
        return found

    def covered(self, start: int, end: int) -> int:
        """For how much of a window there are samples."""
        return end - start - sum(last - first for first, last in self.gaps(start, end, sampled=True))

    @cached_property
    def written(self) -> bool:
        """Whether a recorder has it open now."""
        try:
            lock = os.open(os.path.join(self.path, layout.LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    def real_ns(self, time: int) -> int:
        """Wall clock of a moment, by the nearest anchor."""
        times, real = self._looking(lambda: self._anchors(time))
        nearest = int(np.abs(times - time).argmin())
        return int(real[nearest]) + time - int(times[nearest])

    def time_at(self, real_ns: int) -> int:
        """The moment of a wall clock time. The clock may have been stepped: ask where it leads until it stays there."""
        begin = self._chapters[-1].chapter.begin
        time = real_ns - begin["real"] + begin["time"]
        for _ in range(_LOOKS):
            times, real = self._looking(lambda at=time: self._anchors(at))  # type: ignore[misc]
            nearest = int(np.abs(real - real_ns).argmin())
            found = int(times[nearest]) + real_ns - int(real[nearest])
            if found == time:
                break
            time = found
        return time

    def load(self, start: int | None = None, end: int | None = None, tables: Iterable[str] | None = None) -> Recording:
        """The rows with start <= time < end, for detectors. Counters and sources that did not change have a row at `start`.

        Of the dictionaries only rows that the samples refer to; ids are new where a window reaches over several chapters. Where
        no anchor is in the window, the nearest one is added, so that wall time is known.
        """
        wanted = set(TABLES if tables is None else tables)
        return self._looking(lambda: self._load(start, end, wanted))

    def profile(
        self, start: int | None = None, end: int | None = None, cores: Collection[int] | None = None
    ) -> tuple[Tally, Recording]:
        """The tally of a window, and a recording that holds just the stacks, frames and threads it refers to."""
        return self._looking(lambda: self._profile(start, end, cores))

    def pieces(self, table: str, start: int | None = None, end: int | None = None) -> Iterator[tuple[ChapterReader, Columns]]:
        """The rows of a table as they were written, a segment at a time, for what is too large to be had at once.

        Ids are those of the chapter that comes with them. A segment that is sealed while it is read is read again, none twice.
        """
        if table in layout.DICTIONARIES:
            for chapter in self._chapters:
                yield chapter, chapter.dictionary(table, np.array(sorted(chapter.ids(table)), dtype=np.int64))
            return
        given: set[tuple[str, int]] = set()
        while (part := self._next(given, start, end)) is not None:
            given.add((part[0].path, part[1].start))
            found = self._looking(lambda part=part: self._piece(part, table, start, end))  # type: ignore[misc]
            if found is not None and len(found[1]["time"]):
                yield found

    def _next(self, given: set[tuple[str, int]], start: int | None, end: int | None) -> tuple[ChapterReader, Span] | None:
        return next((part for part in self._parts(start, end) if (part[0].path, part[1].start) not in given), None)

    def _piece(
        self, part: tuple[ChapterReader, Span], table: str, start: int | None, end: int | None
    ) -> tuple[ChapterReader, Columns] | None:
        """By its begin: its name changes when it is sealed."""
        for other, now in self._all():
            if other.path == part[0].path and now.start == part[1].start:
                if table == "summary" and not now.sealed:  # made when it is sealed
                    found: Columns | None = plain.of_summary(other.summary(now))
                else:
                    found = other.table(now, table, start, end)
                return None if found is None else (other, plain.within(found, start, end))
        return None

    def summary(self, start: int | None = None, end: int | None = None) -> Summary:
        """Every second that touches the window."""
        return self._looking(
            lambda: between(join([chapter.summary(span) for chapter, span in self._parts(start, end)]), start, end)
        )

    def count(self, table: str) -> int:
        """Rows of a table in all segments."""
        if table in layout.DICTIONARIES:
            return self._looking(lambda: sum(len(chapter.ids(table)) for chapter in self._chapters))
        return self._looking(lambda: sum(chapter.count(span, table) for chapter, span in self._all()))

    def _looking(self, ask: Callable[[], Answer]) -> Answer:
        """Ask again where a segment was sealed, or went, while it was read; at last without those that are not there."""
        for _ in range(_LOOKS):
            try:
                return ask()
            except Moved:
                self._list()
        self.notes.append("segments were removed while they were read: the recording is at its limit, and goes on")
        for chapter in self._chapters:
            chapter.patient = False
        return ask()

    def _all(self) -> Iterator[tuple[ChapterReader, Span]]:
        for chapter in self._chapters:
            for span in chapter.spans:
                yield chapter, span

    def _parts(self, start: int | None, end: int | None) -> Iterator[tuple[ChapterReader, Span]]:
        """The segments that may hold rows of a window."""
        for chapter, span in self._all():
            if (end is None or span.start - layout.LATE_NS < end) and (
                start is None or not span.sealed or span.end + layout.LATE_NS > start
            ):
                yield chapter, span

    def _end(self, chapter: ChapterReader, span: Span) -> int:
        if span.sealed:
            return span.end
        found = [chapter.table(span, table) for table in ("anchors", "cpu", "samples")]
        newest = [int(table["time"].max()) for table in found if table is not None and len(table["time"])]
        return max([span.start, *(time + 1 for time in newest)])

    def _anchors(self, time: int) -> tuple[Ints, Ints]:
        """Anchors (recording's clock, wall clock) of the segment that is nearest to a moment."""
        parts = sorted(self._all(), key=lambda part: max(part[1].start - time, time - max(part[1].end, part[1].start), 0))
        for chapter, span in parts[:3]:
            key = f"{chapter.path}/{span.name}"
            if key not in self._clock:
                table = chapter.table(span, "anchors")
                if table is not None and len(table["time"]):
                    self._clock[key] = (table["time"], table["real"])
            if key in self._clock:
                return self._clock[key]
        begin = self._chapters[-1].chapter.begin
        return np.array([begin["time"]]), np.array([begin["real"]])

    def _load(self, start: int | None, end: int | None, wanted: set[str]) -> Recording:
        recording = Recording(self.node)
        if start is not None and end is not None and end <= start:
            return recording
        parts = list(self._parts(start, end))
        if wanted & {"samples", *layout.DICTIONARIES}:
            self._load_samples(recording, parts, start, end, wanted)
        if "summary" in wanted:
            _fill_summary(recording, self.summary(start, end))
        if "counters" in wanted:
            known: dict[tuple[str, str], int] = {}
            for table in _tables(parts, "counters", end=end):
                rows = plain.within(plain.take(table, order_of("counters", table)), None, end)
                plain.fill(recording["counters"], settled(rows, known, start))
        if "sources" in wanted:
            _fill_sources(recording, [plain.within(table, None, end) for table in _tables(parts, "sources", end=end)], start)
        for name in wanted - {"samples", *layout.DICTIONARIES, "summary", "counters", "sources"}:
            for table in _tables(parts, name, start, end):
                plain.fill(recording[name], plain.within(table, start, end))
        if "anchors" in wanted and not len(recording["anchors"]):
            self._fill_nearest_anchor(recording, start if start is not None else end)
        return recording

    def _fill_nearest_anchor(self, recording: Recording, time: int | None) -> None:
        if time is None:
            return
        for chapter, span in self._parts(time, time + 1):
            table = chapter.table(span, "anchors")
            if table is not None and len(table["time"]):
                nearest = int(np.abs(table["time"] - time).argmin())
                plain.fill(recording["anchors"], plain.take(table, np.array([nearest])))
                return
        if any(len(table) for table in recording.tables.values()):  # damaged: rows without an anchor
            begin = self._chapters[-1].chapter.begin
            recording.add_anchor(begin["time"], begin["monotonic"], begin["boot"], begin["real"])

    def _load_samples(
        self,
        recording: Recording,
        parts: list[tuple[ChapterReader, Span]],
        start: int | None,
        end: int | None,
        wanted: set[str],
    ) -> None:
        bases = dict.fromkeys(layout.DICTIONARIES, 0)
        for chapter, spans in _by_chapter(parts):
            found = _tables([(chapter, span) for span in spans], "samples", start, end, _SAMPLES)
            kept = [rows for table in found if len((rows := plain.within(table, start, end))["time"])]
            if not kept:
                continue
            samples = plain.concatenated(kept)
            threads, stacks = samples["thread"], samples["stack"]
            if "samples" in wanted:
                renumbered = {"thread": threads + bases["threads"], "stack": stacks + bases["stacks"]}
                plain.fill(recording["samples"], {**samples, **renumbered})
            if wanted & set(layout.DICTIONARIES):
                _fill_dictionaries(recording, chapter, unique(threads), unique(stacks), bases, wanted)
            else:
                bases["threads"] += int(threads.max()) + 1
                bases["stacks"] += int(stacks.max()) + 1

    def _profile(self, start: int | None, end: int | None, cores: Collection[int] | None) -> tuple[Tally, Recording]:
        recording = Recording(self.node)
        bases = dict.fromkeys(layout.DICTIONARIES, 0)
        tallies = []
        for chapter, spans in _by_chapter(list(self._parts(start, end))):
            found = []
            for table in _tables([(chapter, span) for span in spans], "samples", start, end, _SAMPLES):
                rows = plain.within(table, start, end)
                if cores is not None:
                    rows = plain.take(rows, np.flatnonzero(among(rows["core"], np.array(sorted(cores), dtype=np.int64))))
                found.append(tally(rows["core"], rows["thread"], rows["stack"]))
            counted = merge(found)
            if len(counted.count):
                thread, stack = counted.thread + bases["threads"], counted.stack + bases["stacks"]
                tallies.append(counted._replace(thread=thread, stack=stack))
                wanted = set(layout.DICTIONARIES)
                _fill_dictionaries(recording, chapter, unique(counted.thread), unique(counted.stack), bases, wanted)
        return merge(tallies), recording


def _fill_dictionaries(
    recording: Recording, chapter: ChapterReader, threads: Ints, stacks: Ints, bases: dict[str, int], wanted: set[str]
) -> None:
    """Add the rows with these ids and the frames of the stacks, `bases` added to all of them, and put `bases` beyond them."""
    found = {"threads": chapter.dictionary("threads", threads), "stacks": chapter.dictionary("stacks", stacks)}
    frames = found["stacks"]["frames"]
    values = frames.values.astype(np.int64)
    found["frames"] = chapter.dictionary("frames", unique(values))
    found["stacks"]["frames"] = frames._replace(values=values + bases["frames"])
    for name, ids in (("threads", threads), ("stacks", stacks), ("frames", values)):
        found[name]["id"] = found[name]["id"] + bases[name]
        if name in wanted:
            plain.fill(recording[name], found[name])
        bases[name] += int(ids.max()) + 1 if len(ids) else 0


def _tables(
    parts: Iterable[tuple[ChapterReader, Span]],
    name: str,
    start: int | None = None,
    end: int | None = None,
    names: Collection[str] | None = None,
) -> Iterator[Columns]:
    for chapter, span in parts:
        table = chapter.table(span, name, start, end, names)
        if table is not None:
            yield table


def _by_chapter(parts: list[tuple[ChapterReader, Span]]) -> list[tuple[ChapterReader, list[Span]]]:
    found: dict[str, tuple[ChapterReader, list[Span]]] = {}
    for chapter, span in parts:
        found.setdefault(chapter.path, (chapter, []))[1].append(span)
    return list(found.values())


def _fill_sources(recording: Recording, tables: list[Columns], start: int | None) -> None:
    """Every change, and at `start` the last word from before it. A word that was said before was carried: it is left out."""
    said: dict[str, tuple[Any, ...]] = {}
    rows = [row for table in tables for row in zip(*table.values(), strict=True)]
    before = [row for row in rows if start is not None and row[0] < start]
    latest = {row[1]: (start, *row[1:]) for row in before}
    for row in [*latest.values(), *(row for row in rows if start is None or row[0] >= start)]:
        if said.get(row[1]) != row[2:]:
            said[row[1]] = row[2:]
            recording["sources"].add(*(int(value) if isinstance(value, np.integer) else value for value in row))


def _fill_summary(recording: Recording, summary: Summary) -> None:
    columns: dict[str, Any] = summary._asdict()
    columns["offsets"] = summary.offsets.tolist()
    recording["summary"].add_columns(columns)


def _pinned(path: str) -> str:
    try:
        return decode(budget.read(os.path.join(path, layout.PINNED), 1_000, regular=True)).strip() or "pinned"
    except OSError:
        return ""
