"""GET /api/lanes: what cores, counters, logs and units did in a window, in columns of time.

A short window is read as it was recorded. A long one comes from the outline, by second: what it costs grows with the columns.
"""

from typing import Any

import numpy as np

from exhume.errors import NotYet
from exhume.host.quantities import SECOND
from exhume.recording.readable import Readable
from exhume.recording.recording import Ints
from exhume.render import lanes as read
from exhume.render.heat import oddness
from exhume.render.lanes import KINDS, STATES, Counted, Line, Marks, edges_of
from exhume.web.numbers import numbers, shares
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
_MOST_BARS = 12


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
    happened = read.marks_around(folder, start, end) if near else view.builder.marks(start, end)
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


def _counted(view: View, folder: Readable, edges: Ints) -> tuple[Counted, str, float]:
    """Ticks where they were read, samples where not: a perf.data has nothing else. And how complete they are."""
    seconds = max(1, int(edges[-1] - edges[0]) // SECOND)
    cores = max(1, folder.node.cpus)
    share = 1.0
    if seconds * cores <= _CLOSE:
        ticks = read.ticks(folder, edges)
        if ticks is not None and ticks.cores:
            return ticks, "ticks", 1.0
        if seconds * cores * view.store.hz <= _SAMPLED_CLOSE:
            try:
                return _sampled(folder, edges, view.store.hz), "samples", 1.0
            except NotYet:  # by second is better than nothing, until the samples are there
                share = min(view.store.share, _NOT_WHOLE)
    view.builder.begun()
    share = min(share, view.builder.ready)
    found, counts, a_cell = view.builder.outline.worst(edges)
    # By cells here, not by the width of the column: what a column has is one cell's.
    width = np.diff(edges) / SECOND
    shares = counts / np.maximum(a_cell, 1)
    return Counted(found, shares * width, 1.0), view.builder.source, share


def _sampled(folder: Readable, edges: Ints, hz: int) -> Counted:
    """Taken at another rate, a sample counts for more, or less."""
    recording = folder.load(int(edges[0]), int(edges[-1]), ("samples", "stacks"))
    each = rates(folder).scaled(recording["samples"].ints("time"), hz) if hz else None
    return read.of_samples(recording, edges, float(hz), each)


def _cores(counted: Counted, edges: Ints, window: tuple[int, int], most: int | None) -> list[dict[str, Any]]:
    """The oddest first."""
    states = counted.states(edges, window)
    system, softirq, user, _ = states.transpose(1, 0, 2)
    kernel = system + softirq
    odd = oddness(kernel + user, kernel)
    order = np.lexsort((-np.nansum(kernel, axis=1), -np.round(odd, 6)))[:most]
    told = [shares(states[order, place]) for place in range(len(STATES))]
    return [
        {"core": counted.cores[i], "odd": round(float(odd[i]), 3), **dict(zip(STATES, of_core, strict=True))}
        for i, *of_core in zip(order.tolist(), *told, strict=True)
    ]


def _lines(view: View, folder: Readable, edges: Ints, near: bool) -> list[dict[str, Any]]:
    if near:
        found = read.lines_around(folder, edges)
    else:
        outline = view.builder.outline
        found = [Line(kind.key, kind.title, kind.unit, outline.columns(kind.key, edges).astype(np.float64)) for kind in KINDS]
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
            {"title": f"{name} late", "spans": [[us(bar.start), us(bar.end), bar.core, bar.text] for bar in found]}
            for name, found in read.by_name(happened.bars, _MOST_BARS)
        ],
        "flags": [
            {"t": us(flag.time), "severity": flag.severity, "kind": flag.kind, "text": flag.text} for flag in happened.flags
        ],
        "flags_left_out": happened.left_out,
        "restarts": [{"t": us(one.time), "unit": one.unit, "times": one.times} for one in happened.restarts],
        "resets": [{"t": us(one.time), "device": one.device, "reason": one.reason} for one in happened.resets],
    }
