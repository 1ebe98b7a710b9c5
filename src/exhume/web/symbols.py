"""When a family of functions was on a stack: samples by second and fiftieth that have one of them."""

import numpy as np
from numpy.typing import NDArray

from exhume.recording import chosen
from exhume.recording.arrays import unique
from exhume.recording.chapters import ChapterReader
from exhume.recording.choice import Choice, Search
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS, SECOND

_PART = SECOND // OFFSETS


def of_symbol(folder: Folder, base: int, seconds: int, choice: Choice, symbol: Search) -> Ints:
    """A segment at a time. Names are matched once a chapter, stacks looked through once."""
    counts: Ints = np.zeros(seconds * OFFSETS, dtype=np.int64)
    known: dict[str, _Known] = {}
    for chapter, part in chosen.samples(folder, base, base + seconds * SECOND, choice):
        has = known.setdefault(chapter.path, _Known(chapter, symbol)).has(part["stack"])
        at = (part["time"][has] - base) // _PART
        counts += np.bincount(at[(at >= 0) & (at < len(counts))], minlength=len(counts))
    return counts.reshape(seconds, OFFSETS)


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
