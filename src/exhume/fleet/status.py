"""Nodes ranked by how bad: the sick first, then those that will be, by when; then those of which nothing is known. Pure."""

from dataclasses import dataclass
from typing import Any, Literal

from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_CRITICAL, EXIT_HEALTHY, EXIT_WARNING
from exhume.fleet.model import Fleet, Node
from exhume.fleet.sick import pain_of

State = Literal["sick", "leaking", "healthy", "unknown"]
SCHEMA = "exhume.fleet-status/1"
# A leak that will hurt within so many days is a warning; the alert of the agent has the same.
SOON_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class Row:
    node: Node
    state: State
    days_to_pain: float | None


@dataclass(frozen=True, slots=True)
class Status:
    source: str
    rows: tuple[Row, ...]
    """Worst first."""
    troubles: tuple[str, ...]

    def count(self, state: State) -> int:
        return sum(row.state == state for row in self.rows)

    @property
    def exit_code(self) -> int:
        if self.count("sick"):
            return EXIT_CRITICAL
        if self.count("leaking"):
            return EXIT_WARNING
        return EXIT_HEALTHY if self.count("healthy") else EXIT_CANNOT_JUDGE


def status(fleet: Fleet) -> Status:
    rows = [Row(node, _state(node), pain_of(node)) for node in fleet.nodes]
    return Status(fleet.source, tuple(sorted(rows, key=_order)), fleet.troubles)


def _state(node: Node) -> State:
    if node.sick:
        return "sick"
    days = pain_of(node)
    if days is not None and days <= SOON_DAYS:
        return "leaking"
    return "unknown" if node.sick is None else "healthy"


def _order(row: Row) -> tuple[int, float, float, float, str]:
    states: tuple[State, ...] = ("sick", "leaking", "unknown", "healthy")
    days = row.days_to_pain if row.days_to_pain is not None else float("inf")
    return states.index(row.state), -row.node.badness, days, -(row.node.zombies or 0.0), row.node.name


def as_json(found: Status, top: int | None = None) -> dict[str, Any]:
    states: tuple[State, ...] = ("sick", "leaking", "healthy", "unknown")
    return {
        "schema": SCHEMA,
        "source": found.source,
        "nodes": len(found.rows),
        **{state: found.count(state) for state in states},
        "ranked": [_row(row) for row in found.rows[:top]],
        "troubles": list(found.troubles),
    }


def _row(row: Row) -> dict[str, Any]:
    node = row.node
    return {
        "node": node.name,
        "state": row.state,
        "badness": round(node.badness, 4),
        "verdict": node.why,
        "zombies": _rounded(node.zombies),
        "leak_per_day": _rounded(node.leak_per_day),
        "days_to_pain": _rounded(row.days_to_pain, 2),
        "resets": _rounded(node.resets),
        "uptime_s": _rounded(node.uptime_s),
        "facts": dict(node.facts),
    }


def _rounded(value: float | None, digits: int = 0) -> float | int | None:
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return round(value, digits) if digits else round(value)
