"""oom: the kernel killed for memory."""

from exhume.findings.events import ago, events, severity
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "oom"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("kernel-log"):
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    findings = []
    for kind, where in (("oom-kill", "the node ran out of memory"), ("memcg-oom-kill", "a cgroup reached its memory limit")):
        seen = events(recording, kind)
        if seen:
            last = seen[-1]
            evidence = (Evidence("kills", len(seen), "", "kernel log"), Evidence("last line", last.message, "", "kernel log"))
            summary = f"{where}: {len(seen)} killed, last {last.subject or 'a process'} {ago(last.age_s)}"
            current = severity(last, thresholds, "warning")
            findings.append(Finding(KIND, last.subject, current, seen[0].time, last.time, summary, evidence))
    return Examined(KIND, tuple(findings)) if findings else Examined(KIND, ruled_out="no kill in the kernel log")
