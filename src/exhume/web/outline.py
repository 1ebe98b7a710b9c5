"""What is kept in memory of the whole recording: what each core did, second by second, and what was counted beside it.

Twelve hours of 96 cores are four million rows of the summary, hundreds of megabytes with their fiftieths. Here they take sixty:
counts in two bytes, fiftieths for all cores together and only where there are any. Where a recording is longer still, grows so
long, or has a log of months beside it, a cell is several seconds.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import SECOND
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS, Summary
from exhume.render.heat import offsets_together
from exhume.render.lanes import CLASSES

Shares = NDArray[np.float32]
MOST_CORE_CELLS = 6_000_000
MOST_CELLS = 500_000
_MOST = 65_535
_CHUNK = 3_600
_SPARE_S = 600
_SUMMARY = ("idle", "user", "system", "softirq", "irq")
_KERNEL = slice(CLASSES.index("system"), CLASSES.index("irq") + 1)
_BUSY = slice(CLASSES.index("user"), CLASSES.index("irq") + 1)


class Outline:
    """Cells of `width` seconds of the recording's clock, from `first` on. Filled by some threads and read by others."""

    def __init__(self, first: int, seconds: int, cores: int, a_second: float) -> None:
        self.first = first // SECOND * SECOND
        self.width = max(1, -(-seconds * max(1, cores) // MOST_CORE_CELLS), -(-seconds // MOST_CELLS))
        self.a_second = a_second
        """Samples, or ticks, that a core has in a second in which it does not sleep."""
        self.cores: list[int] = []
        """In the order in which they were met."""
        self._lock = threading.Lock()
        cells = self._room(self.place(first + seconds * SECOND))
        self._known, self._recorded = np.zeros(cells, dtype=np.bool_), np.zeros(cells, dtype=np.bool_)
        self._shares: dict[str, Shares] = {name: np.full(cells, np.nan, dtype=np.float32) for name in ("kernel", "busy")}
        """The worst core's kernel time, the mean of what all do, and lines by their key; not a number where not known."""
        # Memory that nothing was put into yet is none: the kernel gives it when it is written to.
        room = max(0, min(cores, 2 * MOST_CORE_CELLS // cells))
        self._counts = np.zeros((cells, room, len(CLASSES)), dtype=np.uint16)
        self._in_kernel = np.zeros((cells, room), dtype=np.uint16)
        """Both with room for cores that were not met yet."""
        self._offsets: dict[int, NDArray[np.uint16]] = {}
        """By hour: busy samples of all cores in every fiftieth of its seconds."""

    def __len__(self) -> int:
        return len(self._known)

    def _room(self, cells: int) -> int:
        """For so many, and for what a live recording adds in a while."""
        return cells + -(-_SPARE_S // self.width)

    def _grow(self, cells: int) -> None:
        more = self._room(cells) - len(self)
        self._known, self._recorded = np.pad(self._known, (0, more)), np.pad(self._recorded, (0, more))
        self._shares = {name: np.pad(each, (0, more), constant_values=np.nan) for name, each in self._shares.items()}
        self._counts, self._in_kernel = _longer(self._counts, 0, more), _longer(self._in_kernel, 0, more)

    def fit(self, time: int) -> int:
        """Make room up to a moment: cells of twice the width as often as they would be too many. How often that was.

        Only while nobody puts anything into it: cells have other numbers then.
        """
        doubled = 0
        with self._lock:
            while self.place(time) > min(MOST_CELLS, MOST_CORE_CELLS // max(1, len(self.cores))):
                self._double()
                doubled += 1
        return doubled

    def _double(self) -> None:
        if len(self) % 2:
            self._grow(len(self) + 1 - self._room(0))  # by one
        self.width *= 2
        self._known, self._recorded = self._known[::2] & self._known[1::2], self._recorded[::2] | self._recorded[1::2]
        self._shares = {
            name: _mean(each[::2], each[1::2]) if name == "busy" else np.fmax(each[::2], each[1::2])
            for name, each in self._shares.items()
        }
        self._counts, self._in_kernel = (
            np.minimum(each[::2], _MOST - each[1::2]) + each[1::2] for each in (self._counts, self._in_kernel)
        )

    def place(self, time: int) -> int:
        """The cell that a moment is in."""
        return (time - self.first) // (self.width * SECOND)

    def moment(self, cell: int) -> int:
        """When a cell begins."""
        return self.first + cell * self.width * SECOND

    def put(
        self,
        start: int,
        end: int,
        summary: Summary,
        steal: NDArray[np.float64] | None = None,
        scale: NDArray[np.float64] | float | None = None,
    ) -> None:
        """What is known of the cells from `start` to before `end`, in place of what was. Counts times `scale` count there."""
        at = (summary.time - self.first) // (self.width * SECOND)
        keep = (at >= start) & (at < end)
        summary, at = Summary._make(column[keep] for column in summary), at[keep] - start
        stolen = np.zeros(len(at)) if steal is None else steal[keep]
        counts = np.stack([*(getattr(summary, name) for name in _SUMMARY), stolen], axis=-1).astype(np.float64)
        if scale is not None:
            counts *= scale if isinstance(scale, float) else scale[keep][:, None]
        shares = _seconds(at, counts, self.a_second, end - start)
        with self._lock:
            if end > len(self):
                self._grow(end)
            column = self._columns_of(summary.core)
            sums = np.zeros((end - start, len(self.cores), len(CLASSES)))
            np.add.at(sums, (at, column), counts)
            if scale is not None:
                np.rint(sums, out=sums)
            self._counts[start:end, : len(self.cores)] = np.minimum(sums, _MOST)
            self._in_kernel[start:end, : len(self.cores)] = np.minimum(sums[:, :, _KERNEL].sum(axis=2), _MOST)
            there = np.bincount(at, minlength=end - start) > 0
            self._shares["kernel"][start:end] = np.where(there, shares[0], np.nan)
            self._shares["busy"][start:end] = np.where(there, shares[1] / (max(1, len(self.cores)) * self.width), np.nan)
            self._put_offsets(start * self.width, end * self.width, summary)
            self._recorded[start:end], self._known[start:end] = there, True

    def _columns_of(self, cores: Ints) -> Ints:
        new = sorted(set(np.unique(cores).tolist()) - set(self.cores))
        if new:
            self.cores = [*self.cores, *new]
            if (more := len(self.cores) - self._in_kernel.shape[1]) > 0:
                self._counts, self._in_kernel = _longer(self._counts, 1, more), _longer(self._in_kernel, 1, more)
        order = np.argsort(self.cores, kind="stable")
        found: Ints = order[np.searchsorted(np.array(self.cores, dtype=np.int64)[order], cores)] if len(cores) else cores
        return found

    def _put_offsets(self, start: int, end: int, summary: Summary) -> None:
        """By second. Hours without samples take no memory."""
        for hour in range(start // _CHUNK, -(-end // _CHUNK)):
            low, high = max(start, hour * _CHUNK), min(end, (hour + 1) * _CHUNK)
            begin = self.first + low * SECOND
            touched = (summary.time >= begin) & (summary.time < self.first + high * SECOND)
            if not touched.any() and hour not in self._offsets:
                continue
            part = summary if touched.all() else Summary._make(column[touched] for column in summary)
            chunk = self._offsets.setdefault(hour, np.zeros((_CHUNK, OFFSETS), dtype=np.uint16))
            together = offsets_together(part, begin, high - low)
            chunk[low - hour * _CHUNK : high - hour * _CHUNK] = np.minimum(together, _MOST)

    def put_line(self, key: str, start: int, values: NDArray[np.float64]) -> None:
        with self._lock:
            if start + len(values) > len(self):
                self._grow(start + len(values))
            if key not in self._shares:
                self._shares[key] = np.full(len(self), np.nan, dtype=np.float32)
            self._shares[key][start : start + len(values)] = values

    def known(self, start: int, end: int) -> float:
        """Of how much of some cells it is known what they hold."""
        with self._lock:
            part = self._known[max(0, start) : max(0, end)]
            return float(part.mean()) if len(part) else 1.0

    def columns(self, what: str, edges: Ints, mean: bool = False) -> Shares:
        """`kernel`, `busy` or a line: the most, or the mean, of the cells between each two edges."""
        with self._lock:
            low, high = self._cells(edges)
            values = self._shares.get(what)
            if values is None:
                return np.full(len(low), np.nan, dtype=np.float32)
            rows, inside = _rows(low, high, len(values))
            part = np.where(inside, values[rows], np.nan)
        there = ~np.isnan(part)
        if mean:
            found = np.where(there, part, 0).sum(axis=1) / np.maximum(1, there.sum(axis=1))
        else:
            found = np.where(there, part, -np.inf).max(axis=1)
        return np.where(there.any(axis=1), found, np.nan).astype(np.float32)

    def worst(self, edges: Ints) -> tuple[list[int], NDArray[np.float64], float]:
        """By core, class and column: of the cells of a column the one with most kernel time; and what a cell may count."""
        with self._lock:
            low, high = self._cells(edges)
            chosen = np.zeros((len(low), len(self.cores), len(CLASSES)))
            some = self._any_recorded(low, high)
            if len(some):
                rows, inside = _rows(low[some], high[some], len(self))
                pick = np.where(inside[:, :, None], self._in_kernel[rows, : len(self.cores)], 0).argmax(axis=1)
                at, there = (np.take_along_axis(each, pick, axis=1) for each in (rows, inside))
                chosen[some] = np.where(there[..., None], self._counts[at, np.arange(len(self.cores))], 0)
            return list(self.cores), chosen.transpose(1, 2, 0), self.a_second * self.width

    def _any_recorded(self, low: Ints, high: Ints) -> Ints:
        """The columns that have something in them: most have not while a long recording is being read."""
        reached = np.append(0, np.cumsum(self._recorded))
        begin, end = (np.clip(each, 0, len(self)) for each in (low, np.maximum(high, low + 1)))
        return np.flatnonzero(reached[end] > reached[begin])

    def _cells(self, edges: Ints) -> tuple[Ints, Ints]:
        """The cells that columns take in: at least the one that a column lies in."""
        at, wide = edges - self.first, self.width * SECOND
        return at[:-1] // wide, -(-at[1:] // wide)

    def offsets(self, base: int, seconds: int) -> tuple[Ints, NDArray[np.bool_]]:
        """Busy samples of all cores by second and fiftieth, and of each second whether anything is known of it."""
        first = (base - self.first) // SECOND
        found: Ints = np.zeros((seconds, OFFSETS), dtype=np.int64)
        with self._lock:
            for hour in range(max(0, first) // _CHUNK, -(-(first + seconds) // _CHUNK)):
                low, high = max(first, hour * _CHUNK), min(first + seconds, (hour + 1) * _CHUNK)
                if hour in self._offsets and low < high:
                    found[low - first : high - first] = self._offsets[hour][low - hour * _CHUNK : high - hour * _CHUNK]
        return found, self.recorded(base, seconds)

    def recorded(self, base: int, seconds: int) -> NDArray[np.bool_]:
        """Of each second whether anything is known of it."""
        with self._lock:
            cells = ((base - self.first) // SECOND + np.arange(seconds)) // self.width
            inside = (cells >= 0) & (cells < len(self))
            return inside & self._recorded[np.clip(cells, 0, max(0, len(self) - 1))]


def _mean(one: Shares, other: Shares) -> Shares:
    """Of what is known of both."""
    return np.where(np.isnan(one), other, np.where(np.isnan(other), one, (one + other) / 2))


def _longer(array: NDArray[np.uint16], axis: int, more: int) -> NDArray[np.uint16]:
    shape = list(array.shape)
    shape[axis] += more
    found = np.zeros(shape, dtype=np.uint16)
    found[tuple(map(slice, array.shape))] = array
    return found


def _seconds(at: Ints, counts: NDArray[np.float64], a_second: float, cells: int) -> tuple[Any, Any]:
    """Of each cell the worst share of kernel time that any core has in a second, and the sum of all that they do."""
    whole = np.maximum(np.maximum(counts.sum(axis=1), a_second), 1)
    kernel, busy = np.zeros(cells), np.zeros(cells)
    np.maximum.at(kernel, at, np.minimum(1.0, counts[:, _KERNEL].sum(axis=1) / whole))
    np.add.at(busy, at, np.minimum(1.0, counts[:, _BUSY].sum(axis=1) / whole))
    return kernel, busy


def _rows(low: Ints, high: Ints, length: int) -> tuple[Ints, NDArray[np.bool_]]:
    """For each column the rows it takes in, as many for all of them, and which of those count."""
    high = np.maximum(high, low + 1)
    most = int((high - low).max(initial=1))
    rows = low[:, None] + np.arange(most)
    inside = (rows < high[:, None]) & (rows >= 0) & (rows < length)
    return np.clip(rows, 0, max(0, length - 1)), inside
