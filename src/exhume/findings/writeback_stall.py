"""writeback-stall: tasks wait for the disk while so many dirty pages are written back that writers are held up."""

from collections import Counter

import numpy as np

from exhume.findings.kernel_work import WRITEBACK
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.sampled_work import sampled
from exhume.findings.stretches import SECOND_NS, gauge, growth, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels
from exhume.text import printable

KIND = "writeback-stall"
_MOST_TOLD = 3
_SEVERAL = 2
_MUCH = 1000  # pages under writeback: 4 MB
Parts = list[tuple[int, int]]


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    stalled = growth(recording, "pressure_us", labels(cgroup="", kind="full", resource="io"))
    writing = gauge(recording, "vmstat_nr_writeback")
    if stalled is None or writing is None:
        return Examined(KIND, unseen=recording.why_off("pressure") if stalled is None else recording.why_off("vmstat"))
    shortest = round(thresholds.stretch_s * SECOND_NS)
    parts = times(stalled.above(thresholds.io_full_ratio * 1e6, shortest))
    if not parts:
        worst = stalled.most(shortest) / 1e6
        return Examined(KIND, ruled_out=f"all tasks that were not idle waited for I/O {worst:.0%} of the time")
    pages = _highest(recording, parts, "vmstat_nr_writeback")
    unwritten = max(pages, _highest(recording, parts, "vmstat_nr_dirty", "vmstat_nr_writeback"))
    limit = recording.counter("vmstat_nr_dirty_threshold")
    # PSI's full is about the tasks that are not idle: a lone backup that waits for its disk is 100 % of them. Writers are
    # held up from the mean of the two limits on (dirty_freerun_ceiling in mm/page-writeback.c), never below half of the upper.
    below = limit is not None and unwritten < thresholds.dirty_ratio * limit.last
    told, more, blocked = _who(recording, parts)
    # A disk has its own share of the limit (bdi), and fsync waits behind others' pages: several that stand still while much is
    # being written are held up far below the node's limit. One alone waits for what it does itself.
    severity: Severity = "info" if below and blocked < _SEVERAL else "warning"
    if not pages or (below and pages < _MUCH):
        against = f" against a limit of {limit.last:,}" if limit is not None else ""
        return Examined(
            KIND, ruled_out=f"{unwritten:,} pages dirty or under writeback{against}: writers are not held up by that"
        )
    ratio = stalled.mean(parts) / 1e6
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
    return Examined(
        KIND,
        (Finding(KIND, "node", severity, parts[0][0], parts[-1][1], summary + told, (*evidence, *more), spans(parts)),),
    )


def _highest(recording: Recording, parts: Parts, *names: str) -> int:
    """The most that these came to together in that time, by the readings in it and the ones right before and after."""
    found = [read for name in names if (read := gauge(recording, name)) is not None]
    if not found:
        return 0
    moments = found[0][0]
    total = sum(values[np.clip(np.searchsorted(times_, moments, "right") - 1, 0, None)] for times_, values in found)
    near = np.zeros(len(moments), dtype=np.bool_)
    for start, end in parts:
        first, after = np.searchsorted(moments, start, "right") - 1, np.searchsorted(moments, end, "left") + 1
        near[max(0, int(first)) : int(after)] = True
    return int(np.asarray(total)[near].max(initial=0))


def _who(recording: Recording, parts: Parts) -> tuple[str, list[Evidence], int]:
    """Who stood still (state D), who wrote back; and how many programs stood still."""
    said, evidence = "", []
    blocked: Counter[str] = Counter()
    programs: set[str] = set()
    for row in recording["processes"].rows():
        if row["state"] == "D" and any(start - SECOND_NS <= row["time"] <= end + SECOND_NS for start, end in parts):
            blocked[f"{row['comm']} [{row['pid']}]"] += 1
            if not row["comm"].startswith(("kworker/", "jbd2/")):
                programs.add(row["comm"])
    if blocked:
        most = sorted(blocked, key=lambda name: (-blocked[name], name))[:_MOST_TOLD]
        evidence.append(Evidence("blocked", ", ".join(most), "", "/proc/PID/stat state D"))
        said += f"; blocked: {printable(', '.join(most))}"
    seen = sampled(recording)
    whose = seen.most_by(seen.during(parts) & seen.doing(WRITEBACK)) if seen is not None else None
    if whose is not None:
        evidence.append(Evidence("process", whose.process, "", "stack samples in writeback"))
        evidence.append(Evidence("its share", round(whose.share, 3), "of the samples in writeback", "stack samples"))
        if whose.cgroup:
            evidence.append(Evidence("its cgroup", whose.cgroup, "", "/proc/PID/cgroup"))
        said += f"; most is written back by {printable(whose.process)}"
    return said, evidence, len(programs)
