"""printk-flood: so many kernel messages that printing them is the work (a serial console holds a core for each line)."""

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.rates import rate
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "printk-flood"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    records = rate(recording, "printk_records")
    if records is None:
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    if records < thresholds.printk_rate:
        return Examined(KIND, ruled_out=f"{records:,.0f} kernel messages a second")
    start, end = recording.window
    evidence = (Evidence("messages", round(records), "per second", "/dev/kmsg"),)
    summary = f"the kernel prints {records:,.0f} messages a second"
    return Examined(KIND, (Finding(KIND, "kernel log", "warning", start, end, summary, evidence),))
