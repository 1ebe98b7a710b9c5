"""Tables of a recording as Arrow batches and back: what the open segment is appended with, and what the reader fills from."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exhume.errors import ExhumeError
from exhume.recording.recording import Ints, Labels, Table
from exhume.recording.schema import TABLES, Column, Kind
from exhume.text import from_json

try:
    import pyarrow as pa
    import pyarrow.ipc
except ImportError as error:
    raise ExhumeError("a recording on disk needs pyarrow: pip install '.[record]' in a clone of exhume") from error

# One thread reads and writes: the pools are for machines that have nothing else to do.
pa.set_cpu_count(1)
pa.set_io_thread_count(1)
# The C library's allocator: 10 to 40 MB less than mimalloc and jemalloc over 30 segments, and flat.
pa.set_memory_pool(pa.system_memory_pool())

DAMAGE = (pa.ArrowException, OSError, ValueError, MemoryError, EOFError)
"""What Arrow raises on a file that was cut or is not what its name says."""

_INT64, _UTF8 = pa.int64(), pa.utf8()
_TYPES: Mapping[Kind, Any] = {
    "time": _INT64,
    "int": _INT64,
    "text": _UTF8,
    "labels": _UTF8,
    "list": pa.list_(pa.field("element", _INT64, nullable=False)),
}


@cache
def stream_schema(table: str) -> Any:
    """Of an open segment's stream: plain and wide, because it is written each second and read once."""
    return pa.schema([pa.field(column.name, _TYPES[column.kind], nullable=False) for column in TABLES[table].columns])


def to_batch(table: Table) -> Any:
    return from_columns(table.schema.name, {column.name: _plain(table, column) for column in table.schema.columns})


def _plain(table: Table, column: Column) -> "Ints | Sequence[Any]":
    if column.kind in ("time", "int"):
        return table.ints(column.name)
    if column.kind == "labels":
        return list(map(label_json, table.texts(column.name)))
    return table.texts(column.name) if column.kind == "text" else table.lists(column.name)


def from_columns(table: str, columns: "Mapping[str, Ints | Sequence[Any]]") -> Any:
    """A batch of plain columns; labels are JSON by now."""
    arrays = [_array(column.kind, columns[column.name]) for column in TABLES[table].columns]
    return pa.RecordBatch.from_arrays(arrays, schema=stream_schema(table))


def _array(kind: Kind, values: "Ints | Sequence[Any]") -> Any:
    if kind in ("time", "int"):
        return int_array(np.asarray(values, dtype=np.int64))
    if kind == "list":
        return list_array([len(one) for one in values], np.fromiter(chain.from_iterable(values), np.int64))
    try:
        return pa.array(values, _UTF8)
    except UnicodeEncodeError:  # a lone surrogate: no reader should let one through, but a row is worth more than its name
        return pa.array([text.encode("utf-8", "backslashreplace").decode() for text in values], pa.utf8())


def list_array(lengths: "Sequence[int] | Ints", values: NDArray[Any]) -> Any:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    kind = pa.list_(pa.field("element", pa.from_numpy_dtype(values.dtype), nullable=False))
    return pa.ListArray.from_arrays(int_array(offsets), int_array(values), type=kind)


def int_array(values: NDArray[Any]) -> Any:
    """Not by pa.array(): it looks whether the array is masked, and so loads numpy.ma (12 ms)."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


@lru_cache(maxsize=20_000)
def label_json(pairs: Labels) -> str:
    return json.dumps(dict(pairs), ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=20_000)
def json_labels(text: str) -> Labels:
    """Whatever is not a JSON object of texts comes from a damaged file, and has no labels."""
    try:
        pairs = from_json(text)
    except ValueError:
        return ()
    return tuple((key, str(value)) for key, value in pairs.items()) if isinstance(pairs, dict) else ()


def read_stream(data: bytes) -> tuple[Any | None, bool]:
    """All whole batches of a stream as one table, and whether there was nothing else in it."""
    batches: list[Any] = []
    source = pa.BufferReader(data)
    whole_until = 0
    try:
        if not data:
            return None, True
        reader = pa.ipc.open_stream(source)
        reader.schema.names  # noqa: B018  # raises where a name is not text
        whole_until = source.tell()
        for batch in _batches(reader):
            batches.append(batch)
            whole_until = source.tell()
    except DAMAGE:
        pass
    table = pa.Table.from_batches(batches).combine_chunks() if batches else None
    return table, whole_until == len(data)


def _batches(reader: Any) -> Iterator[Any]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        batch.validate(full=True)
        yield batch


def ints(table: Any, name: str) -> Ints:
    """A column of numbers; one that an older recording does not have is all zero."""
    place = table.schema.get_field_index(name)
    if place < 0 or not pa.types.is_integer(table.schema.field(place).type):
        return np.zeros(table.num_rows, dtype=np.int64)
    column = table.column(place)
    values: NDArray[Any] = column.to_numpy() if column.null_count == 0 else np.nan_to_num(column.to_numpy())
    return values.astype(np.int64, copy=False)


def texts(table: Any, name: str, keep: Ints | None = None) -> NDArray[np.object_]:
    """A column of text, or some rows of it. Names repeat: the same name is one object, however many rows have it."""
    rows = table.num_rows if keep is None else len(keep)
    place = table.schema.get_field_index(name)
    if place < 0:
        return _all(rows, "")
    kind = table.schema.field(place).type
    if pa.types.is_dictionary(kind):
        parts = [part for part in table.column(place).chunks if len(part)]
        taken = [_objects(part.dictionary.to_pylist())[part.indices.to_numpy()] for part in parts]
        whole = np.concatenate(taken) if taken else _all(0, "")
        return whole if keep is None else whole[keep]
    if not pa.types.is_string(kind):
        return _all(rows, "")
    if keep is None:
        return _objects(table.column(place).to_pylist())
    column = pa.concat_arrays(table.column(place).chunks) if table.num_rows else ()
    return _objects([column[row].as_py() for row in keep.tolist()])


def text_array(parts: Sequence[Any], name: str) -> Any | None:
    """A column of text of several tables as Arrow has it, without an object for each. None where it is not all text."""
    chunks: list[Any] = []
    for part in parts:
        place = part.schema.get_field_index(name)
        if place < 0 or part.column(place).null_count:
            return None
        kind = part.schema.field(place).type
        if pa.types.is_dictionary(kind):
            chunks += [chunk.dictionary_decode() for chunk in part.column(place).chunks]
        else:
            chunks += part.column(place).chunks
    return pa.concat_arrays(chunks) if chunks and all(pa.types.is_string(chunk.type) for chunk in chunks) else None


def is_array(values: Any) -> bool:
    return isinstance(values, pa.Array)


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind)) and bool(pa.types.is_integer(kind.value_type))


def _all(rows: int, value: Any) -> NDArray[np.object_]:
    return np.full(rows, value, dtype=object)


def _objects(values: Sequence[Any]) -> NDArray[np.object_]:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    if None in values:
        made[[value is None for value in values]] = ""
    return made


def give_memory_back() -> None:
    """To the kernel: sealing needs a hundred times what appending does."""
    pa.default_memory_pool().release_unused()
