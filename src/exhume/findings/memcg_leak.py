"""memcg-leak: where the zombies come from, by name."""

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "memcg-leak"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    table = recording["memcg_walk"]
    if not len(table):
        if (counted := recording.counter("memcg_walk_zombies")) is not None:
            return Examined(KIND, ruled_out=f"{counted.last:,} zombies in all")
        return Examined(KIND, unseen=recording.why_off("zombies"))
    latest = int(table.ints("time").max())
    rows = [row for row in table.rows() if row["time"] == latest]
    total = sum(row["zombies"] for row in rows)
    live = recording.counter("memcg_walk_live")
    worst = max(rows, key=lambda row: row["zombies"])
    share = worst["zombies"] / total
    if total < thresholds.zombies_floor or (live is not None and total < thresholds.zombies_per_live * live.last):
        return Examined(KIND, ruled_out=f"{total:,} zombies in all")
    if worst["method"] == "count":
        return Examined(KIND, unseen=f"where they lived is not visible: {recording.why_off('zombies')}")
    if share < thresholds.leak_share:
        return Examined(KIND, ruled_out=f"no place has more than {share:.0%} of the zombies")
    whose = worst["unit"] or worst["pod"]
    bytes_by_kind = {kind: worst[kind] for kind in ("file", "anon", "kernel")}
    pinned = max(bytes_by_kind, key=lambda kind: bytes_by_kind[kind])
    evidence = [
        Evidence("zombies", worst["zombies"], "cgroups", worst["method"]),
        Evidence("share", round(share, 3), "of all zombies", worst["method"]),
        Evidence("home", worst["home"], "", worst["method"]),
        *(Evidence(f"pinned by {kind}", size, "bytes", worst["method"]) for kind, size in bytes_by_kind.items() if size),
    ]
    told = (what for what in ("example", "unit", "pod", "container", "image", "how") if worst[what])
    evidence.extend(Evidence(what, worst[what], "", "path and runtime state on disk") for what in told)
    if whose:
        evidence.append(Evidence("owner confidence", worst["confidence"] / 100, "", worst["how"]))
    named = f"{whose} leaks memory cgroups" if whose else "memory cgroups leak"
    summary = f"{named}: {worst['zombies']:,} of {total:,} zombies lived in {worst['path']}"
    if bytes_by_kind[pinned]:
        summary += f", pinned by {_KINDS[pinned]}"
    return Examined(KIND, (Finding(KIND, worst["unit"] or worst["path"], "warning", latest, latest, summary, tuple(evidence)),))


_KINDS = {"file": "page cache", "anon": "shared memory or tmpfs", "kernel": "kernel memory"}
