"""The text of perf script: samples with their stacks, as every perf of the last ten years prints them, and as FlameScope takes.

A sample is a line (script_sample.py), its stack the lines below (script_frames.py), a blank line ends it; without stacks there
are no blank lines. What is printed comes again and again, so texts are looked up and hardly any is parsed: the front of a line
(who ran where), its end (the event), a whole stack, a stack's callers, a line of it.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exhume.errors import ExhumeError
from exhume.profile.importing import script_events, script_frames, script_header, script_sample
from exhume.profile.importing.interner import Interner
from exhume.recording.incoming import Anchor, Axis, Ids, Import, Input, Lines, Wanted
from exhume.recording.recording import Ints, Node, Recording
from exhume.text import decode

_HEADER = 1 << 18
"""So much of the text is looked at for the header and the events."""
_BATCH = 1 << 15
"""Samples that are given at once, at least."""
_LONGEST = 4 << 20
"""A stack of more text than this is torn apart."""
_REMEMBERED = 64 << 20
"""So many bytes of text are kept to be looked up."""
_NAMES = 64 << 20
"""After so many bytes of different names a new chapter is due."""
_MANY = 1 << 16
_PERIODS = 1000
"""So many ends of lines that differ in their period are kept: some events have a few, others a new one in each line."""
_END = 1 << 16
"""So much of a file's end is looked at for its last sample."""
_RECORDS = b"PERF_RECORD_"  # perf script --show-task-events and its like: no samples
_SOURCE = re.compile(rb"  \S.*:\d+", re.ASCII)  # -F srcline: a line below a frame
_CLOCK = re.compile(rb"\d{1,10}\.(?:\d{6}|\d{9})", re.ASCII)
_LOOKED = 400


def looks(head: bytes) -> bool:
    if b"\0" in head:
        return False
    lines = head.split(b"\n")
    if len(lines) > 1:
        lines.pop()
    weak = other = 0
    for line in lines[:_LOOKED]:
        line = line.rstrip()
        if line.startswith((b"# captured on ", b"# cmdline : ")):
            return True
        if not line or line.startswith((b"#", b"\t")):
            continue
        sample = script_sample.parse(line)
        if sample is None:
            other += 1
            continue
        if len(sample.who.comm) <= 15 or sample.who.comm.startswith(b"kworker/"):
            if sample.who.tid != -1:
                return True
            weak += 1
    # Without numbers of threads (-F comm,time) a line says little, so nearly all must be such.
    return weak > 10 * other


def opened(source: Input, wanted: Wanted) -> Import:
    return _Script(source, wanted)


class _Known(NamedTuple):
    """What the front of a line stands for."""

    number: int
    """Its place among those of the batch."""
    idle: int
    """1 for the idle task of a core: its stacks are told apart, as they may be idle."""


@dataclass(slots=True)
class _Event:
    """What the end of a line stands for."""

    taken: bool
    address: bytes
    """A line of a stack, where it has one."""
    count: script_events.Count


class _Begun(NamedTuple):
    """A sample of which the first line was read."""

    owner: _Known
    event: _Event
    clock: bytes


_NO_EVENT = _Event(False, b"", script_events.Count())


class _First(NamedTuple):
    """What the beginning of the text tells."""

    events: list[str]
    period: int
    named: bool
    """The kernel's functions have names."""
    files: bool
    """Frames end with the file that they are in."""


def _first(head: bytes) -> _First:
    events: dict[str, None] = {}
    period = kernel = named = files = 0
    for line in head.split(b"\n")[:-1]:
        line = line.rstrip()
        if line.startswith(b"\t"):
            files += line.endswith(b")")
            frame = script_frames.parse(line) if not named else None
            if frame is not None and frame.space == "kernel":
                kernel += 1
                named += bool(frame.name)
        elif line and (sample := script_sample.parse(line)) is not None and not sample.tail.lstrip().startswith(_RECORDS):
            tail = script_sample.tail(sample.tail)
            period = period or tail.period
            events[tail.event] = None
    return _First(list(events), period, bool(named or not kernel), files > 0)


class _Script:
    def __init__(self, source: Input, wanted: Wanted) -> None:
        self.axis: Axis = "boot"
        self.notes: list[str] = []
        head = source.head(_HEADER)
        header = script_header.parse(head)
        first = _first(head)
        # Those of the header may have no sample at all, so those that were seen go first.
        chosen = script_events.choose([*first.events, *header.events], wanted.event)
        self.node = Node(header.hostname, "", header.kernel, "", header.cpus)
        self.about: dict[str, str | int | bool] = {"hz": _hz(header, first, chosen), "event": chosen}
        if header.command:
            self.about["command"] = header.command
        if header.cpu:
            self.about["cpu"] = header.cpu
        self.anchors = _anchors(header, source)
        self._source = source
        self._lines = Lines(source)
        self._counts = script_events.Counts(chosen, bool(wanted.event))
        self._named, self._files = first.named, first.files
        self._interner: Interner | None = None
        self._leaders: dict[int, str] = {}
        self._whose: dict[int, list[bytes]] = {}
        self._known: dict[bytes, _Known] = {}
        self._events: dict[bytes, _Event] = {}
        self._addressed: dict[bytes, _Event] = {}
        self._owners: list[tuple[int, int]] = []
        self._chains: dict[bytes, int] = {b"": 0}
        self._chain: list[tuple[int, ...]] = [()]
        self._frames: dict[bytes, int] = {b"": 0}
        self._inlined: set[bytes] = set()
        self._stacks: dict[int, int] = {}
        self._functions: dict[bytes, int] = {}
        self._nowhere = 0
        self._remembered = 0
        self._new_names = 0
        self._clocks: list[bytes] = []
        self._time: list[Ints] = []
        self._owner: list[int] = []
        self._stack: list[int] = []
        self._odd = 0
        self._odd_at = -1
        self._alone = self._homeless = False

    @property
    def full(self) -> bool:
        return self._new_names > _NAMES or (self._interner is not None and self._interner.full)

    def forget(self) -> None:
        if self._interner is not None:
            self._interner.forget()
        self._clear()
        self._new_names = 0

    def batches(self, ids: Ids) -> Iterator[Recording]:
        self._interner = Interner(ids, self._named)
        rest, at, given = b"", 0, False
        try:
            for block in self._lines.blocks():
                if not rest:
                    at = self._lines.at
                text, rest = _whole(rest + block)
                self._take(text, at)
                at += len(text)
                if len(self._stack) >= _BATCH or self.full or (self._stack and self._remembered > _REMEMBERED):
                    given = True
                    yield self._batch()
                if self._remembered > _REMEMBERED or (len(self._owners) > _MANY and not self._stack):
                    self._clear()
        except ExhumeError as error:
            if not given and not self._stack and not rest:
                raise
            self.notes.append(f"what follows is lost: {error}")
        self._take(self._uncut(rest, at), at)
        if self._stack:
            yield self._batch()
        self._tell()

    def _batch(self) -> Recording:
        assert self._interner is not None
        rows = Recording(self.node)
        self._interner.write(rows)
        owners = np.array(self._owners, dtype=np.int64).reshape(-1, 2)[np.array(self._owner, dtype=np.int64)]
        stacks = np.array(self._stack, dtype=np.int64)
        times = np.concatenate(self._time) if self._time else np.zeros(0, dtype=np.int64)
        rows["samples"].add_columns({"time": times, "core": owners[:, 1], "thread": owners[:, 0], "stack": stacks})
        self._time, self._owner, self._stack = [], [], []
        return rows

    def _clear(self) -> None:
        """Forget texts, between batches: what they stand for keeps its number."""
        for known in (self._known, self._whose, self._events, self._addressed, self._functions, self._inlined, self._stacks):
            known.clear()
        self._frames, self._chains, self._chain = {b"": 0}, {b"": 0}, [()]
        self._owners = []
        self._remembered = self._nowhere = 0

    def _take(self, text: bytes, at: int) -> None:
        """Whole samples. Nearly all of a long text goes through this loop, so it does little."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        known, events, chains, frames, stacks = self._known, self._events.get, self._chains, self._frames, self._stacks
        add_clock, add_owner, add_stack = self._clocks.append, self._owner.append, self._stack.append
        chunks = text.split(b"\n\n")
        begin = counted = 0  # where the chunk of that number begins
        ending, event = b"\n", _NO_EVENT
        for place, chunk in enumerate(chunks):
            parts = chunk.split(b"\n", 2)
            line = parts[0]
            try:
                # The end of the line is mostly that of the line before; in front of it there are who, a blank and the time.
                if line.endswith(ending):
                    who, _, clock = line[: -len(ending)].rpartition(b" ")
                else:
                    front, _, tail = line.partition(b": ")
                    other = events(tail) or self._event_of(tail)
                    if other is None or other.address:
                        raise KeyError
                    event, ending = other, b": " + tail
                    who, _, clock = front.rpartition(b" ")
                owner = known[who]
                if len(parts) == 3:
                    number = stacks[chains[parts[2]] << 33 | frames[parts[1]] << 1 | owner.idle]
                else:
                    number = stacks[frames[parts[1] if len(parts) == 2 else b""] << 1 | owner.idle]
            except KeyError:
                found = self._look_up(line, chunk[len(line) + 1 :])
                if found is None:
                    begin += sum(map(len, chunks[counted:place])) + 2 * (place - counted)
                    counted = place
                    self._keep_time(at)
                    self._slowly(chunk, at + begin)
                    continue
                owner, clock, other, number = found
                if other is not event:
                    event, ending = other, b"\n"
            event.count.samples += 1
            if event.taken:
                add_clock(clock)
                add_owner(owner.number)
                add_stack(number)
        self._keep_time(at)

    def _keep_time(self, before: int) -> None:
        """Read the times that were gathered, all at once. One that is none was found behind that byte, in the same block."""
        if not self._clocks:
            return
        times = _nanoseconds(self._clocks)
        if len(wrong := np.flatnonzero(times < 0)):
            first = len(self._stack) - len(times)
            for at in reversed(wrong.tolist()):
                del self._stack[first + at], self._owner[first + at]
                self._pass_over(before)
            times = times[times >= 0]
        self._clocks.clear()
        self._time.append(times)

    def _look_up(self, line: bytes, below: bytes) -> tuple[_Known, bytes, _Event, int] | None:
        """A sample of which something is new; None where it is not as plain as most."""
        front, _, tail = line.partition(b": ")
        who, _, clock = front.rpartition(b" ")
        owner = self._known.get(who) or self._new_owner(line, who)
        event = self._events.get(tail) or self._event_of(tail) if owner is not None else None
        if owner is None or event is None:
            return None
        number = self._stack_of(below or event.address, owner.idle)
        return (owner, clock, event, number) if number else None

    def _slowly(self, chunk: bytes, at: int) -> None:
        """Lines one by one: samples without stacks, headers, whatever has no place, and what was never seen before."""
        current: _Begun | None = None
        below: list[tuple[bytes, int]] = []
        for line in chunk.split(b"\n"):
            if line.startswith(b"\t"):
                if current is not None:
                    below.append((line, at))
                else:
                    self._pass_over(at)
            elif not line.strip():
                self._end(current, below)
                current, below = None, []
            elif (begun := self._begin(line)) is not None:
                self._end(current, below)
                current, below = begun, []
            elif not line.startswith(b"#") and _RECORDS not in line:
                if current is not None and line.startswith(b" "):
                    below.append((line, at))
                else:
                    self._pass_over(at)
            at += len(line) + 1
        self._end(current, below)

    def _begin(self, line: bytes) -> _Begun | None:
        front, _, tail = line.partition(b": ")
        who, _, clock = front.rpartition(b" ")
        owner = self._known.get(who)
        if owner is not None and _CLOCK.fullmatch(clock) is not None:
            event = self._events.get(tail) or self._addressed.get(tail) or self._event_of(tail)
            if event is not None:
                return _Begun(owner, event, clock)
        sample = script_sample.parse(line)
        if sample is None or sample.tail.lstrip(b" \t").startswith(_RECORDS):
            return None
        return _Begun(self._owner_of(sample), self._learn_event(sample.tail.removeprefix(b" ")), sample.clock)

    def _end(self, begun: _Begun | None, below: list[tuple[bytes, int]]) -> None:
        """The sample that these lines follow is whole."""
        if begun is None:
            return
        lines = []
        for line, at in below:
            if self._frame(line):
                lines.append(line)
            elif not _SOURCE.fullmatch(line):
                self._pass_over(at)
        begun.event.count.samples += 1
        if begun.event.taken:
            number = self._stack_of(b"\n".join(lines) or begun.event.address, begun.owner.idle)
            self._clocks.append(begun.clock)
            self._owner.append(begun.owner.number)
            self._stack.append(number or self._stack_of(b"", begun.owner.idle))

    def _pass_over(self, at: int) -> None:
        self._odd += 1
        if self._odd_at < 0:
            self._odd_at = at

    def _new_owner(self, line: bytes, text: bytes) -> _Known | None:
        """Whom a line is about that has this in front of its time, if that is how it must be read."""
        sample = script_sample.parse(line)
        return self._owner_of(sample) if sample is not None and sample.text[:-1] == text else None

    def _owner_of(self, sample: script_sample.Sample) -> _Known:
        """Who ran; remembered where the quick way through a line comes to the same place in it."""
        assert self._interner is not None
        who, comm = sample.who, decode(sample.who.comm)
        if who.both and who.pid == who.tid and self._leaders.get(who.pid) != comm:
            if len(self._leaders) > _MANY:
                self._leaders.clear()
            self._leaders[who.pid] = comm
            for text in self._whose.pop(who.pid, ()):
                self._known.pop(text, None)
        process = self._leaders.get(who.pid, "") if who.both else ""
        self._alone |= not who.both and who.tid != -1
        self._homeless |= who.core < 0
        idle = who.pid == 0 or (who.tid == -1 and comm == "swapper")
        known = _Known(len(self._owners), int(idle))
        self._owners.append((self._interner.thread(who.pid, who.tid, comm, process), max(who.core, 0)))
        self._new_names += len(comm)
        if sample.text.endswith(b" ") and b": " not in sample.text:
            self._known[sample.text[:-1]] = known
            self._whose.setdefault(who.pid, []).append(sample.text[:-1])
            self._remembered += len(sample.text)
        return known

    def _event_of(self, tail: bytes) -> _Event | None:
        """Of the end of a line that is new, perhaps only by its period; None where the line may have to be read another way."""
        words = tail.split(None, 2)
        if len(words) == 2 and words[0].isdigit() and (found := self._events.get(words[1])) is not None:
            if len(self._events) < _PERIODS:
                self._events[tail] = found
                self._remembered += len(tail)
            return found
        return self._learn_event(tail) if script_sample.TIME.search(tail) is None and _RECORDS not in tail else None

    def _learn_event(self, text: bytes) -> _Event:
        tail = script_sample.tail(text)
        taken = self._counts.taken(tail.event)
        event = _Event(taken, script_sample.address(tail.rest), self._counts.of(tail.event))
        if script_sample.TIME.search(text) is None:
            if not tail.rest.strip():
                self._events[tail.event.encode() + b":"] = event
            known = self._addressed if event.address else self._events
            if len(known) < _MANY:
                known[text] = event
                self._remembered += len(text)
        return event

    def _frame(self, line: bytes) -> int:
        """The number of a frame; -1 if it is inlined, 0 if it is none."""
        number = self._frames.get(line)
        if number is not None:
            return number
        if line in self._inlined:
            return -1
        assert self._interner is not None
        function = script_frames.function(line)
        number = self._functions.get(function) if function else None
        if number is None:
            frame = script_frames.parse(line)
            if frame is None:
                return 0
            self._remembered += len(line) + len(function)
            if frame.inlined:
                self._inlined.add(line)
                return -1
            number = self._interner.frame(frame.name, frame.module, frame.space, frame.offset)
            self._new_names += len(line)
            if frame == script_frames.NOWHERE:
                self._nowhere = number
            if function:
                self._functions[function] = number
        self._frames[line] = number
        self._remembered += len(line)
        return number

    def _parsed(self, lines: list[bytes]) -> tuple[int, ...] | None:
        """Frames, the outermost first; None if something else is among them."""
        assert self._interner is not None
        found: list[int] = []
        caller = b""
        for line in reversed(lines):
            number = self._frame(line)
            if not number:
                return None
            if number < 0:
                inlined, outer = script_frames.parse(line), script_frames.parse(caller) or script_frames.NOWHERE
                number = self._interner.frame(inlined.name if inlined is not None else "", outer.module, outer.space)
            else:
                caller = line
            # Where code has no frame pointers the chain leads into data: such a stretch says no more than one of it.
            if number != self._nowhere or not found or found[-1] != number:
                found.append(number)
        return tuple(found)

    def _stack_of(self, text: bytes, idle: int) -> int:
        """The number of a stack; 0 if there is something else in its lines."""
        assert self._interner is not None
        innermost, _, below = text.partition(b"\n")
        frame = self._frame(innermost) if text else 0
        if text and not frame:
            return 0
        if frame < 0:
            whole = self._parsed(text.split(b"\n"))
            return self._interner.stack(whole, bool(idle)) if whole is not None else 0
        chain = self._chain_of(below)
        if chain < 0:
            return 0
        frames = self._chain[chain]
        key = chain << 33 | frame << 1 | idle
        number = self._stacks.get(key)
        if number is None:
            if frame and (frame != self._nowhere or frames[-1:] != (frame,)):
                frames = (*frames, frame)
            number = self._stacks[key] = self._interner.stack(frames, bool(idle))
            self._new_names += 8 * len(frames)
            self._remembered += 100
        return number

    def _chain_of(self, text: bytes) -> int:
        """The number of the callers in a stack; -1 if there is something else among them."""
        chain = self._chains.get(text)
        if chain is None:
            plain = script_frames.without_nowhere(text)
            chain = self._chains.get(plain)
            if chain is None:
                frames = self._parsed(plain.split(b"\n"))
                if frames is None:
                    return -1
                chain = self._chains[plain] = len(self._chain)
                self._chain.append(frames)
                self._remembered += len(plain) + 8 * len(frames)
            self._chains[text] = chain
            self._remembered += len(text)
        return chain

    def _uncut(self, text: bytes, at: int) -> bytes:
        """The last lines without one that was torn in the middle, as far as that can be seen."""
        if self._lines.ended:
            return text
        before, found, last = text.rpartition(b"\n")
        if last.startswith(b"\t"):
            torn = self._files and not last.endswith(b")")
        else:
            sample = script_sample.parse(last)
            torn = sample is None or not self._counts.taken(script_sample.tail(sample.tail).event)
        if torn:
            self.notes.append(f"it ends in the middle of a line, at byte {at + len(text)}: that line is left out")
            return before + found
        return text

    def _tell(self) -> None:
        self.notes += self._counts.notes()
        if self._odd:
            lines = "line is nothing that perf script prints" if self._odd == 1 else "lines are nothing that perf script prints"
            self.notes.append(f"{self._odd:,} {lines}, the first at byte {self._odd_at}")
        if self._lines.cut:
            self.notes.append(f"{self._lines.cut:,} lines were too long and were cut")
        if self._source.cut:
            self.notes.append("its end is missing: what gzip packed is not whole")
        if self._alone:
            self.notes.append("it has one number for each thread and not that of its process: it is taken for both")
        if self._homeless:
            self.notes.append("it does not say on which core a sample was taken: all are shown on core 0")


def _nanoseconds(clocks: list[bytes]) -> Ints:
    """Seconds with 6 or 9 digits behind the point, mostly all of one width; -1 for what is something else."""
    width = len(clocks[0]) + 1
    raw = np.frombuffer(b"\n".join(clocks) + b"\n", dtype=np.uint8)
    point = width - (8 if clocks[0][-7:-6] == b"." else 11)
    if 0 < point <= 10 and len(raw) == width * len(clocks):
        table = raw.reshape(-1, width) - np.uint8(48)
        digits = np.delete(table[:, :-1], point, axis=1)
        if (digits < 10).all() and (table[:, point] == 254).all() and (table[:, -1] == 218).all():  # a point, a newline
            unit = 1000 if width - point == 8 else 1
            powers = 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64) * unit
            return np.asarray(digits.astype(np.int64) @ powers, dtype=np.int64)
    return np.array([_one(clock) for clock in clocks], dtype=np.int64)


def _one(clock: bytes) -> int:
    if _CLOCK.fullmatch(clock) is None:
        return -1
    seconds, _, fraction = clock.partition(b".")
    return int(seconds) * 1_000_000_000 + int(fraction.ljust(9, b"0")) if int(seconds) < 9_000_000_000 else -1


def _whole(text: bytes) -> tuple[bytes, bytes]:
    """What is certainly whole of these lines, and the last sample, of which more may follow."""
    end = text.rfind(b"\n\n") + 2
    if end == 1 and (end := text.rfind(b"\r\n\r\n") + 4) == 3:
        end = len(text)
        while end > 0 and (end := text.rfind(b"\n", 0, end - 1) + 1) and text[end : end + 1] in (b"\t", b""):
            pass
    if len(text) - end > _LONGEST:
        end = len(text)
    return text[:end], text[end:]


def _hz(header: script_header.Header, first: _First, chosen: str) -> int:
    rate = script_header.frequency(header, [event for event in header.events if script_events.matches(event, chosen)])
    if not rate and chosen in ("cpu-clock", "task-clock") and first.period >= 1000:
        rate = round(1_000_000_000 / first.period)  # these count nanoseconds (kernel/events/core.c, cpu_clock_event_*)
    # Samples of other events do not stand for time.
    return rate if chosen in script_events.CLOCKS else 0


def _anchors(header: script_header.Header, source: Input) -> list[Anchor]:
    if header.clocks is not None:
        return [Anchor(*header.clocks, "from the header, which has both clocks")]
    last = header.last if header.last >= 0 else _last_time(source)
    if header.captured and last >= 0:
        return [Anchor(last, header.captured, "guessed from the header's time", sure=False)]
    return []


def _last_time(source: Input) -> int:
    """When the last sample was taken; -1 where the end cannot be seen from here."""
    if not source.seekable:
        return -1
    try:
        end = os.pread(source.fileno(), _END, max(0, source.size - _END))
    except OSError:
        return -1
    for line in reversed(end.split(b"\n")[1:]):
        if not line.startswith(b"\t") and (sample := script_sample.parse(line.rstrip())) is not None:
            return sample.time
    return -1
