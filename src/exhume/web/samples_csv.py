"""Samples as a table that people can read: a row a sample, with the names that the recording keeps apart from them."""

import csv
import io
from collections.abc import Callable

from exhume.recording import chosen
from exhume.recording.arrays import unique
from exhume.recording.chapters import ChapterReader
from exhume.recording.choice import Choice
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints
from exhume.render.flame import Node, frame_label
from exhume.render.folded import frame
from exhume.text import cell, printable

COLUMNS = ("time", "core", "pid", "tid", "comm", "cgroup", "class", "function", "stack")
_ROWS = 20_000
_LONGEST = 4_096

Thread = tuple[int, int, str, str]
Stack = tuple[str, str, str]


def write(out: Callable[[bytes], object], folder: Folder, start: int, end: int, choice: Choice) -> None:
    """`time` is nanoseconds of the recording's clock, `stack` goes from the outermost caller to `function`."""
    out((",".join(COLUMNS) + "\n").encode())
    for chapter, part in chosen.samples(folder, start, end, choice):
        for first in range(0, len(part["time"]), _ROWS):
            time, core, thread, stack = (part[name][first : first + _ROWS] for name in ("time", "core", "thread", "stack"))
            threads, stacks = _threads(chapter, thread), _stacks(chapter, stack)
            rows = zip(time.tolist(), core.tolist(), thread.tolist(), stack.tolist(), strict=True)
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(
                (at, on, *threads.get(who, (0, 0, "", "")), *stacks.get(what, ("", "", ""))) for at, on, who, what in rows
            )
            out(text.getvalue().encode("utf-8", "backslashreplace"))


def _threads(chapter: ChapterReader, wanted: Ints) -> dict[int, Thread]:
    found = chapter.dictionary("threads", unique(wanted))
    numbers = (found[name].tolist() for name in ("id", "pid", "tid"))
    texts = (map(_cell, found[name].tolist()) for name in ("comm", "cgroup"))
    return {one: (pid, tid, comm, cgroup) for one, pid, tid, comm, cgroup in zip(*numbers, *texts, strict=True)}


def _stacks(chapter: ChapterReader, wanted: Ints) -> dict[int, Stack]:
    found = chapter.dictionary("stacks", unique(wanted))
    frames = chapter.dictionary("frames", unique(found["frames"].values.astype("int64")))
    columns = (frames[name].tolist() for name in ("id", "name", "module", "space", "offset"))
    names = {}
    for one, *about in zip(*columns, strict=True):
        kind, name, _ = frame_label(*about)
        names[one] = frame(Node(name, kind, 0))
    rows = zip(found["id"].tolist(), found["class"].tolist(), found["frames"].sequences(), strict=True)
    return {one: (kind, *_named([names.get(each, "[unknown]") for each in path])) for one, kind, path in rows}


def _named(path: list[str]) -> tuple[str, str]:
    return (_cell(path[-1]), _cell(";".join(path))) if path else ("", "")


def _cell(text: str) -> str:
    return cell(printable(text, _LONGEST))
