"""What the query API of Prometheus, or of anything that speaks like it, answers: series, warnings, or why there are none.

The form is that of https://prometheus.io/docs/prometheus/latest/querying/api/. Nothing of it is trusted.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from exhume.text import from_json, printable

Floats = NDArray[np.float64]
Trouble = Literal["too much", "again", "never"]

# What servers say of a question that would be answered if it were smaller: Prometheus (promql/engine.go: ErrTooManySamples,
# ErrQueryTimeout; web/api/v1/api.go: maximum resolution), Mimir and Cortex (limits of series, chunks, bytes), VictoriaMetrics
# (-search.max...), Thanos (limits of samples).
_TOO_MUCH = re.compile(
    r"too many|exceed|maximum (resolution|number)|limit|too (large|long|big)|timed? ?out|timeout|out of memory", re.IGNORECASE
)
_PASSING = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Series:
    labels: Mapping[str, str]
    times: Floats
    """Seconds, ascending."""
    values: Floats
    """Finite, all of them."""


@dataclass(frozen=True, slots=True)
class Reply:
    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()


class Refusal(Exception):
    """No answer, and what can be done about it."""

    def __init__(self, trouble: Trouble, why: str) -> None:
        super().__init__(why)
        self.trouble: Trouble = trouble


def parse(status: int, raw: bytes) -> Reply:
    try:
        told = from_json(raw)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.get("status") not in ("success", "error"):
        if 300 <= status < 400:
            raise Refusal("never", f"{status}: it sends elsewhere, which is not followed; name the right address")
        if status < 300:
            raise Refusal("again", "the answer broke off, or is none of Prometheus")
        raise Refusal("again" if status in _PASSING else "too much" if status == 413 else "never", f"HTTP status {status}")
    if told["status"] == "error" or status >= 300:
        raise _refusal(status, str(told.get("errorType", "")), str(told.get("error", "")))
    data = told.get("data")
    if not isinstance(data, dict):
        raise Refusal("again", "the answer has no data")
    warnings = [str(each) for key in ("warnings", "infos") for each in _list(told.get(key))]
    if told.get("isPartial") is True or data.get("isPartial") is True:  # VictoriaMetrics' cluster
        warnings.append("the answer is partial: not every storage node took part")
    return Reply(_result(data), tuple(printable(each, 200) for each in warnings))


def _refusal(status: int, kind: str, why: str) -> Refusal:
    shown = f"{printable(why, 200) or 'no reason given'} ({status}{' ' + printable(kind, 40) if kind else ''})"
    if status == 429:
        return Refusal("again", shown)
    if kind == "timeout" or status == 413 or (status in (400, 422, 503) and kind != "unavailable" and _TOO_MUCH.search(why)):
        return Refusal("too much", shown)
    return Refusal("again" if status in _PASSING else "never", shown)


def _list(told: object) -> list[object]:
    return told if isinstance(told, list) else []


def _result(data: dict[str, object]) -> tuple[Series, ...]:
    if data.get("resultType") == "scalar":
        points = _points([data.get("result")])
        return (Series({}, *points),) if len(points[0]) else ()
    found = []
    for each in _list(data.get("result")):
        if not isinstance(each, dict):
            continue
        labels = each.get("metric")
        times, values = _points([each["value"]] if "value" in each else _list(each.get("values")))
        if len(times):
            named = (
                {str(key): value for key, value in labels.items() if isinstance(value, str)} if isinstance(labels, dict) else {}
            )
            found.append(Series(named, times, values))
    return tuple(found)


def _points(told: Sequence[object]) -> tuple[Floats, Floats]:
    """Samples that are numbers; NaN and infinity say nothing about a node."""
    at, of = _as_sent(told) or _one_by_one(told)
    finite = np.isfinite(at) & np.isfinite(of)
    if not finite.all():
        at, of = at[finite], of[finite]
    if len(at) > 1 and not (np.diff(at) > 0).all():
        at, first = np.unique(at, return_index=True)
        of = of[first]
    return at, of


def _as_sent(told: Sequence[object]) -> tuple[Floats, Floats] | None:
    """All at once, if all are pairs of a number and a text that is one: a fleet has millions of them."""
    if set(map(type, told)) != {list}:
        return None
    try:
        moments, texts = zip(*told, strict=True)
        if not set(map(type, moments)) <= {int, float} or set(map(type, texts)) != {str}:
            return None
        return np.fromiter(map(float, moments), np.float64, len(told)), np.fromiter(map(float, texts), np.float64, len(told))
    except (TypeError, ValueError, OverflowError):
        return None


def _one_by_one(told: Iterable[object]) -> tuple[Floats, Floats]:
    times, values = [], []
    for each in told:
        if not isinstance(each, list) or len(each) != 2 or isinstance(each[0], bool) or not isinstance(each[0], int | float):
            continue
        try:
            time, value = float(each[0]), float(each[1])
        except (TypeError, ValueError, OverflowError):
            continue
        times.append(time)
        values.append(value)
    return np.array(times, dtype=np.float64), np.array(values, dtype=np.float64)


def joined(pieces: Iterable[Series]) -> tuple[Series, ...]:
    """Series of the same labels, asked for piece by piece, as one; a moment that two pieces have counts once."""
    groups: dict[frozenset[tuple[str, str]], list[Series]] = {}
    for each in pieces:
        groups.setdefault(frozenset(each.labels.items()), []).append(each)
    found = []
    for group in groups.values():
        if len(group) == 1:
            found.append(group[0])
            continue
        times, first = np.unique(np.concatenate([each.times for each in group]), return_index=True)
        found.append(Series(group[0].labels, times, np.concatenate([each.values for each in group])[first]))
    return tuple(found)
