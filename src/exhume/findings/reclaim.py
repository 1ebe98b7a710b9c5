"""reclaim: the node is short of memory and processes must find some themselves."""

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.rates import rate
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels

KIND = "reclaim"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    direct, kswapd = rate(recording, "vmstat_pgscan_direct"), rate(recording, "vmstat_pgscan_kswapd")
    if direct is None:
        return Examined(KIND, unseen=recording.why_off("vmstat"))
    kswapd = kswapd or 0.0
    if direct < thresholds.direct_reclaim_pages:
        return Examined(KIND, ruled_out=f"{direct:,.0f} direct scans a second, {kswapd:,.0f} by kswapd")
    start, end = recording.window
    evidence = [
        Evidence("direct", round(direct), "pages scanned/s", "/proc/vmstat pgscan_direct"),
        Evidence("kswapd", round(kswapd), "pages scanned/s", "/proc/vmstat pgscan_kswapd"),
    ]
    available = recording.counter("meminfo_bytes", labels(field="MemAvailable"))
    if available is not None:
        evidence.append(Evidence("available", available.last, "bytes", "/proc/meminfo MemAvailable"))
    summary = f"processes reclaim memory themselves: {direct:,.0f} pages scanned a second (kswapd: {kswapd:,.0f})"
    return Examined(KIND, (Finding(KIND, "node", "warning", start, end, summary, tuple(evidence)),))
