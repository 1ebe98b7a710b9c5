"""Fills the outline of a recording in the background: a coarse pass over all of it first, so that something is seen at once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND
from exhume.recording.readable import Readable
from exhume.recording.recording import Ints
from exhume.recording.summary import EMPTY, OFFSETS, Summary
from exhume.render import lanes
from exhume.render.lanes import CLASSES, TICKS_A_SECOND, Counted, Marks
from exhume.web.outline import Outline
from exhume.web.quiet import Quiet
from exhume.web.rates import NONE, Rates, rates
from exhume.web.store import Store

# Segments that are read at once: a segment's neighbours are looked into each time, and so many are little memory yet.
_SEGMENTS = 10
# Readings of all cores for longer than this would be.
_TICKS_S = 120
# Rows may come so late.
_LATE_S = 3
_LOOK_AGAIN_S = 2.0
_MOST_MARKS = 20_000
_COARSE = 8
# Decompressing waits for nobody: two are almost twice as fast.
_THREADS = 2
# How long a part of it waits for those who are asked something.
_POLITE_S = 0.25
# Who asks first waits for so many parts, and no longer than that.
_SOME, _SOME_S = 2, 1.0

Range = tuple[int, int]
"""Cells of the outline, the last one outside."""


class Builder:
    """One thread, which ends with the process."""

    def __init__(self, store: Store, quiet: Quiet | None = None) -> None:
        self._store = store
        self._quiet = quiet or Quiet()
        folder = store.folder
        start, end = store.window(folder)
        self.outline = Outline(start, -(-(end - start) // SECOND) + 1, folder.node.cpus, float(store.hz or 100))
        self._marks: dict[Range, Marks] = {}
        self._done = 0
        """Cells up to here cannot change any more."""
        self._ticks: bool | None = None
        self._sampled = False
        """Something of the cores came from stack samples."""
        self._first_pass, self._second_pass = 0.0, 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._some = threading.Event()
        """A few parts were read, or there are no more."""
        self._thread = threading.Thread(target=self._run, name="exhume-outline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._some.set()  # nobody waits for it any more

    @property
    def ready(self) -> float:
        """How much of the cores is read; lines and marks follow."""
        return self._first_pass

    def begun(self) -> None:
        """Waits for the first part of it: an answer without any would be asked for again, and later than that is there."""
        if self._thread.is_alive():
            self._some.wait(_SOME_S)

    @property
    def lines_ready(self) -> float:
        return self._second_pass

    @property
    def source(self) -> str:
        """What the cores of the outline are made of: `ticks`, `samples`, or the `summary` of samples where a shorter window
        has the ticks, too, and with them steal."""
        if not self._sampled and (self._first_pass or not self._store.hz):
            return "ticks"
        # What we recorded ourselves has them as a rule; what was brought in from elsewhere has not.
        counted = self._ticks if self._ticks is not None else "format" not in self._store.folder.about
        return "summary" if counted else "samples"

    def marks(self, start: int, end: int) -> Marks:
        with self._lock:
            parts = list(self._marks.values())
        return lanes.joined(parts, start, end)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.update()
            except (ExhumeError, OSError):  # it is being removed: what was read stays on the screen
                self._first_pass = self._second_pass = 1.0
            self._some.set()
            if self._stop.wait(_LOOK_AGAIN_S):
                return

    def update(self) -> None:
        """Read what is new. Of a recording that does not grow there is nothing after the first time."""
        folder = self._store.folder
        for _ in range(self.outline.fit(folder.window[1])):
            self._doubled()
        ranges, settled = self._ranges(folder)
        taken = rates(folder) if ranges else NONE

        def read(number: int, part: Range) -> None:
            self._read_cores(folder, taken, number >= _SOME, *part)

        with ThreadPoolExecutor(_THREADS, "exhume-outline") as threads:
            reading = threads.map(read, range(len(ranges)), spread(ranges))
            for number, _ in enumerate(reading, 1):
                self._first_pass = max(self._first_pass, number / len(ranges))
                if number >= min(_SOME, len(ranges)):
                    self._some.set()
        if self._stop.is_set():
            return
        if ranges:
            self._has_ticks(folder)
        for number, part in enumerate(ranges, 1):
            if self._stop.is_set():
                return
            self._quiet.wait(_POLITE_S)
            self._read_others(folder, *part)
            self._second_pass = max(self._second_pass, number / len(ranges))
        self._first_pass = self._second_pass = 1.0
        self._done = settled

    def _doubled(self) -> None:
        """Cells are twice as wide as before."""
        self._done //= 2
        with self._lock:
            parts, self._marks = self._marks, {}
            for (first, last), found in parts.items():
                part = first // 2, -(-last // 2)
                self._marks[part] = lanes.together(self._marks[part], found) if part in self._marks else found

    def _ranges(self, folder: Readable) -> tuple[list[Range], int]:
        """What to read, some segments at a time, and up to where it will not have to be read again."""
        outline = self.outline
        end = outline.place(folder.window[1]) + 1
        if self._done >= end:
            return [], self._done
        spans = folder.spans
        begins = sorted({outline.place(span.start) for span in spans})[::_SEGMENTS]
        edges = [self._done, *(at for at in begins if at > self._done), end]
        edges = sorted({edge for edge in edges if edge <= end})
        open_from = min((outline.place(one.start) for one in spans if not one.sealed), default=end)
        settled = open_from - -(-_LATE_S // outline.width) if self._store.live else end
        return [(first, last) for first, last in pairwise(edges) if first < last], max(0, settled)

    def _read_cores(self, folder: Readable, taken: Rates, later: bool, start: int, end: int) -> None:
        if later:
            self._some.wait(_SOME_S)  # those who ask wait for that, too, and go first then
        if self._some.is_set():
            self._quiet.wait(_POLITE_S)
        if self._stop.is_set():
            return
        outline = self.outline
        summary = folder.summary(outline.moment(start), outline.moment(end))
        if len(summary.time):
            self._sampled = True
            outline.put(start, end, summary, scale=taken.scaled(summary.time, outline.a_second, SECOND))
            return
        outline.put(start, end, EMPTY)
        step = max(1, _TICKS_S // outline.width)
        for first in range(start, end, step) if self._has_ticks(folder) else ():
            last = min(end, first + step)
            counted = lanes.ticks(folder, self._edges(first, last))
            if counted is not None and not self._stop.is_set():
                made = as_summary(counted, outline.moment(first), outline.width)
                outline.put(first, last, *made, outline.a_second / TICKS_A_SECOND)

    def _has_ticks(self, folder: Readable) -> bool:
        if not self._ticks and (self._ticks is None or self._store.live):
            self._ticks = folder.count("cpu") > 0
        return self._ticks

    def _read_others(self, folder: Readable, start: int, end: int) -> None:
        first, last = self.outline.moment(start), self.outline.moment(end)
        for line in lanes.lines_around(folder, self._edges(start, end)):
            self.outline.put_line(line.key, start, line.values)
        found = lanes.marks_around(folder, first, last)
        with self._lock:
            self._marks = {part: known for part, known in self._marks.items() if part[0] < start or part[0] >= end}
            self._marks[start, end] = found
            while sum(len(part.flags) + len(part.bars) for part in self._marks.values()) > _MOST_MARKS:
                most = max(self._marks, key=lambda part: len(self._marks[part].flags) + len(self._marks[part].bars))
                self._marks[most] = _halved(self._marks[most])

    def _edges(self, start: int, end: int) -> Ints:
        return self.outline.first + np.arange(start, end + 1, dtype=np.int64) * (self.outline.width * SECOND)


def spread(ranges: list[Range]) -> Iterator[Range]:
    """Each eighth first, then those between, so that a long recording is seen as a whole from the begin on."""
    return chain.from_iterable(ranges[first::_COARSE] for first in (0, 4, 2, 6, 1, 5, 3, 7))


def as_summary(counted: Counted, start: int, width: int) -> tuple[Summary, NDArray[np.float64]]:
    """Ticks as if they were samples, and the steal time, which samples do not know."""
    counts = np.rint(counted.counts).astype(np.int64)
    core, second = np.nonzero(counted.counts.sum(axis=1) > 0)
    columns = [counts[core, place, second] for place in range(len(CLASSES) - 1)]
    numbers = np.array(counted.cores, dtype=np.int64)[core]
    order = np.lexsort((numbers, second))
    offsets = np.zeros((len(core), OFFSETS), dtype=np.uint8)
    rows = [start + second * width * SECOND, numbers, *columns]
    return Summary._make([*(column[order] for column in rows), offsets]), counted.counts[core, -1, second][order]


def _halved(part: Marks) -> Marks:
    flags = sorted(part.flags, key=lambda flag: (flag.severity != "critical", flag.time))
    kept = sorted(flags[: len(flags) // 2])
    bars = sorted(part.bars, key=lambda bar: bar.start - bar.end)[: (len(part.bars) + 1) // 2]
    return Marks(tuple(kept), part.left_out + len(flags) - len(kept), tuple(sorted(bars)), part.restarts, part.resets)
