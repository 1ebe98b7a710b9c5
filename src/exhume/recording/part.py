"""A part of a recording in time, as a recording of its own: what was read in it, and what was known by then."""

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
    for name, table in recording.tables.items():
        if name in _DICTIONARIES or not len(table):
            cut.tables[name] = table
            continue
        times = table.ints("time")
        if name in _LASTING:
            _take(table, np.flatnonzero(times < end), cut[name])
        elif name in ("counters", "sources"):
            _take(table, np.flatnonzero((times >= start) & (times < end)), cut[name], _before(table, name, times, start), start)
        else:
            _take(table, np.flatnonzero((times >= start) & (times < end)), cut[name])
    return cut


def _before(table: Table, name: str, times: Ints, start: int) -> list[int]:
    """The last row of each series, or source, before that moment."""
    rows = np.flatnonzero(times < start)
    rows = rows[np.argsort(times[rows], kind="stable")]
    numbers: dict[object, int] = {}
    keys = zip(table.texts("name"), table.texts("labels"), strict=True) if name == "counters" else iter(table.texts("name"))
    series = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(table))
    _, last = np.unique(series[rows][::-1], return_index=True)
    return rows[::-1][last].tolist()  # type: ignore[no-any-return]


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
