"""What a segment is told of the time before it: the value of every counter, and the last word of every source."""

from itertools import repeat
from typing import Any

import numpy as np

from exhume.recording import arrow
from exhume.recording.plain import Columns, take
from exhume.recording.recording import Recording

SERIES = 20_000
_SOURCES = ("time", "state", "reason", "cost", "reasons")


class Carry:
    """Counters have a row only when they change; with their last values at its begin, a segment can be read alone."""

    def __init__(self) -> None:
        self.due = False
        """Whether the open segment was not told yet."""
        self._series: dict[tuple[str, str], tuple[int, int]] = {}
        self._sources: dict[str, tuple[int, str, str, int, str]] = {}

    def learn(self, rows: Recording) -> None:
        counters = rows["counters"]
        if len(counters):
            keys = zip(counters.texts("name"), map(arrow.label_json, counters.texts("labels")), strict=True)
            values = zip(counters.ints("time").tolist(), counters.ints("value").tolist(), strict=True)
            self._series.update(zip(keys, values, strict=True))
            if len(self._series) > SERIES:
                self._forget_oldest()
        for row in rows["sources"].rows() if len(rows["sources"]) else ():
            self._sources[row["name"]] = tuple(row[column] for column in _SOURCES)

    def _forget_oldest(self) -> None:
        by_change = sorted(self._series.items(), key=lambda item: item[1][0])
        self._series = dict(by_change[-SERIES * 9 // 10 :])

    def batch(self, table: str, begin: int) -> Any | None:
        """None: there is nothing to tell. A value is never told for a time before it was read."""
        if table == "counters" and self._series:
            names, labels = zip(*self._series, strict=True)
            times, values = zip(*self._series.values(), strict=True)
            when = list(map(max, times, repeat(begin)))
            return arrow.from_columns(table, {"time": when, "name": names, "labels": labels, "value": values})
        if table == "sources" and self._sources:
            columns = dict(zip(_SOURCES, zip(*self._sources.values(), strict=True), strict=True))
            when = list(map(max, columns["time"], repeat(begin)))
            return arrow.from_columns(table, {**columns, "time": when, "name": list(self._sources)})
        return None


def settled(columns: Columns, known: dict[tuple[str, str], int], start: int | None) -> Columns:
    """Counters of one segment, sorted by series, as they follow on what is `known` of earlier segments, which is added to.

    A first row that says what was known anyway was carried, and is left out; rows before `start` become one at `start`.
    """
    time, names, labels, values = (columns[name] for name in ("time", "name", "labels", "value"))
    if not len(time):
        return columns
    begins = np.append(True, (names[1:] != names[:-1]) | (labels[1:] != labels[:-1])).astype(np.bool_)
    keep = np.ones(len(time), dtype=np.bool_)
    if start is not None:
        before = time < start
        keep &= ~before | np.append(begins[1:] | ~before[1:], True)
        time = np.where(before, start, time)
    first, last = np.flatnonzero(begins), np.append(np.flatnonzero(begins)[1:], len(time)) - 1
    for one, final in zip(first.tolist(), last.tolist(), strict=True):
        series = (names[one], labels[one])
        if known.get(series) == values[one]:
            keep[one] = False
        known[series] = int(values[final])
    return take({**columns, "time": time}, np.flatnonzero(keep))
