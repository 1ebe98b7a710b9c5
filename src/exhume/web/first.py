"""GET /api/first: what the page asks for when it opens, in one answer: what is shown, and the heat map of all of it.

Of a perf.data that is still being looked at, the process that looks makes this answer as well: it has all that it takes, and
the server has not. So the first picture waits for nothing but the look.
"""

import os
from typing import TYPE_CHECKING, Any

from exhume.imports.glance import Looked
from exhume.web.described import Shown, described

if TYPE_CHECKING:
    from exhume.web.parameters import Query
    from exhume.web.view import View

# Of more seconds than that the heat map comes from the outline, which is filled little by little: the page asks for it then.
_MOST_S = 600
# Of more segments than that samples are not counted before the first picture.
_MOST_COUNTED = 20


def first(view: "View", query: "Query") -> dict[str, Any]:
    from exhume.web.heat import heat
    from exhume.web.overview import about
    from exhume.web.parameters import Query

    told = about(view, query, counted=len(view.store.folder.spans) <= _MOST_COUNTED)
    if not 0 < told["duration_us"] <= _MOST_S * 1_000_000 or not told["sampled"] or told["live"]:
        return {"about": told, "heat": None}
    start = int(told["start_ns"])
    window = f"from={start}&to={start + told['duration_us'] * 1_000}"
    return {"about": told, "heat": heat(view, Query(window.encode(), ("from", "to")))}


def of_look(looked: Looked) -> dict[str, Any]:
    """The same of a file that was looked at, before there is a view of it."""
    from exhume.render.heat import Cells, offsets_together, recorded_seconds, seconds_of
    from exhume.web.numbers import heat_map

    start, last = looked.window
    hz = looked.about.get("hz")
    shown = Shown(
        name=os.path.basename(os.path.abspath(looked.path)),
        node=looked.node,
        cores=looked.summary.core.tolist(),
        origin=start,
        kept_from=start,
        end=last + 1,
        real_ns=start - looked.shift,
        live=False,
        hz=hz if isinstance(hz, int) and hz > 0 else 0,
        samples=looked.samples,
        sampled=looked.samples > 0,
        boots=[looked.node.boot_id],
        notes=[],
    )
    told = described(shown)
    about = {**told, "initial": None, "ready": 0.0, "incidents_ready": False}
    end = start + told["duration_us"] * 1_000
    wanted = seconds_of(start, end, shown.real_ns)
    if not 0 < wanted.number <= _MOST_S:
        return {"about": about, "heat": None}
    parts = offsets_together(looked.summary, wanted.base, wanted.number + 1)
    cells = Cells(wanted)
    cells.add(0, parts, recorded_seconds(looked.summary, wanted.base, wanted.number + 1))
    return {"about": about, "heat": heat_map(cells, (wanted.first - start) // 1_000, 1.0)}
