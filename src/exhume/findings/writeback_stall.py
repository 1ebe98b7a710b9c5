"""writeback-stall: everybody waits for the disk while dirty pages are written back."""

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.rates import rate
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels

KIND = "writeback-stall"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    stalled = rate(recording, "pressure_us", labels(cgroup="", kind="full", resource="io"))
    writing = recording.counter("vmstat_nr_writeback")
    if stalled is None or writing is None:
        return Examined(KIND, unseen=recording.why_off("pressure") if stalled is None else recording.why_off("vmstat"))
    ratio = stalled / 1e6
    pages = int(writing.values.max())
    if ratio < thresholds.io_full_ratio or pages == 0:
        return Examined(KIND, ruled_out=f"all tasks waited for I/O {ratio:.0%} of the time")
    start, end = recording.window
    evidence = (
        Evidence("all tasks waiting for I/O", round(ratio, 3), "of the time", "/proc/pressure/io full"),
        Evidence("under writeback", pages, "pages at most", "/proc/vmstat nr_writeback"),
    )
    summary = f"all tasks waited for I/O {ratio:.0%} of the time while {pages:,} pages were under writeback"
    return Examined(KIND, (Finding(KIND, "node", "warning", start, end, summary, evidence),))
