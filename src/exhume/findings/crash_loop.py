"""crash-loop: something that is started again and again, by whatever shows it. Loops inside a unit are invisible to systemd.

What several sources show of one unit is one finding, told by the strongest of them. A rhythm without bad ends and without a
leak is information: probes, timers and workers have one, too.
"""

from collections.abc import Callable
from dataclasses import replace

from exhume.findings.loops import WAYS, Loop, by_systemd
from exhume.findings.loops_churn import by_churn
from exhume.findings.loops_journal import by_journal
from exhume.findings.loops_processes import by_processes
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.once import once
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "crash-loop"
MOST_TOLD = 5
_SOURCES = {
    "systemd": "systemd NRestarts",
    "journal": "journal, MESSAGE_ID of systemd",
    "containers": "cgroup tracepoints",
    "cgroup churn": "cgroup tracepoints",
    "processes": "start times of processes",
}
_ALL: tuple[Callable[[Recording, Thresholds], list[Loop]], ...] = (by_systemd, by_journal, by_churn, by_processes)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    """The worst of them: nobody reads on."""
    examined = every(recording, thresholds)
    return replace(examined, findings=examined.findings[:MOST_TOLD])


@once
def every(recording: Recording, thresholds: Thresholds) -> Examined:
    """All loops, the worst first: those that end badly, of these those that leak, then by how often they begin anew."""
    by_subject: dict[tuple[str, str], list[Loop]] = {}
    for by in _ALL:
        for loop in by(recording, thresholds):
            # Without a unit, who starts them tells one loop of a place from another.
            by_subject.setdefault((loop.subject, "" if loop.unit else loop.supervisor), []).append(loop)
    findings = [_finding(loops) for loops in by_subject.values()]
    if findings:
        findings.sort(
            key=lambda one: (
                one.severity != "warning",
                one.number("unreleased") <= 0,
                -max(one.number("restarts"), one.number("restarts in the window")),
                one.subject,
                one.summary,
            )
        )
        return Examined(KIND, tuple(findings))
    seen = recording.on("cgroup-events")
    if not recording.on("units"):
        if not seen:
            return Examined(KIND, unseen=recording.why_off("units"))
        return Examined(KIND, ruled_out="no cgroup comes and goes in a rhythm")
    number = len(set(recording["units"].texts("unit")))
    also = ", no cgroup comes and goes in a rhythm" if seen else ""
    return Examined(KIND, ruled_out=f"none of {number} units restarts{also}")


def _finding(loops: list[Loop]) -> Finding:
    """The strongest source first; what it does not know the next one tells."""
    loops = sorted(loops, key=lambda loop: (WAYS.index(loop.by), -loop.restarts, loop.cgroup, loop.process, loop.said))
    first = loops[0]
    ways = list(dict.fromkeys(loop.by for loop in loops))
    source = _SOURCES[first.by]
    evidence = [Evidence("by", ", ".join(ways), "", source)]
    for loop in loops:
        known = {one.what for one in evidence}
        evidence.extend(one for one in _told(loop) if one.what not in known)
    severity: Severity = "warning" if any(loop.crashes for loop in loops) else "info"
    told = next((loop for loop in loops if loop.crashes), first)
    summary = f"{printable(first.subject)} {told.said}"
    # When it went on is known by those that saw it go on: a count that systemd keeps is as high after the loop as in it.
    seen = [loop for loop in loops if loop.crashes] or loops
    start, end = min(loop.start for loop in seen), max(loop.end for loop in seen)
    return Finding(KIND, first.subject, severity, start, end, summary, tuple(evidence))


def _told(loop: Loop) -> list[Evidence]:
    """What a source knows, and nothing else."""
    source = _SOURCES[loop.by]
    every: tuple[tuple[str, int | float | str, str, bool], ...] = (
        ("restarts", loop.total, "", loop.total >= 0),
        ("restarts in the window", loop.restarts, "", True),
        ("period", round(loop.period_ns / 1e9, 3), "s", loop.period_ns > 0),
        ("cgroup", loop.cgroup, "", bool(loop.cgroup)),
        ("unit", loop.unit, "", bool(loop.unit)),
        ("process", printable(loop.process), "", bool(loop.process)),
        ("supervisor", loop.supervisor, "", bool(loop.supervisor)),
        ("removed", loop.removed, "cgroups", loop.removed > 0),
        ("unreleased", loop.unreleased, "cgroups", loop.removed > 0),
    )
    return [Evidence(what, value, unit, source) for what, value, unit, known in every if known] + list(loop.more)
