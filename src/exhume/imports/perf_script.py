"""The text of perf script: samples with their stacks, as every perf of the last ten years prints them, and as FlameScope takes.

What its beginning says of the rest is read here (script_begin.py, script_header.py), and the rest given some samples at a time
(script_samples.py).
"""

from collections.abc import Iterator

import numpy as np

from exhume.errors import ExhumeError
from exhume.imports import script_begin, script_events, script_header, script_sample
from exhume.imports.incoming import Axis, Damaged, Ids, Import, Input, Lines, Wanted
from exhume.imports.interner import Interner
from exhume.imports.script_lines import Odd, Slowly
from exhume.imports.script_looks import looks, refusal
from exhume.imports.script_owners import Owners
from exhume.imports.script_samples import Rows, Samples
from exhume.imports.script_stacks import Stacks, whole
from exhume.imports.script_tails import Tails
from exhume.recording.recording import Node, Recording

__all__ = ["looks", "opened"]

_HEADER = 1 << 18
"""So much of the text is looked at for the header and the events."""
_BATCH = 1 << 15
"""Samples that are given at once, at least."""
_REMEMBERED = 64 << 20
"""So many bytes of text are kept to be looked up."""
_NAMES = 64 << 20
"""After so many bytes of different names, frames and stacks a new chapter is due."""


def opened(source: Input, wanted: Wanted) -> Import:
    return _Script(source, wanted)


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
        if header.events or header.of_some:
            self.about["every_core"] = not header.of_some
        if header.command:
            self.about["command"] = header.command
        if header.cpu:
            self.about["cpu"] = header.cpu
        self._source = source
        self._lines = Lines(source)
        self._counts = script_events.Counts(chosen, bool(wanted.event), known)
        self._first = first
        self._odd = Odd(header.length)
        self._name(Ids())
        self._rows: list[Rows] = []
        self._gathered = 0

    def _name(self, ids: Ids) -> None:
        """What is new from now on gets its number from there."""
        self._interner = Interner(ids, self._first.named)
        self._stacks = Stacks(self._interner)
        self._owners = Owners(self._interner, self._first.stacks and self._first.named)
        self._tails = Tails(self._counts)
        passed = 0 if self._first.since == "before" else -1
        self._samples = Samples(Slowly(self._owners, self._tails, self._stacks, self._odd, passed))

    @property
    def full(self) -> bool:
        return self._owners.names + self._stacks.names > _NAMES or self._interner.full

    @property
    def _crowded(self) -> bool:
        return self._owners.remembered + self._tails.remembered + self._stacks.remembered > _REMEMBERED

    def forget(self) -> None:
        self._interner.forget()
        self._clear()
        self._owners.names = self._stacks.names = 0

    def _clear(self) -> None:
        """Forget texts: what they stand for keeps its number."""
        self._owners.forget()
        self._tails.forget()
        self._stacks.forget()

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
                if self._gathered >= _BATCH or self.full:
                    given = True
                    yield self._batch()
                if self._crowded or self._owners.many:
                    self._clear()
        except ExhumeError as error:
            if not given and not self._gathered and not rest:
                raise
            self.notes.append(f"what follows is lost: {error}")
        self._take(self._uncut(rest, at), at)
        if self._gathered:
            yield self._batch()
        self._tell()

    def _take(self, text: bytes, at: int) -> None:
        rows = self._samples.take(text, at)
        self._rows.append(rows)
        self._gathered += len(rows.time)

    def _batch(self) -> Recording:
        rows = Recording(self.node)
        self._interner.write(rows)
        time, core, thread, stack = (np.concatenate(each) for each in zip(*self._rows, strict=True))
        rows["samples"].add_columns({"time": time + self._shift, "core": core, "thread": thread, "stack": stack})
        self._rows, self._gathered = [], 0
        return rows

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
        if odd := self._odd.lines:
            lines = "line is nothing that perf script prints" if odd == 1 else "lines are nothing that perf script prints"
            self.notes.append(f"{odd:,} {lines}, the first at byte {self._odd.at}")
        if self._lines.cut:
            self.notes.append(f"{self._lines.cut:,} {'line was' if self._lines.cut == 1 else 'lines were'} too long and cut")
        if self._source.cut:
            self.notes.append("its end is missing: what gzip packed is not whole")
        if self._owners.alone:
            self.notes.append("it has one number for each thread and not that of its process: it is taken for both")
        if self._owners.homeless:
            self.notes.append("it does not say on which core a sample was taken: it is -1")
