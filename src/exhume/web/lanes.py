"""GET /api/lanes: what cores, counters, logs and units did in a window, in columns of time.

A short window is read as it was recorded. A long one comes from the outline, by second: what it costs grows with the columns.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exhume.errors import NotYet
from exhume.host.quantities import SECOND
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints
from exhume.render.heat import oddness
from exhume.web import lines, marks
from exhume.web.counted import CLASSES, Counted, of_samples, of_ticks
from exhume.web.marks import Marks
from exhume.web.numbers import edges_of, numbers, shares
from exhume.web.parameters import Query
from exhume.web.rates import rates
from exhume.web.view import View

MOST_COLUMNS = 4096
# Seconds of one core that are read as they were recorded: two minutes of 96.
_CLOSE = 12_000
_CLOSE_NS = 600 * SECOND
_SAMPLED_CLOSE = 200_000
_NOT_WHOLE = 0.99
_ODD = 16
_STRIPS = {"system": ("system",), "softirq": ("softirq", "irq"), "user": ("user",), "steal": ("steal",)}

Counts = NDArray[np.float64]


def lanes(view: View, query: Query) -> dict[str, Any]:
    store, folder = view.store, view.store.folder
    start, end = query.window(store.window(folder), cut=False)
    columns = query.integer("columns", 1, MOST_COLUMNS, 600)
    wanted = query.word("cores", ("all", "odd"), "all")
    edges = edges_of(start, end, columns)
    near = end - start <= _CLOSE_NS
    # How much is there is asked before it is taken: what comes meanwhile is shown the next time.
    lines_ready = 1.0 if near else view.builder.lines_ready
    counted, source, cores_ready = _counted(view, folder, edges)
    happened = marks.around(folder, start, end) if near else view.builder.marks(start, end)
    return {
        "from": store.us(start),
        "to": store.us(end),
        "columns": columns,
        "source": source,
        "cores": _cores(counted, edges, folder.window, _ODD if wanted == "odd" else None),
        "lines": _lines(view, folder, edges, near),
        **_marks(view, happened),
        "ready": round(min(cores_ready, lines_ready), 3),
    }


def _counted(view: View, folder: Folder, edges: Ints) -> tuple[Counted, str, float]:
    """Ticks where they were read, samples where not: a perf.data has nothing else. And how complete they are."""
    seconds = max(1, int(edges[-1] - edges[0]) // SECOND)
    cores = max(1, folder.node.cpus)
    share = 1.0
    if seconds * cores <= _CLOSE:
        ticks = of_ticks(folder, edges)
        if ticks is not None and ticks.cores:
            return ticks, "ticks", 1.0
        if seconds * cores * view.store.hz <= _SAMPLED_CLOSE:
            try:
                return of_samples(folder, edges, view.store.hz, rates(folder)), "samples", 1.0
            except NotYet:  # by second is better than nothing, until the samples are there
                share = min(view.store.share, _NOT_WHOLE)
    view.builder.begun()
    share = min(share, view.builder.ready)
    found, counts, a_cell = view.builder.outline.worst(edges)
    # By cells here, not by the width of the column: what a column has is one cell's.
    width = np.diff(edges) / SECOND
    shares = counts / np.maximum(a_cell, 1)
    return Counted(found, shares * width, 1.0), view.builder.source, share


def _cores(counted: Counted, edges: Ints, window: tuple[int, int], most: int | None) -> list[dict[str, Any]]:
    """The oddest first. A core asleep may give no samples: what it did is a share of those that there would be."""
    width = np.diff(edges) / SECOND
    total = counted.counts.sum(axis=1)
    recorded = _recorded(total, edges, window)
    whole = np.maximum(total, counted.a_second * width * 0.9)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where((recorded & (whole > 0))[:, None, :], np.minimum(1.0, counted.counts / whole[:, None, :]), np.nan)
    place = {name: i for i, name in enumerate(CLASSES)}
    strips = {name: share[:, [place[one] for one in parts]].sum(axis=1) for name, parts in _STRIPS.items()}
    kernel = strips["system"] + strips["softirq"]
    busy = kernel + strips["user"]
    odd = oddness(busy, kernel)
    order = np.lexsort((-np.nansum(kernel, axis=1), -np.round(odd, 6)))[:most]
    told = [shares(strip[order]) for strip in strips.values()]
    return [
        {"core": counted.cores[i], "odd": round(float(odd[i]), 3), **dict(zip(strips, of_core, strict=True))}
        for i, *of_core in zip(order.tolist(), *told, strict=True)
    ]


def _recorded(total: Counts, edges: Ints, window: tuple[int, int]) -> NDArray[np.bool_]:
    """Columns that anything is known of. Between two samples of cores asleep may be many narrow ones without any."""
    there: NDArray[np.bool_] = total.sum(axis=0) > 1e-9
    reached = np.append(0, np.cumsum(there))
    low, high = np.searchsorted(edges, edges[:-1] - SECOND // 2), np.searchsorted(edges, edges[1:] + SECOND // 2, "right") - 1
    near = reached[high] > reached[low]
    inside = (edges[1:] > window[0]) & (edges[:-1] <= window[1])
    return np.logical_or(there, near & inside)


def _lines(view: View, folder: Folder, edges: Ints, near: bool) -> list[dict[str, Any]]:
    if near:
        found = lines.around(folder, edges)
    else:
        outline = view.builder.outline
        read = [(kind, outline.columns(kind.key, edges).astype(np.float64)) for kind in lines.KINDS]
        found = [lines.Line(kind.key, kind.title, kind.unit, values) for kind, values in read if np.isfinite(values).any()]
    return [
        {
            "key": line.key,
            "title": line.title,
            "unit": line.unit,
            "values": numbers(line.values, 0 if line.unit == "" else 3),
            "least": float(np.nanmin(line.values)),
            "most": float(np.nanmax(line.values)),
        }
        for line in found
        if np.isfinite(line.values).any()
    ]


def _marks(view: View, happened: Marks) -> dict[str, Any]:
    us = view.store.us
    return {
        "bars": [
            {"title": title, "spans": [[us(bar.start), us(bar.end), bar.core, bar.text] for bar in found]}
            for title, found in marks.by_title(happened.bars)
        ],
        "flags": [
            {"t": us(flag.time), "severity": flag.severity, "kind": flag.kind, "text": flag.text} for flag in happened.flags
        ],
        "flags_left_out": happened.left_out,
        "restarts": [{"t": us(one.time), "unit": one.unit} for one in happened.restarts],
    }
