"""What a plan takes from a report: the findings, the cause and who is behind it. Of the JSON that check and diagnose print.

The live check, a file and a recording all come here in that one form. A file may be anybody's: every field is looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exhume.errors import UsageError
from exhume.node.owners import owner
from exhume.text import printable

SCHEMA = "exhume.report/1"
MOST = 10_000


@dataclass(frozen=True, slots=True)
class Seen:
    """One finding."""

    id: str
    kind: str
    subject: str
    serious: bool
    summary: str
    evidence: Mapping[str, object] = field(default_factory=dict)

    def text(self, *names: str) -> str:
        """The first of these that the evidence has, as text."""
        return next((str(value) for name in names if (value := self.evidence.get(name)) not in (None, "")), "")

    @property
    def unit(self) -> str:
        """The unit that it is about: named in the evidence, or the subject, or the one whose cgroup the subject is."""
        named = self.text("unit", "made by unit") or self.subject
        return owner(named).unit if "/" in named else named if "." in named else ""


@dataclass(frozen=True, slots=True)
class Told:
    """A report, as far as a plan goes by it."""

    health: str
    cause: str
    summary: str
    findings: tuple[Seen, ...]
    chain: tuple[str, ...]
    """Ids of the findings that the verdict is made of."""
    culprits: tuple[str, ...]
    hostname: str = ""
    boot_id: str = ""

    def find(self, name: str) -> tuple[Seen, ...]:
        """The findings that are meant: by id, or all of a kind."""
        return tuple(one for one in self.findings if name in (one.id, one.kind))


def told(document: object) -> Told:
    """UsageError where it is no report."""
    report = _object(document, "the report")
    if report.get("schema") != SCHEMA:
        raise UsageError(f"this is no report of exhume check or diagnose: its schema is not {SCHEMA}")
    verdict = _object(report.get("verdict"), "verdict")
    node = _object(report.get("node", {}), "node")
    return Told(
        health=_text(report, "health"),
        cause=_text(verdict, "cause"),
        summary=_text(verdict, "summary"),
        findings=tuple(_seen(one) for one in _list(report, "findings")),
        chain=tuple(_text(_object(link, "a link of the chain"), "finding") for link in _list(verdict, "chain")),
        culprits=tuple(_text(_object(one, "a culprit"), "subject") for one in _list(verdict, "culprits")),
        hostname=_text(node, "hostname"),
        boot_id=_text(node, "boot_id"),
    )


def _seen(document: object) -> Seen:
    one = _object(document, "a finding")
    evidence: dict[str, object] = {}
    for item in _list(one, "evidence"):
        piece = _object(item, "a piece of evidence")
        evidence.setdefault(_text(piece, "what"), piece.get("value"))
    return Seen(
        id=_text(one, "id"),
        kind=_text(one, "kind"),
        subject=_text(one, "subject"),
        serious=_text(one, "severity") != "info",
        summary=_text(one, "summary"),
        evidence=evidence,
    )


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"the report cannot be read: {what} must be an object")
    return value


def _list(fields: Mapping[str, object], name: str) -> list[object]:
    value = fields.get(name, [])
    if not isinstance(value, list) or len(value) > MOST:
        raise UsageError(f"the report cannot be read: {printable(name)} must be a list of at most {MOST:,}")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UsageError(f"the report cannot be read: {printable(name)} must be a string")
    return value
