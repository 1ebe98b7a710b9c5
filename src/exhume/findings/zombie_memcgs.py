"""zombie-memcgs: memory cgroups whose directory is gone and which the kernel still walks."""

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels

KIND = "zombie-memcgs"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    rows = [row for row in recording["memcg"].rows() if row["path"] == "/"]
    if not rows:
        return Examined(KIND, unseen=recording.why_off("memcg"))
    first, last = rows[0], rows[-1]
    live, dying, total = last["live"], last["dying"], last["total"]
    if dying < 0:
        return Examined(
            KIND, unseen=f"{total:,} memory cgroups on the node, live and dying together: {recording.why_off('memcg')}"
        )
    if dying == 0:
        return Examined(KIND, ruled_out=f"0 zombie memory cgroups, {live:,} live")
    exact = bool(last["complete"])
    many = dying >= thresholds.zombies_floor and dying >= thresholds.zombies_per_live * live
    # A bound that came of giving up counting accuses nobody.
    severity: Severity = "warning" if many and exact else "info"
    here = "" if last["scope"] == "node" else " in this container's part of the hierarchy"
    most = "" if exact else "at most "
    evidence = [
        Evidence("zombies", dying, "cgroups", last["method"]),
        Evidence("live", live, "cgroups", last["method"]),
        Evidence("total", total, "cgroups", last["method"]),
        Evidence(
            "growth", dying - first["dying"] if first["dying"] >= 0 else 0, "cgroups", f"{last['method']}, over the window"
        ),
    ]
    parents = {
        row["path"]: row["dying"] for row in recording["memcg"].rows() if row["path"] != "/" and row["time"] == last["time"]
    }
    deepest = _deepest(parents, dying)
    if deepest:
        evidence.append(Evidence("parent", deepest, "", "cgroup.stat"))
    for field, name in (("Percpu", "per-CPU memory of the node"), ("SUnreclaim", "unreclaimable slab of the node")):
        series = recording.counter("meminfo_bytes", labels(field=field))
        if series is not None:
            evidence.append(Evidence(name, series.last, "bytes", f"/proc/meminfo {field}"))
    summary = f"{most}{dying:,} zombie memory cgroups{here} against {live:,} live"
    if deepest:
        summary += f", below {deepest}"
    return Examined(KIND, (Finding(KIND, deepest or "/", severity, first["time"], last["time"], summary, tuple(evidence)),))


def _deepest(parents: dict[str, int], dying: int) -> str:
    """The lowest directory that has at least four fifths of them below it."""
    candidates = [path for path, count in parents.items() if count * 5 >= dying * 4]
    return max(candidates, key=lambda path: path.count("/"), default="")
