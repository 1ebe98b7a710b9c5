"""cpu-full: the machine is simply busy. No single core is the story then."""

from exhume.findings.cores import busy, cores, share
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "cpu-full"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    everyone = cores(recording)
    if not everyone:
        return Examined(KIND, unseen=recording.why_off("cpu"))
    whole = busy(everyone)
    if whole < thresholds.cpu_full_ratio:
        return Examined(KIND, ruled_out=f"{1 - whole:.0%} idle")
    user, kernel = share(everyone, "user", "nice"), share(everyone, "system", "irq", "softirq")
    start, end = recording.window
    evidence = (
        Evidence("busy", round(whole, 3), "of all cores' time", "/proc/stat"),
        Evidence("user", round(user, 3), "of all cores' time", "/proc/stat"),
        Evidence("kernel", round(kernel, 3), "of all cores' time", "/proc/stat"),
        Evidence("cores", len(everyone), "", "/proc/stat"),
    )
    summary = (
        f"all {len(everyone)} cores together are {whole:.0%} busy ({user:.0%} user, {kernel:.0%} kernel): the machine is full"
    )
    return Examined(KIND, (Finding(KIND, "node", "warning", start, end, summary, evidence),))
