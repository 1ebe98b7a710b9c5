"""The report as data: what `--json` prints and what every rendering starts from (schema exhume.report/1)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from exhume.findings.model import Finding
from exhume.recording.recording import Node, Recording

SCHEMA = "exhume.report/1"

Health = Literal["healthy", "warning", "critical", "unknown"]


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the chain: a finding, and why it follows from the one before it."""

    finding: Finding
    because: str
    confidence: float


@dataclass(frozen=True, slots=True)
class RuledOut:
    kind: str
    because: str


@dataclass(frozen=True, slots=True)
class Culprit:
    subject: str
    share: float


@dataclass(frozen=True, slots=True)
class Remedy:
    id: str
    target: str
    summary: str


@dataclass(frozen=True, slots=True)
class Verdict:
    cause: str | None
    subject: str
    confidence: float
    summary: str
    chain: tuple[Link, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    unseen: tuple[RuledOut, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    next: tuple[str, ...] = ()
    """What to do now, for people."""


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    state: str
    reason: str
    cost_ns: int


@dataclass(frozen=True, slots=True)
class Report:
    node: Node
    start: str
    end: str
    health: Health
    verdict: Verdict
    findings: tuple[Finding, ...]
    times: dict[int, str]
    """Each finding's start and end (recording clock) as wall-clock text."""
    sources: tuple[Source, ...]


def wall(recording: Recording, time: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(recording.real_ns(time) / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(report: Report) -> dict[str, Any]:
    ids = {id(finding): f"f{i}" for i, finding in enumerate(report.findings, 1)}
    verdict = report.verdict
    return {
        "schema": SCHEMA,
        "node": {
            "hostname": report.node.hostname,
            "boot_id": report.node.boot_id,
            "kernel": report.node.kernel,
            "cgroups": report.node.cgroups,
            "cpus": report.node.cpus,
        },
        "window": {"start": report.start, "end": report.end},
        "health": report.health,
        "verdict": {
            "cause": verdict.cause,
            "subject": verdict.subject,
            "confidence": round(verdict.confidence, 2),
            "summary": verdict.summary,
            "chain": [
                {"finding": ids[id(link.finding)], "because": link.because, "confidence": round(link.confidence, 2)}
                for link in verdict.chain
            ],
            "ruled_out": [{"kind": item.kind, "because": item.because} for item in verdict.ruled_out],
            "unseen": [{"kind": item.kind, "because": item.because} for item in verdict.unseen],
            "culprits": [{"subject": item.subject, "share": round(item.share, 3)} for item in verdict.culprits],
            "remedies": [{"id": r.id, "target": r.target, "summary": r.summary} for r in verdict.remedies],
            "next": list(verdict.next),
        },
        "incidents": [],
        "findings": [
            {
                "id": ids[id(finding)],
                "kind": finding.kind,
                "subject": finding.subject,
                "severity": finding.severity,
                "start": report.times[finding.start],
                "end": report.times[finding.end],
                "summary": finding.summary,
                "evidence": [{"what": e.what, "value": e.value, "unit": e.unit, "source": e.source} for e in finding.evidence],
            }
            for finding in report.findings
        ],
        "sources": [
            {"name": s.name, "state": s.state, "reason": s.reason, "cost_ms": round(s.cost_ns / 1e6, 2)} for s in report.sources
        ],
    }
