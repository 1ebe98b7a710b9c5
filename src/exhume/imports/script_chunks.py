"""A long text of perf script cut at its blank lines, and what is the same in all of it read at once.

perf pads its columns (tools/perf/builtin-script.c, util/evsel_fprintf.c), so the ends of most first lines are of one form, and
so are the frames that lead nowhere. numpy reads them at whatever place they are, without making an object of each.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.imports import script_clock
from exhume.recording.recording import Ints

# A frame that leads nowhere: a tab, "%16lx" with a blank in front, this. Their addresses hardly ever come again.
_NOWHERE = b" [unknown] ([unknown])"
_ADDRESS = 16
_ZERO = b"0".rjust(_ADDRESS)
_LINE = 1 + _ADDRESS + len(_NOWHERE)
_DIGIT = np.zeros(256, dtype=bool)
_DIGIT[list(b"0123456789abcdef")] = True


class Chunks(NamedTuple):
    """What is between blank lines, as places in a text."""

    text: bytes
    begin: Ints
    first: Ints
    """Where the first line ends."""
    end: Ints
    rest: int
    """What is behind the last blank line begins there."""


def cut(text: bytes) -> Chunks:
    """The text of these is as long as that which was given; all frames in it that lead nowhere have the address 0."""
    newlines = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10)
    before = np.concatenate(([-1], newlines[:-1]))
    length = newlines - before - 1
    blank = np.flatnonzero(length == 0)
    rest = int(newlines[blank[-1]]) + 1 if len(blank) else 0
    first = np.concatenate(([0], blank[:-1] + 1))[: len(blank)]
    some = first < blank
    first, blank = first[some], blank[some]
    return Chunks(_leveled(text, before[length == _LINE] + 1), before[first] + 1, newlines[first], before[blank], rest)


def lines(text: bytes) -> Chunks:
    """Each line is one."""
    end = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10)
    end = end if text.endswith(b"\n") else np.append(end, len(text))
    begin = np.concatenate(([0], end[:-1] + 1))[: len(end)]
    return Chunks(text, begin, end, end, len(text))


def _leveled(text: bytes, lines: Ints) -> bytes:
    """The same with other addresses in those of these lines that lead nowhere."""
    if not len(lines):
        return text
    lines = lines[_at(text, lines + 1 + _ADDRESS, len(_NOWHERE)).view(f"S{len(_NOWHERE)}")[:, 0] == _NOWHERE]
    begin = _at(text, lines, 1 + _ADDRESS)
    digit, blank = _DIGIT[begin[:, 1:]], begin[:, 1:] == 0x20
    right = blank[:, 0] & digit[:, -1] & (digit | blank).all(axis=1) & ~(digit[:, :-1] & blank[:, 1:]).any(axis=1)
    changed = bytearray(text)
    places = np.ndarray(len(text) - _ADDRESS + 1, dtype=f"S{_ADDRESS}", buffer=changed, strides=(1,))
    places[lines[right & (begin[:, 0] == 0x09)] + 1] = _ZERO
    return bytes(changed)


def _at(text: bytes, places: Ints, width: int) -> NDArray[np.uint8]:
    """So many bytes from each of these places on."""
    windows = np.ndarray(len(text) - width + 1, dtype=f"V{width}", buffer=text, strides=(1,))
    return windows[places].view(np.uint8).reshape(-1, width)


class Form(NamedTuple):
    """How a first line ends."""

    clock: int
    """The bytes of the time."""
    end: bytes
    """What is behind it."""


def fronts(chunks: Chunks, form: Form) -> tuple[list[bytes], Ints] | None:
    """What is in front of the times, and the times, if all first lines end like that; None if they do not."""
    text, clock, end = chunks.text, form.clock, form.end
    front = chunks.first - len(end) - clock - 1
    if not len(front) or (front < chunks.begin).any() or end.endswith(b"\0"):  # numpy takes them for padding
        return None
    if not (_at(text, chunks.first - len(end), len(end)).view(f"S{len(end)}")[:, 0] == end).all():
        return None
    table = _at(text, front, 1 + clock)
    if (table[:, 0] != 0x20).any() or (time := script_clock.columns(table[:, 1:])) is None:
        return None
    return [text[one:other] for one, other in zip(chunks.begin.tolist(), front.tolist(), strict=True)], time
