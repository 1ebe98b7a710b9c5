"""GET /api/flame: the stacks of a selection as columns of a tree, alone or beside those of another time."""

from typing import Any, cast

import numpy as np

from exhume.host.quantities import SECOND
from exhume.recording.choice import Choice
from exhume.recording.folder import Folder
from exhume.render.flame import BYS, By, Profile, Tree, plant, select
from exhume.web.baseline import baseline
from exhume.web.parameters import Query
from exhume.web.replies import Complaint
from exhume.web.view import View

MOST_SAMPLES = 200_000_000
# Branches with a smaller share of the samples of both windows are left out: narrower than any pixel.
_LEAST = 1 / 20_000


def flame(view: View, query: Query) -> dict[str, Any]:
    store, folder = view.store, view.store.whole
    whole = store.window(folder)
    start, end = query.window(whole)
    choice = query.choice()
    by, reverse = query.word("by", BYS, "process"), query.flag("reverse", False)
    before, how = _before(view, folder, query, (start, end), choice)
    now = _selected(view, folder, (start, end), choice)
    then = _selected(view, folder, before, choice) if before is not None else None
    answer = _answer(plant(*now, cast(By, by), "frame" if choice.idle else "none", reverse, then))
    if before is not None:
        answer["baseline"] = {"from": store.us(before[0]), "to": store.us(before[1]), "how": how}
    elif query.asked("base"):
        answer["baseline"] = None
    return {"from": store.us(start), "to": store.us(end), **answer}


def _before(
    view: View, folder: Folder, query: Query, window: tuple[int, int], choice: Choice
) -> tuple[tuple[int, int] | None, str]:
    """The time to compare with, and where that is from."""
    given = query.asked("base_from") or query.asked("base_to")
    if query.word("base", ("auto", "none"), "none") == "auto":
        if given:
            raise Complaint(400, "base=auto chooses the other time by itself: leave base_from and base_to out", "base")
        core = next(iter(choice.cores)) if choice.cores is not None and len(choice.cores) == 1 else None
        found = baseline(view, folder, window, core)
        shorter = found is not None and found[1] - found[0] < window[1] - window[0]
        return found, "quiet and the nearest, but shorter" if shorter else "as long, quiet and the nearest"
    if not given:
        return None, ""
    for name in ("base_from", "base_to"):
        if not query.asked(name):
            raise Complaint(400, "base_from and base_to go together", name)
    return query.window(view.store.window(folder), "base_from", "base_to"), "chosen"


def _selected(view: View, folder: Folder, window: tuple[int, int], choice: Choice) -> Profile:
    cores = None if choice.cores is None else tuple(choice.cores)
    length = (window[1] - window[0]) / SECOND
    if length * (len(cores) if cores is not None else max(1, folder.node.cpus)) * max(1, view.store.hz) > MOST_SAMPLES:
        raise Complaint(413, f"that may be more than {MOST_SAMPLES:,} samples: choose a shorter window, or cores", "to")
    profile = view.store.profile(folder, *window, cores)
    tally = select(profile.tally, profile.dictionaries, None, choice.comm, choice.pids, choice.cgroup, choice.tids)
    return tally, profile.dictionaries


def _answer(tree: Tree) -> dict[str, Any]:
    """Names and modules once each: a tree has far fewer of them than nodes."""
    wide = tree.wide(_LEAST)
    label = tree.label[wide]
    names: dict[str, int] = {}
    modules: dict[str, int] = {}
    name_of = np.zeros(len(tree.labels), dtype=np.int64)
    module_of = np.zeros(len(tree.labels), dtype=np.int64)
    kinds = np.full(len(tree.labels), ord("u"), dtype=np.uint8)
    for used in np.unique(label).tolist():
        kind, name, module = tree.labels[used]
        name_of[used] = names.setdefault(name, len(names))
        module_of[used] = modules.setdefault(module, len(modules))
        kinds[used] = ord(_KINDS[kind])
    return {
        "total": tree.total,
        "base_total": tree.base_total,
        "idle": tree.idle,
        "names": list(names),
        "modules": list(modules),
        "depth": tree.depth[wide].tolist(),
        "name": name_of[label].tolist(),
        "module": module_of[label].tolist(),
        "kind": kinds[label].tobytes().decode("ascii"),
        "value": tree.value[wide].tolist(),
        "base": tree.base[wide].tolist(),
        "left_out": len(tree) - len(label),
    }


_KINDS = {
    "all": "g",
    "core": "g",
    "process": "g",
    "thread": "g",
    "user": "u",
    "python": "p",
    "jit": "j",
    "kernel": "k",
    "idle": "i",
}
