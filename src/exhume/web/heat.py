"""GET /api/heat: the subsecond-offset heat map, a column a second of the clock on the wall, in fiftieths of it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exhume.pictures.heat import of_cores, offsets_together
from exhume.recording import chosen
from exhume.recording.choice import Choice
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints
from exhume.recording.summary import OFFSETS, SECOND
from exhume.web.numbers import encoded
from exhume.web.parameters import Query
from exhume.web.replies import Complaint
from exhume.web.symbols import of_symbol
from exhume.web.view import View

MOST_COLUMNS = 4096
# What is counted sample by sample takes about a second for each ten million.
MOST_SAMPLES = 60_000_000
_PIECE_S = 600
_PART = SECOND // OFFSETS

Flags = NDArray[np.bool_]


def heat(view: View, query: Query) -> dict[str, Any]:
    store, folder = view.store, view.store.folder
    start, end = query.window(store.window(folder))
    choice, symbol = query.choice(), query.pattern("symbol")
    first = start - folder.real_ns(start) % SECOND
    seconds = -(-(end - first) // SECOND)
    base = first // SECOND * SECOND
    late = round((first - base) / _PART)
    if choice.of_threads or symbol is not None:
        _not_too_many(view, folder, seconds)
    ready = 1.0
    if symbol is not None:
        parts = of_symbol(folder, base, seconds + 1, choice, symbol)
        _, recorded = view.builder.outline.offsets(base, seconds + 1)
    elif choice.cores is not None or choice.of_threads:
        parts, recorded = _read(view, folder, base, seconds + 1, choice)
    else:
        parts, recorded, ready = _all_cores(view, folder, base, seconds + 1)
    flat = parts.reshape(-1)[late : late + seconds * OFFSETS].reshape(seconds, OFFSETS)
    there: Flags = np.repeat(recorded, OFFSETS)[late : late + seconds * OFFSETS].reshape(seconds, OFFSETS).max(axis=1)
    width = -(-seconds // MOST_COLUMNS)
    cells, known = _merged(flat, there, width)
    most = int(cells.max(initial=0))
    scaled = -(-cells * 255 // max(1, most))
    return {
        "start": store.us(first),
        "seconds": seconds,
        "seconds_per_column": width,
        "columns": len(cells),
        "rows": OFFSETS,
        "cells": encoded(scaled.astype(np.uint8)),
        "most": most,
        "unknown": encoded(np.packbits(~known, bitorder="little")),
        "ready": round(ready, 3),
    }


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
    return *outline.offsets(base, seconds), 1.0 if known >= 1.0 else view.builder.ready


def _read(view: View, folder: Folder, base: int, seconds: int, choice: Choice) -> tuple[Ints, Flags]:
    """A piece of the summaries at a time: of one core over hours only its own rows are kept."""
    parts: Ints = np.zeros((seconds, OFFSETS), dtype=np.int64)
    recorded = np.zeros(seconds, dtype=np.bool_)
    for first in range(0, seconds, _PIECE_S):
        if view.ended:
            raise Complaint(503, "the server ends")
        last = min(seconds, first + _PIECE_S)
        start, end = base + first * SECOND, base + last * SECOND
        summary = chosen.summary(folder, start, end, choice)
        at = (summary.time - start) // SECOND
        recorded[first + at[(at >= 0) & (at < last - first)]] = True
        if choice.cores is not None:
            summary = of_cores(summary, tuple(choice.cores))
        parts[first:last] = offsets_together(summary, start, last - first)
    return parts, recorded


def _merged(parts: Ints, recorded: Flags, width: int) -> tuple[Ints, Flags]:
    """Columns of several seconds: their sums, and whether any of them was recorded."""
    more = -len(parts) % width
    padded, known = np.pad(parts, ((0, more), (0, 0))), np.pad(recorded, (0, more))
    return padded.reshape(-1, width, OFFSETS).sum(axis=1), known.reshape(-1, width).max(axis=1)
