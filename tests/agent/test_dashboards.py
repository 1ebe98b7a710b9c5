"""The dashboards: panels that fit on the page, say what they show, and ask for what there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from exhume.agent.dashboards import DASHBOARDS, Dashboard, printed
from exhume.agent.metrics import METRICS
from exhume.agent.rules import Making
from exhume.agent.rules_fleet import RECORDS
from tests.agent.prometheus import promtool

# Not for the eye: what they say is in another panel, or in an alert.
UNSEEN = {
    "exhume_agent_judged_timestamp_seconds", "exhume_audit_timestamp_seconds", "exhume_verdict_timestamp_seconds",
    "exhume_incidents_total", "exhume_core_saturated_episodes_total", "exhume_stalls_total",
    "exhume_cpu_throttled_seconds_total",
    "exhume_memory_cgroup_leak_rate",
}  # fmt: skip


def made(which: Dashboard, making: Making | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(printed(which, making or Making()))
    return document


def panels(which: Dashboard) -> list[dict[str, Any]]:
    return [panel for panel in made(which)["panels"] if panel["type"] != "row"]


def queries(which: Dashboard) -> list[str]:
    """As Grafana would send them."""
    every = [target["expr"] for panel in panels(which) for target in panel["targets"]]
    every += [mark["expr"] for mark in made(which)["annotations"]["list"]]
    return [query.replace("$node", "n1").replace("$__rate_interval", "1m") for query in every]


@pytest.mark.parametrize("which", DASHBOARDS)
def test_every_query_is_promql(tmp_path: Path, which: Dashboard) -> None:
    rules = [{"record": f"query:number:{i}", "expr": query} for i, query in enumerate(queries(which))]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": which, "rules": rules}]}))
    checked = promtool("check", "rules", str(tmp_path / "rules.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found".encode() in checked.stdout


@pytest.mark.parametrize("which", DASHBOARDS)
def test_every_query_asks_for_metrics_and_rules_that_there_are(which: Dashboard) -> None:
    there = {*METRICS, *(record.name for record in RECORDS), "ALERTS", "exhume_latency_seconds_bucket"}
    for query in queries(which):
        names = set(re.findall(r"[a-z_]+:exhume[\w:]+|\bexhume_\w+|\bALERTS\b", query))
        assert names, query
        assert names <= there, query


@pytest.mark.parametrize("which", DASHBOARDS)
def test_every_panel_has_its_place_and_says_what_it_shows(which: Dashboard) -> None:
    document = made(which)
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    titles = [panel["title"] for panel in panels(which)]
    assert len(set(titles)) == len(titles)
    for panel in panels(which):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]


def test_a_node_is_chosen_by_the_label_that_tells_nodes_apart() -> None:
    document = made("node", Making(node="kubernetes_node"))
    variables = {variable["name"]: variable for variable in document["templating"]["list"]}
    assert variables["node"]["query"]["query"] == "label_values(exhume_build_info, kubernetes_node)"
    asked = [target["expr"] for panel in document["panels"] for target in panel.get("targets", [])]
    assert all('kubernetes_node="$node"' in query for query in asked)
    assert "NODE" not in printed("fleet", Making(node="kubernetes_node"))


def test_what_is_shown_of_a_node_among_others_leads_to_its_page() -> None:
    document = made("fleet", Making(node="kubernetes_node"))
    assert made("node")["uid"] == "exhume-node"
    of_a_node = {}
    for panel in document["panels"]:
        legends = [target["legendFormat"] for target in panel.get("targets", [])]
        if "{{kubernetes_node}}" in legends or (panel["type"] == "table" and "kubernetes_node" in panel["targets"][0]["expr"]):
            of_a_node[panel["title"]] = panel["fieldConfig"]["defaults"]["links"][0]["url"]
    assert len(of_a_node) == 9
    for title, url in of_a_node.items():
        which = '${__data.fields["kubernetes_node"]}' if title in ("Nodes that are not well", "Their verdicts") else ""
        node = which or "${__field.labels.kubernetes_node}"
        assert url == f"/d/exhume-node?${{__url_time_range}}&var-datasource=${{datasource}}&var-node={node}"


def test_every_metric_is_seen_somewhere() -> None:
    asked = " ".join([*queries("node"), *queries("fleet"), *(record.expr for record in RECORDS)])
    unseen = {name for name in METRICS if not re.search(rf"\b{name}(_bucket)?\b", asked)}
    assert unseen == UNSEEN


@pytest.mark.parametrize("which", DASHBOARDS)
def test_of_series_that_begin_with_their_first_event_that_one_counts(which: Dashboard) -> None:
    """`increase` alone would be 0 of the only reset that there was."""
    begun_at_0 = {"exhume_profiles_pushed_total", "exhume_verdicts_failed_total"}
    for query in [*queries(which), *(record.expr for record in RECORDS)]:
        for name in re.findall(r"\bincrease\((exhume_\w+)", query):
            assert name in begun_at_0 or f"count_over_time({name}" in query, query
