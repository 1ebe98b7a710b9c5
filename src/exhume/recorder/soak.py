"""A recording of minutes or hours that stays in memory: what comes and goes among cgroups and units while a new image runs.

Of the readers only those that tell of leaks and loops, in a rhythm that grows with the time, so that what is kept does not.
"""

import time
from collections.abc import Callable

import numpy as np

from exhume.host.cgroups import Tree
from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.kernel.clock import Clock
from exhume.recorder.loop import Crew, Source, clock_state, said
from exhume.recording.recording import Ints, Recording
from exhume.sources.cgroup_events import CgroupEvents
from exhume.sources.facts import facts
from exhume.sources.journal import UnitJournal
from exhume.sources.memcg import Memcg
from exhume.sources.processes import Processes
from exhume.sources.reader import Reader
from exhume.sources.units import Units
from exhume.sources.zombies import Zombies

# What one source may take of a core: a soak is to show what the image does, not what we do.
SHARE = 0.01
# Readings of each source, about, however long the soak is; never more often than in the rhythm given.
COUNTS, MOMENTS = 600, 60
RHYTHM = {"memcg": (SECOND, COUNTS), "units": (5 * SECOND, MOMENTS), "processes": (10 * SECOND, MOMENTS)}
# Of cgroup events that are kept: about 40 MB. What is let go first is what left nothing behind.
MOST_EVENTS = 200_000
# How often what was read is taken over, and how often somebody may look whether that is enough.
COLLECT_NS, LOOKS = SECOND, 200


def soak(
    root: Root,
    for_ns: int,
    progress: Callable[[float], None] | None = None,
    enough: Callable[[Recording], bool] | None = None,
    strict: bool = False,
) -> Recording:
    """Watch the node for so long, or until `enough` says that there is nothing more to wait for."""
    tree = Tree(root)
    recording = Recording(facts(root, tree.layout))
    with Clock() as clock:
        others = [Source(reader, clock.now()) for reader in _readers(root, tree, for_ns)]
        _anchor(recording, clock)
        crew = Crew(others, recording.node, clock.now, strict, SHARE)
        start = time.monotonic_ns()
        looked, cost = start, 0
        while (now := time.monotonic_ns()) < start + for_ns:
            time.sleep(min(COLLECT_NS, start + for_ns - now) / 1e9)
            crew.look_after()
            crew.collect(recording)
            _anchor(recording, clock)
            _let_go(recording)
            now = time.monotonic_ns()
            if progress is not None:
                progress(min(1.0, (now - start) / for_ns))
            if enough is not None and now - looked >= max(for_ns // LOOKS, round(cost / SHARE)):
                looked = now
                _tell(recording, others, crew)
                if enough(_as_it_is(recording)):
                    break
                cost = time.monotonic_ns() - looked
        crew.finish(recording)
        _anchor(recording, clock)
        _tell(recording, others, crew)
        recording.add_source(clock.now(), "clock", clock_state(clock))
    for source in others:
        if isinstance(source.reader, CgroupEvents):
            source.reader.close()
    return _as_it_is(recording)


def _readers(root: Root, tree: Tree, for_ns: int) -> list[Reader]:
    """Events first: what dies between the first count and the first event would be seen by neither."""
    readers: list[Reader] = [
        CgroupEvents(root),
        Memcg(root, tree),
        Zombies(root, tree, again_ns=0),
        Units(root),
        UnitJournal(root),
        Processes(root),
    ]
    for reader in readers:
        if reader.name in RHYTHM:
            shortest, readings = RHYTHM[reader.name]
            reader.every_ns = max(shortest, for_ns // readings)
    return readers


def _as_it_is(recording: Recording) -> Recording:
    """The same tables, without what was worked out from them before: that is only known to hold while no rows are added."""
    same = Recording(recording.node)
    same.tables.update(recording.tables)
    return same


def _anchor(recording: Recording, clock: Clock) -> None:
    anchor = clock.anchor()
    recording["anchors"].add(anchor.perf_ns, anchor.monotonic_ns, anchor.boot_ns, anchor.real_ns, anchor.error_ns)


def _tell(recording: Recording, others: list[Source], crew: Crew) -> None:
    """The last word of each source; what it said before is forgotten."""
    recording.tables.pop("sources", None)
    for source in others:
        recording.add_source(*said(source, crew))


def _let_go(recording: Recording, most: int = MOST_EVENTS) -> None:
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
