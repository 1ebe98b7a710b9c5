"""A fleet read from a directory: the inventory, and the minutes put together node by node, by DuckDB."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exhume import budget
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.fleet.cohorts_kinds import Kind, kind
from exhume.fleet.directory_minutes import MEMORY, Life, lives, of_rows, rows
from exhume.fleet.engine import Engine, Progress, chosen, watched
from exhume.fleet.model import Boot, Fact, Fleet, Node
from exhume.fleet.sick import Figures, sick
from exhume.host.quantities import DAY_S
from exhume.scratch import scratch
from exhume.text import from_path, printable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# How DuckDB reads a file, by its ending. A list of files is the parameter.
READERS: Final = {
    ".parquet": "read_parquet($1, union_by_name=true)",
    ".csv": "read_csv($1, union_by_name=true)",
    ".jsonl": "read_json($1, format='newline_delimited', union_by_name=true)",
    ".ndjson": "read_json($1, format='newline_delimited', union_by_name=true)",
    ".json": "read_json($1, union_by_name=true)",
}
# Of the inventory: every value as it is written, because 5.10 is a version and no number.
_AS_TEXT: Final = {".csv": "read_csv($1, all_varchar=true)"}
# Seen for less than this, a node's leak has no rate.
_SHORTEST_S = 3600.0
_OWN: Final[tuple[str, ...]] = ("node", "sick", "uptime_s", "zombies", "leak_per_day", "resets")


@contextmanager
def connect(memory: str = "") -> Iterator["DuckDBPyConnection"]:
    """DuckDB in memory; what does not fit is spilled to a private directory that goes with the connection."""
    import duckdb

    memory = memory or f"{min(MEMORY, budget.current().memory_bytes // 2) >> 20}MiB"
    with scratch("duckdb") as spill, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit='{memory}'")
        connection.execute("SET temp_directory=" + "'" + spill.replace("'", "''") + "'")
        connection.execute("SET preserve_insertion_order=false")
        connection.execute("SET TimeZone='UTC'")
        yield connection


def load(
    directory: str, thresholds: Thresholds | None = None, engine: Engine | None = None, progress: Progress | None = None
) -> Fleet:
    import duckdb

    root = Path(directory)
    if not root.is_dir():
        raise ExhumeError(f"{_shown(root)} is not a directory")
    inventory, minutes = files(root, "nodes"), files(root, "minutes")
    if not inventory and not minutes:
        raise ExhumeError(f"{_shown(root)} has neither nodes.parquet nor minutes/*.parquet (or .csv, .jsonl): it is no fleet")
    try:
        with connect() as connection:
            facts = _facts(connection, inventory)
            seen = _lives(connection, minutes, thresholds or Thresholds(), engine or chosen(), progress)
    except duckdb.Error as error:
        raise ExhumeError(f"{_shown(root)} cannot be read: {printable(str(error).splitlines()[0], 300)}") from None
    return put_together(str(root), facts, seen, bool(minutes), thresholds=thresholds)


def files(root: Path, name: str) -> list[Path]:
    """Of a table: those of its folder, or the one file of its name."""
    inside = sorted(each for each in (root / name).glob("*") if each.suffix in READERS) if (root / name).is_dir() else []
    found = inside or [path for ending in READERS if (path := root / f"{name}{ending}").is_file()][:1]
    for path in found:
        budget.opened(str(path))
    return found


def reader(paths: Sequence[Path], as_text: bool = False) -> str:
    endings = {path.suffix for path in paths}
    if len(endings) > 1:
        raise ExhumeError(f"{_shown(paths[0].parent)} has files of several kinds ({', '.join(sorted(endings))}); keep one")
    ending = endings.pop()
    return _AS_TEXT.get(ending, READERS[ending]) if as_text else READERS[ending]


def _shown(path: Path) -> str:
    return printable(from_path(str(path)))


def _lives(
    connection: "DuckDBPyConnection",
    paths: list[Path],
    thresholds: Thresholds,
    engine: Engine | None,
    progress: Progress | None,
) -> list[Life]:
    if not paths:
        return []
    if engine is None:
        with watched(connection, progress):
            return lives(connection, reader(paths), [[str(path) for path in paths]], thresholds)

    def part(worker: "DuckDBPyConnection", source: str, some: Sequence[str]) -> list[tuple[object, ...]]:
        return rows(worker, source, [list(some)], thresholds)

    parts = engine.run(part, reader(paths), [str(path.absolute()) for path in paths], progress)
    return of_rows(row for some in parts for row in some)


def _facts(connection: "DuckDBPyConnection", paths: list[Path]) -> dict[str, dict[str, Fact]]:
    if not paths:
        return {}
    cursor = connection.execute(f"SELECT * FROM {reader(paths, as_text=True)}", [[str(path) for path in paths]])
    names = [column[0] for column in cursor.description or ()]
    if "node" not in names:
        raise ExhumeError(f"{_shown(paths[0])} has no column `node`")
    rows = cursor.fetchall()
    columns = {name: _typed(name, [row[i] for row in rows]) for i, name in enumerate(names)}
    found: dict[str, dict[str, Fact]] = {}
    for index, row in enumerate(rows):
        node = row[names.index("node")]
        if node is not None:
            known = found.setdefault(str(node), {})
            known.update({name: value for name in names if name != "node" and (value := columns[name][index]) is not None})
    return found


def _typed(name: str, values: list[object]) -> list[Fact | None]:
    """Values as facts. A column of text is one of numbers if all of it is, unless its name says that it holds versions."""
    texts = [value for value in values if value is not None]
    if texts and all(isinstance(value, str) for value in texts):
        lowered = {str(value).strip().lower() for value in texts}
        if lowered <= {"true", "false"}:
            return [None if value is None else str(value).strip().lower() == "true" for value in values]
        if kind(name) != Kind.ACTS and all(_number(str(value)) is not None for value in texts):
            return [None if value is None else _number(str(value)) for value in values]
    return [_fact(value) for value in values]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _fact(value: object) -> Fact | None:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(value)
    return str(value)


def put_together(
    source: str,
    inventory: dict[str, dict[str, Fact]],
    seen: Iterable[Life],
    has_minutes: bool,
    directory: str = "",
    thresholds: Thresholds | None = None,
) -> Fleet:
    """Nodes by name, of the inventory and of the minutes."""
    by_node = {name: list(some) for name, some in groupby(seen, key=lambda each: each.node)}
    nodes, boots = [], []
    for name in sorted(inventory.keys() | by_node.keys()):
        known = dict(inventory.get(name, {}))
        own = {key: known.pop(key) for key in _OWN if key in known}
        nodes.append(_node(name, known, own, by_node.get(name, []), thresholds))
        boots += [boot for life in by_node.get(name, ()) if (boot := _boot(life)) is not None]
    troubles = []
    if has_minutes and inventory:
        silent, strange = len(inventory.keys() - by_node.keys()), len(by_node.keys() - inventory.keys())
        troubles += [f"{silent:,} nodes of the inventory have no minutes: nothing says whether they are sick"] * (silent > 0)
        troubles += [f"{strange:,} nodes have minutes and are not in the inventory: nothing is known of them"] * (strange > 0)
    return Fleet(source, tuple(nodes), tuple(troubles), directory or source, tuple(boots))


def _boot(life: Life) -> Boot | None:
    first, last = life.counted_first, life.counted_last
    if life.booted is None or life.zombies is None or life.zombies_from is None or first is None or last is None:
        return None
    return Boot(life.node, max(0.0, first - life.booted), max(0.0, last - life.booted), life.zombies_from, life.zombies)


def _node(name: str, facts: dict[str, Fact], own: dict[str, Fact], seen: list[Life], thresholds: Thresholds | None) -> Node:
    if not seen:
        ill = own.get("sick")
        numbers = {key: _own_number(own.get(key)) for key in ("uptime_s", "zombies", "leak_per_day", "resets")}
        return Node(
            name,
            facts,
            ill if isinstance(ill, bool) else bool(ill) if isinstance(ill, float) and math.isfinite(ill) else None,
            uptime_s=numbers["uptime_s"],
            zombies=numbers["zombies"],
            leak_per_day=numbers["leak_per_day"],
            resets=numbers["resets"] or 0.0,
        )
    now = seen[-1]
    uptimes = [max(0.0, life.last - life.booted) for life in seen if life.booted is not None]
    figures = _figures(seen)
    judged = sick(figures, thresholds)
    return Node(
        name,
        facts,
        judged.sick,
        judged.badness,
        judged.why,
        uptime_s=max(0.0, now.last - now.booted) if now.booted is not None else None,
        exposed_s=max(uptimes, default=None),
        zombies=now.zombies,
        leak_per_day=figures.leak_per_day,
        resets=figures.resets or 0.0,
    )


def _own_number(value: Fact | None) -> float | None:
    return float(value) if isinstance(value, float) and math.isfinite(value) else None


def _leak(seen: list[Life]) -> float | None:
    """Of the latest boot that was seen for long enough."""
    for life in reversed(seen):
        if life.zombies is None or life.zombies_from is None or life.counted_first is None or life.counted_last is None:
            continue
        seen_s = life.counted_last - life.counted_first
        if seen_s >= _SHORTEST_S:
            return max(0.0, (life.zombies - life.zombies_from) / seen_s * DAY_S)
    return None


def _figures(seen: list[Life]) -> Figures:
    """Of all that was seen: a node that was rebooted since was sick before."""
    zombies = _total(life.zombie_minutes for life in seen)
    stall_ms, saturated_ms = _total(life.stall_ms for life in seen), _total(life.saturated_ms for life in seen)
    return Figures(
        live=seen[-1].live,
        zombies=seen[-1].zombies,
        most_zombies=max((life.zombies_most for life in seen if life.zombies_most is not None), default=None),
        zombies_s=None if zombies is None else 60.0 * zombies,
        leak_per_day=_leak(seen),
        resets=_total(life.resets for life in seen),
        stall_s=None if stall_ms is None else stall_ms / 1000,
        saturated_s=None if saturated_ms is None else saturated_ms / 1000,
        seen_s=60.0 * sum(life.minutes for life in seen),
    )


def _total(counts: Iterable[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return float(sum(known)) if known else None
