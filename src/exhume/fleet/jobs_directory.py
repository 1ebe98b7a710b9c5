"""Jobs joined with the minutes of their nodes, by DuckDB: only minutes in which a node suffered are joined, which are few."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exhume import budget
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.fleet.directory import connect, files, reader
from exhume.fleet.engine import Engine, Progress, chosen, watched
from exhume.fleet.jobs import BEFORE_MIN, KINDS, Jobs
from exhume.fleet.model import JOBS, MINUTES, Job
from exhume.text import printable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_OUTCOMES = ("succeeded", "failed")


def load(
    directory: str,
    jobs_file: str = "",
    thresholds: Thresholds | None = None,
    rows: Sequence[Job] | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Jobs:
    """Of the directory's own jobs, of a file, or of rows that were read elsewhere."""
    import duckdb

    root = Path(directory)
    minutes = files(root, "minutes")
    jobs = [Path(jobs_file)] if jobs_file else files(root, "jobs")
    if not minutes:
        raise ExhumeError(f"{printable(directory)} has no minutes: what happened on the nodes is not known")
    if rows is None and (not jobs or not jobs[0].is_file()):
        raise ExhumeError(f"there are no jobs in {printable(directory)}: name a file with --jobs")
    if rows is None:
        budget.opened(str(jobs[0]))
    try:
        with connect() as connection:
            if rows is None:
                _table(connection, "jobs", jobs, JOBS)
            else:
                _given(connection, rows)
            _summed(connection, minutes, thresholds or Thresholds(), engine or chosen(), progress)
            return _joined(connection)
    except duckdb.Error as error:
        raise ExhumeError(f"jobs cannot be read: {printable(str(error).splitlines()[0], 300)}") from None


Columns = tuple[tuple[str, str, str], ...]


def _select(connection: "DuckDBPyConnection", paths: list[Path], columns: Columns) -> str:
    source = reader(paths).replace("$1", "[" + ", ".join(_quoted(str(path)) for path in paths) + "]")
    known = {str(row[0]) for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    if "node" not in known:
        raise ExhumeError(f"{printable(str(paths[0]))} has no column `node`")
    taken = (
        f"{f'TRY_CAST({name} AS {kind})' if name in known else f'CAST(NULL AS {kind})'} AS {name}" for name, kind, _ in columns
    )
    return f"SELECT {', '.join(taken)} FROM {source}"


def _table(connection: "DuckDBPyConnection", name: str, paths: list[Path], columns: Columns) -> None:
    connection.execute(f"CREATE TEMP TABLE {name} AS {_select(connection, paths, columns)}")


def _view(connection: "DuckDBPyConnection", name: str, paths: list[Path], columns: Columns) -> None:
    connection.execute(f"CREATE TEMP VIEW {name} AS {_select(connection, paths, columns)}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _given(connection: "DuckDBPyConnection", rows: Sequence[Job]) -> None:
    import pyarrow as pa

    def times(every: Iterable[float | None]) -> pa.Array:
        return pa.array([None if each is None else round(each * 1e6) for each in every], pa.timestamp("us"))

    def texts(every: Iterable[str]) -> pa.Array:
        # JSON can hold half a surrogate pair, which is no text that may be kept.
        return pa.array([each.encode("utf-8", "backslashreplace").decode() for each in every], pa.string())

    connection.register(
        "jobs_given",
        pa.table(
            {
                "job": texts(row.job for row in rows),
                "node": texts(row.node for row in rows),
                "started": times(row.started_s for row in rows),
                "ended": times(row.ended_s for row in rows),
                "outcome": texts(row.outcome for row in rows),
                "gpus": pa.array([row.gpus for row in rows], pa.float64()),
                "error": texts(row.error for row in rows),
            }
        ),
    )
    connection.execute("CREATE TEMP TABLE jobs AS SELECT * FROM jobs_given")


def _kinds(thresholds: Thresholds) -> dict[str, str]:
    """Minutes in which a device was reset, or in which polls were late or a core was saturated for long."""
    stall_ms, saturated_ms = thresholds.napi_stall_critical_ms, round(60_000 * thresholds.core_saturated_warning_ratio)
    return {"reset": "resets > 0", "stall": f"(stall_ms >= {int(stall_ms)} OR saturated_ms >= {saturated_ms})"}


def _events(thresholds: Thresholds) -> str:
    kinds = _kinds(thresholds)
    return f"""
        SELECT node, time, {", ".join(f"{kinds[kind]} AS {kind}" for kind in KINDS)}
        FROM minutes WHERE {" OR ".join(kinds.values())}"""


def _hours(thresholds: Thresholds) -> str:
    """An hour of a node: in how many of its minutes it suffered, and whether it was sick."""
    floor, factor = int(thresholds.zombies_floor), float(thresholds.zombies_per_live)
    kinds = _kinds(thresholds)
    counted = ", ".join(f"CAST(sum(CAST({kinds[kind]} AS INTEGER)) AS BIGINT) AS {kind}" for kind in KINDS)
    return f"""
        SELECT node, date_trunc('hour', time) AS hour, count(*) AS minutes, {counted},
            coalesce(bool_or(dying >= greatest({floor}, {factor!r} * live)), false) AS sick
        FROM minutes WHERE node IS NOT NULL AND time IS NOT NULL GROUP BY node, hour"""


def _summed(
    connection: "DuckDBPyConnection",
    paths: list[Path],
    thresholds: Thresholds,
    engine: Engine | None,
    progress: Progress | None,
) -> None:
    """The tables `hours` and `events` of all minutes."""
    hours, events = _hours(thresholds), _events(thresholds)
    if engine is None:
        _view(connection, "minutes", paths, MINUTES)
        with watched(connection, progress):
            connection.execute(f"CREATE TEMP TABLE hours AS {hours}")
            connection.execute(f"CREATE TEMP TABLE events AS {events}")
        return
    import pyarrow as pa

    def part(worker: "DuckDBPyConnection", _: str, some: Sequence[str]) -> tuple[pa.Table, pa.Table]:
        _view(worker, "minutes", [Path(each) for each in some], MINUTES)
        return worker.sql(hours).to_arrow_table(), worker.sql(events).to_arrow_table()

    parts = engine.run(part, reader(paths), [str(path.absolute()) for path in paths], progress)
    connection.register("hours_parts", pa.concat_tables([each for each, _ in parts]))
    connection.register("events_parts", pa.concat_tables([each for _, each in parts]))
    # An hour whose minutes are in several files is in several parts.
    counted = ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in ("minutes", *KINDS))
    connection.execute(f"""
        CREATE TEMP TABLE hours AS
        SELECT node, hour, {counted}, bool_or(sick) AS sick FROM hours_parts GROUP BY node, hour""")
    connection.execute("CREATE TEMP TABLE events AS SELECT * FROM events_parts")


def _joined(connection: "DuckDBPyConnection") -> Jobs:
    # How often a node suffers while it is sick, and while it is not: of all that was seen, so that the one event that ended a
    # job is not taken for its habit.
    rates = ", ".join(f"sum({kind}) / sum(minutes) AS {kind}" for kind in KINDS)
    connection.execute(f"CREATE TEMP TABLE rates AS SELECT node, sick, {rates} FROM hours GROUP BY node, sick")
    rows = connection.execute(_QUERY).fetchall()
    known = [row for row in rows if row[2]]
    quiet = np.array([[float(row[6 + 2 * i]) for i in range(len(KINDS))] for row in known]).reshape(-1, len(KINDS))
    near = np.array([[bool(row[5 + 2 * i]) for i in range(len(KINDS))] for row in known], dtype=np.bool_)
    return Jobs(
        tuple(str(row[0]) for row in known),
        np.array([bool(row[1]) for row in known], dtype=np.bool_),
        near.reshape(-1, len(KINDS)),
        1.0 - quiet ** (BEFORE_MIN + 1),
        np.array([bool(row[3]) for row in known], dtype=np.bool_),
        np.array([float(row[4] or 0.0) for row in known]),
        tuple(str(row[-1] or "") for row in known),
        len(rows) - len(known),
    )


_QUIET = "exp(sum(ln(greatest(1e-12, 1 - coalesce(beside.{}, 0)))))"  # that no node of it has one in a minute
_QUERY = f"""
    WITH placed AS (
        SELECT row_number() OVER () AS row, job, node, started, ended, outcome, coalesce(gpus, 0) AS gpus, error
        FROM jobs WHERE outcome IN ({", ".join(map(_quoted, _OUTCOMES))}) AND started IS NOT NULL AND ended >= started
            AND node IS NOT NULL),
    beside AS (
        SELECT row, sum(minutes) AS minutes, bool_or(hours.sick) AS sick,
            {", ".join(f"sum(minutes * rates.{kind}) / sum(minutes) AS {kind}" for kind in KINDS)}
        FROM placed JOIN hours ON hours.node = placed.node AND hour BETWEEN date_trunc('hour', started) AND ended
            JOIN rates ON rates.node = hours.node AND rates.sick = hours.sick GROUP BY row),
    near AS (
        SELECT row, {", ".join(f"bool_or({kind}) AS {kind}" for kind in KINDS)}
        FROM placed JOIN events ON events.node = placed.node
            AND time BETWEEN greatest(started, ended - INTERVAL {BEFORE_MIN} MINUTE) AND ended GROUP BY row)
    SELECT job, max(outcome = 'failed'), sum(coalesce(minutes, 0)), coalesce(bool_or(sick), false),
        sum(gpus * epoch(ended - started)) / 3600,
        {", ".join(f"coalesce(bool_or(near.{k}), false), {_QUIET.format(k)}" for k in KINDS)},
        max(error)
    FROM placed LEFT JOIN beside USING (row) LEFT JOIN near USING (row)
    GROUP BY job ORDER BY job"""
