"""Grafana's dashboards, made of panels: what each shows, in which unit, by which queries, and where it is on the page.

A dashboard is JSON that Grafana imports (schema version 38, Grafana 10 and later read it as it is). Queries use the metrics of
METRICS and the recording rules of rules_fleet, and NODE where rules do: the label that tells nodes apart.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from exhume.agent.rules import Making

Look = Literal["timeseries", "stat", "table", "heatmap", "bargauge"]
Dashboard = Literal["node", "fleet"]
DASHBOARDS: Final[tuple[Dashboard, ...]] = ("node", "fleet")

NODE_UID: Final = "exhume-node"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_ROW_HEIGHT = 8
_COLOURS = {"healthy": "green", "warning": "orange", "critical": "red", "unknown": "text"}


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    says: str
    """What one sees in it, for the reader who meets it first."""
    queries: tuple[Query, ...]
    unit: str = "short"
    look: Look = "timeseries"
    width: int = 8
    stacked: bool = False
    limit: float | None = None
    """From here on it is red."""


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Page:
    uid: str
    title: str
    rows: tuple[Row, ...]
    one_node: bool
    """Whether a node is chosen: `$node` is its name then."""


def page(which: Dashboard) -> Page:
    if which == "node":
        from exhume.agent.dashboards_node import PAGE

        return PAGE
    from exhume.agent import dashboards_fleet

    return dashboards_fleet.PAGE


def printed(which: Dashboard, making: Making) -> str:
    return json.dumps(document(page(which), making), indent=1, ensure_ascii=False) + "\n"


def document(shown: Page, making: Making) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row in shown.rows:
        panels.append(_heading(row.title, len(panels) + 1, top))
        top += 1
        left = 0
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                left, top = 0, top + _ROW_HEIGHT
            place = {"h": _ROW_HEIGHT, "w": panel.width, "x": left, "y": top}
            panels.append(_panel(panel, len(panels) + 1, place, making))
            left += panel.width
        top += _ROW_HEIGHT
    return {
        "uid": shown.uid,
        "title": shown.title,
        "tags": ["exhume"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [{"type": "dashboards", "title": "exhume", "tags": ["exhume"], "keepTime": True, "includeVars": True}],
        "annotations": {"list": [_alerts(shown, making)]},
        "templating": {"list": _variables(shown, making)},
        "panels": panels,
    }


def _variables(shown: Page, making: Making) -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    if not shown.one_node:
        return [source]
    query = making.fit("label_values(exhume_build_info, NODE)")
    node = {"name": "node", "label": "Node", "type": "query", "datasource": _SOURCE, "refresh": 2, "sort": 1, "hide": 0}
    return [source, {**node, "definition": query, "query": {"query": query, "refId": "node"}}]


def _alerts(shown: Page, making: Making) -> dict[str, Any]:
    """Alerts that fired, as marks on the time axis."""
    which = ',NODE="$node"' if shown.one_node else ""
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": making.fit(f'ALERTS{{alertname=~"Exhume.*",alertstate="firing"{which}}}'),
        "titleFormat": "{{alertname}}",
        "textFormat": making.fit("{{NODE}}"),
    }


def _heading(title: str, number: int, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, place: dict[str, int], making: Making) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.look,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [_target(query, chr(ord("A") + i), panel, making) for i, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": {**_defaults(panel), **_links(panel, making)}, "overrides": _overrides(panel)},
        "options": _options(panel),
        **({"transformations": _columns(making)} if panel.look == "table" else {}),
    }


def _target(query: Query, letter: str, panel: Panel, making: Making) -> dict[str, Any]:
    now = panel.look in ("table", "stat", "bargauge")
    return {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": making.fit(query.expr),
        "legendFormat": making.fit(query.legend),
        "instant": now,
        "range": not now,
        "format": {"table": "table", "heatmap": "heatmap"}.get(panel.look, "time_series"),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green" if panel.limit is not None else "blue", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.look == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "dashed" if panel.limit is not None else "off"},
        }
    return defaults


def _links(panel: Panel, making: Making) -> dict[str, Any]:
    """From what is shown of a node among others to the node's own page, for the same time."""
    if panel.look == "table" and any("NODE" in query.expr for query in panel.queries):
        which = f'${{__data.fields["{making.node}"]}}'
    elif any(query.legend == "{{NODE}}" for query in panel.queries):
        which = f"${{__field.labels.{making.node}}}"
    else:
        return {}
    url = f"/d/{NODE_UID}?${{__url_time_range}}&var-datasource=${{datasource}}&var-node={which}"
    return {"links": [{"title": "This node", "url": url}]}


def _of_health(panel: Panel) -> bool:
    return any("health" in query.legend for query in panel.queries)


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    """A health has the same colour wherever it is shown."""
    if not _of_health(panel):
        return []
    return [
        {
            "matcher": {"id": "byName", "options": health},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for health, colour in _COLOURS.items()
    ]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.look == "timeseries":
        return {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}}
    if panel.look == "heatmap":
        return {
            "calculate": False,
            "yAxis": {"unit": panel.unit},
            "color": {"mode": "scheme", "scheme": "Oranges"},
            "cellGap": 1,
        }
    if panel.look == "table":
        return {"showHeader": True, "sortBy": [{"displayName": "Value", "desc": True}]}
    mode = "name" if _of_health(panel) else "value_and_name"
    return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": mode, "orientation": "auto"}


def _columns(making: Making) -> list[dict[str, Any]]:
    """Of what a query in table form brings, only what says something."""
    hidden = ["Time", "__name__", "job", *(["instance"] if making.node != "instance" else [])]
    return [{"id": "organize", "options": {"excludeByName": dict.fromkeys(hidden, True)}}]
