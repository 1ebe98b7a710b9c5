"""A recording of minutes or hours that stays in memory: what comes and goes among cgroups and units while a new image runs."""

import time
from collections.abc import Callable

import numpy as np

from exhume.host.root import Root
from exhume.recorder import profiles
from exhume.recorder.memory import Memory
from exhume.recorder.recorder import Options, Recorder, Status
from exhume.recording.recording import Ints, Recording

# Of a core, what it may take to look whether that is enough, and how often it is looked at most.
SHARE, LOOKS = 0.01, 200
# Of cgroup events that are kept: about 40 MB. Those go first that left nothing behind.
MOST_EVENTS = 200_000


def soak(
    root: Root,
    for_ns: int,
    progress: Callable[[float], None] | None = None,
    enough: Callable[[Recording], bool] | None = None,
    strict: bool = False,
) -> Recording:
    """Watch the node for so long, or until `enough` says that there is nothing more to wait for."""
    ended = False
    looked, cost = time.monotonic_ns(), 0

    def look(_: Status) -> None:
        nonlocal ended, looked, cost
        drop_released(store.recording)
        now = time.monotonic_ns()
        if enough is not None and now - looked >= max(for_ns // LOOKS, round(cost / SHARE)):
            looked = now
            ended = enough(_as_it_is(store.recording))
            cost = time.monotonic_ns() - looked

    with Recorder(root, profiles.soak(for_ns), Options(strict=strict)) as recorder:
        store = Memory(recorder.node)
        recorder.run(store, for_ns, lambda: ended, look, progress)
    return _as_it_is(store.recording)


def _as_it_is(recording: Recording) -> Recording:
    """The same tables, without what was worked out from them before: that is only known to hold while no rows are added."""
    same = Recording(recording.node)
    same.tables.update(recording.tables)
    return same


def drop_released(recording: Recording, most: int = MOST_EVENTS) -> None:
    """Forget groups that came, went and were released, the oldest first, until half of the room is free."""
    table = recording["cgroup_events"]
    if len(table) <= most:
        return
    ids, kinds = table.ints("id").tolist(), table.texts("kind")
    # Before 5.5 a number is used again once it was released: only what is before its last release is over.
    released = {number: row for row, (number, kind) in enumerate(zip(ids, kinds, strict=True)) if kind == "release"}
    over = [row for row, number in enumerate(ids) if row <= released.get(number, -1)]
    gone = np.array(over[: len(table) - most // 2], dtype=np.int64)
    keep = np.setdiff1d(np.arange(len(table)), gone)
    columns: dict[str, Ints | list[str]] = {}
    for column in table.schema.columns:
        if column.kind in ("time", "int"):
            columns[column.name] = table.ints(column.name)[keep]
        else:
            texts = table.texts(column.name)
            columns[column.name] = [texts[row] for row in keep.tolist()]
    kept = Recording(recording.node)["cgroup_events"]
    kept.add_columns(columns)
    recording.tables["cgroup_events"] = kept
