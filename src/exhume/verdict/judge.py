"""The verdict on a recording: health, cause, chain, and what was ruled out."""

from exhume.findings.detectors import examine
from exhume.findings.model import SEVERITIES, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.verdict.chain import confidence, longest
from exhume.verdict.report import Culprit, Health, Link, Report, RuledOut, Source, Verdict, wall

# What can be the cause of a starving node. The other kinds are what it suffers from.
CAUSES = (
    "memcg-leak",
    "zombie-memcgs",
    "cgroup-dirs-leak",
    "crash-loop",
    "reclaim",
    "cpu-full",
    "cpu-throttled",
    "steal",
    "writeback-stall",
    "page-fault-storm",
    "printk-flood",
    "irq-imbalance",
    "oom",
    "defunct-processes",
)
SYMPTOMS = ("soft-lockup", "nic-reset", "napi-starved", "core-saturated")
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
    worst = max((SEVERITIES.index(finding.severity) for finding in findings), default=0)
    if worst == 2:
        return "critical"
    if worst == 1:
        return "warning"
    # Healthy may only be said by somebody who has looked: without the cores and the cgroups there is nothing to go by.
    if not recording.on("cpu") and not len(recording["memcg"]):
        return "unknown"
    return "healthy"


def _verdict(health: Health, findings: list[Finding], examined: list[Examined]) -> Verdict:
    serious = [finding for finding in findings if finding.severity != "info"]
    chain = longest(serious)
    found = {finding.kind for finding in serious}
    ruled_out = tuple(RuledOut(one.kind, one.ruled_out) for one in examined if one.ruled_out and one.kind not in found)
    unseen = tuple(RuledOut(one.kind, one.unseen) for one in examined if one.unseen)
    if health == "unknown":
        return Verdict(None, "", 0.0, "Nothing could be seen of this node", ruled_out=ruled_out, unseen=unseen)
    if not serious:
        return Verdict(None, "", 1.0, "No sign of starvation", ruled_out=ruled_out, unseen=unseen)
    if chain and chain[0].finding.kind in CAUSES:
        cause, sure = chain[0].finding, confidence(chain)
    else:
        causes = sorted(
            (finding for finding in serious if finding.kind in CAUSES),
            key=lambda finding: (-SEVERITIES.index(finding.severity), CAUSES.index(finding.kind)),
        )
        symptoms = [finding for finding in serious if finding.kind in SYMPTOMS]
        if not causes or (symptoms and symptoms[0].severity == "critical" and causes[0].severity != "critical"):
            shown = chain or (Link(symptoms[0], "", 1.0),)
            return Verdict(None, shown[0].finding.subject, 0.0, _unexplained(shown), shown, ruled_out, unseen, _culprits(shown))
        cause, sure = causes[0], ALONE
        chain = (Link(cause, "", 1.0),)
    summary = _summary(cause, chain)
    return Verdict(cause.kind, cause.subject, sure, summary, chain, ruled_out, unseen, _culprits(chain))


_TITLES = {
    "memcg-leak": "zombie memory cgroups of {subject}",
    "zombie-memcgs": "{count} zombie memory cgroups",
    "cgroup-dirs-leak": "leaked cgroup directories",
    "crash-loop": "zombie memory cgroups of the crash-looping {subject}",
    "reclaim": "memory reclaim",
}
_HARM = {
    "core-saturated": "hold a core in the kernel",
    "napi-starved": "keep {subject} from being polled",
    "nic-reset": "starve {subject} until its driver resets",
}


def _summary(cause: Finding, chain: tuple[Link, ...]) -> str:
    last = chain[-1].finding
    if last.kind not in SYMPTOMS:
        # Nothing has come to harm yet: the chain is only about where it comes from.
        said = cause.summary
        if cause.kind == "crash-loop":
            said = f"{cause.subject} restarts again and again and leaves zombie memory cgroups behind"
        return said[0].upper() + said[1:]
    title = _TITLES.get(cause.kind, cause.kind).format(subject=cause.subject, count=f"{cause.number('zombies'):,.0f}")
    harm = _HARM.get(last.kind, "harm this node").format(subject=last.subject)
    likely = "" if confidence(chain) >= 0.8 else "probably "
    return f"{title[0].upper()}{title[1:]} {likely}{harm}"


def _unexplained(chain: tuple[Link, ...]) -> str:
    first = chain[0].finding
    if first.kind == "core-saturated":
        what = f"{first.subject} was full of kernel time for {first.number('longest'):,.0f} ms"
    else:
        what = first.summary
    return f"{what[0].upper()}{what[1:]}; why is not visible"


def _culprits(chain: tuple[Link, ...]) -> tuple[Culprit, ...]:
    """Who did it, as far as a finding of the chain names a process or a unit."""
    for link in chain:
        if link.finding.kind == "memcg-leak":
            return (Culprit(link.finding.subject, link.finding.number("share")),)
        if link.finding.kind == "crash-loop" and len(chain) == 1:
            return (Culprit(link.finding.subject, 1.0),)
        process = link.finding.value("its cgroup") or link.finding.value("process")
        if isinstance(process, str):
            longest_ms = link.finding.number("longest") or 1.0
            return (Culprit(process, min(1.0, link.finding.number("its system time") / longest_ms)),)
    return ()
