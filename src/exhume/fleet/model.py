"""A fleet as data, whatever it was read from: one table of nodes and their facts, and minute summaries where there are any.

On disk a fleet is a directory of Parquet (or CSV, or JSON lines) that other tools read as they are:

| file | a row |
|---|---|
| `nodes.*` | a node: `node`, and a column for every fact that is known of it |
| `minutes/*.parquet`, or `minutes.*` | a minute of a node: MINUTES |
| `jobs.*` | a job on a node: JOBS |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Fact = str | float | bool
"""Numbers are doses (uptime, zombies), everything else says what a node is (zone, image, whether a unit runs)."""

# Column, DuckDB's type, and what it is. What a source does not know is NULL.
MINUTES: Final = (
    ("node", "VARCHAR", "the node's name, as the inventory has it"),
    ("time", "TIMESTAMP", "when the minute began, UTC"),
    ("booted", "TIMESTAMP", "when the node was booted, UTC"),
    ("live", "INTEGER", "memory cgroups that have a directory"),
    ("dying", "INTEGER", "zombies"),
    ("saturated_ms", "INTEGER", "a core was full of kernel time"),
    ("stalls", "INTEGER", "polls of a network device that were late by 50 ms or more"),
    ("stall_ms", "INTEGER", "how late, together"),
    ("resets", "INTEGER", "of network devices"),
    ("restarts", "INTEGER", "of units that are started again and again"),
    ("throttled_ms", "INTEGER", "cgroups were kept from running by their quota"),
    ("reclaimed", "BIGINT", "pages that reclaim scanned"),
)
JOBS: Final = (
    ("job", "VARCHAR", "name or id"),
    ("node", "VARCHAR", "a node that it ran on; a row for each"),
    ("started", "TIMESTAMP", "UTC"),
    ("ended", "TIMESTAMP", "UTC; NULL while it runs"),
    ("outcome", "VARCHAR", "succeeded, failed, or stopped by somebody"),
    ("gpus", "DOUBLE", "on that node"),
    ("error", "VARCHAR", "what it died of, in its own words"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A row of JOBS. Times are seconds since 1970; None where nothing says."""

    job: str
    node: str
    started_s: float | None
    ended_s: float | None
    outcome: str
    """succeeded, failed, stopped; empty while it runs, or where nothing says."""
    gpus: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    sick: bool | None = None
    """None where nothing says."""
    badness: float = 0.0
    """To rank by: how much it suffers, 0 for not at all."""
    why: str = ""
    """The verdict, or the figures that it is judged by."""
    uptime_s: float | None = None
    exposed_s: float | None = None
    """The longest that it was up within what was seen, if that is more than uptime_s: what it had time to come to."""
    zombies: float | None = None
    leak_per_day: float | None = None
    resets: float = 0.0


@dataclass(frozen=True, slots=True)
class Boot:
    """What was seen of a node from one boot to the next: where a dose begins, and what it comes to."""

    node: str
    uptime_from_s: float
    """How long it had been up when it was seen first."""
    uptime_s: float
    zombies_from: float
    zombies: float


@dataclass(frozen=True, slots=True)
class Fleet:
    source: str
    """Where it was read from, for sentences."""
    nodes: tuple[Node, ...]
    troubles: tuple[str, ...] = ()
    """What could not be read, or was put right on the way."""
    directory: str = ""
    """Where its minutes and jobs are, if it has any."""
    boots: tuple[Boot, ...] = ()
    """Earliest first for each node, where the source knows them."""
