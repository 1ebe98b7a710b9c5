"""steal: the hypervisor gives this machine's time to others."""

from exhume.findings.cores import cores, share
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "steal"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    everyone = cores(recording)
    if not everyone:
        return Examined(KIND, unseen=recording.why_off("cpu"))
    stolen = share(everyone, "steal")
    if stolen < thresholds.steal_ratio:
        return Examined(KIND, ruled_out=f"{stolen:.1%}" if stolen else "none reported")
    worst = max(everyone, key=lambda core: core.share("steal"))
    start, end = recording.window
    evidence = (
        Evidence("steal", round(stolen, 3), "of all cores' time", "/proc/stat"),
        Evidence("worst core", worst.number, "", "/proc/stat"),
        Evidence("steal there", round(worst.share("steal"), 3), "of its time", "/proc/stat"),
    )
    summary = f"the hypervisor takes {stolen:.0%} of this machine's CPU time (core {worst.number}: {worst.share('steal'):.0%})"
    return Examined(KIND, (Finding(KIND, "node", "warning", start, end, summary, evidence),))
