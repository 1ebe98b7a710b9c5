"""What each alert is to do, as promtool's unit tests: what is scraped every 15 s, which alerts there are then, and no others.

Trouble begins at BEGIN, after five quiet minutes. Every alert has a case in which it fires after its `for` and not before, one
in which it stays silent close by, and one in which half a minute of the same is not enough. Each case is a node of its own,
named after it, in one run: a run of promtool for each takes ten times as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exhume.agent import rules_agent, rules_exporters
from exhume.agent.rules import SCRAPE_S

FOR_S = {alert.name: alert.for_s for alert in (*rules_agent.ALERTS, *rules_exporters.ALERTS)}
BEGIN = 300
HOUR, DAY = 3600, 86400
RECORDED_AT = 1200
Series = Mapping[str, str]


def steady(value: float, seconds: int) -> str:
    return rising(value, 0, seconds)


def rising(value: float, per_second: float, seconds: int) -> str:
    """So many samples, each larger by what grows within a scrape."""
    return f"{value:.10g}{per_second * SCRAPE_S:+.10g}x{max(0, seconds // SCRAPE_S - 1)}"


def gone(seconds: int) -> str:
    return f"_x{seconds // SCRAPE_S}"


def failing(values: str, begin: str = "", lasts: int = 225) -> str:
    """Every so often a scrape fails, which marks the series as gone: these values before it, and the same after it."""
    return f"{begin} {' stale '.join([values] * (3 * HOUR // (lasts + SCRAPE_S)))}".strip()


def climbing(value: float, per_second: float, times: int, lasts: int, down: int = 0) -> str:
    """Grows while scrapes fail: one after so many seconds, or all of those for which the target is down besides."""
    step = per_second * (lasts + SCRAPE_S + down)
    parts = [rising(value + turn * step, per_second, lasts) for turn in range(times)]
    return f" stale {gone(down) + ' ' if down else ''}".join(parts)


def then(value: float, seconds: int = 3 * HOUR, before: float | None = 0.0, lasts: int | None = None) -> str:
    """Quiet (nothing, or a value), then this value for as long as it lasts, then quiet again."""
    quiet = gone if before is None else lambda span: steady(before, span)
    if lasts is None:
        return f"{quiet(BEGIN)} {steady(value, seconds)}"
    return f"{quiet(BEGIN)} {steady(value, lasts)} {quiet(seconds)}"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    alerts: tuple[str, ...]
    """Which it is about."""
    series: Series
    states: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """At so many seconds after BEGIN: every alert there is, with its state."""
    silent_until: int = 0
    """None has fired until so many seconds after BEGIN."""
    alone: bool = False
    """Whether it is about all nodes, and can be no node among others."""
    records: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What recording rules say at RECORDED_AT after BEGIN: by name, series and value."""

    @property
    def ends(self) -> int:
        """When it is looked at last. Few take hours: the others need not be evaluated as long."""
        return max(self.silent_until, *self.states, 0)


def fires(name: str, alert: str, series: Series, for_s: int, pending: int = 30, alone: bool = False) -> Case:
    """Pending within two scrapes (a rate takes longer), pending until `for` is over, then firing."""
    states = {pending: {alert: "pending"}, for_s - 30: {alert: "pending"}, pending + for_s + 15: {alert: "firing"}}
    return Case(name, (alert,), series, states, alone=alone)


def silent(name: str, alert: str, series: Series, alone: bool = False) -> Case:
    """Long enough for whatever it is to fire, if it could."""
    return Case(name, (alert,), series, silent_until=FOR_S[alert] + 1200, alone=alone)


def document(rules: str, base: Series, cases: tuple[Case, ...], node: str = "instance") -> dict[str, Any]:
    """A file of `promtool test rules`."""
    together = [case for case in cases if not case.alone]
    short, long = ([case for case in together if (case.ends > 2 * HOUR) is late] for late in (False, True))
    runs = [("every case is a node", short), ("every case is a node, for hours", long)]
    runs = [*(run for run in runs if run[1]), *((case.name, [case]) for case in cases if case.alone)]
    return {
        "rule_files": [rules],
        "evaluation_interval": f"{SCRAPE_S}s",
        "tests": [
            {
                "name": name,
                "interval": f"{SCRAPE_S}s",
                "input_series": [
                    {"series": _named(series, case), "values": values}
                    for case in run
                    for series, values in {**base, **case.series}.items()
                ],
                "promql_expr_test": [expected for case in run for expected in _expected(case, node)],
            }
            for name, run in runs
        ],
    }


def _named(series: str, case: Case) -> str:
    if case.alone:
        return series
    return series.replace('"n1"', f'"{case.name}"').replace('"n2"', f'"another: {case.name}"')


def _expected(case: Case, node: str) -> list[dict[str, Any]]:
    mine = "" if case.alone else f'{node}="{case.name}"'
    told: list[dict[str, Any]] = [
        {
            "expr": f"count by (alertname, alertstate) (ALERTS{{{mine}}})",
            "eval_time": f"{BEGIN + at}s",
            "exp_samples": [
                {"labels": f'{{alertname="{name}", alertstate="{state}"}}', "value": 1} for name, state in states.items()
            ],
        }
        for at, states in case.states.items()
    ]
    for name, samples in case.records.items():
        expected = [{"labels": f"{name}{labels}", "value": value} for labels, value in samples.items()]
        told.append({"expr": name, "eval_time": f"{BEGIN + RECORDED_AT}s", "exp_samples": expected})
    if case.silent_until:
        firing = f'ALERTS{{{mine + "," if mine else ""}alertstate="firing"}}'
        expr = f"count by (alertname) (max_over_time({firing}[{case.silent_until + BEGIN}s]))"
        told.append({"expr": expr, "eval_time": f"{BEGIN + case.silent_until}s", "exp_samples": []})
    return told
