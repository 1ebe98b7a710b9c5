"""Alerts and recording rules for Prometheus, as data, and as the file that Prometheus reads.

The rules are written in plain PromQL with words that are put in here: NODE, the label that tells nodes apart; JOB and
EXPORTERS, the names of the scrape jobs; <7d>, a number of seconds. A rule's ranges and its `for` are divided by `speed`, so
that a test need not wait for days: everything else about it stays as it is.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from exhume.errors import UsageError
from exhume.host.quantities import SECOND, compact, parse_duration

Severity = Literal["info", "warning", "critical"]
Edition = Literal["agent", "node-exporter"]
EDITIONS: Final[tuple[Edition, ...]] = ("agent", "node-exporter")

SCRAPE_S: Final = 15
"""How often the rules expect to be fed, and are looked at; up to 30 s will do."""

HELD: Final = "5m"
"""For how long a value that a scrape did not bring is still taken for what it is: as long as Prometheus by itself remembers a
target that says nothing. A scrape that fails marks every series as gone, and an alert that must hold for an hour without a
missing value would begin anew with each; after as long ExhumeAgentDown and NodeExporterDown speak."""

_RANGE = re.compile(r"(\[|\boffset )(\d+[smhd])\b")
_NUMBER = re.compile(r"<(\d+[smhd])>")


def held(series: str) -> str:
    """What it was when it was last scraped."""
    return f"last_over_time({series}[{HELD}])"


@dataclass(frozen=True, slots=True)
class Making:
    """What differs from one installation to the next."""

    node: str = "instance"
    """The label that tells nodes apart, on all that is scraped."""
    job: str = "exhume"
    exporters: str = "node"
    docs: str = "docs"
    """Where our documentation is: runbook_url begins with it."""
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", self.node):
            raise UsageError(f"{self.node!r} is no name of a label; instance and node are usual")
        for job in (self.job, self.exporters):
            if not re.fullmatch(r"[\w./-]+", job):
                raise UsageError(f"{job!r} cannot be a job's name here: letters, digits, and . / _ - are known")
        if not self.docs.isprintable() or "{{" in self.docs:
            raise UsageError(f"{self.docs!r} is no address of the documentation")

    def duration(self, seconds: float) -> str:
        """As PromQL has it, at the speed of this installation."""
        return compact(seconds * SECOND / self.speed)

    def fit(self, text: str) -> str:
        text = _RANGE.sub(lambda at: f"{at[1]}{compact(parse_duration(at[2]) / self.speed)}", text)
        text = _NUMBER.sub(lambda at: f"{parse_duration(at[1]) / SECOND / self.speed:g}", text)
        words = {"NODE": self.node, "JOB": self.job, "EXPORTERS": self.exporters}
        return re.sub(r"\b(NODE|JOB|EXPORTERS)\b", lambda at: words[at[0]], text)


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expr: str
    for_s: int
    severity: Severity
    summary: str
    description: str
    action: str
    """What to do first, for whoever is woken by it; the runbook has the rest."""

    def rule(self, making: Making) -> dict[str, Any]:
        return {
            "alert": self.name,
            "expr": making.fit(self.expr).strip(),
            "for": making.duration(self.for_s),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": making.fit(self.summary),
                "description": making.fit(self.description),
                "action": making.fit(self.action),
                "runbook_url": f"{making.docs.rstrip('/')}/alerts.md#{self.name.lower()}",
            },
        }


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule. Its name is level:metric:operation, as Prometheus's own practice has it."""

    name: str
    expr: str

    def rule(self, making: Making) -> dict[str, Any]:
        return {"record": self.name, "expr": making.fit(self.expr).strip()}


def groups(edition: Edition, making: Making) -> dict[str, Any]:
    """What a rule file holds."""
    if edition == "agent":
        from exhume.agent.rules_agent import ALERTS
        from exhume.agent.rules_fleet import RECORDS

        every: dict[str, tuple[Alert, ...] | tuple[Record, ...]] = {"exhume": ALERTS, "exhume-fleet": RECORDS}
    else:
        from exhume.agent import rules_exporters

        every = {"exhume-node-exporter": rules_exporters.ALERTS}
    interval = making.duration(SCRAPE_S)
    return {
        "groups": [
            {"name": name, "interval": interval, "rules": [rule.rule(making) for rule in rules]}
            for name, rules in every.items()
        ]
    }


def as_yaml(document: dict[str, Any], head: str = "") -> str:
    """YAML in the order it was made in, long text as blocks."""
    import yaml

    class Blocks(yaml.SafeDumper):
        """SafeDumper, with a representer of its own that nobody else is to have."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Blocks.add_representer(str, text)
    return head + yaml.dump(document, Dumper=Blocks, sort_keys=False, width=10_000, allow_unicode=True)


HEADS: Final = {
    "agent": "# Alerts and recording rules for exhume's agent. Made by `exhume agent --print-rules`.\n",
    "node-exporter": (
        "# Alerts for nodes without the agent: node_exporter and the kubelet's cAdvisor metrics alone.\n"
        "# Made by `exhume agent --print-rules --edition node-exporter`. docs/alerts.md tells what they cannot see,\n"
        "# and which flags and which relabelling they need.\n"
    ),
}


def printed(edition: Edition, making: Making) -> str:
    return as_yaml(groups(edition, making), HEADS[edition])
