"""zombie-memcgs: memory cgroups whose directory is gone and which the kernel still walks."""

from typing import Any

from exhume.findings.forecast import PAIN, SHORTEST_S, days_to_pain, per_hour
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels

KIND = "zombie-memcgs"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    every = list(recording["memcg"].rows())
    rows = [row for row in every if row["path"] == "/"]
    rows.sort(key=lambda row: (row["time"], row["dying"], row["live"]))
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
        Evidence("kernel", recording.node.kernel, "", "uname"),
        Evidence("hierarchy", recording.node.cgroups, "", "/proc/self/mountinfo"),
        *_growing(rows),
    ]
    parents = {row["path"]: row["dying"] for row in every if row["path"] != "/" and row["time"] == last["time"]}
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


def _growing(rows: list[dict[str, Any]]) -> list[Evidence]:
    """From the first count to the last, and what it comes to, if they are far enough apart to say."""
    known = [row for row in rows if row["dying"] >= 0 and row["complete"]] or rows[-1:]
    first, last = known[0], known[-1]
    growth, seconds = last["dying"] - first["dying"], (last["time"] - first["time"]) / 1e9
    source = f"{last['method']}, over the window"
    told = [Evidence("growth", growth, "cgroups", source)]
    if seconds < SHORTEST_S:
        return told
    rate = per_hour(growth, seconds)
    told.append(Evidence("growth rate per hour", round(rate, 1), "cgroups an hour", source))
    if (days := days_to_pain(last["dying"], rate)) is not None:
        told.append(Evidence("days to pain", round(days, 2), "days", f"to {PAIN:,} zombies at this rate"))
    return told


def _deepest(parents: dict[str, int], dying: int) -> str:
    """The lowest directory that has at least four fifths of them below it."""
    candidates = [path for path, count in parents.items() if count * 5 >= dying * 4]
    return max(candidates, key=lambda path: (path.count("/"), path), default="")
