"""SQLite databases of an image, from their bytes: no file of the image is opened by SQLite, and none can be written.

A database is a program, too: views and generated columns in it can compute for ever. Only tables are read, no function is
called, values and steps are bounded, and nothing of the schema is trusted (sqlite.org, "Defense against the dark arts").
"""

import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from exhume.host.quantities import size
from exhume.host.tree import Tree, complain
from exhume.text import from_path, printable

LARGEST = 96 << 20
"""Bytes: it is in memory twice while it is taken in. The largest rpmdb.sqlite of a distribution's image has about half."""
_LARGEST_VALUE = 32 << 20  # the header of a package with 100,000 files has less than 10 MB
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _LARGEST_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_STEPS = 100_000
_MOST_CALLS = 200


class Database:
    """Use it in a `with`. A question that fails is one of `troubles` of the tree and has no rows."""

    def __init__(self, data: bytearray, name: str, troubles: list[str]) -> None:
        # In the journal mode of write-ahead logs a database wants a second file; bytes 18 and 19 of the header turn that off
        # (sqlite.org, "Database file format", 1.3.3).
        if len(data) >= 20:
            data[18] = data[19] = 1
        else:
            raise sqlite3.DatabaseError("it is no database")
        self._name, self._troubles, self._calls = name, troubles, 0
        self._connection = sqlite3.connect(":memory:")
        for limit, value in _LIMITS.items():
            self._connection.setlimit(limit, value)
        self._connection.deserialize(data)
        self._connection.set_progress_handler(self._count, _STEPS)
        self._connection.text_factory = bytes
        for setting in ("trusted_schema=off", "cell_size_check=on", "query_only=on", "temp_store=memory"):
            self._connection.execute(f"pragma {setting}")
        self._connection.set_authorizer(_allowed)

    @classmethod
    def read(cls, tree: Tree, path: str) -> Self | None:
        """None if it is not there; also, with a trouble told, if it is too large or no database."""
        entry = tree.entry(path)
        if entry is None or entry.kind != "file":
            return None
        shown = printable(from_path(path))
        if entry.size > LARGEST:
            complain(tree.troubles, f"{shown} has {size(entry.size)}, more than are read.")
            return None
        log = tree.entry(f"{path}-wal")
        if log is not None and log.size:
            complain(tree.troubles, f"{shown} has a write-ahead log: what was changed last is not seen.")
        try:
            return cls(bytearray(tree.read(path, LARGEST) or b""), shown, tree.troubles)
        except (sqlite3.Error, OverflowError) as error:
            complain(tree.troubles, f"{shown} cannot be read: {error}.")
            return None

    def rows(self, question: str, *values: str | int) -> Iterator[tuple[Any, ...]]:
        """Text comes as bytes: names of files are no UTF-8 always."""
        if self._calls > _MOST_CALLS:
            return
        try:
            yield from self._connection.execute(question, values)
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            complain(self._troubles, f"{self._name} cannot be read: {error}.")

    def _count(self) -> bool:
        self._calls += 1
        return self._calls > _MOST_CALLS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()


def _allowed(action: int, _: str | None, __: str | None, ___: str | None, inside: str | None) -> int:
    """Rows of a table, asked for by us: not by a view or a trigger, and no function."""
    reads = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) and inside is None
    return sqlite3.SQLITE_OK if reads else sqlite3.SQLITE_DENY
