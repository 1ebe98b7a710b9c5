"""Files of other tools into one recording, on one time axis (foreign.py). Every file becomes a chapter of its own."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

import numpy as np

from exhume import budget
from exhume.errors import ExhumeError
from exhume.imports.foreign import SAMPLED, Brought, File, known_formats, open_file, place, tell_clock, tell_file
from exhume.imports.incoming import Anchor, Ids, Wanted
from exhume.recording.arrays import unique
from exhume.recording.recording import Recording
from exhume.recording.schema import TABLES
from exhume.recording.source_state import Failed, Imported, SourceState
from exhume.recording.writer import Writer
from exhume.text import printable

_TIMED = ("samples", "events")
_NAMES = ("frames", "stacks", "threads")
_PART_NS = 60_000_000_000
_NEVER = -(1 << 60)
# 146 years, since the epoch or since boot: a later time is damage, and might not fit once it is moved to another axis.
_LATEST_NS = 1 << 62
_UNBOUNDED = 1 << 60
# Samples after which a segment ends: it is sealed while the next ones are read.
_MOST_UNSEALED = 200_000
# The same of a recording that is read once: sealing makes a recording small, and takes longer than reading it as it is.
_MOST_OPEN = 1_000_000
# Logs of one line agree that well about when it was; some have whole seconds only.
_SAME_NS = 2_000_000_000
# So many files stay open from the first look at them until it is their turn.
_MOST_FILES = 8
# So many reasons are told where nothing in a directory can be read.
_REASONS = 3


def bring_in(
    paths: Sequence[str],
    directory: str,
    wanted: Wanted | None = None,
    anchor: Anchor | None = None,
    progress: Callable[[float], None] | None = None,
    kept: bool = True,
) -> Brought:
    """Read these files, or those in these directories, into a new recording. `kept`: it stays, and not only for one look."""
    budget.current().made(directory)
    brought = Brought()
    opened = _open_all(paths, wanted or Wanted(), brought)
    try:
        _bring(opened, directory, anchor, brought, progress, kept)
    except OverflowError:
        shown = ", ".join(printable(path) for path in paths[:3])
        raise ExhumeError(f"{shown} cannot be read: its times are larger than any clock's") from None
    finally:
        for file in opened:
            file.source.close()
    return brought


def importable(path: str) -> bool:
    """Whether this is no recording of ours but a file, or a directory of files, to be imported."""
    return path == "-" or not os.path.isdir(path) or not os.path.exists(os.path.join(path, "recording.json"))


def _open_all(paths: Sequence[str], wanted: Wanted, brought: Brought) -> list[File]:
    opened: list[File] = []

    def keep(file: File) -> None:
        opened.append(file)
        if len(opened) > _MOST_FILES and file.source.size:  # what is no plain file can be read once
            file.put_away()

    try:
        for path in paths:
            if not os.path.isdir(path):
                keep(open_file(path, wanted))
                continue
            before, told = len(opened), len(brought.notes)
            for name in _names(path):
                if (found := _open_any(os.path.join(path, name), wanted, brought)) is not None:
                    keep(found)
            if len(opened) == before:
                why = "".join(f"; {note}" for note in brought.notes[told:][:_REASONS])
                raise ExhumeError(f"{printable(path)} has no file in it that exhume can read: {known_formats()}{why}")
    except BaseException:
        for file in opened:
            file.source.close()
        raise
    return opened


def _names(path: str) -> list[str]:
    """Files, and what leads to one; what is neither is for `_open_any` to pass over."""
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))
    except OSError as error:
        raise ExhumeError(f"{printable(path)} cannot be read: {error.strerror}") from error


def _open_any(path: str, wanted: Wanted, brought: Brought) -> File | None:
    """One of a directory: what cannot be read is told and passed over."""
    if not os.path.isfile(path):  # a directory in it, a FIFO, a link that leads nowhere
        brought.notes.append(f"passed over: {printable(path)} is no file")
        return None
    try:
        return open_file(path, wanted)
    except ExhumeError as error:
        brought.notes.append(f"passed over: {str(error).removesuffix(f': {known_formats()}')}")
        return None


def _bring(
    opened: list[File],
    directory: str,
    given: Anchor | None,
    brought: Brought,
    progress: Callable[[float], None] | None,
    kept: bool,
) -> None:
    placed = place(opened, given, brought)
    axis, shift = placed.axis, placed.shift
    total = sum(file.source.size for file in opened)
    before = 0
    ids = Ids()
    told = _Told()
    spans: list[tuple[int, int]] = []
    logs = [at for at, file in enumerate(opened) if file.format not in SAMPLED]
    for at, file in enumerate(opened):
        file.take_out()
        if progress is not None and total:
            file.source.heard = _share(file, before, total, progress)
        with closing(Writer(directory, placed.node, placed.about, budget_bytes=_UNBOUNDED, late_ns=0)) as writer:
            unsealed = 0
            first, last = 0, 0
            offset = placed.offset(file)
            for rows in told.once(_rows(file, ids, offset, shift, axis, writer), more=at < max(logs, default=0)):
                brought.samples += len(rows["samples"])
                brought.events += len(rows["events"])
                writer.keep_pace()
                writer.append(rows)
                if len(times := rows["samples"].ints("time")):
                    first, last = min(first or int(times.min()), int(times.min())), max(last, int(times.max()))
                unsealed += len(times)
                if unsealed > (_MOST_UNSEALED if kept else _MOST_OPEN):
                    unsealed = 0
                    writer.cut()
            if writer.lost:
                raise ExhumeError(f"the recording could not be written: {'; '.join(writer.troubles)}")
            if not kept:
                writer.leave()
        if any(min(last, end) - max(first, begin) > (last - first) // 2 for begin, end in spans if last > first):
            brought.notes.append(f"{file.source.name} has samples of a time that other files have, too: they may count twice")
        spans.append((first, last))
        before += file.source.size
        tell_file(file, offset, brought)
        file.put_away()
        brought.notes += writer.troubles
    if told.again:
        lines = (
            "line is in several of the files: it counts" if told.again == 1 else "lines are in several of the files: they count"
        )
        brought.notes.append(f"{told.again:,} {lines} once")
    tell_clock(placed, brought)


def _share(file: File, before: int, total: int, progress: Callable[[float], None]) -> Callable[[], None]:
    """Tells how much of all files was read."""
    return lambda: progress((before + file.source.done * file.source.size) / total)


class _Told:
    """Events that a file before had: the same line is in dmesg, in the journal and in syslog."""

    def __init__(self) -> None:
        self.again = 0
        # When a line was, the last first: those of the next file come in their order, and what is found goes from the end.
        self._before: dict[tuple[str, str], list[int]] = {}

    def once(self, batches: Iterable[Recording], more: bool) -> Iterator[Recording]:
        """`more`: there are other files that may have them, too."""
        mine: dict[tuple[str, str], list[int]] = {}
        for rows in batches:
            events = rows["events"]
            if len(events) and (more or self._before):
                keys = list(zip(events.texts("kind"), events.texts("message"), strict=True))
                times = events.ints("time").tolist()
                new = [at for at, key in enumerate(keys) if not self._was(key, times[at])]
                for at in new if more else ():
                    mine.setdefault(keys[at], []).append(-times[at])
                if len(new) < len(keys):
                    self.again += len(keys) - len(new)
                    kept = _taken(rows, "events", np.array(new, dtype=np.int64), 0)
                    del rows.tables["events"]
                    rows["events"].add_columns(kept)
            yield rows
        for key, found in mine.items():
            self._before[key] = sorted(self._before.get(key, []) + found)

    def _was(self, key: tuple[str, str], time: int) -> bool:
        """Each of them is found once: a driver may say the same again."""
        times = self._before.get(key, [])
        after = bisect_left(times, -time)
        near = min((at for at in (after - 1, after) if 0 <= at < len(times)), key=lambda at: abs(times[at] + time), default=-1)
        if near < 0 or abs(times[near] + time) > _SAME_NS:
            return False
        del times[near]
        return True


def _rows(file: File, ids: Ids, offset: int, shift: int, axis: str, writer: Writer) -> Iterator[Recording]:
    """Batches on the recording's axis, none longer than a minute, each with its anchors and the first with its sources."""
    content, told, early, late = file.content, False, dict.fromkeys(_TIMED, 0), 0
    names: Recording | None = None
    for batch in content.batches(ids):
        for table in _TIMED:
            times = batch[table].ints("time") + offset
            early[table] += int((times < 0).sum())
            late += int((times >= _LATEST_NS).sum())
        if names is not None:
            _tell_names(names, batch)
        names = batch  # of one that was left out: what comes later may have them
        for rows in _parts(batch, offset):
            names = None
            begin, end = _span(rows)
            for at in (begin, end) if end > begin else (begin,):
                real = at if axis == "wall" else at - shift
                rows.add_anchor(at, at, at, real)
            if not told:
                told = True
                kind = "samples" if len(rows["samples"]) else "kernel-log"
                rows.add_source(begin, kind, SourceState.read((Imported(file.format),)))
                for source, why in _lacks(content.about):
                    rows.add_source(begin, source, SourceState.off(Failed(why)))
            yield rows
        if content.full:
            content.forget()
            writer.turn()
            names = None
    for table, number in early.items():
        if number:
            those = f"{table[:-1]} is" if number == 1 else f"{table} are"
            content.notes.append(f"{number:,} {those} from before the machine was booted: left out, there is no time for them")
    if late:
        content.notes.append(f"{late:,} of its rows have a time that no clock shows: left out")


def _tell_names(before: Recording, batch: Recording) -> None:
    """Put what another batch calls its ids before what this one does."""
    for name in _NAMES:
        before[name].extend(batch[name])
        batch.tables[name] = before[name]


def _lacks(about: Mapping[str, str | int | bool]) -> Iterator[tuple[str, str]]:
    """What samples do not tell, and detectors must not take them to."""
    if about.get("times") == "made up":
        yield "sample-times", "the times of its samples are made up"
    if about.get("every_core") is False:
        yield "every-core", "the samples are of one command or process and not of every core"


def _span(rows: Recording) -> tuple[int, int]:
    times = [found for table in ("samples", "events") if len(found := rows[table].ints("time"))]
    return (min(int(found.min()) for found in times), max(int(found.max()) for found in times)) if times else (0, 0)


def _parts(batch: Recording, offset: int) -> Iterator[Recording]:
    """Minute by minute: a segment of the store is about one. The dictionaries come with the first.

    A file with the time of day may reach back further than the boot that the axis begins with: that is left out.
    """
    timed = [name for name in _TIMED if len(batch[name])]
    if not timed:
        return
    minutes = {name: (batch[name].ints("time") + offset) // _PART_NS for name in timed}
    minutes = {
        name: np.where((found < 0) | (found >= _LATEST_NS // _PART_NS), _NEVER, found) for name, found in minutes.items()
    }
    told = {one for found in minutes.values() for one in unique(found).tolist()} - {_NEVER}
    for at, minute in enumerate(sorted(told)):
        rows = Recording(batch.node)
        if not at:
            for name in _NAMES:
                rows.tables[name] = batch[name]
        for name in timed:
            mine = minutes[name] == minute
            if not offset and mine.all():
                rows.tables[name] = batch[name]
            elif mine.any():
                rows[name].add_columns(_taken(batch, name, np.flatnonzero(mine), offset))
        yield rows


def _taken(
    batch: Recording, name: str, kept: "np.ndarray[tuple[int], np.dtype[np.int64]]", offset: int
) -> Mapping[str, list[object]]:
    columns: dict[str, list[object]] = {}
    for column in TABLES[name].columns:
        if column.kind == "time":
            columns[column.name] = batch[name].ints(column.name)[kept] + offset  # type: ignore[assignment]
        elif column.kind == "int":
            columns[column.name] = batch[name].ints(column.name)[kept]  # type: ignore[assignment]
        else:
            values = batch[name].texts(column.name)
            columns[column.name] = [values[at] for at in kept.tolist()]
    return columns


def remove(directory: str) -> None:
    """A recording that was made only to be read once."""
    import shutil

    with suppress(OSError):
        shutil.rmtree(directory)
