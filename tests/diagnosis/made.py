"""Reports made by hand, with nothing in them but what a test sets."""

from collections.abc import Sequence
from datetime import UTC, datetime

from exhume.diagnosis.advice import remedies
from exhume.diagnosis.findings.kind import Case, Culprit, Link
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.report import Health, Report, Verdict
from exhume.recording.recording import Node

NODE = Node("n", "b", "6.8.0", "v1", 4)


def report(
    *findings: Finding[Facts],
    cause: str | None = None,
    subject: str = "",
    culprits: Sequence[str] = (),
    health: Health = "critical",
    summary: str = "",
    confidence: float = 0.9,
    chain: Sequence[Finding[Facts]] | None = None,
    node: Node = NODE,
    end: str = "",
) -> Report:
    """All findings are in the chain, in their order, unless another one is given. Remedies are as a judge offers them."""
    links = tuple(Link(one, "it follows", 0.9) for one in (findings if chain is None else chain))
    verdict = Verdict(
        cause,
        subject,
        confidence,
        summary,
        chain=links,
        culprits=tuple(Culprit(name, 1 / len(culprits)) for name in culprits),
        remedies=remedies(Case(node, findings, links)),
    )
    times = {time: wall(time) for one in findings for time in (one.start, one.end)}
    return Report(node, end, end, health, verdict, findings, times, ())


def wall(real_ns: int) -> str:
    return datetime.fromtimestamp(real_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
