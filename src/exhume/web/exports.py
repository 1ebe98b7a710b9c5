"""GET /api/export: a selection as a file for other tools."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exhume.exports import firefox, perfetto, pprof, speedscope
from exhume.exports.subject import Subject
from exhume.recording.choice import Choice
from exhume.recording.chosen import loaded
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.recording.tally import Tally
from exhume.render.flame import plant, select
from exhume.render.folded import folded
from exhume.web import samples_csv
from exhume.web.parameters import Query
from exhume.web.replies import Complaint, Download
from exhume.web.view import View

MOST_BYTES = 256 << 20
_MOST_IN_ORDER = 1_000_000
_PART_BYTES = 1 << 20

Out = Callable[[bytes], object]


class _Task(NamedTuple):
    view: View
    folder: Folder
    start: int
    end: int
    choice: Choice

    def profile(self) -> tuple[Tally, Recording]:
        cores = None if self.choice.cores is None else tuple(self.choice.cores)
        profile = self.view.store.profile(self.folder, self.start, self.end, cores)
        tally = select(
            profile.tally, profile.dictionaries, None, self.choice.comm, self.choice.pids, self.choice.cgroup, self.choice.tids
        )
        return tally, profile.dictionaries

    def samples(self, most: int) -> int:
        many = int(self.profile()[0].count.sum())
        if many > most:
            raise Complaint(
                413, f"{many:,} samples are more than such a file can have, {most:,}: choose a shorter window", "to"
            )
        return many

    @property
    def subject(self) -> Subject:
        event = self.folder.about.get("event")
        wall = self.folder.real_ns(self.start)
        return Subject(
            self.folder.node, self.view.store.hz, event if isinstance(event, str) else "", self.start, self.end, wall
        )


def export(view: View, query: Query) -> Download:
    folder = view.store.whole
    form = query.word("format", tuple(_FORMATS), "")
    if not form:
        raise Complaint(400, f"format is missing: there are {', '.join(_FORMATS)}", "format")
    start, end = query.window(view.store.window(folder))
    write, extension, media_type = _FORMATS[form]
    parts = [bytearray()]
    size = 0

    def out(data: bytes) -> None:
        nonlocal size
        size += len(data)
        if size > MOST_BYTES:
            raise Complaint(413, "that is too much for a download: choose a shorter window, or use exhume export", "to")
        if query.unwanted.is_set():
            raise Complaint(503, "nobody waits for this")
        if len(parts[-1]) > _PART_BYTES:
            parts.append(bytearray())
        parts[-1] += data

    write(_Task(view, folder, start, end, query.choice()), out)
    return Download(f"exhume-{view.store.us(start) // 1_000_000}s.{extension}", media_type, parts)


def _folded(task: _Task, out: Out) -> None:
    tree = plant(*task.profile(), "process", "stack" if task.choice.idle else "none")
    for line in folded(tree.node()):
        out((line + "\n").encode("utf-8", "replace"))


def _pprof(task: _Task, out: Out) -> None:
    pprof.write(out, *task.profile(), task.subject, task.choice.idle)


def _speedscope(task: _Task, out: Out) -> None:
    """In order of time, which needs a row for each sample; counted, where there are too many."""
    tally, dictionaries = task.profile()
    if int(tally.count.sum()) <= _MOST_IN_ORDER:
        samples, dictionaries = loaded(task.folder, task.start, task.end, task.choice)
        tally = Tally(samples["core"], samples["thread"], samples["stack"], np.ones(len(samples["time"]), dtype=np.int64))
    speedscope.write(out, tally, dictionaries, task.subject, "core", task.choice.idle)


def _perfetto(task: _Task, out: Out) -> None:
    perfetto.write(out, task.folder, task.subject, task.choice)


def _firefox(task: _Task, out: Out) -> None:
    task.samples(firefox.MOST)
    firefox.write(out, *loaded(task.folder, task.start, task.end, task.choice), task.subject)


def _csv(task: _Task, out: Out) -> None:
    samples_csv.write(out, task.folder, task.start, task.end, task.choice)


_FORMATS: dict[str, tuple[Callable[[_Task, Out], None], str, str]] = {
    "folded": (_folded, "folded", "text/plain; charset=utf-8"),
    "pprof": (_pprof, "pb.gz", "application/octet-stream"),
    "speedscope": (_speedscope, "speedscope.json", "application/json"),
    "perfetto": (_perfetto, "pftrace", "application/octet-stream"),
    "firefox": (_firefox, "firefox.json", "application/json"),
    "csv": (_csv, "csv", "text/csv; charset=utf-8"),
}
