"""A histogram of times as one line: a column for each power of two, from below a microsecond to a minute."""

from collections.abc import Sequence
from math import log10
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
EMPTY: Final = "·"
# Where a bucket begins, for the axis: each takes three columns or more.
_MARKS: Final = {1: "1us", 5: "16us", 11: "1ms", 15: "16ms", 21: "1s", 25: "16s"}


def strip(buckets: Sequence[int], marked: Sequence[int] = ()) -> str:
    """The more, the higher, on a scale of powers of ten: one event among a million is to be seen. Nothing is a dot, and where
    `marked` has something there is an exclamation mark."""
    top = max(1.0, log10(max(buckets, default=0) or 1))
    cells = [EMPTY if not count else BLOCKS[int(log10(count) / top * (len(BLOCKS) - 1))] for count in buckets]
    return "".join("!" if at < len(marked) and marked[at] else cell for at, cell in enumerate(cells))


def axis(columns: int) -> str:
    """Below the strips: where the powers of two are."""
    line = [" "] * columns
    for at, text in _MARKS.items():
        for i, letter in enumerate(text):
            if at + i < columns:
                line[at + i] = letter
    return "".join(line)
