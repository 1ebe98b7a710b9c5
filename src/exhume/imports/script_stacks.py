"""Stacks of perf script by their text: what was seen once is looked up, as a whole or line by line.

Of a whole text only its hash is kept, 64 bits of SipHash with a key of this process (PEP 456): of a hundred thousand texts two
have the same once in four thousand million files, and the texts themselves would take most of the memory.
"""

import sys
from collections.abc import Callable, Hashable, Sequence
from itertools import repeat

import numpy as np

from exhume.imports import script_frames, script_sample
from exhume.imports.interner import Interner
from exhume.recording.arrays import unique
from exhume.recording.recording import Ints

_LONGEST = 4 << 20
"""A stack of more text than this is torn apart."""
_TEXT = 100
"""So many bytes are kept of a text, about."""
_ROW = 200
"""The same of a frame or a stack that has a number."""
_key: Callable[[bytes], Hashable] = hash if sys.hash_info.width >= 64 else bytes


class _Lines(dict[bytes, int]):
    """The numbers of frames, -1 for one that is inlined; what is no frame is no key, whatever is asked."""

    def __init__(self, interner: Interner) -> None:
        super().__init__()
        self._interner = interner
        self._functions: dict[bytes, int] = {}
        self.nowhere = 0
        """The number of the frame that leads nowhere."""
        self.inlined = False
        """Whether there was any."""
        self.remembered = 0
        self.names = 0

    def __missing__(self, line: bytes) -> int:
        function = script_frames.function(line) if line.startswith(b"\t") else b""
        if function:
            number = self._functions.get(function) or self._parsed(line, function)
        elif self.nowhere and script_frames.NOWHERE_LINE.fullmatch(line) is not None:
            number = self.nowhere
        else:
            number = self._parsed(line, b"")
        self[line] = number
        self.remembered += len(line) + _TEXT
        return number

    def _parsed(self, line: bytes, function: bytes) -> int:
        frame = script_frames.parse(line)
        if frame is None or not (line.startswith(b"\t") or self._padded(line)):
            raise KeyError(line)
        if frame.inlined:
            self.inlined = True
            return -1
        number = self._interner.frame(frame.name, frame.module, frame.space, frame.offset)
        self.names += len(line) + _ROW
        if frame == script_frames.NOWHERE:
            self.nowhere = number
        if function:
            self._functions[function] = number
            self.remembered += len(function) + _TEXT
        return number

    @staticmethod
    def _padded(line: bytes) -> bool:
        """Whether it may be a frame though it begins with blanks, where a terminal had a tab: so do other things."""
        return line.startswith(b" ") and not script_frames.beside(line) and script_sample.parse(line) is None

    def learn(self, line: bytes) -> bool:
        """Whether it is a frame."""
        try:
            return self[line] != 0
        except KeyError:
            return False

    def forget(self) -> None:
        self.clear()
        self._functions.clear()
        self.nowhere = self.remembered = 0


class Stacks:
    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self.lines = _Lines(interner)
        self._start()

    def _start(self) -> None:
        # Callers, the innermost first, by what their text has as its key; stacks by their callers << 32 | the innermost frame.
        self._texts: dict[Hashable, int] = {_key(b""): 0}
        self._below: dict[Hashable, int] = {_key(b""): 0}
        self._chains: dict[tuple[int, ...], int] = {(): 0}
        self._frames: list[tuple[int, ...]] = [()]
        self._stacks: dict[int, int] = {0: 0}
        self._parts: list[int] = [0]
        self._numbers = np.zeros(1024, dtype=np.int64)
        self._remembered = 0

    @property
    def remembered(self) -> int:
        """Bytes of text that are kept, about."""
        return self._remembered + self.lines.remembered

    @property
    def names(self) -> int:
        """Bytes of frames and stacks that were new, since this was set to 0, about."""
        return self.lines.names

    @names.setter
    def names(self, value: int) -> None:
        self.lines.names = value

    def forget(self) -> None:
        """All texts; what they stand for keeps its number."""
        self.lines.forget()
        self._start()

    def number(self, text: bytes, idle: int) -> int:
        """The number of a stack; 0 if there is something else in its lines."""
        stack = self.one(text)
        if stack < 0:
            return 0
        wanted = stack << 1 | idle
        known = self._numbers.item(wanted) if wanted < len(self._numbers) else 0
        return known or self.numbers(np.array([wanted], dtype=np.int64)).item()

    def one(self, text: bytes) -> int:
        """Which stack that is; -1 if there is something else in its lines."""
        key = _key(text)
        stack = self._texts.get(key)
        return self._learn(text, key) if stack is None else stack

    def many(self, text: bytes, begins: Sequence[int], ends: Sequence[int]) -> Ints:
        """Which stacks these parts of a text are."""
        key, texts = _key, self._texts
        keys = [key(text[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        found = np.fromiter(map(texts.get, keys, repeat(-1)), dtype=np.int64, count=len(keys))
        new = np.flatnonzero(found < 0).tolist()
        for at in new:
            if (known := keys[at]) not in texts:
                self._learn(text[begins[at] : ends[at]], known)
        found[new] = [texts.get(keys[at], -1) for at in new]
        return found

    def _learn(self, text: bytes, key: Hashable) -> int:
        try:
            stack = self._texts[key] = self._new(text)
        except KeyError:
            return -1
        self._remembered += _TEXT
        return stack

    def _new(self, text: bytes) -> int:
        """The same of a text that is new; KeyError where that is none."""
        innermost, _, below = text.partition(b"\n")
        frame = self.lines[innermost]
        if frame > 0 and frame != self.lines.nowhere:
            key = _key(below)
            callers = self._below.get(key)
            if callers is None:
                callers = self._below[key] = self._chain(self._parsed(below))
                self._remembered += _TEXT
        else:
            whole = self._parsed(text)
            frame, callers = whole[0], self._chain(whole[1:])
        parts = callers << 32 | frame
        stack = self._stacks.setdefault(parts, len(self._parts))
        if stack == len(self._parts):
            self._parts.append(parts)
            self._remembered += _TEXT
        return stack

    def _chain(self, frames: tuple[int, ...]) -> int:
        chain = self._chains.setdefault(frames, len(self._frames))
        if chain == len(self._frames):
            self._frames.append(frames)
            self._remembered += 8 * len(frames) + _TEXT
        return chain

    def _parsed(self, text: bytes) -> tuple[int, ...]:
        """Frames, the innermost first."""
        known = self.lines
        lines = text.split(b"\n")
        frames = tuple(map(known.__getitem__, lines))
        if known.inlined and -1 in frames:
            frames = self._inlined(lines, frames)
        # Where code has no frame pointers the chain leads into data: such a stretch says no more than one of it.
        nowhere = known.nowhere
        if frames.count(nowhere) > 1:
            before = (0, *frames)
            frames = tuple(one for one, last in zip(frames, before, strict=False) if one != nowhere or last != nowhere)
        return frames

    def _inlined(self, lines: list[bytes], numbers: tuple[int, ...]) -> tuple[int, ...]:
        """The same with frames for what was inlined: it is where its caller is."""
        found, caller = [], b""
        for line, number in zip(reversed(lines), reversed(numbers), strict=True):
            if number < 0:
                inlined, outer = script_frames.parse(line), script_frames.parse(caller) or script_frames.NOWHERE
                number = self._interner.frame(inlined.name if inlined is not None else "", outer.module, outer.space)
            else:
                caller = line
            found.append(number)
        return tuple(reversed(found))

    def numbers(self, wanted: Ints) -> Ints:
        """The numbers of stacks that were found, given as that << 1 | whether it is of an idle task."""
        if len(self._numbers) < 2 * len(self._parts):
            more = np.zeros(4 * len(self._parts) - len(self._numbers), dtype=np.int64)
            self._numbers = np.concatenate((self._numbers, more))
        found = self._numbers[wanted]
        new = unique(wanted[found == 0])
        for one in new.tolist():
            parts = self._parts[one >> 1]
            frames = (*reversed(self._frames[parts >> 32]), parts & 0xFFFFFFFF) if parts else ()
            self._numbers[one] = self._interner.stack(frames, bool(one & 1))
            self.lines.names += 8 * len(frames) + _ROW
        return self._numbers[wanted] if len(new) else found


def _belongs(text: bytes, begin: int) -> bool:
    """Whether the line that begins there is of the sample before it."""
    end = text.find(b"\n", begin)
    return text[begin : begin + 1] in (b"\t", b"") or script_frames.beside(text[begin : end if end >= 0 else None])


def whole(text: bytes) -> tuple[bytes, bytes]:
    """What is certainly whole of these lines, and the last sample, of which more may follow."""
    end = text.rfind(b"\n\n") + 2
    if end == 1 and (end := text.rfind(b"\r\n\r\n") + 4) == 3:
        end = len(text)
        while end > 0 and (end := text.rfind(b"\n", 0, end - 1) + 1) and _belongs(text, end):
            pass
    if len(text) - end > _LONGEST:
        end = len(text)
    return text[:end], text[end:]
