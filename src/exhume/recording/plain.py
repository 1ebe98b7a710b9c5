"""Tables as plain numpy columns: what Arrow is read into, what sealing sorts, and what a recording is filled from."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exhume.recording import arrow
from exhume.recording.recording import Ints, Table
from exhume.recording.schema import TABLES
from exhume.recording.summary import Summary

Columns: TypeAlias = dict[str, Any]
"""By name: numbers and texts as arrays, lists as Lists."""


class Lists(NamedTuple):
    """A column of lists, as how long each is and all their numbers."""

    lengths: Ints
    values: NDArray[Any]

    def sequences(self) -> list[Sequence[int]]:
        ends = np.cumsum(self.lengths).tolist()
        values: list[int] = self.values.tolist()
        return [values[end - length : end] for end, length in zip(ends, self.lengths.tolist(), strict=True)]


def of_summary(made: Summary) -> Columns:
    """As rows of the table `summary`."""
    found: Columns = dict(zip(made._fields, made, strict=True))
    found["offsets"] = Lists(np.full(len(made.time), made.offsets.shape[1]), made.offsets.ravel())
    return found


def columns(table: str, read: Any, keep: Ints | None = None) -> Columns:
    """Of an Arrow table, or of some of its rows. Columns that we do not know are passed over, those it lacks are empty."""
    found: Columns = {}
    for column in TABLES[table].columns:
        if column.kind in ("text", "labels"):
            found[column.name] = arrow.texts(read, column.name, keep)
            continue
        whole = arrow.ints(read, column.name) if column.kind in ("time", "int") else _lists(read, column.name)
        found[column.name] = whole if keep is None else _taken(whole, keep)
    return found


def appended(table: str, parts: Sequence[Any]) -> Columns | None:
    """Arrow tables whose ids go up from one to the next, one after the other, texts left as Arrow has them: to be written, and
    nothing else. None where that is not so."""
    ids = np.concatenate([arrow.ints(part, "id") for part in parts])
    found: Columns = {"id": ids}
    for column in TABLES[table].columns if (ids[1:] > ids[:-1]).all() else ():
        if column.kind in ("text", "labels"):
            found[column.name] = arrow.text_array(parts, column.name)
        elif column.kind == "list":
            found[column.name] = _concatenated([_lists(part, column.name) for part in parts])
        else:
            found[column.name] = np.concatenate([arrow.ints(part, column.name) for part in parts])
    whole = len(found) == len(TABLES[table].columns) and not any(column is None for column in found.values())
    return found if whole else None


def none(table: str) -> Columns:
    """A table without rows."""
    empty = np.empty(0, dtype=np.int64)
    kinds = {"time": empty, "int": empty, "list": _NO_LISTS}
    return {column.name: kinds.get(column.kind, np.empty(0, dtype=object)) for column in TABLES[table].columns}


def take(table: Columns, order: Ints) -> Columns:
    return {name: _taken(column, order) for name, column in table.items()}


def concatenated(parts: Sequence[Columns]) -> Columns:
    return parts[0] if len(parts) == 1 else {name: _concatenated([part[name] for part in parts]) for name in parts[0]}


def within(table: Columns, start: int | None, end: int | None) -> Columns:
    """The rows with start <= time < end."""
    time = table["time"]
    keep = np.ones(len(time), dtype=np.bool_)
    if start is not None:
        keep &= time >= start
    if end is not None:
        keep &= time < end
    return table if keep.all() else take(table, np.flatnonzero(keep))


def fill(into: Table, table: Columns) -> None:
    """Add the rows to a recording's table."""
    made: dict[str, Any] = {}
    for column in into.schema.columns:
        values = table[column.name]
        if column.kind == "list":
            made[column.name] = values.sequences()
        elif column.kind == "labels":
            made[column.name] = list(map(arrow.json_labels, values))
        else:
            made[column.name] = values.tolist() if column.kind == "text" else values
    into.add_columns(made)


def _lists(read: Any, name: str) -> Lists:
    place = read.schema.get_field_index(name)
    if place < 0 or not arrow.is_list(read.schema.field(place).type):
        return Lists(np.zeros(read.num_rows, dtype=np.int64), np.empty(0, dtype=np.int64))
    # Not by flatten(): it loads pyarrow.compute, which takes longer than reading most tables.
    chunks = [(chunk.offsets.to_numpy(), chunk.values.to_numpy()) for chunk in read.column(place).chunks]
    parts = [Lists(np.diff(offsets).astype(np.int64), values[offsets[0] : offsets[-1]]) for offsets, values in chunks]
    return Lists(*_concatenated(parts)) if parts else _NO_LISTS


def _concatenated(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Lists):
        return Lists(np.concatenate([part.lengths for part in parts]), np.concatenate([part.values for part in parts]))
    return np.concatenate(parts)


def _taken(column: Any, order: Ints) -> Any:
    return _take_lists(column, order) if isinstance(column, Lists) else column[order]


def _take_lists(lists: Lists, order: Ints) -> Lists:
    begins = np.cumsum(lists.lengths) - lists.lengths
    lengths = lists.lengths[order]
    # Each element's place: its list's begin, and how far it is from the begin of that list in the result.
    shift = np.repeat(begins[order] - (np.cumsum(lengths) - lengths), lengths)
    return Lists(lengths, lists.values[shift + np.arange(len(shift))])


_NO_LISTS = Lists(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
