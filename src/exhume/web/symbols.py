"""When a family of functions was on a stack: samples that have one of them, counted into the cells of a heat map."""

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording import chosen
from exhume.recording.arrays import unique
from exhume.recording.chapters import ChapterReader
from exhume.recording.choice import Choice, Search
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS
from exhume.web.heat_cells import Cells

_PART = SECOND // OFFSETS


def of_symbol(folder: Folder, cells: Cells, choice: Choice, symbol: Search) -> None:
    """A segment at a time. Names are matched once a chapter, stacks looked through once."""
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

    def has(self, stacks: Ints) -> NDArray[np.bool_]:
        new = np.setdiff1d(unique(stacks), self._ids)
        if len(new):
            ids, has = np.append(self._ids, new), np.append(self._has, self._of(new))
            order = np.argsort(ids)
            self._ids, self._has = ids[order], has[order]
        if not len(self._ids):
            return np.zeros(len(stacks), dtype=np.bool_)
        return self._has[np.searchsorted(self._ids, stacks)]

    def _of(self, new: Ints) -> NDArray[np.bool_]:
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
