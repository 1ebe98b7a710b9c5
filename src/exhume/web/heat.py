"""GET /api/heat: the subsecond-offset heat map, a column a second of the clock on the wall, in fiftieths of it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from exhume.pictures.heat import of_cores, offsets_together
from exhume.recording import chosen
from exhume.recording.choice import Choice
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS, SECOND
from exhume.web import heat_cells
from exhume.web.heat_cells import Flags
from exhume.web.parameters import Query
from exhume.web.replies import Complaint
from exhume.web.symbols import of_symbol
from exhume.web.view import View

# What is counted sample by sample takes about a second for each ten million.
MOST_SAMPLES = 60_000_000
_PIECE_S = 600
# To decompress waits for nobody: two are almost twice as fast.
_THREADS = 2


def heat(view: View, query: Query) -> dict[str, Any]:
    store, folder = view.store, view.store.folder
    start, end = query.window(store.window(folder))
    choice, symbol = query.choice(), query.pattern("symbol")
    wanted = heat_cells.seconds_of(start, end, folder.real_ns(start))
    base, seconds = wanted.base, wanted.number + 1
    if choice.of_threads or symbol is not None:
        _not_too_many(view, folder, wanted.number)
    ready = 1.0
    if symbol is not None:
        parts = of_symbol(folder, base, seconds, choice, symbol)
        _, recorded = view.builder.outline.offsets(base, seconds)
    elif choice.cores is not None or choice.of_threads:
        parts, recorded = _read(view, folder, base, seconds, choice)
    else:
        parts, recorded, ready = _all_cores(view, folder, base, seconds)
    return heat_cells.answer(parts, recorded, wanted, store.us(wanted.first), ready)


def _not_too_many(view: View, folder: Folder, seconds: int) -> None:
    if seconds * max(1, folder.node.cpus) * max(1, view.store.hz) > MOST_SAMPLES:
        raise Complaint(413, f"more than {MOST_SAMPLES:,} samples would have to be looked at: choose a shorter window", "to")


def _all_cores(view: View, folder: Folder, base: int, seconds: int) -> tuple[Ints, Flags, float]:
    """From the outline, but for a short window that it does not have yet, or not any more as it is."""
    outline = view.builder.outline
    end = min(base + seconds * SECOND, folder.window[1] + 1)
    known = outline.known(outline.place(base), outline.place(end - 1) + 1)
    if seconds <= _PIECE_S and (view.store.live or known < 1.0):
        return *_read(view, folder, base, seconds, Choice()), 1.0
    view.builder.begun()
    return *outline.offsets(base, seconds), 1.0 if known >= 1.0 else view.builder.ready


def _read(view: View, folder: Folder, base: int, seconds: int, choice: Choice) -> tuple[Ints, Flags]:
    """A piece of the summaries at a time: of one core over hours only its own rows are kept."""
    parts: Ints = np.zeros((seconds, OFFSETS), dtype=np.int64)
    recorded = np.zeros(seconds, dtype=np.bool_)

    def read(first: int) -> None:
        if view.ended:
            raise Complaint(503, "the server ends")
        last = min(seconds, first + _PIECE_S)
        start, end = base + first * SECOND, base + last * SECOND
        summary = chosen.summary(folder, start, end, choice)
        recorded[first:last] = heat_cells.recorded(summary, start, last - first)
        if choice.cores is not None:
            summary = of_cores(summary, tuple(choice.cores))
        parts[first:last] = offsets_together(summary, start, last - first)

    # Of threads the samples themselves are read: no more than a piece of them is in memory at once.
    with ThreadPoolExecutor(1 if choice.of_threads else _THREADS, "exhume-heat") as threads:
        for _ in threads.map(read, range(0, seconds, _PIECE_S)):
            pass
    return parts, recorded
