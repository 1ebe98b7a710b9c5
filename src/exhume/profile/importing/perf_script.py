"""The text of perf script: samples with their stacks, as every perf of the last ten years prints them, and as FlameScope takes.

A sample is a line (script_sample.py), its stack the lines below (script_frames.py), a blank line ends it; without stacks there
are no blank lines. What is printed comes again and again, so texts are looked up and hardly any is parsed: the front of a line
(who ran where), its end (the event), a whole stack, a stack's callers, a line of it (script_stacks.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exhume.errors import ExhumeError
from exhume.profile.importing import script_begin, script_clock, script_events, script_frames, script_header, script_sample
from exhume.profile.importing.interner import Interner
from exhume.profile.importing.script_begin import RECORDS
from exhume.profile.importing.script_looks import looks, refusal
from exhume.profile.importing.script_stacks import Stacks, whole
from exhume.recording.incoming import Axis, Damaged, Ids, Import, Input, Lines, Wanted
from exhume.recording.recording import Ints, Node, Recording
from exhume.text import decode

__all__ = ["looks", "opened"]

_HEADER = 1 << 18
"""So much of the text is looked at for the header and the events."""
_BATCH = 1 << 15
"""Samples that are given at once, at least."""
_REMEMBERED = 64 << 20
"""So many bytes of text are kept to be looked up."""
_NAMES = 64 << 20
"""After so many bytes of different names a new chapter is due."""
_MANY = 1 << 16
_PERIODS = 1000
"""So many ends of lines that differ in their period are kept: some events have a few, others a new one in each line."""


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


class _Script:
    def __init__(self, source: Input, wanted: Wanted) -> None:
        self.axis: Axis = "boot"
        self.notes: list[str] = []
        head = source.head(_HEADER)
        if why := refusal(head):
            raise Damaged(f"{source.name} {why} (from byte 0 on)")
        header = script_header.parse(head)
        first = script_begin.first(head)
        self._shift, self.anchors, told = script_begin.placed(header, first, source)
        self.notes += told
        # Those of the header may have no sample at all, so those that were seen go first.
        known = [*first.events, *header.events]
        chosen = script_events.choose(known, wanted.event)
        if uneven := script_begin.uneven(first, chosen):
            self.notes.append(uneven)
        self.node = Node(header.hostname, "", header.kernel, "", header.cpus)
        self.about: dict[str, str | int | bool] = {"hz": script_begin.hertz(header, first, chosen), "event": chosen}
        if header.events:
            self.about["every_core"] = not header.of_command
        if header.command:
            self.about["command"] = header.command
        if header.cpu:
            self.about["cpu"] = header.cpu
        self._source = source
        self._lines = Lines(source)
        self._counts = script_events.Counts(chosen, bool(wanted.event), known)
        self._first = first
        self._header = header.length
        self._passed = 0 if first.since == "before" else -1
        self._name(Ids())
        self._leaders: dict[int, str] = {}
        self._whose: dict[int, list[bytes]] = {}
        self._known: dict[bytes, _Known] = {}
        self._events: dict[bytes, _Event] = {}
        self._addressed: dict[bytes, _Event] = {}
        self._owners: list[tuple[int, int]] = []
        self._remembered = 0
        self._new_names = 0
        self._clocks: list[bytes] = []
        self._time: list[Ints] = []
        self._owner: list[int] = []
        self._stack: list[int] = []
        self._odd = 0
        self._odd_at = -1
        self._alone = self._homeless = False

    def _name(self, ids: Ids) -> None:
        """What is new from now on gets its number from there."""
        self._interner = Interner(ids, self._first.named)
        self._stacks = Stacks(self._interner)

    @property
    def full(self) -> bool:
        return self._new_names + self._stacks.names > _NAMES or self._interner.full

    @property
    def _crowded(self) -> bool:
        return self._remembered + self._stacks.remembered > _REMEMBERED

    def forget(self) -> None:
        self._interner.forget()
        self._clear()
        self._new_names = self._stacks.names = 0

    def batches(self, ids: Ids) -> Iterator[Recording]:
        self._name(ids)
        rest, at, given = b"", 0, False
        try:
            for block in self._lines.blocks():
                if not rest:
                    at = self._lines.at
                text, rest = whole(rest + block)
                self._take(text, at)
                at += len(text)
                if len(self._stack) >= _BATCH or self.full or (self._stack and self._crowded):
                    given = True
                    yield self._batch()
                if self._crowded or (len(self._owners) > _MANY and not self._stack):
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
        rows = Recording(self.node)
        self._interner.write(rows)
        owners = np.array(self._owners, dtype=np.int64).reshape(-1, 2)[np.array(self._owner, dtype=np.int64)]
        stacks = np.array(self._stack, dtype=np.int64)
        times = np.concatenate(self._time) + self._shift if self._time else np.zeros(0, dtype=np.int64)
        rows["samples"].add_columns({"time": times, "core": owners[:, 1], "thread": owners[:, 0], "stack": stacks})
        self._time, self._owner, self._stack = [], [], []
        return rows

    def _clear(self) -> None:
        """Forget texts, between batches: what they stand for keeps its number."""
        for known in (self._known, self._whose, self._events, self._addressed):
            known.clear()
        self._stacks.forget()
        self._owners = []
        self._remembered = 0

    def _take(self, text: bytes, at: int) -> None:
        """Whole samples. Nearly all of a long text goes through this loop, so it does little."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        if self._passed >= 0:  # the time of each depends on all before, also on those that are not taken
            self._slowly(text, at)
            self._keep_time(at)
            return
        known, events, texts = self._known, self._events.get, self._stacks
        chains, frames, stacks = texts.chains, texts.frames, texts.numbers
        add_clock, add_owner, add_stack = self._clocks.append, self._owner.append, self._stack.append
        chunks = text.split(b"\n\n")
        begin = counted = 0  # where the chunk of that number begins
        ending, length, event, taken = b"\n", 1, _NO_EVENT, False
        passed = 0  # samples of that event
        for place, chunk in enumerate(chunks):
            parts = chunk.split(b"\n", 2)
            line, innermost, below = parts if len(parts) == 3 else (*parts, b"", b"")[:3]
            try:
                # The end of the line is mostly that of the line before; in front of it there are who, a blank and the time.
                if line.endswith(ending):
                    who, _, clock = line[:-length].rpartition(b" ")
                else:
                    front, _, tail = line.partition(b": ")
                    other = events(tail) or self._event_of(tail)
                    if other is None or other.address:
                        raise KeyError
                    event.count.samples += passed
                    event, ending, taken, passed = other, b": " + tail, other.taken, 0
                    length = len(ending)
                    who, _, clock = front.rpartition(b" ")
                owner, idle = known[who]
                try:
                    number = stacks[chains[below] << 33 | frames[innermost] << 1 | idle]
                except KeyError:
                    if not (number := texts.of(innermost, below, idle)):
                        raise
            except KeyError:
                found = self._look_up(line, chunk[len(line) + 1 :])
                if found is None:
                    begin += sum(map(len, chunks[counted:place])) + 2 * (place - counted)
                    counted = place
                    self._keep_time(at)
                    self._slowly(chunk, at + begin)
                    continue
                (owner, idle), clock, other, number = found
                if other is not event:
                    event.count.samples += passed
                    event, ending, taken, passed = other, b"\n", other.taken, 0
            passed += 1
            if taken:
                add_clock(clock)
                add_owner(owner)
                add_stack(number)
        event.count.samples += passed
        self._keep_time(at)

    def _keep_time(self, before: int) -> None:
        """Read the times that were gathered, all at once. One that is none was found behind that byte, in the same block."""
        if not self._clocks:
            return
        times = script_clock.nanoseconds(self._clocks)
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
        number = self._stacks.number(below or event.address, owner.idle)
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
            elif not line.startswith(b"#") and RECORDS not in line and not script_frames.beside(line):
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
        if owner is not None and script_clock.CLOCK.fullmatch(clock) is not None:
            event = self._events.get(tail) or self._addressed.get(tail) or self._event_of(tail)
            if event is not None:
                return _Begun(owner, event, clock)
        sample = script_sample.parse(line)
        if sample is None:
            return None
        if sample.tail.lstrip(b" \t").startswith(RECORDS):
            self._summed(sample.clock)
            return None
        return _Begun(self._owner_of(sample), self._learn_event(sample.tail.removeprefix(b" ")), sample.clock)

    def _end(self, begun: _Begun | None, below: list[tuple[bytes, int]]) -> None:
        """The sample that these lines follow is whole."""
        if begun is None:
            return
        lines = []
        for line, at in below:
            if self._stacks.frame(line):
                lines.append(line)
            elif not script_frames.beside(line):
                self._pass_over(at)
        begun.event.count.samples += 1
        clock = self._summed(begun.clock)
        if begun.event.taken:
            number = self._stacks.number(b"\n".join(lines) or begun.event.address, begun.owner.idle)
            self._clocks.append(clock)
            self._owner.append(begun.owner.number)
            self._stack.append(number or self._stacks.number(b"", begun.owner.idle))

    def _summed(self, clock: bytes) -> bytes:
        """The same, or with all that passed before, where it is what has passed since the sample before."""
        if self._passed < 0:
            return clock
        self._passed += max(0, script_clock.one(clock))
        return script_clock.printed(self._passed)

    def _pass_over(self, at: int) -> None:
        if at < self._header:
            return
        self._odd += 1
        if self._odd_at < 0:
            self._odd_at = at

    def _new_owner(self, line: bytes, text: bytes) -> _Known | None:
        """Whom a line is about that has this in front of its time, if that is how it must be read."""
        sample = script_sample.parse(line)
        return self._owner_of(sample) if sample is not None and sample.text[:-1] == text else None

    def _owner_of(self, sample: script_sample.Sample) -> _Known:
        """Who ran; remembered where the quick way through a line comes to the same place in it."""
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
        # Where nothing tells whose it is, the stack does: only the idle task is idle.
        anybody = not comm and self._first.stacks and self._first.named
        idle = who.pid == 0 or (who.tid == -1 and (anybody or comm == "swapper"))
        known = _Known(len(self._owners), int(idle))
        self._owners.append((self._interner.thread(who.pid, who.tid, comm, process), who.core))
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
        return self._learn_event(tail) if script_sample.TIME.search(tail) is None and RECORDS not in tail else None

    def _learn_event(self, text: bytes) -> _Event:
        tail = script_sample.tail(text)
        taken, where = self._counts.taken(tail.event), script_sample.address(tail.rest)
        event = _Event(taken, where and b"\t" + where, self._counts.of(tail.event))
        if script_sample.TIME.search(text) is None:
            if not tail.rest.strip():
                self._events[tail.event.encode() + b":"] = event
            known = self._addressed if event.address else self._events
            if len(known) < _MANY:
                known[text] = event
                self._remembered += len(text)
        return event

    def _uncut(self, text: bytes, at: int) -> bytes:
        """The last lines without one that was torn in the middle, as far as that can be seen."""
        if self._lines.ended:
            return text
        before, found, last = text.rpartition(b"\n")
        if last.startswith(b"\t"):
            torn = self._first.files and not last.endswith(b")")
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
            self.notes.append(f"{self._lines.cut:,} {'line was' if self._lines.cut == 1 else 'lines were'} too long and cut")
        if self._source.cut:
            self.notes.append("its end is missing: what gzip packed is not whole")
        if self._alone:
            self.notes.append("it has one number for each thread and not that of its process: it is taken for both")
        if self._homeless:
            self.notes.append("it does not say on which core a sample was taken: it is -1")
