"""GET /api/heat: the subsecond-offset heat map, a column a second of the clock on the wall, in fiftieths of it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from exhume.host.quantities import SECOND
from exhume.recording import chosen
from exhume.recording.arrays import unique
from exhume.recording.chapters import ChapterReader
from exhume.recording.choice import Choice, Search
from exhume.recording.readable import Readable
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS
from exhume.render.heat import Cells, Flags, of_cores, offsets_together, recorded_seconds, seconds_of
from exhume.web.numbers import heat_map
from exhume.web.parameters import Query
from exhume.web.replies import Complaint
from exhume.web.view import View

# What is counted sample by sample takes about a second for each ten million.
MOST_SAMPLES = 60_000_000
_PIECE_S = 600
# To decompress waits for nobody: two are almost twice as fast.
_THREADS = 2
_PART = SECOND // OFFSETS


def heat(view: View, query: Query) -> dict[str, Any]:
    store, folder = view.store, view.store.folder
    start, end = query.window(store.window(folder))
    choice, symbol = query.choice(), query.pattern("symbol")
    cells = Cells(seconds_of(start, end, folder.real_ns(start)))
    if choice.of_threads or symbol is not None:
        _not_too_many(view, folder, cells.wanted.number)
    ready = 1.0
    if symbol is not None:
        _of_symbol(folder, cells, choice, symbol)
        _know(view, folder, cells)
    elif choice.cores is not None or choice.of_threads:
        _read(view, folder, cells, choice)
    else:
        ready = _all_cores(view, folder, cells)
    return heat_map(cells, store.us(cells.wanted.first), ready)


def _not_too_many(view: View, folder: Readable, seconds: int) -> None:
    if seconds * max(1, folder.node.cpus) * max(1, view.store.hz) > MOST_SAMPLES:
        raise Complaint(413, f"more than {MOST_SAMPLES:,} samples would have to be looked at: choose a shorter window", "to")


def _all_cores(view: View, folder: Readable, cells: Cells) -> float:
    """From the outline, but for a short window that it does not have yet, or not any more as it is. How much of it is there."""
    outline, base, seconds = view.builder.outline, cells.wanted.base, cells.wanted.number + 1
    known = _outlined(view, folder, cells)
    if seconds <= _PIECE_S and (view.store.live or not known):
        _read(view, folder, cells, Choice())
        return 1.0
    view.builder.begun()
    ready = 1.0 if known else view.builder.ready
    for first in range(0, seconds, _PIECE_S):
        cells.add(first, *outline.offsets(base + first * SECOND, min(_PIECE_S, seconds - first)))
    return ready


def _outlined(view: View, folder: Readable, cells: Cells) -> bool:
    """Whether the outline has all of it."""
    outline, base = view.builder.outline, cells.wanted.base
    end = min(base + (cells.wanted.number + 1) * SECOND, folder.window[1] + 1)
    return outline.known(outline.place(base), outline.place(end - 1) + 1) >= 1.0


def _know(view: View, folder: Readable, cells: Cells) -> None:
    """Which seconds were recorded, for what was counted sample by sample: the page keeps it, so it is not left to be read."""
    base, seconds = cells.wanted.base, cells.wanted.number + 1
    outlined = not view.store.live and _outlined(view, folder, cells)
    for first in range(0, seconds, _PIECE_S):
        start, number = base + first * SECOND, min(_PIECE_S, seconds - first)
        if outlined:
            there = view.builder.outline.recorded(start, number)
        else:
            there = recorded_seconds(folder.summary(start, start + number * SECOND), start, number)
        cells.know(first, there)


def _read(view: View, folder: Readable, cells: Cells, choice: Choice) -> None:
    """A piece of the summaries at a time: of one core over hours only its own rows are kept."""
    base, seconds = cells.wanted.base, cells.wanted.number + 1

    def read(first: int) -> tuple[int, Ints, Flags]:
        if view.ended:
            raise Complaint(503, "the server ends")
        last = min(seconds, first + _PIECE_S)
        start, end = base + first * SECOND, base + last * SECOND
        summary = chosen.summary(folder, start, end, choice)
        recorded = recorded_seconds(summary, start, last - first)
        if choice.cores is not None:
            summary = of_cores(summary, tuple(choice.cores))
        return first, offsets_together(summary, start, last - first), recorded

    # Of threads the samples themselves are read: no more than a piece of them is in memory at once.
    with ThreadPoolExecutor(1 if choice.of_threads else _THREADS, "exhume-heat") as threads:
        for piece in threads.map(read, range(0, seconds, _PIECE_S)):
            cells.add(*piece)


def _of_symbol(folder: Readable, cells: Cells, choice: Choice, symbol: Search) -> None:
    """When a family of functions was on a stack, a segment at a time. Names are matched once a chapter, stacks looked through
    once."""
    base = cells.wanted.base
    known: dict[str, _Known] = {}
    for chapter, part in chosen.samples(folder, base, base + (cells.wanted.number + 1) * SECOND, choice):
        has = known.setdefault(chapter.path, _Known(chapter, symbol)).has(part["stack"])
        cells.count((part["time"][has] - base) // _PART)


class _Known:
    """Which stacks of a chapter have such a function: those that were asked for so far."""

    def __init__(self, chapter: ChapterReader, symbol: Search) -> None:
        self._chapter = chapter
        self._symbol = symbol
        self._ids: Ints = np.empty(0, dtype=np.int64)
        self._has = np.empty(0, dtype=np.bool_)

    def has(self, stacks: Ints) -> Flags:
        new = np.setdiff1d(unique(stacks), self._ids)
        if len(new):
            ids, has = np.append(self._ids, new), np.append(self._has, self._of(new))
            order = np.argsort(ids)
            self._ids, self._has = ids[order], has[order]
        if not len(self._ids):
            return np.zeros(len(stacks), dtype=np.bool_)
        return self._has[np.searchsorted(self._ids, stacks)]

    def _of(self, new: Ints) -> Flags:
        rows = self._chapter.dictionary("stacks", new)
        lengths, frames = rows["frames"].lengths, rows["frames"].values.astype(np.int64)
        named = self._chapter.dictionary("frames", unique(frames)) if len(frames) else None
        if named is None or not len(named["id"]):
            return np.zeros(len(new), dtype=np.bool_)
        search = self._symbol.search
        matching = {name: search(name) is not None for name in set(named["name"].tolist())}
        good = np.sort(named["id"][np.array([matching[name] for name in named["name"].tolist()], dtype=np.bool_)])
        row = np.repeat(np.arange(len(lengths)), lengths)
        there = np.bincount(row[np.isin(frames, good)], minlength=len(lengths)) > 0
        return np.isin(new, rows["id"][there])
