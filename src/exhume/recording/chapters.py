"""Reading one chapter: a table of one of its segments, sealed or open, and its dictionaries."""

import os
from collections.abc import Collection

import numpy as np

from exhume.errors import ExhumeError
from exhume.recording import arrow, files, parquet, plain
from exhume.recording.arrays import among, unique
from exhume.recording.dictionaries import classes_of, joined
from exhume.recording.layout import DICTIONARIES, Chapter, Span, is_chapter, read_chapter, spans
from exhume.recording.plain import Columns
from exhume.recording.recording import Ints
from exhume.recording.schema import TABLES
from exhume.recording.summary import EMPTY, OFFSETS, Summary, summarise
from exhume.text import printable

# Chapters are named by the wall clock, which may have been set back: the newest need not be the last.
_LAST = 3


class Moved(Exception):
    """A segment is not where it was: it was sealed, or made room for others. Look again."""


class ChapterReader:
    """Damaged files are passed over and told in `notes`. Raises Moved while the chapter is still being written."""

    def __init__(self, path: str, notes: list[str]) -> None:
        """Raises OSError or ValueError where there is no chapter, ExhumeError where it is too new."""
        self.path = path
        self.chapter: Chapter = read_chapter(path)
        self.spans: list[Span] = spans(os.listdir(path))
        self.patient = True
        """Whether a segment that is not there any more is to be looked for again."""
        self._notes = notes

    def table(
        self,
        span: Span,
        table: str,
        start: int | None = None,
        end: int | None = None,
        names: Collection[str] | None = None,
    ) -> Columns | None:
        """The rows of a segment that may be in a window, and perhaps some more. None: it has none."""
        data = self._read(span, table)
        if data is None:
            return None
        if not span.sealed:
            return self._stream(data, span, table)
        try:
            return plain.columns(table, parquet.read(data, table, names, start, end))
        except arrow.DAMAGE as error:
            self._note(f"{span.name}/{table}.parquet", f"is damaged and was passed over ({_brief(error)})")
            return None

    def dictionary(self, table: str, wanted: Ints) -> Columns:
        """The rows with these ids, which are sorted. The last row of an id counts; one that is not there is left out."""
        # Streams first: one that was sealed in the meantime is in the Parquet file by then.
        streams = [self._stream(data, span, table) for span in self._open() if (data := self._file(span, table)) is not None]
        parts = [plain.take(one, np.flatnonzero(among(one["id"], wanted))) for one in streams if one is not None]
        data = self._dictionary(table)
        if data is not None:
            try:
                read = parquet.read_ids(data, table, wanted)
                parts.insert(0, plain.columns(table, read, np.flatnonzero(among(arrow.ints(read, "id"), wanted))))
            except arrow.DAMAGE as error:
                self._note(f"{table}.parquet", f"is damaged: names are missing ({_brief(error)})")
        return joined(parts) if parts else plain.none(table)

    def summary(self, span: Span) -> Summary:
        """Of a sealed segment as it was written, of the open one as it is now."""
        if span.sealed:
            found = self.table(span, "summary")
            if found is None or (found["offsets"].lengths != OFFSETS).any():
                return EMPTY
            offsets = found["offsets"].values.astype(np.uint8, copy=False).reshape(-1, OFFSETS)
            return Summary._make([*(found[name] for name in Summary._fields[:-1]), offsets])
        samples = self.table(span, "samples")
        if samples is None:
            return EMPTY
        stacks = self.dictionary("stacks", unique(samples["stack"]))
        return summarise(samples["time"], samples["core"], classes_of(samples["stack"], stacks["id"], stacks["class"]))

    def count(self, span: Span, table: str) -> int:
        """Rows that a table has in a segment."""
        if not span.sealed:
            stream = self.table(span, table)
            return len(stream[TABLES[table].columns[0].name]) if stream is not None else 0
        try:
            file = files.opened(os.path.join(self.path, span.name, f"{table}.parquet"))
        except OSError as error:
            self._note(f"{span.name}/{table}.parquet", f"cannot be read: {error.strerror}")
            return 0
        if file is None:
            return 0
        with file:
            try:
                return parquet.rows(file)
            except arrow.DAMAGE:
                return 0

    def ids(self, table: str) -> set[int]:
        """What a dictionary has."""
        data = self._dictionary(table)
        found = []
        try:
            if data is not None:
                found.append(arrow.ints(parquet.read(data, table, ("id",)), "id"))
        except arrow.DAMAGE as error:
            self._note(f"{table}.parquet", f"is damaged: names are missing ({_brief(error)})")
        opened = [self.table(span, table) for span in self._open()]
        found += [new["id"] for new in opened if new is not None]
        return set(np.concatenate(found).tolist()) if found else set()

    def _dictionary(self, table: str) -> bytes | None:
        data = self._content(f"{table}.parquet")
        if data is None and any(span.sealed and self.sampled(span) for span in self.spans) and self._needs(table):
            self._note(f"{table}.parquet", "is not there: names are missing")
        return data

    def _needs(self, table: str) -> bool:
        """Whether there should be one: samples without a stack need no frames."""
        data = self._content("stacks.parquet") if table == "frames" else None
        try:
            return data is None or bool(plain.columns("stacks", parquet.read(data, "stacks"))["frames"].lengths.any())
        except arrow.DAMAGE:
            return True

    def sampled(self, span: Span) -> bool:
        """Whether a segment has samples."""
        kind = "parquet" if span.sealed else "arrows"
        return os.path.exists(os.path.join(self.path, span.name, f"samples.{kind}"))

    def _open(self) -> list[Span]:
        return [span for span in self.spans if not span.sealed]

    def _read(self, span: Span, table: str) -> bytes | None:
        """None: the segment has no such table."""
        data = self._file(span, table)
        if data is None and self.patient and not os.path.isdir(os.path.join(self.path, span.name)):
            raise Moved(span.name)
        return data

    def _file(self, span: Span, table: str) -> bytes | None:
        return self._content(f"{span.name}/{table}.{'parquet' if span.sealed else 'arrows'}")

    def _content(self, name: str) -> bytes | None:
        """Of a file of the chapter; None where it is not there or cannot be read."""
        try:
            return files.read(os.path.join(self.path, name))
        except OSError as error:
            self._note(name, f"cannot be read: {error.strerror}")
            return None

    def _stream(self, data: bytes, span: Span, table: str) -> Columns | None:
        read, whole = arrow.read_stream(data)
        if not whole:
            self._note(f"{span.name}/{table}.arrows", "was cut short; what is whole in it was read")
        return plain.columns(table, read) if read is not None else None

    def _note(self, file: str, what: str) -> None:
        note = f"{printable(os.path.join(os.path.basename(self.path), file))} {what}"
        if note not in self._notes:
            self._notes.append(note)


def next_ids(path: str) -> dict[str, int]:
    """The first id of each dictionary that no chapter of a recording has: they only ever grow, so the last few tell."""
    following = dict.fromkeys(DICTIONARIES, 1)
    for name in sorted(filter(is_chapter, os.listdir(path)))[-_LAST:]:
        try:
            reader = ChapterReader(os.path.join(path, name), [])
        except (OSError, ValueError, ExhumeError):
            continue
        for table in DICTIONARIES:
            following[table] = max(following[table], 1 + max(reader.ids(table), default=0))
    return following


def _brief(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than a file of its size may use"
    return printable(str(error).split("\n", 1)[0], 80)
