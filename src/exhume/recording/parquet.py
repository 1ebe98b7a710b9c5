"""Sealed tables as Parquet, small and readable by anybody: what is written how, and reading back no more than is asked for.

docs/decisions/parquet.md has the measurements behind the encodings.
"""

from collections.abc import Collection, Sequence
from io import FileIO
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exhume.recording import arrow
from exhume.recording.recording import Ints
from exhume.recording.schema import TABLES, Column

_NARROW: dict[str, Any] = {
    "core": np.int16,
    **dict.fromkeys(("id", "thread", "stack", "pid", "tid", "ppid", "main_pid", "hierarchy", "level"), np.int32),
}
_NARROW_LISTS: dict[str, Any] = {"frames": np.int32, "offsets": np.uint8}
_LEVEL = 3
# Numbers are kept as differences to their neighbour, but for these: ids that are drawn again and again, and times that come
# in the same order for every core or series, which zstd finds by itself.
_DICTIONARY = frozenset({("samples", "stack"), ("summary", "offsets")})
_PLAIN = frozenset({("samples", "thread"), ("counters", "time"), ("cpu", "time"), ("stacks", "frames"), ("frames", "name")})
_FEW = 1_000
# By these a reader finds the row groups it needs; all others would only be weight: a quiet node writes a dozen files a minute.
_STATISTICS = ("time", "id")


def write(table: str, columns: "dict[str, Any]", groups: Sequence[int] = ()) -> Any:
    """A Parquet file in memory. `groups`: how many rows each row group has; all in one where nothing is said."""
    made = _table(table, columns)
    sink = pa.BufferOutputStream()
    encodings, dictionaries = _encodings(table, made.num_rows)
    writer = pq.ParquetWriter(
        sink,
        made.schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=dictionaries,
        column_encoding=encodings,
        write_statistics=[name for name in _STATISTICS if name in columns],
        write_page_checksum=True,
        store_schema=False,
    )
    with writer:
        first = 0
        for rows in groups or (made.num_rows,):
            writer.write_table(made.slice(first, rows), row_group_size=max(rows, 1))
            first += rows
    return sink.getvalue()


def _table(table: str, columns: "dict[str, Any]") -> Any:
    arrays = []
    for column in TABLES[table].columns:
        values = columns[column.name]
        if column.kind in ("time", "int"):
            arrays.append(arrow.int_array(narrowed(values, _NARROW.get(column.name))))
        elif column.kind == "list":
            lengths, elements = values
            arrays.append(arrow.list_array(lengths, narrowed(elements, _NARROW_LISTS.get(column.name))))
        elif arrow.is_array(values):
            arrays.append(values)
        else:
            arrays.append(pa.array(values.tolist(), pa.utf8()))  # of an array pyarrow would ask numpy.ma
    fields = [
        pa.field(column.name, array.type, nullable=False) for column, array in zip(TABLES[table].columns, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def narrowed(values: NDArray[Any], to: Any) -> NDArray[Any]:
    """In fewer bytes, if all of them fit."""
    if to is None or not len(values):
        return values if to is None else values.astype(to)
    room = np.iinfo(to)
    return values.astype(to) if values.min() >= room.min and values.max() <= room.max else values


def _encodings(table: str, rows: int) -> tuple[dict[str, str], list[str]]:
    """The encoding of each column, or that it has a dictionary. Of few texts a dictionary is larger than what it saves."""
    encodings, dictionary = {}, []
    for column in TABLES[table].columns:
        path = f"{column.name}.list.element" if column.kind == "list" else column.name
        text = column.kind in ("text", "labels")
        if (table, column.name) in _PLAIN or (text and rows < _FEW):
            encodings[path] = "PLAIN"
        elif text or (table, column.name) in _DICTIONARY:
            dictionary.append(path)
        else:
            encodings[path] = "DELTA_BINARY_PACKED"
    return encodings, dictionary


def read(
    data: bytes, table: str, names: Collection[str] | None = None, start: int | None = None, end: int | None = None
) -> Any:
    """The row groups that may have rows between `start` and `end`, as an Arrow table. Raises one of arrow.DAMAGE."""
    file = _open(data, table)
    groups = [group for group in range(file.num_row_groups) if _touches(file.metadata.row_group(group), start, end)]
    known = [column.name for column in TABLES[table].columns if names is None or column.name in names]
    there = set(file.schema_arrow.names)
    return file.read_row_groups(groups, columns=[name for name in known if name in there], use_threads=False)


def read_ids(data: bytes, table: str, wanted: Ints) -> Any:
    """The row groups of a dictionary that hold any of these ids, which are sorted."""
    file = _open(data, table)
    groups = []
    for group in range(file.num_row_groups):
        low, high = _bounds(file.metadata.row_group(group), "id")
        if low is None or high is None or np.searchsorted(wanted, low) < np.searchsorted(wanted, high, "right"):
            groups.append(group)
    there = set(file.schema_arrow.names)
    names = [column.name for column in TABLES[table].columns if column.name in there]
    return file.read_row_groups(groups, columns=names, use_threads=False)


def rows(file: BinaryIO | FileIO) -> int:
    """How many rows a file has, by its footer alone."""
    return int(pq.read_metadata(pa.PythonFile(file, "r")).num_rows)


def _open(data: bytes, table: str) -> Any:
    texts = [column.name for column in TABLES[table].columns if _repeats(table, column)]
    options = {"page_checksum_verification": True, "pre_buffer": False}
    try:
        return pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts, **options)
    except KeyError:  # an older recording lacks one of them
        return pq.ParquetFile(pa.BufferReader(data), **options)


def _repeats(table: str, column: Column) -> bool:
    return column.kind in ("text", "labels") and (table, column.name) != ("frames", "name")


def _touches(group: Any, start: int | None, end: int | None) -> bool:
    if start is None and end is None:
        return True
    low, high = _bounds(group, "time")
    return low is None or high is None or ((end is None or low < end) and (start is None or high >= start))


def _bounds(group: Any, name: str) -> tuple[int | None, int | None]:
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == name:
            statistics = column.statistics
            if statistics is not None and statistics.has_min_max:
                return statistics.min, statistics.max
            break
    return None, None
