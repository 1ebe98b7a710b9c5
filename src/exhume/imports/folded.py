"""Folded stacks, one line a stack and how often it was seen, as the FlameGraph tools write them: `comm;f;g_[k] 12`.

They have no times. A recording is made of samples in time, so one is made up for each; what is counted is right.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from exhume.errors import ExhumeError
from exhume.imports.incoming import HEAD, Anchor, Axis, Damaged, Ids, Import, Input, Lines, Wanted
from exhume.imports.interner import Interner
from exhume.recording.recording import Node, Recording
from exhume.text import decode

MOST = 50_000_000
"""More samples than this are scaled down."""
STEP_NS = 10_000_000
_BATCH = 1 << 16
_SOME = 3
_HEAD = 1 << 18
_READ = 1 << 20
_REMEMBERED = 32 << 20
_NAMES = 64 << 20
# What flamegraph.pl knows frames by (stackcollapse-perf.pl --all): kernel, code made at run time, inlined.
_KERNEL, _JIT, _INLINED = b"_[k]", b"_[j]", b"_[i]"
_COUNT = re.compile(rb"\d{1,18}", re.ASCII)
_TWO = re.compile(rb".*[^ ] \d{1,18} \d{1,18}\s*", re.ASCII | re.DOTALL)  # difffolded.pl: before and after
# stackcollapse-perf.pl --pid and --tid, which writes ? for a number that perf did not print; others put it into brackets.
_TASK = re.compile(rb"(.+)-(\d{1,9}|\?)(?:/(\d{1,9}))?|(.+?) ?\[(\d{1,9})\]", re.ASCII | re.DOTALL)


def looks(head: bytes) -> bool:
    """Some lines may be something else, as what a shell said among them; how many is for `opened` to judge."""
    if b"\0" in head:
        return False
    told, good = _lines(head)
    stacks = sum(1 for _, line in good if b";" in line)
    if not stacks or len(good) * 10 > len(told) * 9:
        return bool(stacks)
    most = len(good) * 2 > len(told) and stacks * 2 >= len(good)
    return most or (stacks >= _SOME and stacks * 10 > len(told))


def _lines(head: bytes) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """The first lines with their numbers, and those of them that are stacks with a count."""
    lines = head.split(b"\n")
    if len(lines) > 1:
        lines.pop()
    told = [(at, line) for at, line in enumerate(lines[:1000], 1) if line.strip() and not line.startswith(b"#")]
    return told, [(at, line) for at, line in told if parse(line) is not None]


def parse(line: bytes) -> tuple[bytes, int] | None:
    """The stack and its count."""
    stack, _, count = line.rstrip().rpartition(b" ")
    stack = stack.strip()
    return (stack, int(count)) if stack and _COUNT.fullmatch(count) is not None else None


def task(text: bytes) -> tuple[bytes, int, int]:
    """comm, pid and tid of `comm-pid/tid`; -1 for what it does not say."""
    found = _TASK.fullmatch(text)
    if found is None:
        return text, -1, -1
    if found[5] is not None:
        return found[4], int(found[5]), int(found[5])
    pid = -1 if found[2] == b"?" else int(found[2])
    return found[1], pid, int(found[3]) if found[3] is not None else pid


def opened(source: Input, wanted: Wanted) -> Import:
    told, good = _lines(source.head(HEAD))
    if len(good) * 2 < len(told):
        known = {at for at, _ in good}
        odd = next(at for at, _ in told if at not in known)
        raise Damaged(
            f"{source.name} has stacks with a count, but {len(told) - len(good):,} of its first {len(told):,} lines from byte "
            f"0 on are none, line {odd:,} to begin with: most must be"
        )
    return _Folded(source, bool(good) and all(_TWO.fullmatch(line) for _, line in good))


class _Reader:
    """A file of which the place is ours alone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.at = 0

    def read(self) -> bytes:
        try:
            found = os.pread(self._descriptor, _READ, self.at)
        except OSError as error:
            raise ExhumeError(f"folded stacks cannot be read at byte {self.at}: {error.strerror}") from error
        self.at += len(found)
        return found


class _Copied:
    """What is read, kept in a file to be read again: of a pipe, or of what was packed."""

    def __init__(self, source: Input, into: BinaryIO) -> None:
        self._source = source
        self._into = into

    @property
    def at(self) -> int:
        return self._source.at

    def read(self) -> bytes:
        found = self._source.read()
        try:
            self._into.write(found)
        except OSError as error:
            raise ExhumeError(f"{self._source.name} cannot be unpacked to be read twice: {error.strerror}") from error
        return found


class _Folded:
    def __init__(self, source: Input, two: bool = False) -> None:
        self._two = two
        self.axis: Axis = "boot"
        self.node = Node("", "", "", "", 1)
        self.about: dict[str, str | int | bool] = {"hz": 0, "event": "", "times": "made up"}
        self.anchors: list[Anchor] = []
        self.notes = ["folded stacks have no times: order and times are made up"]
        if two:
            self.notes.append("it has two counts in each line, before and after: the second was taken")
        self._source = source
        self._numbered = _numbered(source.head(_HEAD))
        self._interner: Interner | None = None
        self._known: dict[bytes, tuple[int, int]] = {}
        self._frames: dict[bytes, int] = {}
        self._kernel: set[int] = set()
        self._remembered = self._new_names = 0
        self._odd, self._odd_at, self._odd_line = 0, -1, 0

    @property
    def full(self) -> bool:
        return self._new_names > _NAMES or (self._interner is not None and self._interner.full)

    def forget(self) -> None:
        if self._interner is not None:
            self._interner.forget()
        self._clear()
        self._new_names = 0

    def batches(self, ids: Ids) -> Iterator[Recording]:
        self._interner = Interner(ids)
        if self._source.seekable:
            yield from self._twice(Lines(_Reader(self._source.fileno())), Lines(self._source))
            return
        with tempfile.TemporaryFile() as kept:
            copy = _Reader(kept.fileno())
            yield from self._twice(Lines(_Copied(self._source, kept)), Lines(copy), kept)

    def _twice(self, first: Lines, again: Lines, kept: BinaryIO | None = None) -> Iterator[Recording]:
        """Count all, then give them: only so it is known by how much they must be scaled down."""
        total = 0
        try:
            for block in first.blocks():
                total += sum(found[1] for line in block.split(b"\n") if (found := parse(line)) is not None)
        except ExhumeError as error:
            if not total:
                raise
            self.notes.append(f"what follows is lost: {error}")
        if kept is not None:
            kept.flush()
        if total > MOST:
            self.notes.append(f"{total:,} samples are too many to be made up: scaled down to {MOST:,}")
        yield from self._given(again, total)
        if self._odd:
            lines = "line is no stack with a count" if self._odd == 1 else "lines are no stacks with a count"
            where = f"line {self._odd_line:,}, at byte {self._odd_at}"
            self.notes.append(f"{self._odd:,} {lines}: left out ({'the first is ' if self._odd > 1 else ''}{where})")
        if again.cut:
            self.notes.append(f"{again.cut:,} {'line was' if again.cut == 1 else 'lines were'} too long and cut")
        if self._source.cut:
            self.notes.append("its end is missing: what gzip packed is not whole")

    def _given(self, lines: Lines, total: int) -> Iterator[Recording]:
        kept, total = min(total, MOST), total or 1  # all may be 0
        seen = given = waiting = number = 0
        rows: list[tuple[int, int, int]] = []
        for block in lines.blocks():
            at = lines.at
            for number, line in enumerate(block.split(b"\n"), number or 1):  # noqa: B020 - a block ends where the next begins
                if (found := parse(line)) is not None:
                    seen += found[1]
                    # Rounded over all that came before, so that many small ones keep their share together.
                    count = seen * kept // total - given - waiting
                    thread, stack = (
                        self._numbers(found[0].rpartition(b" ")[0] if self._two else found[0]) if count > 0 else (0, 0)
                    )
                    while count > 0:
                        now = min(count, _BATCH - waiting)
                        rows.append((thread, stack, now))
                        waiting, count = waiting + now, count - now
                        if waiting == _BATCH:
                            yield self._batch(rows, given)
                            rows, given, waiting = [], given + waiting, 0
                elif line.strip() and not line.startswith(b"#"):
                    self._odd += 1
                    if self._odd_at < 0:
                        self._odd_at, self._odd_line = at, number
                at += len(line) + 1
            if self.full and rows:
                yield self._batch(rows, given)
                rows, given, waiting = [], given + waiting, 0
            if self._remembered > _REMEMBERED:
                self._clear()
        if rows:
            yield self._batch(rows, given)

    def _batch(self, rows: list[tuple[int, int, int]], before: int) -> Recording:
        assert self._interner is not None
        batch = Recording(self.node)
        self._interner.write(batch)
        thread, stack, count = np.array(rows, dtype=np.int64).T
        number = int(count.sum())
        batch["samples"].add_columns(
            {
                "time": (np.arange(number, dtype=np.int64) + before) * STEP_NS,
                "core": np.zeros(number, dtype=np.int64),
                "thread": np.repeat(thread, count),
                "stack": np.repeat(stack, count),
            }
        )
        return batch

    def _clear(self) -> None:
        self._known.clear()
        self._frames.clear()
        self._kernel.clear()
        self._remembered = 0

    def _numbers(self, text: bytes) -> tuple[int, int]:
        """Thread and stack."""
        found = self._known.get(text)
        if found is None:
            assert self._interner is not None
            first, *names = text.split(b";")
            comm, pid, tid = task(first) if self._numbered else (first, -1, -1)
            frames: list[int] = []
            for name in names:
                frames.append(self._frame(name, frames))
            idle = pid == 0 or comm.startswith(b"swapper")
            stack = self._interner.stack(tuple(frames), idle)
            found = self._known[text] = (self._interner.thread(pid, tid, decode(comm)), stack)
            self._remembered += len(text)
            self._new_names += len(comm) + 8 * len(frames)
        return found

    def _frame(self, text: bytes, callers: list[int]) -> int:
        number = self._frames.get(text)
        if number is not None:
            return number
        assert self._interner is not None
        suffix = text[-4:]
        name = decode(text[:-4] if suffix in (_KERNEL, _JIT, _INLINED) else text)
        if name == "[unknown]":
            name = ""
        self._new_names += len(text)
        if suffix == _INLINED:  # not looked up: where it is depends on its caller
            inside = bool(callers) and callers[-1] in self._kernel
            number = self._interner.frame(name, "[kernel]" if inside else "", "kernel" if inside else "user")
            if inside:
                self._kernel.add(number)
            return number
        if suffix == _KERNEL:
            number = self._interner.frame(name, "[kernel]", "kernel")
            self._kernel.add(number)
        else:
            number = self._interner.frame(name, "[jit]" if suffix == _JIT else "", "user")
        self._frames[text] = number
        self._remembered += len(text)
        return number


def _numbered(head: bytes) -> bool:
    """Whether processes have their numbers in their names: then all have, otherwise python-3 is just a name."""
    firsts = [found[0].partition(b";")[0] for line in head.split(b"\n")[:-1] if (found := parse(line)) is not None]
    return bool(firsts) and all(_TASK.fullmatch(first) for first in firsts)
