"""A histogram of times as one line: a column for each power of two, from below a microsecond to a minute."""

from collections.abc import Sequence
from math import log10
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
PLAIN: Final = ".:-=+*#%@"
EMPTY: Final = "·"
# Where a bucket begins, for the axis: each takes three columns or more.
_MARKS: Final = {1: "1µs", 5: "16µs", 11: "1ms", 15: "16ms", 21: "1s", 25: "16s"}
_HALF_MARKS: Final = {1: "1µs", 6: "1ms", 11: "1s"}


def strip(buckets: Sequence[int], marked: Sequence[int] = (), ascii_only: bool = False) -> str:
    """The more, the higher, on a scale of powers of ten: one event among a million is to be seen. Nothing is a dot, and where
    `marked` has something there is an exclamation mark."""
    ramp, empty = (PLAIN, " ") if ascii_only else (BLOCKS, EMPTY)
    top = max(1.0, log10(max(buckets, default=0) or 1))
    cells = [empty if not count else ramp[int(log10(count) / top * (len(ramp) - 1))] for count in buckets]
    return "".join("!" if at < len(marked) and marked[at] else cell for at, cell in enumerate(cells))


def halved(buckets: Sequence[int]) -> list[int]:
    """Two columns in one, for narrow terminals. The first, below a microsecond, stays alone; the others are powers of four."""
    rest = [sum(buckets[at : at + 2]) for at in range(1, len(buckets), 2)]
    return [*buckets[:1], *rest]


def axis(columns: int, half: bool = False) -> str:
    """Below the strips: where the powers of two are."""
    line = [" "] * columns
    for at, text in (_HALF_MARKS if half else _MARKS).items():
        for i, letter in enumerate(text):
            if at + i < columns:
                line[at + i] = letter
    return "".join(line)
