"""The samples of a recording on disk that were chosen: a segment at a time, all at once, or counted by second."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording import plain
from exhume.recording.arrays import among, unique
from exhume.recording.chapters import ChapterReader
from exhume.recording.choice import ALL, Choice
from exhume.recording.dictionaries import classes_of
from exhume.recording.plain import Columns
from exhume.recording.readable import Readable
from exhume.recording.recording import Recording
from exhume.recording.schema import TABLES
from exhume.recording.summary import CLASSES, Summary, between, join, summarise

_IDLE = CLASSES.index("idle")


def samples(
    folder: Readable, start: int | None, end: int | None, choice: Choice = ALL
) -> Iterator[tuple[ChapterReader, Columns]]:
    """The samples of a window that were chosen, a segment at a time, each with the chapter that knows its ids."""
    for chapter, part in folder.pieces("samples", start, end):
        keep = np.ones(len(part["time"]), dtype=np.bool_)
        if choice.cores is not None:
            keep &= among(part["core"], np.array(sorted(choice.cores), dtype=np.int64))
        keep &= _of_threads(folder, chapter, part, choice)
        if not choice.idle:
            keep &= classes(chapter, part) != _IDLE
        if keep.any():
            yield chapter, part if keep.all() else plain.take(part, np.flatnonzero(keep))


def rows(folder: Readable, table: str, start: int | None, end: int | None, choice: Choice = ALL) -> Iterator[Columns]:
    """The rows of any table that were chosen, as far as it has such columns, a segment at a time."""
    if table == "samples":
        yield from (part for _, part in samples(folder, start, end, choice))
        return
    for _, part in folder.pieces(table, start, end):
        keep = np.ones(len(part[TABLES[table].columns[0].name]), dtype=np.bool_)
        if choice.cores is not None and "core" in part:
            keep &= among(part["core"], np.array(sorted(choice.cores), dtype=np.int64))
        for name, numbers in (("pid", choice.pids), ("tid", choice.tids)):
            if numbers is not None and name in part:
                keep &= among(part[name], np.array(sorted(numbers), dtype=np.int64))
        for wanted, names in ((choice.comm, ("comm", "process")), (choice.cgroup, ("cgroup",))):
            texts = [part[name] for name in names if name in part]
            if wanted is not None and texts:
                keep &= np.fromiter((any(map(wanted.search, row)) for row in zip(*texts, strict=True)), np.bool_, len(keep))
        if keep.any():
            yield part if keep.all() else plain.take(part, np.flatnonzero(keep))


def loaded(folder: Readable, start: int, end: int, choice: Choice = ALL) -> tuple[Columns, Recording]:
    """The chosen samples of a window all at once, by time, and the stacks, frames and threads that they have."""
    dictionaries = folder.load(start, end, ("samples", "stacks", "frames", "threads"))
    table = dictionaries["samples"]
    rows = {column.name: table.ints(column.name) for column in TABLES["samples"].columns}
    keep = np.ones(len(rows["time"]), dtype=np.bool_)
    if choice.cores is not None:
        keep &= among(rows["core"], np.array(sorted(choice.cores), dtype=np.int64))
    if (wanted := choice.threads(dictionaries["threads"])) is not None:
        keep &= among(rows["thread"], wanted)
    if not choice.idle:
        stacks = dictionaries["stacks"]
        resting = [one for one, kind in zip(stacks.ints("id").tolist(), stacks.texts("class"), strict=True) if kind == "idle"]
        keep &= ~among(rows["stack"], np.array(sorted(resting), dtype=np.int64))
    kept = np.flatnonzero(keep)
    return plain.take(rows, kept[np.lexsort((rows["core"][kept], rows["time"][kept]))]), dictionaries


def summary(folder: Readable, start: int, end: int, choice: Choice) -> Summary:
    """What the cores did in every second that the window touches, as far as it was chosen.

    A core that ran something else counts as idle, so that a share remains one of all the time there was.
    """
    if not choice.of_threads and choice.idle:
        return folder.summary(start, end)
    first, last = start // SECOND * SECOND, -(-end // SECOND) * SECOND
    found = []
    for chapter, part in folder.pieces("samples", first, last):
        kinds = classes(chapter, part)
        resting = kinds == _IDLE
        kinds = np.where(_of_threads(folder, chapter, part, choice), kinds, np.int8(_IDLE))
        if not choice.idle:
            part, kinds = plain.take(part, np.flatnonzero(~resting)), kinds[~resting]
        found.append(summarise(part["time"], part["core"], kinds))
    return between(join(found), start, end)


def _of_threads(folder: Readable, chapter: ChapterReader, rows: Columns, choice: Choice) -> NDArray[np.bool_]:
    if not choice.of_threads:
        return np.ones(len(rows["time"]), dtype=np.bool_)
    known = Recording(folder.node)
    plain.fill(known["threads"], chapter.dictionary("threads", unique(rows["thread"])))
    wanted = choice.threads(known["threads"])
    assert wanted is not None
    return among(rows["thread"], wanted)


def classes(chapter: ChapterReader, rows: Columns) -> NDArray[np.int8]:
    """What each sample is of, as an index into CLASSES."""
    stacks = chapter.dictionary("stacks", unique(rows["stack"]))
    return classes_of(rows["stack"], stacks["id"], stacks["class"])
