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
    disproof: str = ""
    """What would show that it does not follow."""


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


Cost = Literal["nothing", "a restart", "a reboot", "an upgrade", "capacity"]


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about the cause, or what not to do although others would."""

    text: str
    because: str
    cost: Cost = "nothing"
    against: bool = False
    """Advised against: it was tried in such cases, and the evidence here says that it would not help."""


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
    against: tuple[str, ...] = ()
    """Evidence that does not fit the cause."""
    advice: tuple[Advice, ...] = ()
    switch_on: tuple[str, ...] = ()
    """What to switch on where the data cannot decide."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A time in which the node suffered, with its own verdict. Times are the recording's."""

    start: int
    end: int
    health: Health
    verdict: Verdict
    findings: tuple[Finding, ...]


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
    """Each finding's and incident's start and end (recording clock) as wall-clock text."""
    sources: tuple[Source, ...]
    incidents: tuple[Incident, ...] = ()
    """In order of time. The verdict is that of the worst of them, of the last if several are; of the whole if there is none."""
    further: tuple[tuple[int, int], ...] = ()
    """Times in which the node suffered that were too many to be judged each by itself."""
    more: int = 0
    """Still further ones, of which not even the time is told."""


def wall(recording: Recording, time: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(recording.real_ns(time) / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(report: Report) -> dict[str, Any]:
    ids = {id(finding): f"f{i}" for i, finding in enumerate(report.findings, 1)}
    verdict = report.verdict
    document: dict[str, Any] = {
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
                {
                    "finding": ids[id(link.finding)],
                    "because": link.because,
                    "confidence": round(link.confidence, 2),
                    "disproof": link.disproof,
                }
                for link in verdict.chain
            ],
            "ruled_out": [{"kind": item.kind, "because": item.because} for item in verdict.ruled_out],
            "unseen": [{"kind": item.kind, "because": item.because} for item in verdict.unseen],
            "culprits": [{"subject": item.subject, "share": round(item.share, 3)} for item in verdict.culprits],
            "remedies": [{"id": r.id, "target": r.target, "summary": r.summary} for r in verdict.remedies],
            "next": list(verdict.next),
            "against": list(verdict.against),
            "advice": [
                {"text": a.text, "because": a.because, "cost": a.cost, "advised": not a.against} for a in verdict.advice
            ],
            "switch_on": list(verdict.switch_on),
        },
        "incidents": [
            {
                "start": report.times[incident.start],
                "end": report.times[incident.end],
                "health": incident.health,
                "cause": incident.verdict.cause,
                "subject": incident.verdict.subject,
                "confidence": round(incident.verdict.confidence, 2),
                "summary": incident.verdict.summary,
            }
            for incident in report.incidents
        ],
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
    if report.further:
        times = [{"start": report.times[start], "end": report.times[end]} for start, end in report.further]
        document |= {"incidents_not_judged": times, "incidents_more": report.more}
    return document
