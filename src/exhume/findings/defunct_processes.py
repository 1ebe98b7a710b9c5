"""defunct-processes: `<defunct>` entries that a parent has not collected. Not to be mixed up with zombie cgroups, though a
task that was not collected keeps its css_set, and so its cgroup after rmdir: the group is a zombie until then (since 4.4,
2e91fa7f6d45 "cgroup: keep zombies associated with their original cgroups")."""

from collections import Counter

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.stretches import ordered
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "defunct-processes"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    series = recording.counter("processes_defunct")
    if series is None:
        return Examined(KIND, unseen=recording.why_off("processes"))
    _, counts = ordered(series)
    count = int(counts[-1])
    if count == 0:
        return Examined(KIND, ruled_out="0 defunct processes")
    evidence = [Evidence("defunct", count, "processes", "/proc/PID/stat state Z")]
    if count == 1:
        summary = "1 defunct process (it holds a PID, and may pin a removed cgroup until collected)"
    else:
        summary = f"{count:,} defunct processes (each holds a PID, and may pin a removed cgroup until collected)"
    names: dict[int, str] = {}
    dead: dict[tuple[int, int], tuple[str, int]] = {}
    for row in sorted(recording["processes"].rows(), key=lambda row: (row["time"], row["pid"], row["start"], row["comm"])):
        if row["tid"] == 0:
            names[row["pid"]] = row["comm"]
            if row["state"] == "Z":
                dead[row["pid"], row["start"]] = (row["comm"], row["ppid"])
    if dead:
        told, parent = _parent(dead, names, count)
        evidence.append(Evidence("parent", parent, "PID", "/proc/PID/stat"))
        summary += told
    start, end = recording.window
    severity: Severity = "warning" if count >= thresholds.defunct_processes else "info"
    return Examined(KIND, (Finding(KIND, "node", severity, start, end, summary, tuple(evidence)),))


def _parent(dead: dict[tuple[int, int], tuple[str, int]], names: dict[int, str], count: int) -> tuple[str, str]:
    """Whose children most of them are: what to say of it, and its PID as text, which nobody groups by thousands."""
    parents = Counter(ppid for _, ppid in dead.values())
    pid, children = max(parents.items(), key=lambda item: (item[1], item[0]))
    named = Counter(comm for comm, ppid in dead.values() if ppid == pid)
    comm = printable(max(named, key=lambda name: (named[name], name)))
    who = f"{printable(names[pid])} [{pid}]" if pid in names else f"PID {pid}"
    many = f"{children} of the {len(dead)} looked at" if len(dead) < count or children < len(dead) else "all of them"
    many = "it" if count == 1 else many
    if pid == 1:
        return f": {comm}; PID 1 is the parent of {many} and will collect {'it' if count == 1 else 'them'}", str(pid)
    return f": {comm}, {many} not collected by {who}", str(pid)
