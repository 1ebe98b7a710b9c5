"""reclaim: memory is short, on the node or inside a cgroup's limit, and somebody has to find some.

/proc/vmstat counts what is reclaimed for the node; reclaim inside a cgroup's limit is left out of it (cgroup_reclaim() in
mm/vmscan.c), and shows as time in which tasks waited for memory.
"""

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.rates import rate
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels

KIND = "reclaim"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    direct, kswapd = rate(recording, "vmstat_pgscan_direct"), rate(recording, "vmstat_pgscan_kswapd")
    waited_us = rate(recording, "pressure_us", labels(cgroup="", kind="some", resource="memory"))
    if direct is None and waited_us is None:
        return Examined(KIND, unseen=recording.why_off("vmstat"))
    scans = "" if direct is None else f"{direct:,.0f} direct scans a second, {kswapd or 0:,.0f} by kswapd"
    waited = None if waited_us is None else waited_us / 1e6
    signs: list[tuple[Severity, str]] = []
    if direct is not None and direct >= thresholds.direct_reclaim_pages:
        signs.append(("warning", f"processes reclaim memory themselves: {scans}"))
    elif kswapd is not None and kswapd >= thresholds.kswapd_pages:
        signs.append(_by_kswapd(recording, kswapd))
    if waited is not None and waited >= thresholds.memory_wait_ratio:
        signs.append(("warning", f"tasks waited for memory {waited:.0%} of the time"))
    if not signs:
        if waited is None:
            return Examined(KIND, ruled_out=f"{scans}: node-wide reclaim; reclaim inside a cgroup's limit is not visible here")
        waits = f"tasks waited for memory {waited:.0%} of the time"
        return Examined(KIND, ruled_out=f"{scans}, {waits}" if scans else waits)
    evidence = _evidence(recording, direct, kswapd, waited)
    cgroup, share = _worst(recording) if waited is not None else ("", 0.0)
    summary = ", and ".join(said for _, said in signs)
    if cgroup and share >= thresholds.memory_wait_ratio:
        evidence.append(Evidence("cgroup", cgroup, "", "memory.pressure, the most of all groups"))
        evidence.append(Evidence("waited there", round(share, 3), "of the time", "memory.pressure some"))
        summary += f", most in {cgroup} ({share:.0%})"
    severity: Severity = "warning" if any(level == "warning" for level, _ in signs) else "info"
    start, end = recording.window
    return Examined(KIND, (Finding(KIND, "node", severity, start, end, summary, tuple(evidence)),))


def _by_kswapd(recording: Recording, scanned: float) -> tuple[Severity, str]:
    """kswapd that frees what it scans only makes room for what is read: a stream through the page cache looks like that."""
    freed = rate(recording, "vmstat_pgsteal_kswapd")
    said = f"kswapd scans {scanned:,.0f} pages a second"
    if freed is None:
        return "warning", said
    return ("info" if freed >= scanned / 2 else "warning"), f"{said} and frees {freed / scanned:.0%} of them"


def _evidence(recording: Recording, direct: float | None, kswapd: float | None, waited: float | None) -> list[Evidence]:
    evidence = []
    if direct is not None:
        evidence.append(Evidence("direct", round(direct), "pages scanned/s", "/proc/vmstat pgscan_direct"))
    if kswapd is not None:
        evidence.append(Evidence("kswapd", round(kswapd), "pages scanned/s", "/proc/vmstat pgscan_kswapd"))
    if waited is not None:
        evidence.append(Evidence("waited for memory", round(waited, 3), "of the time", "/proc/pressure/memory some"))
    available = recording.counter("meminfo_bytes", labels(field="MemAvailable"))
    if available is not None:
        evidence.append(Evidence("available", available.last, "bytes", "/proc/meminfo MemAvailable"))
    return evidence


def _worst(recording: Recording) -> tuple[str, float]:
    """The lowest group that has nearly all of the most pressure: what a group waits for, all above it wait for too."""
    waits = {}
    for at in recording.counters("pressure_us"):
        of = dict(at)
        if of["cgroup"] and (of["resource"], of["kind"]) == ("memory", "some"):
            waits[of["cgroup"]] = (rate(recording, "pressure_us", at) or 0.0) / 1e6
    most = max(waits.values(), default=0.0)
    found = [cgroup for cgroup, share in waits.items() if share and share >= 0.8 * most]
    cgroup = max(found, key=lambda name: (name.count("/"), waits[name]), default="")
    return cgroup, waits.get(cgroup, 0.0)
