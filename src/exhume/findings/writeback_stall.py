"""writeback-stall: tasks wait for the disk while so many dirty pages are written back that writers are held up."""

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
    dirty, limit = recording.counter("vmstat_nr_dirty"), recording.counter("vmstat_nr_dirty_threshold")
    if dirty is not None and len(dirty.values) == len(writing.values):
        unwritten = int((dirty.values + writing.values).max())
    else:
        unwritten = pages
    # PSI's full is about the tasks that are not idle: a lone backup that waits for its disk is 100 % of them. Writers are
    # held up from the mean of the two limits on (dirty_freerun_ceiling in mm/page-writeback.c), never below half of the upper.
    held_up = pages > 0 and (limit is None or unwritten >= thresholds.dirty_ratio * limit.last)
    if ratio < thresholds.io_full_ratio:
        return Examined(KIND, ruled_out=f"all tasks that were not idle waited for I/O {ratio:.0%} of the time")
    if not held_up:
        against = f" against a limit of {limit.last:,}" if limit is not None else ""
        return Examined(KIND, ruled_out=f"{unwritten:,} pages dirty or under writeback{against}: I/O waits for something else")
    start, end = recording.window
    evidence = [
        Evidence("all tasks waiting for I/O", round(ratio, 3), "of the time, idle tasks left out", "/proc/pressure/io full"),
        Evidence("under writeback", pages, "pages at most", "/proc/vmstat nr_writeback"),
        Evidence("dirty or under writeback", unwritten, "pages at most", "/proc/vmstat nr_dirty and nr_writeback"),
    ]
    if limit is not None:
        evidence.append(Evidence("dirty limit", limit.last, "pages", "/proc/vmstat nr_dirty_threshold"))
    summary = (
        f"all tasks that were not idle waited for I/O {ratio:.0%} of the time while {unwritten:,} pages were dirty "
        "or under writeback"
    )
    return Examined(KIND, (Finding(KIND, "node", "warning", start, end, summary, tuple(evidence)),))
