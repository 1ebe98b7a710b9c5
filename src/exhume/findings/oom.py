"""oom: the kernel killed for memory: whom, in which cgroup, and whose limit it was."""

from collections import Counter

from exhume.findings.events import Event, ago, events, severity
from exhume.findings.model import Evidence, Examined, Finding, Span
from exhume.findings.thresholds import Thresholds
from exhume.node.owners import owner
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "oom"
_LOG = "kernel log"
# enum oom_constraint in include/linux/oom.h, as the `oom-kill:` line has it since 5.0 (ef8444ea01d7).
_CONSTRAINTS = {
    "CONSTRAINT_NONE": "the node ran out of memory",
    "CONSTRAINT_CPUSET": "the memory that a cpuset allows ran out",
    "CONSTRAINT_MEMORY_POLICY": "the memory that a NUMA policy allows ran out",
    "CONSTRAINT_MEMCG": "a cgroup reached its memory limit",
}


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("kernel-log"):
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    constraints = _constraints(recording)
    findings = []
    for kind, where in (("oom-kill", "CONSTRAINT_NONE"), ("memcg-oom-kill", "CONSTRAINT_MEMCG")):
        groups: dict[str, list[Event]] = {}
        listed = _current(events(recording, kind), recording.window[0])
        # The line that names the limit is rate-limited, the one that names the victim is not (mm/oom_kill.c).
        limits = {event.subject: event.fields["limit_cgroup"] for event in listed if event.fields.get("limit_cgroup")}
        for event in listed:
            groups.setdefault(event.fields.get("limit_cgroup") or limits.get(event.subject, ""), []).append(event)
        for limit, seen in sorted(groups.items()):
            why = constraints.get((seen[-1].fields.get("pid", ""), seen[-1].fields.get("comm", "")), where)
            findings.append(_finding(seen, limit, _CONSTRAINTS.get(why, _CONSTRAINTS[where]), thresholds))
    if findings:
        findings.sort(key=lambda finding: (finding.severity == "info", -finding.number("kills"), finding.start))
        return Examined(KIND, tuple(findings))
    killed = recording.counter("vmstat_oom_kill")
    counted = f", {killed.delta} counted meanwhile" if killed is not None and len(killed.times) > 1 else ""
    return Examined(KIND, ruled_out=f"no kill in the kernel log{counted}")


def _current(seen: list[Event], start: int) -> list[Event]:
    """Those of the recording; if it has none, those that the log still had from before it."""
    return [event for event in seen if event.time >= start] or seen


def _constraints(recording: Recording) -> dict[tuple[str, str], str]:
    """Of the line before each kill, which tells why."""
    return {
        (event.fields.get("pid", ""), event.fields.get("comm", "")): event.fields["constraint"]
        for event in events(recording, "oom-summary")
        if event.fields.get("constraint")
    }


def _finding(seen: list[Event], limit: str, where: str, thresholds: Thresholds) -> Finding:
    last = seen[-1]
    victims = Counter(event.subject for event in seen if event.subject)
    evidence = [Evidence("kills", len(seen), "", _LOG), Evidence("last line", last.message, "", _LOG)]
    summary = where
    if limit:
        whose = str(owner(limit))
        evidence.append(Evidence("limit of", limit, "", _LOG))
        summary = f"{printable(limit)}{f' ({whose})' if whose and whose not in limit else ''} reached its memory limit"
    cgroup = last.fields.get("cgroup", "")
    summary += f": {len(seen)} killed, last {printable(last.subject) or 'a process'} {ago(last.age_s)}"
    if victims:
        evidence.append(Evidence("process", max(victims, key=lambda name: (victims[name], name)), "", _LOG))
    if limit or cgroup:
        evidence.append(Evidence("cgroup", limit or cgroup, "", _LOG))
    if cgroup:
        evidence.append(Evidence("its cgroup", cgroup, "", _LOG))
        if cgroup != limit:
            summary += f", of {printable(cgroup)}"
    spans = tuple(Span(-1, event.time, event.time) for event in seen)
    current = severity(last, thresholds, "warning")
    return Finding(KIND, last.subject, current, seen[0].time, last.time, summary, tuple(evidence), spans)
