"""Minutes of many nodes in one pass of DuckDB, out of core: what each node came to from one boot to the next."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.fleet.model import MINUTES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Boots that are nearer to each other than this are one whose time was worked out anew, from a clock and an uptime.
_SAME_BOOT_S = 300.0
MEMORY: Final = 10**9


@dataclass(frozen=True, slots=True)
class Life:
    """A node from one boot to the next, as far as it was seen. Times are seconds since 1970; None where nothing says."""

    node: str
    booted: float | None
    minutes: int
    first: float
    last: float
    zombies_from: int | None
    zombies: int | None
    zombies_most: int | None
    live: int | None
    """The most."""
    zombie_minutes: int | None
    """With many of them (`Thresholds.many_zombies`)."""
    stall_ms: int | None
    saturated_ms: int | None
    resets: int | None
    stalls: int | None
    counted_first: float | None
    """When zombies were first known; a source may begin later than the others, or be away at first."""
    counted_last: float | None


def sql(source: str, columns: Mapping[str, str], thresholds: Thresholds) -> str:
    """The pass over `source`, which has those columns of those types; what it lacks of MINUTES is taken as unknown.

    It may be run over some of the files at a time and put together by `merged`: what is summed is summed, what is the first or
    the last goes by time.
    """
    taken = ", ".join(f"{_column(name, kind, columns.get(name))} AS {name}" for name, kind, _ in MINUTES)
    floor, factor = int(thresholds.zombies_floor), float(thresholds.zombies_per_live)
    factor_text = str(int(factor)) if factor.is_integer() else repr(factor)
    # A sum over a comparison is quicker than a count with a filter; what is NULL for every row stays NULL.
    return f"""
        SELECT node, date_trunc('minute', booted) AS boot, count(*), epoch(min(time)), epoch(max(time)),
            arg_min(dying, time), arg_max(dying, time), max(dying), max(live),
            sum(CAST(dying >= greatest({floor}, {factor_text} * live) AS INTEGER)),
            sum(stall_ms), sum(saturated_ms), sum(resets), sum(stalls),
            epoch(min(CASE WHEN dying IS NOT NULL THEN time END)), epoch(max(CASE WHEN dying IS NOT NULL THEN time END))
        FROM (SELECT {taken} FROM {source})
        WHERE node IS NOT NULL AND time IS NOT NULL
        GROUP BY node, boot"""


def _column(name: str, kind: str, found: str | None) -> str:
    if found is None:
        return f"CAST(NULL AS {kind})"
    return name if found == kind else f"TRY_CAST({name} AS {kind})"


def lives(connection: "DuckDBPyConnection", source: str, parameters: Sequence[object], thresholds: Thresholds) -> list[Life]:
    return of_rows(rows(connection, source, parameters, thresholds))


def rows(
    connection: "DuckDBPyConnection", source: str, parameters: Sequence[object], thresholds: Thresholds
) -> list[tuple[object, ...]]:
    """What the pass gives, of some of the files or of all: for `of_rows`."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}", parameters).fetchall()
    columns = {str(row[0]): str(row[1]) for row in described}
    return connection.execute(sql(source, columns, thresholds), parameters).fetchall()


def of_rows(found: Iterable[Sequence[object]]) -> list[Life]:
    return merged([life(row) for row in found])


def life(row: Sequence[object]) -> Life:
    """A row of the pass."""
    node, boot, minutes, first, last, begin, end, most, live, zombies, stalled, saturated, resets, stalls, *counted = row
    return Life(
        str(node),
        boot.replace(tzinfo=UTC).timestamp() if isinstance(boot, datetime) else None,
        _integer(minutes),
        _float(first),
        _float(last),
        _maybe(begin),
        _maybe(end),
        _maybe(most),
        _maybe(live),
        _maybe(zombies),
        _maybe(stalled),
        _maybe(saturated),
        _maybe(resets),
        _maybe(stalls),
        *(None if moment is None else _float(moment) for moment in counted),
    )


def _integer(value: object) -> int:
    return int(value) if isinstance(value, int | float) else int(str(value))


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float(str(value))


def _maybe(value: object) -> int | None:
    return None if value is None else _integer(value)


def merged(parts: Sequence[Life]) -> list[Life]:
    """By node and time, with boots that are one put together."""
    found: list[Life] = []
    for row in sorted(parts, key=lambda each: (each.node, each.booted is None, each.booted or 0.0, each.first, each.last)):
        before = found[-1] if found else None
        if before is not None and before.node == row.node and _same(before.booted, row.booted):
            found[-1] = _together(before, row)
        else:
            found.append(row)
    return sorted(found, key=lambda each: (each.node, each.last, each.first))


def _same(one: float | None, other: float | None) -> bool:
    return one is other or (one is not None and other is not None and abs(one - other) <= _SAME_BOOT_S)


def _together(one: Life, other: Life) -> Life:
    early, late = _first_known(one, other), _last_known(one, other)
    return Life(
        one.node,
        one.booted,
        one.minutes + other.minutes,
        min(one.first, other.first),
        max(one.last, other.last),
        early.zombies_from,
        late.zombies,
        _most(one.zombies_most, other.zombies_most),
        _most(one.live, other.live),
        _sum(one.zombie_minutes, other.zombie_minutes),
        _sum(one.stall_ms, other.stall_ms),
        _sum(one.saturated_ms, other.saturated_ms),
        _sum(one.resets, other.resets),
        _sum(one.stalls, other.stalls),
        early.counted_first,
        late.counted_last,
    )


def _first_known(one: Life, other: Life) -> Life:
    if one.counted_first is None or other.counted_first is None:
        return other if one.counted_first is None else one
    return one if one.counted_first <= other.counted_first else other


def _last_known(one: Life, other: Life) -> Life:
    if one.counted_last is None or other.counted_last is None:
        return other if one.counted_last is None else one
    return one if one.counted_last >= other.counted_last else other


def _most(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other
