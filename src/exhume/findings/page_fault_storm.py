"""page-fault-storm: memory is read from disk again and again."""

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.rates import rate
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "page-fault-storm"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    major = rate(recording, "vmstat_pgmajfault")
    if major is None:
        return Examined(KIND, unseen=recording.why_off("vmstat"))
    if major < thresholds.major_faults:
        return Examined(KIND, ruled_out=f"{major:,.0f} major faults a second")
    start, end = recording.window
    evidence = [Evidence("major faults", round(major), "per second", "/proc/vmstat pgmajfault")]
    # One counter for both kinds until 170b04b7ae49 (5.9).
    for name in ("workingset_refault_file", "workingset_refault"):
        refaults = rate(recording, f"vmstat_{name}")
        if refaults is not None:
            evidence.append(Evidence("refaults", round(refaults), "pages/s", f"/proc/vmstat {name}"))
            break
    summary = f"{major:,.0f} major page faults a second: memory in use is read from disk again"
    return Examined(KIND, (Finding(KIND, "node", "warning", start, end, summary, tuple(evidence)),))
