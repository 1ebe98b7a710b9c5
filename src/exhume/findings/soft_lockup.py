"""soft-lockup: the kernel itself noticed a core that did not schedule, an RCU stall, or a task that hung."""

from exhume.findings.events import ago, events, severity
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "soft-lockup"
_NAMES = {
    "soft-lockup": "a soft lockup",
    "hard-lockup": "a hard lockup",
    "rcu-stall": "an RCU stall",
    "rcu-kthread-starved": "a starved RCU thread",
    "hung-task": "a hung task",
}


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("kernel-log"):
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    findings = []
    for kind, name in _NAMES.items():
        seen = events(recording, kind)
        if not seen:
            continue
        last = seen[-1]
        current = severity(last, thresholds, "warning" if kind == "hung-task" else "critical")
        evidence = [Evidence("lines", len(seen), "", "kernel log"), Evidence("last line", last.message, "", "kernel log")]
        where = ""
        if (cpu := last.number("cpu")) is not None:
            evidence.append(Evidence("core", cpu, "", "kernel log"))
            where = f" on core {cpu}"
        if last.fields.get("comm"):
            evidence.append(Evidence("process", last.fields["comm"], "", "kernel log"))
            where += f" in {last.fields['comm']}"
        summary = f"the kernel reported {name}{where}, {len(seen)} in the log, last {ago(last.age_s)}"
        findings.append(Finding(KIND, last.subject or kind, current, seen[0].time, last.time, summary, tuple(evidence)))
    if findings:
        return Examined(KIND, tuple(findings))
    return Examined(KIND, ruled_out="none in the kernel log (it needs about 20 s of one; shorter stalls leave no line)")
