"""defunct-processes: `<defunct>` entries that a parent has not collected. Not to be mixed up with zombie cgroups."""

from collections import Counter

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "defunct-processes"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    series = recording.counter("processes_defunct")
    if series is None:
        return Examined(KIND, unseen=recording.why_off("processes"))
    count = series.last
    if count == 0:
        return Examined(KIND, ruled_out="0 defunct processes")
    parents = Counter(row["ppid"] for row in recording["processes"].rows() if row["state"] == "Z")
    comms = Counter(row["comm"] for row in recording["processes"].rows() if row["state"] == "Z")
    evidence = [Evidence("defunct", count, "processes", "/proc/PID/stat state Z")]
    summary = f"{count:,} defunct processes (they hold a PID each, and no memory cgroup)"
    if parents:
        parent, children = parents.most_common(1)[0]
        evidence.append(Evidence("parent", parent, "PID", "/proc/PID/stat"))
        summary += f", most of them {comms.most_common(1)[0][0]}, not collected by PID {parent} ({children} of those looked at)"
    start, end = recording.window
    severity: Severity = "warning" if count >= thresholds.defunct_processes else "info"
    return Examined(KIND, (Finding(KIND, "node", severity, start, end, summary, tuple(evidence)),))
