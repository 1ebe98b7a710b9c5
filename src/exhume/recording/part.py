"""A part of a recording in time, as a recording of its own: what was read in it, and what was known by then."""

from collections.abc import Iterable

import numpy as np

from exhume.recording.columns import IntColumn
from exhume.recording.recording import Ints, Recording, Table
from exhume.recording.schema import TABLES

# What was counted once and holds until it is counted again, or tells by its history where something comes from.
_LASTING = ("memcg", "memcg_walk", "cgroup_dirs", "cgroup_events", "units", "processes")
_DICTIONARIES = ("stacks", "frames", "threads", "anchors")


def part(recording: Recording, start: int, end: int) -> Recording:
    """From `start` to before `end`. Dictionaries and clock are shared, not copied; counters and sources that did not change
    have a row at `start`."""
    cut = Recording(recording.node)
    for name, table in list(recording.tables.items()):
        if name in _DICTIONARIES:
            cut.take_over(recording, name)
            continue
        times = table.ints("time")
        if name in _LASTING:
            _take(table, np.flatnonzero(times < end), cut[name])
        elif name in ("counters", "sources"):
            _take(
                table,
                np.flatnonzero((times >= start) & (times < end)),
                cut[name],
                _before(recording, name, times, start),
                start,
            )
        else:
            _take(table, np.flatnonzero((times >= start) & (times < end)), cut[name])
    return cut


def _before(recording: Recording, name: str, times: Ints, start: int) -> list[int]:
    """The last row of each series, or source, before that moment."""
    rows = np.flatnonzero(times < start)
    rows = rows[np.argsort(times[rows], kind="stable")]
    series = recording.derived(name, _series if name == "counters" else _sources)
    _, last = np.unique(series[rows][::-1], return_index=True)
    found: list[int] = rows[::-1][last].tolist()
    return found


def _series(recording: Recording) -> Ints:
    table = recording["counters"]
    return _numbered(zip(table.texts("name"), table.texts("labels"), strict=True), len(table))


def _sources(recording: Recording) -> Ints:
    table = recording["sources"]
    return _numbered(table.texts("name"), len(table))


def _numbered(keys: Iterable[object], count: int) -> Ints:
    numbers: dict[object, int] = {}
    return np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, count)


def _take(table: Table, rows: Ints, into: Table, known: list[int] | None = None, at: int = 0) -> None:
    """These rows, after those that were known before, which are given the time `at`."""
    before = np.array(known or [], dtype=np.int64)
    chosen = np.concatenate((before, rows))
    columns: dict[str, object] = {}
    for column in TABLES[table.schema.name].columns:
        values = table.column(column.name)
        if isinstance(values, IntColumn):
            ints = values.ints()[chosen]
            if column.kind == "time" and len(before):
                ints[: len(before)] = at
            columns[column.name] = ints
        else:
            columns[column.name] = [values[row] for row in chosen.tolist()]
    into.add_columns(columns)  # type: ignore[arg-type]
