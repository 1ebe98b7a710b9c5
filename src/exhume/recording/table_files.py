"""Any table of a recording as one CSV or Parquet file, a segment at a time: what other tools take without knowing ours."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exhume.recording import arrow
from exhume.recording.plain import Columns, Lists
from exhume.recording.schema import TABLES, Kind
from exhume.text import cell

_ROWS = 50_000
_LEVEL = 3


def write_csv(out: Callable[[bytes], object], table: str, pieces: Iterable[Columns]) -> int:
    """How many rows. The first line has the names; labels and lists are JSON. Names from outside are made safe for
    terminals and spreadsheets (text.cell); Parquet has them as they were."""
    names = [column.name for column in TABLES[table].columns]
    out((",".join(names) + "\n").encode())
    total = 0
    for piece in pieces:
        for rows in _slices(table, piece):
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(rows)
            out(text.getvalue().encode("utf-8", "backslashreplace"))
            total += len(rows)
    return total


def write_parquet(out: Callable[[bytes], object], table: str, pieces: Iterable[Columns]) -> int:
    """How many rows. One row group a segment, every number 64 bits wide, so that all recordings have the same schema."""
    schema = arrow.stream_schema(table)
    total = 0
    sink = pa.PythonFile(_Forward(out), mode="w")
    with pq.ParquetWriter(sink, schema, compression="zstd", compression_level=_LEVEL, store_schema=False) as writer:
        for piece in pieces:
            plain = {name: column.sequences() if isinstance(column, Lists) else column for name, column in piece.items()}
            batch = arrow.from_columns(table, plain)
            writer.write_batch(batch)
            total += batch.num_rows
    return total


class _Forward:
    """A file that only goes forward, as Arrow wants to see it: it asks where it is, and a pipe does not know."""

    closed = False

    def __init__(self, out: Callable[[bytes], object]) -> None:
        self._out = out
        self._at = 0

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._out(raw)
        self._at += len(raw)
        return len(raw)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def readable(self) -> bool:
        return False


def _slices(table: str, piece: Columns) -> Iterator[list[tuple[Any, ...]]]:
    columns = [(column.kind, piece[column.name]) for column in TABLES[table].columns]
    rows = len(columns[0][1])
    lists = [column.sequences() if isinstance(column, Lists) else column for _, column in columns]
    for first in range(0, rows, _ROWS):
        parts = [_plain(kind, column[first : first + _ROWS]) for (kind, _), column in zip(columns, lists, strict=True)]
        yield list(zip(*parts, strict=True))


def _plain(kind: Kind, values: Any) -> list[Any]:
    if kind == "list":
        return [json.dumps(list(map(int, value)), separators=(",", ":")) for value in values]
    return [cell(value) if isinstance(value, str) else value for value in values.tolist()]
