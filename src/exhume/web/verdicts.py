"""GET /api/verdict: why the node starved in a window, with when and on which core each finding was."""

from typing import Any

from exhume.diagnosis.diagnose import AT_ONCE
from exhume.web import judging
from exhume.web.parameters import Query
from exhume.web.replies import Complaint
from exhume.web.view import View


def verdict(view: View, query: Query) -> dict[str, Any]:
    store, folder = view.store, view.store.whole
    start, end = query.window(store.window(folder))

    def judge() -> dict[str, Any]:
        if end - start <= AT_ONCE:
            return judging.verdict(folder, store.thresholds, store.origin, start, end)
        found = view.judges.verdict(folder, store.thresholds, store.origin, start, end, query.unwanted)
        if found is None:
            raise Complaint(503, "the window could not be judged; exhume diagnose says why")
        return found

    return judging.kept(store, folder, start, end, judge)
