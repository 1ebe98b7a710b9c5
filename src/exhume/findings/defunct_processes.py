"""defunct-processes: `<defunct>` entries that a parent has not reaped. A process is not a cgroup, but an unreaped process keeps
its css_set, and with it its cgroup after rmdir: that group is a zombie until the process is reaped (since 4.4, 2e91fa7f6d45
"cgroup: keep zombies associated with their original cgroups")."""

from collections import Counter

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.stretches import ordered
from exhume.findings.thresholds import Thresholds
from exhume.findings.unreaped import Parent, Unreaped, unreaped
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
    names: dict[int, Parent] = {}
    dead: dict[tuple[int, int], tuple[str, int]] = {}
    for row in sorted(recording["processes"].rows(), key=lambda row: (row["time"], row["pid"], row["start"], row["comm"])):
        if row["tid"] == 0:
            names[row["pid"]] = Parent(row["pid"], row["comm"], row["cgroup"])
            if row["state"] == "Z":
                dead[row["pid"], row["start"]] = (row["comm"], row["ppid"])
    many = "1 defunct process" if count == 1 else f"{count:,} defunct processes"
    parent: Parent | None = None
    told = ""
    if dead:
        told, parent = _parent(dead, names, count)
    held = unreaped(recording)
    if held is not None and held.held:
        evidence += _holding(held)
        perhaps = "" if held.exact else "perhaps "
        summary = f"{many} {perhaps}hold{'s' if count == 1 else ''} {held.held:,} of {held.zombies:,} zombie memory cgroups"
        if held.parent is not None:
            parent, told = held.parent, f": {held.parent} does not reap its children"
    else:
        each = "it" if count == 1 else "each"
        summary = f"{many} ({each} holds a PID, and may pin a removed cgroup until collected)"
    summary += told
    if parent is not None:
        evidence += _named(parent)
    # A PID is another's tomorrow.
    subject = (parent.unit or parent.pod if parent is not None and held is not None and held.held else "") or "node"
    start, end = recording.window
    severity: Severity = "warning" if count >= thresholds.defunct_processes else "info"
    return Examined(KIND, (Finding(KIND, subject, severity, start, end, summary, tuple(evidence)),))


def _holding(held: Unreaped) -> list[Evidence]:
    if held.exact:
        return [Evidence("zombies held", held.held, "cgroups", "css_set of the ended tasks, by a BPF iterator")]
    return [Evidence("zombies perhaps held", held.held, "cgroups", "as many as zombies to which nothing is charged")]


def _named(parent: Parent) -> list[Evidence]:
    evidence = [Evidence("parent", str(parent.pid), "PID", "/proc/PID/stat")]  # as text: no thousands separators
    if parent.pid != 1:
        known = {"process": str(parent), "its unit": parent.unit, "its pod": parent.pod, "cgroup": parent.cgroup}
        evidence += [Evidence(what, value, "", "/proc/PID/cgroup") for what, value in known.items() if value]
    return evidence


def _parent(dead: dict[tuple[int, int], tuple[str, int]], names: dict[int, Parent], count: int) -> tuple[str, Parent]:
    """Whose children most of them are, and how to say it."""
    parents = Counter(ppid for _, ppid in dead.values())
    pid, children = max(parents.items(), key=lambda item: (item[1], item[0]))
    named = Counter(comm for comm, ppid in dead.values() if ppid == pid)
    comm = printable(max(named, key=lambda name: (named[name], name)))
    who = names.get(pid, Parent(pid, "", ""))
    many = f"{children} of the {len(dead)} looked at" if len(dead) < count or children < len(dead) else "all of them"
    many = "it" if count == 1 else many
    if pid == 1:
        return f": {comm}; PID 1 is the parent of {many} and will collect {'it' if count == 1 else 'them'}", who
    return f": {comm}, {many} not collected by {who}", who
