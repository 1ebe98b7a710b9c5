"""The text of perf script line by line: samples without stacks, headers, whatever has no place. Slow, and for every text."""

from dataclasses import dataclass, field
from typing import NamedTuple

from exhume.imports import script_clock, script_frames, script_sample
from exhume.imports.script_begin import RECORDS
from exhume.imports.script_owners import Owners
from exhume.imports.script_stacks import Stacks
from exhume.imports.script_tails import Event, Tails


@dataclass(slots=True)
class Odd:
    """Lines that are nothing that perf script prints."""

    header: int
    """So many bytes at the beginning are not meant to be."""
    lines: int = 0
    at: int = -1
    """The byte that the first begins at."""

    def pass_over(self, at: int) -> None:
        if at < self.header:
            return
        self.lines += 1
        self.at = at if self.at < 0 else min(at, self.at)


class Taken(NamedTuple):
    time: int
    owner: int
    stack: int


class _Begun(NamedTuple):
    """A sample of which the first line was read."""

    owner: int
    event: Event
    time: int


@dataclass(slots=True)
class Slowly:
    owners: Owners
    tails: Tails
    stacks: Stacks
    odd: Odd
    passed: int = -1
    """Nanoseconds since the first sample, where times are what has passed since the sample before; -1 where they are not."""
    _taken: list[Taken] = field(default_factory=list)

    def take(self, text: bytes, at: int) -> list[Taken]:
        """The samples of a text that begins at that byte."""
        self._taken = []
        current: _Begun | None = None
        below: list[tuple[bytes, int]] = []
        fresh = True  # a blank line is before it: what begins with a tab is no frame but a thread whose name does
        for line in text.split(b"\n"):
            indented, fresh = line.startswith(b"\t") and not fresh, False
            if indented:
                if current is not None:
                    below.append((line, at))
                else:
                    self.odd.pass_over(at)
            elif not line.strip():
                self._end(current, below)
                current, below, fresh = None, [], True
            elif (begun := self._begin(line)) is not None:
                self._end(current, below)
                current, below = begun, []
            elif line.startswith(b"\t"):
                self.odd.pass_over(at)
            elif not line.startswith(b"#") and RECORDS not in line and not script_frames.beside(line):
                if current is not None and line.startswith(b" "):
                    below.append((line, at))
                else:
                    self.odd.pass_over(at)
            at += len(line) + 1
        self._end(current, below)
        return self._taken

    def _begin(self, line: bytes) -> _Begun | None:
        front, _, tail = line.partition(b": ")
        who, _, clock = front.rpartition(b" ")
        owner = self.owners.get(who, -1)
        if owner >= 0 and (time := script_clock.one(clock)) >= 0:
            event = self.tails.event(tail)
            if event is not None:
                return _Begun(owner, event, time)
        sample = script_sample.parse(line)
        if sample is None:
            return None
        if sample.tail.lstrip(b" \t").startswith(RECORDS):
            self._summed(sample.time)
            return None
        return _Begun(self.owners.of(sample.who, sample.text), self.tails.learn(sample.tail.removeprefix(b" ")), sample.time)

    def _end(self, begun: _Begun | None, below: list[tuple[bytes, int]]) -> None:
        """The sample that these lines follow is whole."""
        if begun is None:
            return
        lines = []
        for line, at in below:
            if self.stacks.lines.learn(line):
                lines.append(line)
            elif not script_frames.beside(line):
                self.odd.pass_over(at)
        begun.event.count.samples += 1
        time = self._summed(begun.time)
        if begun.event.taken:
            text = b"\n".join(lines) or begun.event.address
            idle = begun.owner & 1 if text or not self.owners.guessed else 0
            number = self.stacks.number(text, idle) or self.stacks.number(b"", idle)
            self._taken.append(Taken(time, begun.owner, number))

    def _summed(self, time: int) -> int:
        """The same, or with all that passed before, where it is what has passed since the sample before."""
        if self.passed < 0:
            return time
        self.passed += time
        return self.passed
