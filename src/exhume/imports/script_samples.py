"""Samples of perf script, many at a time. Nearly all of a long text goes through here, so hardly anything is done with each.

A sample is a line (script_sample.py), its stack the lines below (script_frames.py), a blank line ends it. What is printed comes
again and again, so texts are looked up and hardly any is parsed: the front of a line (who ran where), its end (the event), a
whole stack, a line of it. What is not as plain as that is read line by line (script_lines.py).
"""

from itertools import compress
from typing import NamedTuple

import numpy as np

from exhume.imports import script_clock
from exhume.imports.script_chunks import Chunks, Form, cut, fronts, lines
from exhume.imports.script_lines import Slowly, Taken
from exhume.recording.recording import Ints

_NONE = np.zeros(0, dtype=np.int64)


class Rows(NamedTuple):
    time: Ints
    core: Ints
    thread: Ints
    stack: Ints


class _Aside:
    """Chunks that are read line by line, and which of them the samples are of."""

    def __init__(self, slowly: Slowly, chunks: Chunks, at: int) -> None:
        self._slowly = slowly
        self._chunks = chunks
        self._at = at
        self.taken: list[Taken] = []
        self.place: list[int] = []

    def take(self, number: int) -> None:
        text, begin, _, end, rest = self._chunks
        first, last = (int(begin[number]), int(end[number])) if number < len(begin) else (rest, len(text))
        found = self._slowly.take(text[first:last], self._at + first)
        self.taken += found
        self.place += [number] * len(found)


class Samples:
    def __init__(self, slowly: Slowly) -> None:
        self._slowly = slowly
        self._owners, self._tails, self._stacks = slowly.owners, slowly.tails, slowly.stacks
        self._form = Form(0, b": ")  # not known yet

    def take(self, text: bytes, at: int) -> Rows:
        """The samples of a text that begins at that byte, in its order."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        # Where times are what passed since the sample before, each depends on all before, also on those that are not taken.
        if self._slowly.passed >= 0:
            return self._rows(self._slowly.take(text, at))
        if b"\n\n" not in text:
            return self._without_stacks(text) or self._rows(self._slowly.take(text, at))
        return self._chunk_by_chunk(cut(text), at)

    def _chunk_by_chunk(self, chunks: Chunks, at: int) -> Rows:
        who, time, event = self._first_lines(chunks)
        stack = np.full(len(who), -1, dtype=np.int64)
        known = np.flatnonzero(event >= 0)
        stack[known] = self._stacks.many(chunks.text, (chunks.first[known] + 1).tolist(), chunks.end[known].tolist())
        owner = np.full(len(who), -1, dtype=np.int64)
        aside = _Aside(self._slowly, chunks, at)
        begin = 0
        for odd in [*np.flatnonzero(stack < 0).tolist(), len(who)]:  # in order: what a process is called may change
            owner[begin:odd] = np.fromiter(map(self._owners.__getitem__, who[begin:odd]), dtype=np.int64, count=odd - begin)
            aside.take(odd)
            begin = odd + 1
        for odd in np.flatnonzero((owner < 0) & (stack >= 0)).tolist():
            aside.take(odd)
        plain = np.flatnonzero(owner >= 0)
        rows, place = self._taken(time[plain], owner[plain], event[plain], stack[plain])
        if not aside.taken:
            return rows
        order = np.argsort(np.concatenate((plain[place], aside.place)), kind="stable")
        return Rows(*(np.concatenate(both)[order] for both in zip(rows, self._rows(aside.taken), strict=True)))

    def _without_stacks(self, text: bytes) -> Rows | None:
        """Samples of a line each; None if there is anything else."""
        if b"\n\t" in text:
            return None
        who, time, found = self._first_lines(lines(text))
        if (found == -1).any():
            return None
        owner = np.fromiter(map(self._owners.__getitem__, who), dtype=np.int64, count=len(who))
        if (owner < 0).any():
            return None
        events, which = self._tails.events(found)
        event = np.array([event.number for event in events], dtype=np.int64)[which]
        stack = np.array([max(0, self._stacks.one(event.address)) for event in events], dtype=np.int64)[which]
        return self._taken(time, owner, event, stack)[0]

    def _taken(self, time: Ints, owner: Ints, event: Ints, stack: Ints) -> tuple[Rows, Ints]:
        """Those of them whose event is taken, and which they are."""
        place = np.flatnonzero(self._tails.count(event))
        owner, stack = owner[place], stack[place]
        idle = owner & (stack != 0) if self._owners.guessed else owner & 1
        numbers = self._stacks.numbers(stack << 1 | idle)
        return Rows(time[place], *self._owners.cores_and_threads(owner), numbers), place

    def _first_lines(self, chunks: Chunks) -> tuple[list[bytes], Ints, Ints]:
        """What is in front of the time, the time, and the event; an event of -1 is none that is plain."""
        if (quick := fronts(chunks, self._form)) is not None:
            who, time = quick
            return who, time, np.where(time >= 0, self._tails[self._form.end[2:]], -1)
        begin, end, text = chunks.begin.tolist(), chunks.first.tolist(), chunks.text
        apart = [text[one:other].partition(b": ") for one, other in zip(begin, end, strict=True)]
        parts = [front.rpartition(b" ") for front, _, _ in apart]
        time = script_clock.nanoseconds([clock for _, _, clock in parts])
        event = np.full(len(time), -1, dtype=np.int64)
        tails = compress([tail for _, _, tail in apart], valid := time >= 0)
        event[valid] = np.fromiter(map(self._tails.__getitem__, tails), dtype=np.int64)
        if apart:  # what comes next may well be like the last of them
            self._form = Form(len(parts[-1][2]), b": " + apart[-1][2])
        return [who for who, _, _ in parts], time, event

    def _rows(self, taken: list[Taken]) -> Rows:
        if not taken:
            return Rows(_NONE, _NONE, _NONE, _NONE)
        time, owner, stack = np.array(taken, dtype=np.int64).T
        return Rows(time, *self._owners.cores_and_threads(owner), stack)
