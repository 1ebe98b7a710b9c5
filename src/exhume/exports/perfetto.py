"""A recording as a Perfetto trace: what each core did, its samples, counters and events, all on one time axis.

Numbers of fields are those of protos/perfetto/trace/ in github.com/google/perfetto. A core is a track with a slice for every
stretch in which samples found the same thread there; the samples themselves are PerfSample packets with their stacks, which
trace processor keeps in `perf_sample`. Times are put onto CLOCK_BOOTTIME, the clock of traces, by the recording's anchors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exhume.exports.protobuf import STAMP, message, number, stamps, text, varint
from exhume.exports.subject import UNKNOWN, Frame, Subject, Thread, frame, threads
from exhume.recording import arrow, plain
from exhume.recording.arrays import unique
from exhume.recording.carry import settled
from exhume.recording.chapters import ChapterReader
from exhume.recording.choice import ALL, Choice
from exhume.recording.chosen import samples as chosen_samples
from exhume.recording.folder import Folder
from exhume.recording.plain import Columns
from exhume.recording.recording import Ints, Recording
from exhume.recording.schema import CPU_STATES
from exhume.recording.sealing import order_of

_PACKET = 1  # Trace.packet
_PROCESS_TREE, _CLOCKS, _STAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 2, 6, 8, 10, 11, 12, 13
_DEFAULTS, _TRACK, _PERF_SAMPLE = 59, 60, 66
_CLEARED, _NEEDS = 1, 2  # TracePacket.SequenceFlags
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_REALTIME, _MONOTONIC, _BOOTTIME = 1, 3, 6  # BuiltinClock
_UNITS = {"_ns": 1, "_bytes": 3}  # CounterDescriptor.Unit, by how a counter's name ends
_KERNEL_MODE, _USER_MODE = 1, 2  # Profiling.CpuMode
_SAMPLES, _EVENTS = 1, 2  # sequences of packets
_CORES, _BUSY, _COUNTERS, _THINGS = 1, 2, 3, 4  # tracks that others are below of
_FIRST_TRACK = 100
# Process ids end at 2^22 (PID_MAX_LIMIT in include/linux/threads.h): beyond are those of threads whose process is not known.
_NO_PID = 1 << 22
# A core that gives no sample for longer than so many periods did something else, or nothing.
_GAP = 2
_CHUNK = 1 << 20
# Samples that look the same but for their time are encoded once; so many are kept.
_BODIES = 1 << 18
# So long before a window there is a segment that begins with the value of every counter.
_CARRIED_NS = 120_000_000_000
_TOLD = ("kind", "subject", "severity", "message")


@dataclass(slots=True)
class Written:
    """How much of what."""

    samples: int = 0
    slices: int = 0
    counters: int = 0
    events: int = 0


class _Boot:
    """The recording's clock as CLOCK_BOOTTIME, by the nearest anchor."""

    def __init__(self, folder: Folder, start: int, end: int) -> None:
        parts = [part for _, part in folder.pieces("anchors", start, end)]
        anchors = plain.concatenated(parts) if parts else plain.none("anchors")
        order = np.argsort(anchors["time"], kind="stable")
        self.anchors: Columns = plain.take(anchors, order)
        self._times: Ints = self.anchors["time"]
        self._shift: Ints = self.anchors["boot"] - self._times
        self._middles = (self._times[1:] + self._times[:-1]) // 2

    def __call__(self, times: Ints) -> Ints:
        """Never negative: a trace has no time before 0."""
        if not len(self._times):
            return np.maximum(times, 0)
        shifted: Ints = times + self._shift[np.searchsorted(self._middles, times)]
        return np.maximum(shifted, 0)


def write(
    out: Callable[[bytes], object],
    folder: Folder,
    subject: Subject,
    choice: Choice = ALL,
    progress: Callable[[float], None] | None = None,
) -> Written:
    """A segment at a time. Counters and events are those of the window, whoever was chosen."""
    written = Written()
    boot = _Boot(folder, subject.start, subject.end)
    out(b"".join(_clocks(boot.anchors)))
    out(_first(_SAMPLES, _defaults(subject)) + _first(_EVENTS))
    out(b"".join(_descriptor(uuid, name) for uuid, name in ((_CORES, "cores"), (_BUSY, "busy cores"))))
    out(_descriptor(_COUNTERS, "counters") + _descriptor(_THINGS, "events"))
    tracks = _Tracks()
    whole = max(1, subject.end - subject.start)
    writer = _Samples(subject, boot, tracks)
    for chapter, rows in chosen_samples(folder, subject.start, subject.end, choice):
        for part in writer.packets(chapter, rows, written):
            out(part)
        if progress is not None:
            progress(0.9 * (int(rows["time"].max()) - subject.start) / whole)
    for data in (*writer.rest(written), *_busy(folder, subject, choice, boot, tracks, written)):
        out(data)
    for data in (*_counters(folder, subject, boot, tracks, written), *_events(folder, subject, boot, written)):
        out(data)
    return written


def packet(*parts: bytes) -> bytes:
    return message(_PACKET, *parts)


def _first(sequence: int, *parts: bytes) -> bytes:
    """What begins a sequence: from here on, names are given numbers."""
    return packet(number(_SEQUENCE, sequence), number(_FLAGS, _CLEARED), *parts)


def _defaults(subject: Subject) -> bytes:
    """PerfSampleDefaults with its Timebase: how often, on which counter."""
    timebase = message(1, number(2, max(1, subject.hz)), number(4, 1), text(10, subject.event or "samples"))
    return message(_DEFAULTS, number(58, _BOOTTIME), message(12, timebase))


def _clocks(anchors: Columns) -> Iterator[bytes]:
    """ClockSnapshot: the same moments on the clocks that a trace may be asked for. One a minute follows clocks that drift."""
    last = None
    rows = zip(*(anchors[name].tolist() for name in ("time", "boot", "monotonic", "real")), strict=True)
    for time, boot, monotonic, real in rows:
        if last is not None and time - last < 60_000_000_000:
            continue
        last = time
        pairs = ((_BOOTTIME, boot), (_MONOTONIC, monotonic), (_REALTIME, real))
        clocks = (message(1, number(1, clock), number(2, at)) for clock, at in pairs if at > 0)
        snapshot = message(_CLOCKS, *clocks, number(2, _BOOTTIME))
        yield packet(number(_SEQUENCE, _EVENTS), number(_STAMP, max(0, boot)), snapshot)


def _descriptor(uuid: int, name: str, parent: int = 0, counter: bytes | None = None, rank: int = 0) -> bytes:
    """A track. Its children are shown in the order of their rank."""
    parts = [number(1, uuid), text(2, name), number(11, 3)]
    if parent:
        parts += [number(5, parent), number(12, rank)]
    if counter is not None:
        parts.append(message(8, counter))
    return packet(number(_SEQUENCE, _EVENTS), message(_TRACK, *parts))


class _Tracks:
    """Numbers for tracks, given as they are met."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}

    def get(self, parent: int, name: str, rank: int, counter: bytes | None = None) -> tuple[int, bytes]:
        """The track's number; the first time with what tells of it."""
        found = self._known.get((parent, name))
        if found is not None:
            return found, b""
        found = self._known[parent, name] = _FIRST_TRACK + len(self._known)
        return found, _descriptor(found, name, parent, counter, rank)


@dataclass(slots=True)
class _Chapter:
    """What the sequence of samples was told since its last beginning."""

    path: str = ""
    threads: dict[int, Thread] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    stacks: set[int] = field(default_factory=set)
    frames: dict[int, int] = field(default_factory=dict)
    """Numbers of frames: those that look the same have the same."""
    looks: dict[Frame, int] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    """Numbers of mappings."""
    bodies: dict[tuple[int, int, int], bytes] = field(default_factory=dict)


class _Samples:
    """PerfSample packets with the names they need, and the slices of cores."""

    def __init__(self, subject: Subject, boot: _Boot, tracks: _Tracks) -> None:
        self._subject = subject
        self._boot = boot
        self._tracks = tracks
        self._told = _Chapter()
        self._open: dict[int, tuple[int, str, str]] = {}
        """Of each core whose slice goes on: when its last sample was, whose, and what it did."""

    def packets(self, chapter: ChapterReader, rows: Columns, written: Written) -> Iterator[bytes]:
        rows = plain.take(rows, np.argsort(rows["time"], kind="stable"))
        yield from self._names(chapter, rows)
        times = self._boot(rows["time"])
        yield from self._stacks(rows, times, written)
        yield from self._slices(rows, times, written)

    def rest(self, written: Written) -> Iterator[bytes]:
        """The ends of slices that still go on."""
        for core, (time, _, _) in sorted(self._open.items()):
            yield self._end(core, time + self._subject.period_ns)
        self._open.clear()

    def _names(self, chapter: ChapterReader, rows: Columns) -> Iterator[bytes]:
        """InternedData and ProcessTree with what is new. The ids of a recording serve as numbers, moved up: 0 is none there."""
        if chapter.path != self._told.path:
            self._told = _Chapter(chapter.path)
            yield _first(_SAMPLES, _defaults(self._subject))
        told = self._told
        new_threads = [one for one in unique(rows["thread"]).tolist() if one not in told.threads]
        new_stacks = [one for one in unique(rows["stack"]).tolist() if one not in told.stacks]
        known = Recording(self._subject.node)
        if new_threads:
            plain.fill(known["threads"], chapter.dictionary("threads", np.array(new_threads, dtype=np.int64)))
            found = threads(known)
            told.threads.update({one: found.get(one, Thread(-1, -1, "[unknown]", "[unknown]", "")) for one in new_threads})
            yield self._tree([(one, told.threads[one]) for one in new_threads], int(rows["time"][0]))
        if new_stacks:
            plain.fill(known["stacks"], chapter.dictionary("stacks", np.array(new_stacks, dtype=np.int64)))
            yield from self._interned(chapter, known, new_stacks)

    def _tree(self, new: list[tuple[int, Thread]], time: int) -> bytes:
        processes, tasks = [], []
        for one, who in new:
            pid, tid = _ids(one, who)
            if pid:  # 0 is known to every reader as the idle task
                processes.append(message(1, number(1, pid), text(3, who.process)))
                tasks.append(message(2, number(1, tid), text(2, who.comm), number(3, pid)))
        if not tasks:
            return b""
        at = int(self._boot(np.array([time], dtype=np.int64))[0])
        return packet(number(_SEQUENCE, _SAMPLES), number(_STAMP, at), message(_PROCESS_TREE, *processes, *tasks))

    def _interned(self, chapter: ChapterReader, known: Recording, new: list[int]) -> Iterator[bytes]:
        told = self._told
        stacks = known["stacks"]
        kinds = stacks.texts("class")
        rows = dict(zip(stacks.ints("id").tolist(), zip(kinds, stacks.lists("frames"), strict=True), strict=True))
        wanted = {one for _, frames in rows.values() for one in frames}
        fresh = sorted(wanted - told.frames.keys())
        plain.fill(known["frames"], chapter.dictionary("frames", np.array(fresh, dtype=np.int64)))
        table = known["frames"]
        columns = (table.texts("name"), table.texts("module"), table.texts("space"), table.ints("offset").tolist())
        named = dict(zip(table.ints("id").tolist(), (frame(*row) for row in zip(*columns, strict=True)), strict=True))
        parts = [] if told.looks else [self._frame(UNKNOWN)]
        for one in fresh:
            what = named.get(one, UNKNOWN)
            if what not in told.looks:
                parts.append(self._frame(what))
            told.frames[one] = told.looks[what]
        size = 0
        for one in new:
            kind, frames = rows.get(one, ("", ()))
            told.kinds[one] = kind
            numbers = [told.frames[each] for each in frames]
            parts.append(message(7, number(1, one + 1), *(number(2, each) for each in numbers or (told.looks[UNKNOWN],))))
            size += len(parts[-1])
            if size > _CHUNK:
                yield self._interned_packet(parts)
                parts, size = [], 0
        told.stacks.update(new)
        yield self._interned_packet(parts)

    def _frame(self, what: Frame) -> bytes:
        """With the module that it is in, if that is new. Every frame has a place of its own there, or others would be it."""
        numbered = self._told.looks[what] = len(self._told.looks) + 1
        mapping = self._told.modules.get(what.module)
        new = b""
        if mapping is None:
            mapping = self._told.modules[what.module] = len(self._told.modules) + 1
            path = message(17, number(1, mapping), text(2, what.module or "[unknown]"))
            new = path + message(19, number(1, mapping), number(7, mapping))
        name = message(5, number(1, numbered), text(2, what.name))
        return new + name + message(6, number(1, numbered), number(2, numbered), number(3, mapping), number(4, numbered))

    def _interned_packet(self, parts: list[bytes]) -> bytes:
        return packet(number(_SEQUENCE, _SAMPLES), number(_FLAGS, _NEEDS), message(_INTERNED, *parts))

    def _stacks(self, rows: Columns, times: Ints, written: Written) -> Iterator[bytes]:
        bodies = self._told.bodies
        raw = stamps(times)
        parts: list[bytes] = []
        columns = (rows["core"].tolist(), rows["thread"].tolist(), rows["stack"].tolist())
        for at, key in enumerate(zip(*columns, strict=True)):
            body = bodies.get(key)
            if body is None:
                body = bodies[key] = self._body(*key)
            # `body` ends where the time stamp begins, which has the same length in every packet.
            parts += (body, raw[STAMP * at : STAMP * at + STAMP])
        written.samples += len(rows["time"])
        yield b"".join(parts)
        if len(bodies) > _BODIES:
            bodies.clear()

    def _body(self, core: int, thread: int, stack: int) -> bytes:
        pid, tid = _ids(thread, self._told.threads[thread])
        mode = _USER_MODE if self._told.kinds.get(stack) == "user" else _KERNEL_MODE
        where = number(1, core) if core >= 0 else b""
        parts = (where, number(2, pid), number(3, tid), number(4, stack + 1), number(5, mode))
        head = number(_SEQUENCE, _SAMPLES) + number(_FLAGS, _NEEDS) + message(_PERF_SAMPLE, *parts) + varint(_STAMP << 3)
        return varint(_PACKET << 3 | 2) + varint(len(head) + STAMP) + head

    def _slices(self, rows: Columns, times: Ints, written: Written) -> Iterator[bytes]:
        """A stretch in which each sample of a core found the same thread doing the same kind of thing; idle is no slice."""
        period = self._subject.period_ns
        longest = _GAP * period or 1_000_000_000
        told, parts = self._told, []
        columns = (times.tolist(), rows["core"].tolist(), rows["thread"].tolist(), rows["stack"].tolist())
        for time, core, thread, stack in zip(*columns, strict=True):
            going = self._open.get(core)
            kind = told.kinds.get(stack) or "user"
            process = told.threads[thread].process if kind != "idle" else ""
            if going is not None:
                last, whose, what = going
                if whose == process and what == kind and time - last <= longest:
                    self._open[core] = (time, whose, what)
                    continue
                parts.append(self._end(core, min(time, last + (period or 1))))
                del self._open[core]
            if kind != "idle":
                uuid, new = self._tracks.get(_CORES, f"core {core}" if core >= 0 else "any core", max(0, core))
                parts.append(new + _event(time, uuid, _BEGIN, text(23, process), text(22, kind)))
                self._open[core] = (time, process, kind)
                written.slices += 1
        yield b"".join(parts)

    def _end(self, core: int, time: int) -> bytes:
        uuid, new = self._tracks.get(_CORES, f"core {core}" if core >= 0 else "any core", max(0, core))
        return new + _event(time, uuid, _END)


def _ids(one: int, who: Thread) -> tuple[int, int]:
    """pid and tid, made up where a file that was imported does not know them."""
    made_up = _NO_PID + max(0, one)
    return (who.pid if who.pid >= 0 else made_up), (who.tid if who.tid >= 0 else who.pid if who.pid >= 0 else made_up)


def _event(time: int, track: int, kind: int, *parts: bytes) -> bytes:
    return packet(
        number(_SEQUENCE, _EVENTS), number(_STAMP, time), message(_TRACK_EVENT, number(9, kind), number(11, track), *parts)
    )


def _values(times: Ints, track: int, values: list[int]) -> Iterator[bytes]:
    for time, value in zip(times.tolist(), values, strict=True):
        yield _event(time, track, _COUNTER, number(30, value))


def _busy(folder: Folder, subject: Subject, choice: Choice, boot: _Boot, tracks: _Tracks, written: Written) -> Iterator[bytes]:
    """Per core the share of time that it was not idle between two readings of its counters, per cent."""
    last: dict[int, tuple[int, int, int]] = {}
    for _, rows in folder.pieces("cpu", subject.start, subject.end):
        rows = plain.take(rows, np.lexsort((rows["time"], rows["core"])))
        # guest and guest_nice are in user and nice already (account_guest_time in kernel/sched/cputime.c).
        whole = sum((rows[name] for name in CPU_STATES[:8]), np.zeros(len(rows["time"]), dtype=np.int64))
        resting = rows["idle"] + rows["iowait"]
        columns = (rows["core"].tolist(), rows["time"].tolist(), whole.tolist(), resting.tolist())
        found: dict[int, list[tuple[int, int]]] = {}
        for core, time, ticks, idle in zip(*columns, strict=True):
            before = last.get(core)
            last[core] = (time, ticks, idle)
            if before is not None and (choice.cores is None or core in choice.cores) and ticks > before[1]:
                busy = 100 - 100 * (idle - before[2]) / (ticks - before[1])
                found.setdefault(core, []).append((before[0], max(0, min(100, round(busy)))))
        for core, points in sorted(found.items()):
            uuid, new = tracks.get(_BUSY, f"core {core} busy %", core, text(6, "%"))
            times = boot(np.array([time for time, _ in points], dtype=np.int64))
            yield new + b"".join(_values(times, uuid, [value for _, value in points]))
            written.counters += len(points)


def _counters(folder: Folder, subject: Subject, boot: _Boot, tracks: _Tracks, written: Written) -> Iterator[bytes]:
    """A track for each series, with the value that it had as the window began and every change."""
    known: dict[tuple[str, str], int] = {}
    for _, rows in folder.pieces("counters", subject.start - _CARRIED_NS, subject.end):
        rows = settled(plain.take(rows, order_of("counters", rows)), known, subject.start)
        rows = plain.within(rows, subject.start, subject.end)
        times = boot(rows["time"]).tolist()
        parts = []
        columns = (times, rows["name"], rows["labels"], rows["value"].tolist())
        for time, name, labels, value in zip(*columns, strict=True):
            uuid, new = tracks.get(_COUNTERS, _series(name, labels), 0, _unit(name))
            parts.append(new + _event(time, uuid, _COUNTER, number(30, value)))
        written.counters += len(parts)
        yield b"".join(parts)


def _series(name: str, labels: str) -> str:
    pairs = arrow.json_labels(labels)
    return f"{name} {', '.join(f'{key}={value}' for key, value in pairs)}" if pairs else name


def _unit(name: str) -> bytes:
    return next((number(3, unit) for end, unit in _UNITS.items() if name.endswith(end)), b"")


def _events(folder: Folder, subject: Subject, boot: _Boot, written: Written) -> Iterator[bytes]:
    """Instants on one track, with everything that is known of them as arguments."""
    for _, rows in folder.pieces("events", subject.start, subject.end):
        columns: tuple[Any, ...] = (boot(rows["time"]).tolist(), *(rows[name] for name in _TOLD), rows["fields"])
        parts = []
        for time, kind, subject_of, severity, line, fields in zip(*columns, strict=True):
            pairs = (("subject", subject_of), ("severity", severity), ("message", line), *arrow.json_labels(fields))
            told = (message(4, text(10, key), text(6, value)) for key, value in pairs if value)
            parts.append(_event(time, _THINGS, _INSTANT, text(23, kind), text(22, severity or "info"), *told))
        written.events += len(parts)
        yield b"".join(parts)
