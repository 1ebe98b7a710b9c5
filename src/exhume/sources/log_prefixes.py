"""What most lines of a flood begin with: the driver, device or subsystem that prints them, counted in a bounded table.

Lines that come now and then are not kept: a series is begun for what comes often enough in one reading to be part of a flood.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from exhume.recording.recording import Labels, Recording, labels

# Series that are followed, different beginnings in one reading, and how many of them are told of it.
MOST = 64
MOST_FRESH = 1024
MOST_TOLD = 8
# Lines of one beginning in one reading below which it is no flood's.
FEWEST = 10
LONGEST = 160
"""Of the line that is given as an example."""

# `driver address device: text`, `subsystem: text`: what is before the first colon with a space behind it. A line without one
# is known by its first two words.
_HEAD = re.compile(rb"\s*([^\n]{1,48}?): ")
_WORDS = re.compile(rb"\s*(\S{1,24}(?: \S{1,24})?)")
_DIGITS = re.compile(rb"\d+")


def head(text: bytes) -> bytes:
    """What a line begins with."""
    match = _HEAD.match(text) or _WORDS.match(text)
    return match[1] if match is not None else b""


def prefix(text: bytes) -> bytes:
    """The same, its numbers left out: one message about a thousand queues is one message."""
    return _DIGITS.sub(b"#", head(text))


@dataclass(slots=True)
class _Fresh:
    """Lines of one beginning since the last reading."""

    count: int
    example: bytes
    head: bytes
    same: bool = True
    """Whether all of them begin with the same numbers, too: then it is one device."""


@dataclass(slots=True)
class _Series:
    at: Labels
    count: int = 0
    last: int = 0
    """When it was last told of."""


class Prefixes:
    """Counts under one counter's name, with the labels `prefix` and `example`."""

    def __init__(self, name: str, unescaped: Callable[[bytes], str]) -> None:
        self.total = 0
        self._name = name
        self._unescaped = unescaped
        self._fresh: dict[bytes, _Fresh] = {}
        self._series: dict[bytes, _Series] = {}
        self._before: int | None = None

    def add(self, text: bytes) -> None:
        self.total += 1
        begins = head(text)
        key = _DIGITS.sub(b"#", begins)
        known = self._fresh.get(key)
        if known is not None:
            known.count += 1
            known.same = known.same and known.head == begins
        elif len(self._fresh) < MOST_FRESH:
            self._fresh[key] = _Fresh(1, text, begins)

    def tell(self, recording: Recording, time: int) -> None:
        """One row for each that came often since the last call, and one of zero before it for each that is new."""
        often = [(fresh.count, key) for key, fresh in self._fresh.items() if fresh.count >= FEWEST or key in self._series]
        for count, key in sorted(often, reverse=True)[:MOST_TOLD]:
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = _Series(self._labels(key, self._fresh[key]))
                if self._before is not None:
                    recording.count(self._before, self._name, 0, series.at)
            series.count += count
            series.last = time
            recording.count(time, self._name, series.count, series.at)
        while len(self._series) > MOST:
            del self._series[min(self._series, key=lambda key: (self._series[key].last, key))]
        self._fresh.clear()
        self._before = time

    def _labels(self, key: bytes, fresh: _Fresh) -> Labels:
        example = self._unescaped(fresh.example[: 4 * LONGEST])[:LONGEST]
        return labels(prefix=self._unescaped(fresh.head if fresh.same else key), example=example)
