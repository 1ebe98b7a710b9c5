"""GET /api/about and /api/overview: what is shown, and the whole of it at a glance, which never takes more than the outline."""

from typing import Any

from exhume.render.lanes import edges_of
from exhume.web.described import Shown, described
from exhume.web.numbers import numbers
from exhume.web.parameters import Query
from exhume.web.view import View

MOST_COLUMNS = 4096


def about(view: View, query: Query, counted: bool = True) -> dict[str, Any]:
    """To count samples takes a look into every segment."""
    store, folder = view.store, view.store.folder
    _, end = store.window(folder)
    shown = Shown(
        name=store.name,
        node=folder.node,
        cores=view.builder.outline.cores,
        origin=store.origin,
        kept_from=folder.window[0],
        end=end,
        real_ns=folder.real_ns(store.origin),
        live=store.live,
        hz=store.hz,
        samples=view.samples(folder) if counted else None,
        sampled=folder.has_samples,
        boots=folder.boots,
        notes=folder.notes,
        clock=view.clock.readings(folder, store.origin, end),
    )
    return {
        **described(shown),
        "initial": view.initial and {"from": store.us(view.initial[0]), "to": store.us(view.initial[1])},
        "ready": round(view.builder.ready, 3),
        "incidents_ready": view.incidents.ready,
    }


def overview(view: View, query: Query) -> dict[str, Any]:
    columns = query.integer("columns", 1, MOST_COLUMNS, 1000)
    view.builder.begun()
    store, outline = view.store, view.builder.outline
    start, end = store.window(store.folder)
    edges = edges_of(start, end, columns)
    ready, incidents_ready = min(view.builder.ready, view.builder.lines_ready), view.incidents.ready
    return {
        "columns": columns,
        "from": store.us(start),
        "to": store.us(end),
        "kernel": numbers(outline.columns("kernel", edges), 3),
        "busy": numbers(outline.columns("busy", edges, mean=True), 3),
        "zombies": numbers(outline.columns("zombies", edges), 0),
        "incidents": view.incidents.found(),
        "incidents_more": view.incidents.more,
        "incidents_ready": incidents_ready,
        "incidents_failed": view.incidents.failed,
        "ready": round(ready, 3),
    }
