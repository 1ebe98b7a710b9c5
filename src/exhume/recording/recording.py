"""A recording in memory: columns per table, appended by readers and read by detectors as numpy arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from exhume.recording.columns import CHUNK, IntColumn
from exhume.recording.schema import TABLES, TableSchema
from exhume.recording.source_state import STATES, SourceRow, SourceState, State, decoded, encoded

Derived = TypeVar("Derived")
Labels: TypeAlias = tuple[tuple[str, str], ...]
Value: TypeAlias = int | str | Labels | Sequence[int]
Ints: TypeAlias = NDArray[np.int64]


def labels(**pairs: str | int) -> Labels:
    return tuple(sorted((key, str(value)) for key, value in pairs.items()))


@dataclass(frozen=True, slots=True)
class Node:
    """Which machine, booted when, running what."""

    hostname: str
    boot_id: str
    kernel: str
    cgroups: str  # v1, v2, hybrid, none
    cpus: int


class Table:
    """Rows of one schema, kept as columns."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self._columns: list[Any] = [IntColumn() if column.kind in ("time", "int") else [] for column in schema.columns]
        self._index = {column.name: i for i, column in enumerate(schema.columns)}

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, *row: Value) -> None:
        if len(row) != len(self._columns):
            raise TypeError(f"{self.schema.name} has {len(self._columns)} columns, got {len(row)} values")
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        if len(self) % CHUNK == 0:
            for column in self._columns:
                if isinstance(column, IntColumn):
                    column.pack()

    def extend(self, other: "Table") -> None:
        for column, more in zip(self._columns, other._columns, strict=True):
            column.extend(more)

    def add_rows(self, rows: "Sequence[tuple[Value, ...]]") -> None:
        """Some rows at once: cheaper than one after the other."""
        if not rows:
            return
        if any(len(row) != len(self._columns) for row in rows):
            raise TypeError(f"{self.schema.name} has {len(self._columns)} columns")
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=True):
            if isinstance(column, IntColumn):
                column.extend_ints(np.array(values, dtype=np.int64))
            else:
                column.extend(values)

    def add_columns(self, columns: "Mapping[str, Ints | Sequence[Any]]") -> None:
        """Many rows at once: every column by its name, all of one length."""
        if columns.keys() != self._index.keys() or len({len(column) for column in columns.values()}) > 1:
            raise TypeError(f"{self.schema.name} has the columns {', '.join(self._index)}, all of one length")
        for column, name in zip(self._columns, self._index, strict=True):
            if isinstance(column, IntColumn):
                column.extend_ints(np.asarray(columns[name], dtype=np.int64))
            else:
                column.extend(columns[name])

    def column(self, name: str) -> "IntColumn | list[Any]":
        """As it is kept, not to be changed."""
        return cast("IntColumn | list[Any]", self._columns[self._index[name]])

    def ints(self, name: str) -> Ints:
        return cast(IntColumn, self._columns[self._index[name]]).ints()

    def texts(self, name: str) -> list[str]:
        return list(self._columns[self._index[name]])

    def lists(self, name: str) -> list[Sequence[int]]:
        return list(self._columns[self._index[name]])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows as dictionaries: for small tables and for people, not for samples."""
        names = tuple(self._index)
        for row in zip(*self._columns, strict=True):
            yield dict(zip(names, row, strict=True))


@dataclass(frozen=True, slots=True)
class Series:
    """One counter or gauge over time."""

    times: Ints
    values: Ints

    @property
    def last(self) -> int:
        return int(self.values[-1])

    @property
    def delta(self) -> int:
        """Growth from the first to the last reading. A counter that went backwards was reset: what it has since is counted."""
        steps = np.diff(self.values)
        back = np.flatnonzero(steps < 0)
        if len(back) == 0:
            return int(self.values[-1] - self.values[0])
        return int(steps[steps > 0].sum() + self.values[back + 1].sum())


class _Tables(dict[str, Table]):
    """Made when first asked for: a buffer of one reading has rows in one or two."""

    def __missing__(self, name: str) -> Table:
        table = self[name] = Table(TABLES[name])
        return table


class Recording:
    """What was seen on one node. Detectors get this and nothing else."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.tables = _Tables()
        self._counters: dict[str, dict[Labels, Series]] = {}
        self._counted = -1
        self._derived: dict[tuple[str, Callable[..., Any]], tuple[int, Any]] = {}

    def __getitem__(self, table: str) -> Table:
        return self.tables[table]

    def extend(self, other: "Recording") -> None:
        """Take over all rows of another recording of the same node."""
        for name, table in other.tables.items():
            self.tables[name].extend(table)

    def count(self, time: int, name: str, value: int, at: Labels = ()) -> None:
        """Add one row to `counters`."""
        self.tables["counters"].add(time, name, at, value)

    def counters(self, name: str) -> dict[Labels, Series]:
        """All series of that name, by label. Indexed once, after the last row was added."""
        table = self.tables["counters"]
        if self._counted != len(table):
            self._counters = _index(table)
            self._counted = len(table)
        return self._counters.get(name, {})

    def counter(self, name: str, at: Labels = ()) -> Series | None:
        return self.counters(name).get(at)

    def derived(self, table: str, make: Callable[["Recording"], Derived]) -> Derived:
        """What `make` works out from a table, worked out once for all who ask, and again only after rows were added."""
        rows = len(self.tables[table])
        known = self._derived.get((table, make))
        if known is None or known[0] != rows:
            known = self._derived[table, make] = (rows, make(self))
        return cast(Derived, known[1])

    def take_over(self, other: "Recording", table: str) -> None:
        """A whole table of another one, shared, and what was worked out from it, which must not depend on anything else."""
        self.tables[table] = other.tables[table]
        self._derived.update({key: known for key, known in other._derived.items() if key[0] == table})

    @property
    def window(self) -> tuple[int, int]:
        """From the first to the last reading of the CPU, else sample, else reading of the clock, else event."""
        for name in ("cpu", "samples", "anchors", "events"):
            times = self.tables[name].ints("time")
            if len(times) > 1 or (len(times) and name == "events"):
                return int(times.min()), int(times.max())
        times = self.tables["anchors"].ints("time")
        return (int(times[0]), int(times[0])) if len(times) else (0, 0)

    def real_ns(self, time: int) -> int:
        """Wall-clock nanoseconds of a moment on the recording's clock, by the nearest anchor."""
        anchors = self.tables["anchors"]
        if not len(anchors):
            raise ValueError("a recording without an anchor has no wall-clock time")
        times = anchors.ints("time")
        nearest = int(np.abs(times - time).argmin())
        return int(anchors.ints("real")[nearest]) + time - int(times[nearest])

    def add_anchor(self, time: int, monotonic: int, boot: int, real: int, error: int = -1) -> None:
        """Tie the recording's clock to the others; an error of -1 is not known."""
        self.tables["anchors"].add(time, monotonic, boot, real, error)

    def add_source(self, time: int, name: str, state: SourceState, cost_ns: int = 0) -> None:
        """Add one row to `sources`."""
        self.tables["sources"].add(time, name, state.state, state.reason, cost_ns, encoded(state.reasons))

    def sources(self) -> Mapping[str, SourceRow]:
        """The last row of each source."""
        return self.derived("sources", _last_rows)

    def source(self, name: str) -> SourceState | None:
        """The last state of a source; None if it was not read."""
        row = self.sources().get(name)
        return row.state if row is not None else None

    def reason(self, source: str) -> str:
        """Why a source is as it is, for people; "" if there is nothing to say or it was not read."""
        state = self.source(source)
        return state.reason if state is not None else ""

    def on(self, source: str) -> bool:
        """Whether it could be read, in whole or in part."""
        state = self.source(source)
        return state is not None and state.up

    def why_off(self, source: str) -> str:
        """Why a source has no data, for people."""
        state = self.source(source)
        return (state.reason or f"{source} had nothing to say") if state is not None else f"{source} was not read"

    def why_partial(self, source: str) -> str:
        """What is missing from a partial source, for people; "" of any other."""
        state = self.source(source)
        return state.reason if state is not None and state.state == "partial" else ""


def _last_rows(recording: Recording) -> Mapping[str, SourceRow]:
    table = recording["sources"]
    times, costs = table.ints("time").tolist(), table.ints("cost").tolist()
    states, reasons, stored = (table.texts(column) for column in ("state", "reason", "reasons"))
    last = {name: row for row, name in enumerate(table.texts("name"))}
    found = {}
    for name, row in last.items():
        state: State = next((one for one in STATES if one == states[row]), "off")
        found[name] = SourceRow(times[row], name, SourceState(state, decoded(reasons[row], stored[row])), costs[row])
    return found


def _index(table: Table) -> dict[str, dict[Labels, Series]]:
    numbers: dict[tuple[str, Any], int] = {}
    keys = zip(table.texts("name"), table.texts("labels"), strict=True)
    number = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(table))
    order = np.argsort(number, kind="stable")
    times, values = table.ints("time")[order], table.ints("value")[order]
    edges = np.searchsorted(number[order], np.arange(len(numbers) + 1)).tolist()
    found: dict[str, dict[Labels, Series]] = {}
    for (name, at), i in numbers.items():
        rows = slice(edges[i], edges[i + 1])
        found.setdefault(name, {})[at] = Series(times[rows], values[rows])
    return found
