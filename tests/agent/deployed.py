"""What deploy/ has for Prometheus and Grafana, made from the code: `python -m tests.agent.deployed` writes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from exhume.agent import dashboards
from exhume.agent.rules import Making, as_yaml, printed
from tests.agent import rule_cases_agent, rule_cases_exporters, rule_cases_fleet
from tests.agent.rule_cases import document

DEPLOY: Final = Path(__file__).resolve().parent.parent.parent / "deploy"
# Exporter and kubelet are two targets: what they have in common must be a label that both are given.
EXPORTERS: Final = Making(node="node")
_HEAD = "# Run by: promtool test rules {}. Made from the code, with the rules.\n"


def _tests_agent() -> str:
    cases = document("../exhume-agent.yml", rule_cases_agent.BASE, (*rule_cases_agent.CASES, *rule_cases_fleet.CASES))
    return as_yaml(cases, _HEAD.format("tests/agent.yml"))


def _tests_exporters() -> str:
    cases = document("../exhume-node-exporter.yml", rule_cases_exporters.BASE, rule_cases_exporters.CASES, "node")
    return as_yaml(cases, _HEAD.format("tests/node-exporter.yml"))


FILES: Final[dict[str, Callable[[], str]]] = {
    "prometheus/exhume-agent.yml": lambda: printed("agent", Making()),
    "prometheus/exhume-node-exporter.yml": lambda: printed("node-exporter", EXPORTERS),
    "grafana/exhume-node.json": lambda: dashboards.printed("node", Making()),
    "grafana/exhume-fleet.json": lambda: dashboards.printed("fleet", Making()),
    "prometheus/tests/agent.yml": _tests_agent,
    "prometheus/tests/node-exporter.yml": _tests_exporters,
}


if __name__ == "__main__":
    for name, made in FILES.items():
        (DEPLOY / name).parent.mkdir(parents=True, exist_ok=True)
        (DEPLOY / name).write_text(made())
