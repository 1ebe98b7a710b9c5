"""Sealing a segment: its streams become one small Parquet file a table. It needs nothing but what is on the disk, so that
what a killed recorder left is sealed by the same code, and it may be killed itself at any moment."""

import os
from typing import Any, NamedTuple

import numpy as np

from exhume.host.quantities import MILLISECOND
from exhume.recording import arrow, files, layout, parquet, plain
from exhume.recording.arrays import unique
from exhume.recording.dictionaries import classes_of, joined
from exhume.recording.plain import Columns
from exhume.recording.recording import Ints
from exhume.recording.schema import TABLES
from exhume.recording.summary import summarise

# Above this a segment's samples are split by time, so that a reader of 100 ms need not read them all.
_MANY = 150_000
_SLICE_NS = 10_000_000_000
# Ids that are seen often come early: a window needs the first row groups of a dictionary, and a few others.
_GROUP = {"stacks": 2_048, "threads": 2_048, "frames": 4_096}
_CLOCKS = ("samples", "cpu", "anchors", "counters")
_ORDERS = {"samples": ("core", "time"), "cpu": ("core", "time"), "counters": ("name", "labels", "time")}


class Sealed(NamedTuple):
    name: str
    start: int
    end: int
    size: int
    dictionaries: int
    """What the chapter's own files take now."""
    pinned: bool
    damaged: tuple[str, ...]
    """Files of which only a part could be read."""


def seal(chapter: str, name: str) -> Sealed | None:
    """Seal an open segment of a chapter. None: there was no row in it, or it had been sealed before."""
    opened = layout.span(name)
    if opened is None:
        raise ValueError(f"{name} is not an open segment")
    with files.directory(chapter) as at:
        if any(one.sealed and one.start == opened.start for one in layout.spans(os.listdir(at))):
            files.remove_segment(name, at)
            return None
        tables, pinned, damaged = _streams(name, at)
        _join_dictionaries({table: tables.pop(table) for table in layout.DICTIONARIES if table in tables}, at, damaged)
        sealed = None
        if tables:
            read = {table: plain.columns(table, rows) for table, rows in tables.items()}
            sealed = _write(read, pinned, opened.start, at, damaged)
        files.remove_segment(name, at)
    return sealed


def _streams(name: str, at: int) -> tuple[dict[str, Any], bytes | None, list[str]]:
    """Arrow tables."""
    found, damaged = {}, []
    with files.directory(name, at) as fd:
        pinned = files.read(layout.PINNED, fd)
        for table in TABLES:
            data = files.read(f"{table}.arrows", fd)
            if data is None:
                continue
            read, whole = arrow.read_stream(data)
            if not whole:
                damaged.append(f"{table}.arrows")
            if read is not None and read.num_rows:
                found[table] = read
    return found, pinned, damaged


def _join_dictionaries(new: dict[str, Any], at: int, damaged: list[str]) -> None:
    for table, read in new.items():
        parts = [read]
        data = files.read(f"{table}.parquet", at)
        if data is not None:
            try:
                parts.insert(0, parquet.read(data, table))
            except arrow.DAMAGE:
                damaged.append(f"{table}.parquet")
        whole = plain.appended(table, parts) or joined([plain.columns(table, part) for part in parts])
        files.replace(f"{table}.parquet", parquet.write(table, whole, _groups(len(whole["id"]), _GROUP[table])), at)


def _groups(rows: int, each: int) -> list[int]:
    return [min(each, rows - first) for first in range(0, rows, each)]


def _write(tables: dict[str, Columns], pinned: bytes | None, start: int, at: int, damaged: list[str]) -> Sealed:
    end = _end(tables, start)
    name = layout.sealed_name(start // MILLISECOND, end // MILLISECOND)
    temporary = layout.TEMPORARY + name
    files.remove_segment(temporary, at)
    os.mkdir(temporary, 0o700, dir_fd=at)
    try:
        with files.directory(temporary, at) as fd:
            _write_tables(tables, at, fd)
            if pinned is not None:
                files.write(layout.PINNED, pinned, fd)
            size = files.size(fd)
            os.fsync(fd)
    except OSError:
        files.remove_segment(temporary, at)
        raise
    os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    os.fsync(at)
    return Sealed(name, start, end, size, files.size(at), pinned is not None, tuple(damaged))


def _write_tables(tables: dict[str, Columns], at: int, fd: int) -> None:
    for table, columns in tables.items():
        groups: list[int] = []
        if table == "samples":
            order, groups = _samples_order(columns["time"], columns["core"])
        else:
            order = order_of(table, columns)
        files.write(f"{table}.parquet", parquet.write(table, plain.take(columns, order), groups), fd)
    if "samples" in tables:
        files.write("summary.parquet", parquet.write("summary", _summary(tables["samples"], at)), fd)


def _end(tables: dict[str, Columns], start: int) -> int:
    """A whole millisecond after the newest row; by the tables that tell the time as it goes, where there are any."""
    clocks = [tables[table]["time"] for table in _CLOCKS if table in tables] or [one["time"] for one in tables.values()]
    newest = max(int(times.max()) for times in clocks)
    return max(newest // MILLISECOND + 1, start // MILLISECOND + 1) * MILLISECOND


def order_of(table: str, columns: Columns) -> Ints:
    """How rows lie in a sealed table, where they are not samples."""
    keys = [columns[name] for name in _ORDERS.get(table, ("time",))]
    return np.lexsort([_ranks(key) if key.dtype == object else key for key in reversed(keys)])


def _ranks(words: Any) -> Ints:
    rank = {word: place for place, word in enumerate(sorted(set(words)))}
    return np.fromiter((rank[word] for word in words), np.int64, len(words))


def _samples_order(time: Ints, core: Ints) -> tuple[Ints, list[int]]:
    """By core and time; of very many by slices of time first, and how many rows each slice has."""
    if len(time) <= _MANY:
        return np.lexsort((time, core)), []
    slices = unique(time // _SLICE_NS)
    part = np.searchsorted(slices, time // _SLICE_NS)
    return np.lexsort((time, core, part)), np.bincount(part).tolist()


def _summary(samples: Columns, at: int) -> Columns:
    ids, names = np.empty(0, dtype=np.int64), np.empty(0, dtype=object)
    data = files.read("stacks.parquet", at)
    if data is not None:
        try:
            read = parquet.read(data, "stacks", ("id", "class"))
            ids, names = arrow.ints(read, "id"), arrow.texts(read, "class")
        except arrow.DAMAGE:
            pass  # told when the stacks are read for their own sake
    return plain.of_summary(summarise(samples["time"], samples["core"], classes_of(samples["stack"], ids, names)))
