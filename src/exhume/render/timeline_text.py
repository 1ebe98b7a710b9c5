"""The timeline for the terminal: a row a lane, in blocks, one time axis below them."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from exhume.host.quantities import MILLISECOND, SECOND, milliseconds
from exhume.render.lanes import Shares
from exhume.render.scene import Clock
from exhume.render.timeline import Timeline
from exhume.text import printable

BLOCKS = "▁▂▃▄▅▆▇█"
LEFT = 16
_RIGHT = 26
_NARROWEST, _WIDEST = 16, 100
_UNKNOWN = "┊"
_NOTHING = "·"
_MOST_STRIPS = 2
_FULL = 0.95
_MOST_BARS = 2
Paint = Callable[..., str]
"""Colours text by names of colours, or does not (cli.terminal.Style)."""


def room(columns: int) -> int:
    """How many columns of time fit."""
    return max(_NARROWEST, min(_WIDEST, columns - LEFT - _RIGHT - 2))


def lines(picture: Timeline, clock: Clock, columns: int, paint: Paint) -> list[str]:
    """The rows of a timeline that was made with `room(columns)` columns."""
    cells = picture.columns
    rows = _Rows(cells, columns, paint)
    for strip in picture.strips[:_MOST_STRIPS]:
        text = _painted(_strip(strip.shown), (strip.shown >= _FULL).tolist(), paint, "red")
        rows.add(f"core {strip.core}", text, f"{strip.measure} up to {strip.most:.0%}")
    for count in picture.counts[:1]:
        rows.add(count.name, _strip(count.heights, " "), count.told)
    for bars in picture.bars[:_MOST_BARS]:
        longest = max(span.end - span.start for span in bars.spans)
        marks = _marks(((span.start, span.end) for span in bars.spans), picture, cells, "━")
        rows.add(f"{printable(bars.name, LEFT - 7)} late", marks, f"longest {milliseconds(longest / MILLISECOND)}")
    for restarts in picture.restarts[:1]:
        marks = _marks(((time, time) for time in restarts.times), picture, cells, "↻")
        rows.add("restarts", marks, f"{restarts.total:,} of {printable(restarts.unit, _RIGHT - 8)}")
    if picture.flags:
        marks = _marks(((flag.time, flag.time) for flag in picture.flags), picture, cells, "!")
        worst = [(flag.time, flag.time) for flag in picture.flags if flag.severity == "critical"]
        rows.add("kernel log", _marks(worst, picture, cells, "▼", marks), "! warning  ▼ critical")
    return [*rows.lines, *_axis(picture, clock, cells)] if rows.lines else []


class _Rows:
    """Name, cells and what they say; that last only where there is room for it."""

    def __init__(self, cells: int, columns: int, paint: Paint) -> None:
        self.lines: list[str] = []
        self._room = columns - LEFT - 1 - cells - 2
        self._paint = paint

    def add(self, name: str, cells: str, told: str) -> None:
        said = f"  {self._paint(told, 'dim')}" if len(told) <= self._room else ""
        self.lines.append(f"  {name:<{LEFT - 2}.{LEFT - 2}} {cells}{said}")


def _strip(shares: Shares, unknown: str = _UNKNOWN) -> str:
    return "".join(
        unknown if np.isnan(share) else BLOCKS[min(len(BLOCKS) - 1, int(share * len(BLOCKS)))] for share in shares.tolist()
    )


def _painted(text: str, full: Iterable[bool], paint: Paint, colour: str) -> str:
    """Runs of what is full in a colour."""
    parts = []
    for hot, run in groupby(zip(text, full, strict=True), key=itemgetter(1)):
        cells = "".join(cell for cell, _ in run)
        parts.append(paint(cells, colour) if hot else cells)
    return "".join(parts)


def _marks(
    spans: Iterable[tuple[int, int]], picture: Timeline, cells: int, mark: str, under: Sequence[str] | None = None
) -> str:
    row = list(under) if under is not None else [_NOTHING] * cells
    length = picture.end - picture.start
    for start, end in spans:
        if end < picture.start or start >= picture.end:
            continue
        first = max(0, (start - picture.start) * cells // length)
        last = min(cells - 1, max(first, (min(end, picture.end) - 1 - picture.start) * cells // length))
        row[first : last + 1] = mark * (last + 1 - first)
    return "".join(row)


def _axis(picture: Timeline, clock: Clock, cells: int) -> list[str]:
    """Times at the left ends of what they are written below, as exact as they are far apart."""
    text = ""
    told = clock.short if (picture.end - picture.start) * 20 // cells >= SECOND else clock.exact
    for part in range(0, cells, 20):
        if cells - part >= 8 and len(text) <= part:
            time = told(picture.start + (picture.end - picture.start) * part // cells)
            text = text.ljust(part) + time + " "
    return [" " * (LEFT + 1) + text.rstrip()]
