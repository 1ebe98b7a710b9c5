"""The verdict on a recording: health, cause, chain, and what was ruled out."""

from dataclasses import dataclass, replace

from exhume.findings.detectors import examine
from exhume.findings.model import SEVERITIES, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.verdict.advice import next_steps, remedies
from exhume.verdict.chain import confidence, strongest
from exhume.verdict.kinds import ACCUSES, CAUSES, CONDITIONS, PAINS, SYMPTOMS, TENANTS
from exhume.verdict.report import Culprit, Health, Link, Report, RuledOut, Source, Verdict, wall

# How sure a finding on its own names what is wrong: it was measured, but nothing was shown to follow from it.
ALONE = 0.8


def judge(recording: Recording, thresholds: Thresholds) -> Report:
    examined = examine(recording, thresholds)
    findings = sorted(
        (finding for one in examined for finding in one.findings), key=lambda finding: -SEVERITIES.index(finding.severity)
    )
    start, end = recording.window
    times = {time: wall(recording, time) for finding in findings for time in (finding.start, finding.end)}
    sources = tuple(Source(row["name"], row["state"], row["reason"], row["cost"]) for row in recording.sources().values())
    health = _health(recording, findings)
    verdict = _verdict(health, findings, examined)
    return Report(
        recording.node, wall(recording, start), wall(recording, end), health, verdict, tuple(findings), times, sources
    )


def _health(recording: Recording, findings: list[Finding]) -> Health:
    worst = max((SEVERITIES.index(finding.severity) for finding in findings if finding.kind not in TENANTS), default=0)
    if worst == 2:
        return "critical"
    if worst == 1:
        return "warning"
    # Healthy may only be said by somebody who has looked.
    return "healthy" if recording.on("cpu") else "unknown"


def _verdict(health: Health, findings: list[Finding], examined: list[Examined]) -> Verdict:
    found = {finding.kind for finding in findings if finding.severity != "info"}
    base = Verdict(
        None,
        "",
        0.0,
        "Nothing could be seen of this node",
        ruled_out=tuple(RuledOut(one.kind, one.ruled_out) for one in examined if one.ruled_out and one.kind not in found),
        unseen=tuple(RuledOut(one.kind, one.unseen) for one in examined if one.unseen),
    )
    if health == "unknown":
        return base
    serious = [finding for finding in findings if finding.severity != "info" and finding.kind not in TENANTS]
    if not serious:
        return replace(base, confidence=1.0, summary="No sign of starvation")
    named = _named(serious)
    verdict = replace(
        base,
        cause=named.cause.kind if named.cause is not None else None,
        subject=(named.cause or named.chain[0].finding).subject,
        confidence=named.confidence,
        summary=_summary(named),
        chain=named.chain,
        culprits=_culprits(named.chain),
    )
    return replace(verdict, remedies=remedies(verdict), next=next_steps(verdict, findings))


@dataclass(frozen=True, slots=True)
class _Named:
    """What the verdict rests on."""

    cause: Finding | None
    chain: tuple[Link, ...]
    confidence: float


def _named(serious: list[Finding]) -> _Named:
    chain = strongest(serious)
    symptoms = [finding for kind in reversed(SYMPTOMS) for finding in serious if finding.kind == kind]
    if chain and chain[-1].finding.kind in SYMPTOMS:
        sure = confidence(chain)
        if chain[0].finding.kind in CAUSES and sure >= ACCUSES:
            return _Named(chain[0].finding, chain, sure)
        return _Named(None, chain, 0.0)
    if symptoms:
        # Whatever else is there, nothing says that it did this.
        return _Named(None, (Link(symptoms[0], "", 1.0),), 0.0)
    for kind in PAINS:
        for finding in serious:
            if finding.kind == kind:
                return _Named(finding, (Link(finding, "", 1.0),), ALONE)
    if chain and confidence(chain) >= ACCUSES:
        return _Named(chain[0].finding, chain, confidence(chain))
    first = min(serious, key=lambda finding: CAUSES.index(finding.kind) if finding.kind in CAUSES else len(CAUSES))
    alone = (Link(first, "", 1.0),)
    return _Named(first, alone, ALONE) if first.kind in CAUSES else _Named(None, alone, 0.0)


_TITLES = {
    "memcg-leak": "the zombie memory cgroups of {subject}",
    "zombie-memcgs": "{count} zombie memory cgroups",
    "cgroup-dirs-leak": "leaked cgroup directories",
    "crash-loop": "zombie memory cgroups of the crash-looping {subject}",
    "reclaim": "passes of memory reclaim",
    "printk-flood": "floods of kernel messages",
    "irq-imbalance": "network interrupts that all go to one core",
    "steal": "other guests of the hypervisor",
}
_HARM = {
    "core-saturated": "hold a core in the kernel",
    "napi-starved": "keep {subject} from being polled",
    "nic-reset": "starve {subject} until its driver resets",
}


def _summary(named: _Named) -> str:
    chain, cause = named.chain, named.cause
    last = chain[-1].finding
    if cause is None:
        return _unexplained(chain)
    if last.kind not in SYMPTOMS:
        # Nothing has come to harm yet: it is only about what is there, and where it comes from.
        if cause.kind == "crash-loop" and len(chain) > 1:
            return f"{cause.subject} restarts again and again and leaves zombie memory cgroups behind; no harm seen yet"
        return cause.summary + ("; no harm seen yet" if cause.kind in CONDITIONS[:3] else "")
    title = _TITLES.get(cause.kind, cause.kind).format(subject=cause.subject, count=f"{cause.number('zombies'):,.0f}")
    harm = _HARM.get(last.kind, "harm this node").format(subject=last.subject)
    likely = "" if named.confidence >= 0.8 else "probably "
    return f"{title} {likely}{harm}"


def _unexplained(chain: tuple[Link, ...]) -> str:
    """The worst that was seen; what may have led to it is in the chain, and is not proven."""
    last = chain[-1].finding
    if last.kind == "core-saturated" and last.value("not accounted") is None and last.value("stack") is None:
        what = f"{last.subject} was full of kernel time for {last.number('longest'):,.0f} ms"
    else:
        what = last.summary
    if len(chain) > 1 and chain[0].finding.kind in CAUSES:
        return f"{what}; why is not proven, what may have led to it is below"
    # Who held the core, and in what, was seen: what made it do so may still be anybody's guess, but it is an answer.
    seen = last.value("it") if last.kind == "napi-starved" else last.value("stack") if last.kind == "core-saturated" else None
    return what if seen is not None else f"{what}; why is not visible"


def _culprits(chain: tuple[Link, ...]) -> tuple[Culprit, ...]:
    """Whose doing it is: who leaks, never who merely has to walk what was leaked."""
    for link in chain:
        if link.finding.kind == "memcg-leak":
            return (Culprit(link.finding.subject, link.finding.number("share")),)
    first = chain[0].finding
    if first.kind == "crash-loop":
        return (Culprit(first.subject, 1.0),)
    process = first.value("its cgroup") or first.value("process")
    if first.kind == "core-saturated" and isinstance(process, str):
        return (Culprit(process, min(1.0, first.number("its system time") / max(1.0, first.number("longest")))),)
    if first.kind == "napi-starved" and isinstance(process, str) and not first.number("network itself"):
        return (Culprit(process, first.number("its share")),)
    return ()
