"""Events, by the end of a line of perf script: period, name and what follows. It is looked up where it came before."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.imports import script_sample
from exhume.imports.script_begin import RECORDS
from exhume.imports.script_events import Count, Counts
from exhume.recording.arrays import unique_inverse
from exhume.recording.recording import Ints

_MANY = 1 << 16
_ADDRESSED = 300
"""So many bytes are kept of an end with an address, besides its text, about."""
_PERIODS = 1000
"""So many ends of lines that differ in their period are kept: some events have a few, others a new one in each line."""


@dataclass(frozen=True, slots=True)
class Event:
    """What the end of a line stands for."""

    number: int
    """The same for all of one name."""
    taken: bool
    address: bytes
    """A line of a stack, where it has one."""
    count: Count


class Tails(dict[bytes, int]):
    """The end of a line, behind `: `, and the number of its event; -1 where the line may have to be read another way.

    An end that has an address is less than that: see `events`.
    """

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self._counts = counts
        self._events: list[Event] = []
        self._by_count: dict[int, int] = {}
        self._addressed: list[Event] = []
        self.remembered = 0
        """Bytes of text that are kept."""

    def __missing__(self, tail: bytes) -> int:
        event = self._new(tail)
        if event is None:
            return -1
        return self.get(tail, -1) if event.address else event.number

    def event(self, tail: bytes) -> Event | None:
        """None where the line may have to be read another way."""
        number = self.get(tail)
        return self._new(tail) if number is None else self._of(number)

    def events(self, found: Ints) -> tuple[list[Event], Ints]:
        """What is there of these, each once, and where among it each of them is. None of them is -1."""
        numbers, which = unique_inverse(found)
        return [self._of(number) for number in numbers.tolist()], which

    def _of(self, number: int) -> Event:
        return self._events[number] if number >= 0 else self._addressed[-2 - number]

    def _new(self, tail: bytes) -> Event | None:
        """Of an end that is new, perhaps only by its period."""
        words = tail.split(None, 2)
        if len(words) == 2 and words[0].isdigit() and (found := self.get(words[1], -1)) >= 0:
            if len(self) < _PERIODS:
                self[tail] = found
                self.remembered += len(tail)
            return self._events[found]
        return self.learn(tail) if script_sample.TIME.search(tail) is None and RECORDS not in tail else None

    def learn(self, text: bytes) -> Event:
        tail = script_sample.tail(text)
        taken, where, count = self._counts.taken(tail.event), script_sample.address(tail.rest), self._counts.of(tail.event)
        number = self._by_count.setdefault(id(count), len(self._events))
        if number == len(self._events):
            self._events.append(Event(number, taken, b"", count))
        event = Event(number, taken, b"\t" + where, count) if where else self._events[number]
        if script_sample.TIME.search(text) is None:
            if not tail.rest.strip():
                self[tail.event.encode() + b":"] = number
            if where:
                self[text] = -2 - len(self._addressed)
                self._addressed.append(event)
                self.remembered += len(text) + _ADDRESSED
            elif len(self) < _MANY:
                self[text] = number
                self.remembered += len(text)
        return event

    def count(self, events: Ints) -> NDArray[np.bool_]:
        """Count samples of these; which of them are taken."""
        for number, samples in enumerate(np.bincount(events).tolist()):
            self._events[number].count.samples += samples
        return np.array([event.taken for event in self._events], dtype=bool)[events]

    def forget(self) -> None:
        """All texts; events keep their numbers, but for addresses."""
        self.clear()
        self._addressed.clear()
        self.remembered = 0
