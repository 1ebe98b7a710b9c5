"""Where a pass over many files is made: by one DuckDB in this process, or in parts by the workers of a Ray cluster.

A part is the same SQL over some of the files; the caller puts parts together, so that both engines come to the same numbers.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from exhume.errors import UsageError
from exhume.text import printable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NAMES: Final = ("duckdb", "ray")
VARIABLE: Final = "EXHUME_FLEET_ENGINE"
_LOOK_S: Final = 0.1

Result = TypeVar("Result")
Part = Callable[["DuckDBPyConnection", str, Sequence[str]], Result]
"""Of a connection, how the files are read (with $1 for their list), and the files."""
Progress = Callable[[float], None]


class Engine(Protocol):
    """Other than this process' own DuckDB, which is None wherever one of these may be given."""

    def run(self, part: Part[Result], source: str, files: Sequence[str], progress: Progress | None = None) -> list[Result]:
        """The part over all of the files, a result for each group of them."""


def chosen(name: str = "", address: str = "") -> Engine | None:
    """By name, or what EXHUME_FLEET_ENGINE says; None is DuckDB in this process."""
    name = name or os.environ.get(VARIABLE, "") or NAMES[0]
    if name not in NAMES:
        raise UsageError(f"{printable(name)} is no engine ({VARIABLE}): {' or '.join(NAMES)}")
    if name == "duckdb":
        if address:
            raise UsageError("--ray-address goes with --engine ray")
        return None
    from exhume.fleet.engine_ray import Ray

    return Ray(address)


def grouped(files: Sequence[str], sizes: Sequence[int], most: int) -> list[list[str]]:
    """At most so many groups of about the same size: the largest file first, each to the group that has least."""
    groups: list[list[str]] = [[] for _ in range(min(len(files), max(1, most)))]
    filled = [0] * len(groups)
    for size, file in sorted(zip(sizes, files, strict=True), key=lambda each: (-each[0], each[1])):
        least = filled.index(min(filled))
        groups[least].append(file)
        filled[least] += size + 1
    return [sorted(group) for group in groups]


@contextmanager
def watched(connection: "DuckDBPyConnection", progress: Progress | None) -> Iterator[None]:
    """Tells how far DuckDB is with what it is asked within the block, from another thread."""
    if progress is None:
        yield
        return
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    over = Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            if (percent := connection.query_progress()) > 0:  # -1 while nothing is asked
                progress(min(1.0, percent / 100))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
