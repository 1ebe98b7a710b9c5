"""GET /api/about and /api/overview: what is shown, and the whole of it at a glance, which never takes more than the outline."""

from typing import Any

from exhume import __version__
from exhume.web.numbers import edges_of, numbers
from exhume.web.parameters import Query
from exhume.web.view import View

MOST_COLUMNS = 4096


def about(view: View, query: Query) -> dict[str, Any]:
    store, folder = view.store, view.store.folder
    _, end = store.window(folder)
    node = folder.node
    cores = sorted({*range(node.cpus), *view.builder.outline.cores})
    samples = view.samples(folder)
    return {
        "name": store.name,
        "node": {"hostname": node.hostname, "boot_id": node.boot_id, "cgroups": node.cgroups, "cpus": node.cpus},
        "kernel": node.kernel,
        "cores": cores,
        "start_ns": str(store.origin),
        "duration_us": store.us(end),
        "kept_us": max(0, store.us(folder.window[0])),
        "real_start_ms": folder.real_ns(store.origin) / 1e6 if store.has_wall else 0,
        "has_wall": store.has_wall,
        "live": store.live,
        "hz": store.hz,
        "samples": samples,
        "sampled": samples > 0,
        "boots": folder.boots,
        "version": __version__,
        "initial": view.initial and {"from": store.us(view.initial[0]), "to": store.us(view.initial[1])},
        "notes": folder.notes[:20],
        "ready": round(view.builder.ready, 3),
        "incidents_ready": view.incidents.ready,
    }


def overview(view: View, query: Query) -> dict[str, Any]:
    columns = query.number("columns", 1, MOST_COLUMNS, 1000)
    store, outline = view.store, view.builder.outline
    start, end = store.window(store.folder)
    edges = edges_of(start, end, columns)
    return {
        "columns": columns,
        "from": store.us(start),
        "to": store.us(end),
        "kernel": numbers(outline.columns("kernel", edges), 3),
        "busy": numbers(outline.columns("busy", edges, mean=True), 3),
        "zombies": numbers(outline.columns("zombies", edges), 0),
        "incidents": view.incidents.found(),
        "incidents_ready": view.incidents.ready,
        "ready": round(view.builder.ready, 3),
    }
