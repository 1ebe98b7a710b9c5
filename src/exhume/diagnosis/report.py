"""The report as data: what every rendering starts from, and its JSON form (schema exhume.report/2), written and read back."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar

from exhume.diagnosis.findings.codec import decode, encode, encode_facts, items, mapping, number, text
from exhume.diagnosis.findings.kind import Advice, Culprit, Link, Remedy
from exhume.diagnosis.findings.model import SEVERITIES, Facts, Finding
from exhume.diagnosis.findings.registry import BY_NAME, TENANTS
from exhume.errors import UsageError
from exhume.record import record
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import STATES, SourceState, State, decoded
from exhume.recording.source_state import as_json as state_json
from exhume.text import printable

SCHEMA = "exhume.report/2"

T = TypeVar("T")
# Of the chain of a file. A chain that was judged has a handful.
MOST_LINKS: Final = 100
Health = Literal["healthy", "warning", "critical", "unknown"]
HEALTHS: Final[tuple[Health, ...]] = ("healthy", "warning", "critical", "unknown")
"""The first three in the order of SEVERITIES."""


def health_of(findings: Iterable[Finding[Facts]], looked: bool) -> Health:
    """A node's health by its findings; what concerns a tenant alone is not the node's. `looked`: the cores were seen; without
    that a node without findings is unknown."""
    worst = max((SEVERITIES.index(finding.severity) for finding in findings if finding.kind not in TENANTS), default=0)
    return HEALTHS[worst] if worst or looked else "unknown"


@record(frozen=True, slots=True)
class RuledOut:
    kind: str
    because: str


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
class Incident:
    """A time in which the node suffered, with its own verdict. Times are the recording's."""

    start: int
    end: int
    health: Health
    verdict: Verdict
    findings: tuple[Finding[Facts], ...]


@record(frozen=True, slots=True)
class Source:
    name: str
    status: SourceState
    cost_ns: int

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def reason(self) -> str:
        """For people."""
        return self.status.reason


@record(frozen=True, slots=True)
class Report:
    node: Node
    start: str
    end: str
    health: Health
    verdict: Verdict
    findings: tuple[Finding[Facts], ...]
    times: dict[int, str]
    """Each finding's and incident's start and end (recording clock) as wall-clock text."""
    sources: tuple[Source, ...]
    incidents: tuple[Incident, ...] = ()
    """In order of time. The verdict is that of the worst of them, of the last if several are; of the whole if there is none."""
    further: tuple[tuple[int, int], ...] = ()
    """Times in which the node suffered that were too many to be judged each by itself."""
    more: int = 0
    """Still further ones, whose times are not kept either."""

    def find(self, name: str) -> tuple[Finding[Facts], ...]:
        """The findings that a name means: one by its id, or all of a kind."""
        return tuple(one for i, one in enumerate(self.findings) if name in (finding_id(i), one.kind))


def wall(recording: Recording, time: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(recording.real_ns(time) / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(report: Report) -> dict[str, Any]:
    ids = {id(finding): finding_id(i) for i, finding in enumerate(report.findings)}
    verdict = report.verdict
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "node": {name: getattr(report.node, name) for name in _NODE},
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
            "ruled_out": [encode(one) for one in verdict.ruled_out],
            "unseen": [encode(one) for one in verdict.unseen],
            "culprits": [{"subject": one.subject, "share": round(one.share, 3)} for one in verdict.culprits],
            "remedies": [{**encode(one), "summary": one.summary} for one in verdict.remedies],
            "next": list(verdict.next),
            "against": list(verdict.against),
            "advice": [encode(one) for one in verdict.advice],
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
                "facts": encode_facts(finding.facts),
            }
            for finding in report.findings
        ],
        "sources": [{"name": s.name, **state_json(s.status), "cost_ms": round(s.cost_ns / 1e6, 2)} for s in report.sources],
    }
    if report.further:
        times = [{"start": report.times[start], "end": report.times[end]} for start, end in report.further]
        document |= {"incidents_not_judged": times, "incidents_more": report.more}
    return document


_NODE = ("hostname", "boot_id", "kernel", "cgroups", "cpus")


def from_json(document: object) -> Report:
    """The inverse of `as_json`. A file may be anyone's: UsageError where it is no report."""
    fields = mapping(document, "the report")
    if (schema := fields.get("schema")) != SCHEMA:
        if isinstance(schema, str) and schema.startswith("exhume.report/"):
            raise UsageError(
                f"the report has schema {printable(schema)}, and this exhume reads {SCHEMA}: make it again with "
                "exhume check --json or exhume diagnose --json"
            )
        raise UsageError(f"this is no report of exhume check or diagnose: its schema is not {SCHEMA}")
    times: dict[int, str] = {}
    found = [_finding(one, i, times) for i, one in enumerate(items(fields, "findings"))]
    window = mapping(fields.get("window", {}), "window")
    further = [mapping(one, "incidents_not_judged") for one in items(fields, "incidents_not_judged")]
    return Report(
        node=_node(mapping(fields.get("node", {}), "node")),
        start=text(window, "start"),
        end=text(window, "end"),
        health=_health(fields),
        verdict=_verdict(mapping(fields.get("verdict"), "verdict"), found),
        findings=tuple(found),
        times=times,
        sources=tuple(_source(mapping(one, "a source")) for one in items(fields, "sources")),
        incidents=tuple(_incident(mapping(one, "an incident"), times) for one in items(fields, "incidents")),
        further=tuple((_moment(one, "start", times), _moment(one, "end", times)) for one in further),
        more=int(number(fields, "incidents_more")),
    )


def _health(fields: Mapping[str, object]) -> Health:
    health = text(fields, "health") or "unknown"
    if health not in HEALTHS:
        raise UsageError(f"the report cannot be read: health must be one of {', '.join(HEALTHS)}")
    return health


def _incident(fields: Mapping[str, object], times: dict[int, str]) -> Incident:
    start, end = (_moment(fields, name, times) for name in ("start", "end"))
    return Incident(start, end, _health(fields), _verdict(fields, []), ())


def _source(fields: Mapping[str, object]) -> Source:
    state = text(fields, "state")
    if state not in STATES:
        raise UsageError(f"the report cannot be read: state must be one of {', '.join(STATES)}")
    reasons = decoded(text(fields, "reason"), json.dumps(items(fields, "reasons")))
    return Source(text(fields, "name"), SourceState(state, reasons), round(number(fields, "cost_ms") * 1e6))


def _node(fields: Mapping[str, object]) -> Node:
    cpus = fields.get("cpus", 0)
    return Node(
        hostname=text(fields, "hostname"),
        boot_id=text(fields, "boot_id"),
        kernel=text(fields, "kernel"),
        cgroups=text(fields, "cgroups"),
        cpus=cpus if isinstance(cpus, int) else 0,
    )


def _finding(document: object, place: int, times: dict[int, str]) -> Finding[Facts]:
    fields = mapping(document, "a finding")
    if text(fields, "id") != finding_id(place):  # else a report that was cut names other findings than it shows
        raise UsageError(f"the report cannot be read: its finding {place + 1} has another id than {finding_id(place)}")
    kind = text(fields, "kind")
    if kind not in BY_NAME:
        raise UsageError(f"the report cannot be read: this exhume does not know a finding of kind {printable(kind)}")
    severity = text(fields, "severity")
    if severity not in SEVERITIES:
        raise UsageError(f"the report cannot be read: severity must be one of {', '.join(SEVERITIES)}")
    facts = {**mapping(fields.get("facts"), f"facts of {kind}"), "subject": text(fields, "subject")}
    start, end = (_moment(fields, name, times) for name in ("start", "end"))
    return Finding(decode(BY_NAME[kind].facts, facts, f"facts of {kind}"), severity, start, end)


def _moment(fields: Mapping[str, object], name: str, times: dict[int, str]) -> int:
    """Nanoseconds since 1970: the recording's own clock is not in a report."""
    wall_clock = text(fields, name)
    try:
        nanoseconds = round(datetime.fromisoformat(wall_clock).timestamp() * 1000) * 1_000_000
    except (ValueError, OverflowError):
        raise UsageError(f"the report cannot be read: {printable(wall_clock)} is no time") from None
    times[nanoseconds] = wall_clock
    return nanoseconds


def _verdict(fields: Mapping[str, object], found: list[Finding[Facts]]) -> Verdict:
    named = {finding_id(i): finding for i, finding in enumerate(found)}
    chain = []
    for one in items(fields, "chain", MOST_LINKS):
        link = mapping(one, "a link of the chain")
        if (name := text(link, "finding")) not in named:
            raise UsageError(
                f"the report cannot be read: a link of the chain names {printable(name)}, which is no finding of it"
            )
        chain.append(Link(named[name], text(link, "because"), number(link, "confidence"), text(link, "disproof")))
    return Verdict(
        cause=text(fields, "cause") or None,
        subject=text(fields, "subject"),
        confidence=number(fields, "confidence"),
        summary=text(fields, "summary"),
        chain=tuple(chain),
        ruled_out=_each(RuledOut, fields, "ruled_out"),
        unseen=_each(RuledOut, fields, "unseen"),
        culprits=_each(Culprit, fields, "culprits"),
        remedies=_each(Remedy, fields, "remedies"),
        next=_texts(fields, "next"),
        against=_texts(fields, "against"),
        advice=_each(Advice, fields, "advice"),
        switch_on=_texts(fields, "switch_on"),
    )


def _each(kind: type[T], fields: Mapping[str, object], name: str) -> tuple[T, ...]:
    return tuple(decode(kind, one, name) for one in items(fields, name))


def _texts(fields: Mapping[str, object], name: str) -> tuple[str, ...]:
    return tuple(text({name: one}, name) for one in items(fields, name))


def finding_id(place: int) -> str:
    """How a report names its findings: f1, f2, ..."""
    return f"f{place + 1}"
