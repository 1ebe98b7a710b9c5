"""writeback-stall: tasks wait for the disk while so many dirty pages are written back that writers are held up."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from exhume.diagnosis.findings.core_facts import CoreSaturated, filled_by
from exhume.diagnosis.findings.kernel_work import WRITEBACK
from exhume.diagnosis.findings.kind import TOGETHER_NS, Case, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.nic_reset import NicReset
from exhume.diagnosis.findings.offender import Offender
from exhume.diagnosis.findings.sampled_work import Whose, sampled
from exhume.diagnosis.findings.soft_lockup import SoftLockup, in_the_trace
from exhume.diagnosis.findings.stretches import gauge, growth, spans, times
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND
from exhume.record import record
from exhume.recording.recording import Recording, labels
from exhume.text import printable

_MOST_TOLD = 3
_SEVERAL = 2
_MUCH = 1000  # pages under writeback: 4 MB
_SAMPLES = "stack samples"
Parts = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Blocked:
    """The processes that stood still most often (state D), the most first."""

    processes: tuple[Process, ...]

    def __str__(self) -> str:
        return ", ".join(str(process) for process in self.processes)


@record(frozen=True, slots=True, kw_only=True)
class WritebackStall(Facts):
    kind: ClassVar[str] = "writeback-stall"
    stalled_ratio: Annotated[
        float,
        Shown("all tasks waiting for I/O", "of the time, idle tasks left out", "/proc/pressure/io full", digits=3),
    ]
    writeback_pages: Annotated[int, Shown("under writeback", "pages at most", "/proc/vmstat nr_writeback")]
    unwritten_pages: Annotated[
        int, Shown("dirty or under writeback", "pages at most", "/proc/vmstat nr_dirty and nr_writeback")
    ]
    dirty_limit_pages: Annotated[int | None, Shown("dirty limit", "pages", "/proc/vmstat nr_dirty_threshold")] = None
    blocked: Annotated[Blocked | None, Shown("blocked", source="/proc/PID/stat state D")] = None
    writer: Annotated[Offender | None, Shown()] = None
    """The program that writes most of it back."""
    writer_ratio: Annotated[float | None, Shown("its share", "of the samples in writeback", _SAMPLES, digits=3)] = None

    @property
    def focus_offender(self) -> Offender | None:
        return self.writer

    def summary(self) -> str:
        said = f"all tasks that were not idle waited for I/O {self.stalled_ratio:.0%} of the time"
        said += f" while {self.unwritten_pages:,} pages were dirty or under writeback"
        if self.blocked is not None:
            said += f"; blocked: {printable(str(self.blocked))}"
        if self.writer is not None:
            said += f"; most is written back by {printable(str(self.writer.process))}"
        return said

    def short(self) -> tuple[str, str]:
        waited = f"all tasks waited {self.stalled_ratio:.0%} of the time"
        return "writers held up by the disk", f"{waited} · {self.unwritten_pages:,} pages unwritten"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    stalled = growth(recording, "pressure_us", labels(cgroup="", kind="full", resource="io"))
    writing = gauge(recording, "vmstat_nr_writeback")
    if stalled is None or writing is None:
        return Examined(
            WritebackStall.kind, unseen=recording.why_off("pressure") if stalled is None else recording.why_off("vmstat")
        )
    shortest = round(thresholds.stretch_s * SECOND)
    parts = times(stalled.above(thresholds.io_full_ratio * 1e6, shortest))
    if not parts:
        worst = stalled.most(shortest) / 1e6
        return Examined(WritebackStall.kind, ruled_out=f"all tasks that were not idle waited for I/O {worst:.0%} of the time")
    pages = _highest(recording, parts, "vmstat_nr_writeback")
    unwritten = max(pages, _highest(recording, parts, "vmstat_nr_dirty", "vmstat_nr_writeback"))
    limit = recording.counter("vmstat_nr_dirty_threshold")
    # PSI's full is about the tasks that are not idle: a lone backup that waits for its disk is 100 % of them. Writers are
    # held up from the mean of the two limits on (dirty_freerun_ceiling in mm/page-writeback.c), never below half of the upper.
    below = limit is not None and unwritten < thresholds.dirty_ratio * limit.last
    blocked, programs = _blocked(recording, parts)
    # A disk has its own share of the limit (bdi), and fsync waits behind others' pages: several that stand still while much is
    # being written are held up far below the node's limit. One alone waits for what it does itself.
    severity: Severity = "info" if below and programs < _SEVERAL else "warning"
    if not pages or (below and pages < _MUCH):
        against = f" against a limit of {limit.last:,}" if limit is not None else ""
        return Examined(
            WritebackStall.kind,
            ruled_out=f"{unwritten:,} pages dirty or under writeback{against}: writers are not held up by that",
        )
    seen = sampled(recording)
    whose = seen.most_by(seen.during(parts) & seen.doing(WRITEBACK)) if seen is not None else None
    facts = WritebackStall(
        subject="node",
        stalled_ratio=stalled.mean(parts) / 1e6,
        writeback_pages=pages,
        unwritten_pages=unwritten,
        dirty_limit_pages=limit.last if limit is not None else None,
        blocked=blocked,
        writer=_writer(whose) if whose is not None else None,
        writer_ratio=whose.share if whose is not None else None,
    )
    return Examined(WritebackStall.kind, (Finding(facts, severity, parts[0][0], parts[-1][1], spans(parts)),))


def _writer(whose: Whose) -> Offender:
    return Offender(process=whose.process, seen_in=f"{_SAMPLES} in writeback", cgroup=whose.cgroup)


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


def _blocked(recording: Recording, parts: Parts) -> tuple[Blocked | None, int]:
    """The processes in state D, and how many programs that is; the kernel's own writers are none."""
    blocked: Counter[Process] = Counter()
    programs: set[str] = set()
    for row in recording["processes"].rows():
        if row["state"] == "D" and any(start - SECOND <= row["time"] <= end + SECOND for start, end in parts):
            blocked[Process(row["comm"], row["pid"])] += 1
            if not row["comm"].startswith(("kworker/", "jbd2/")):
                programs.add(row["comm"])
    most = sorted(blocked, key=lambda process: (-blocked[process], str(process)))[:_MOST_TOLD]
    return Blocked(tuple(most)) if most else None, len(programs)


def _saturates(stall: Finding[WritebackStall], core: Finding[CoreSaturated]) -> Judged:
    return filled_by(core, core.facts.work.writeback_ratio, "pages are written back", 0.9)


def _starves(stall: Finding[WritebackStall], napi: Finding[NapiStarved]) -> Judged:
    return held_by(napi, napi.facts.work.writeback_ratio, "pages were written back there", 0.85)


def _hangs(stall: Finding[WritebackStall], lockup: Finding[SoftLockup]) -> Judged:
    traced = in_the_trace(lockup.facts.work.writeback_ratio, "pages are written back")
    if traced is not None:
        return traced
    apart = max(0, stall.start - lockup.end, lockup.start - stall.end)
    return (0.45, "tasks hung while all others waited for the disk") if apart <= TOGETHER_NS else None


def _resets(stall: Finding[WritebackStall], reset: Finding[NicReset]) -> Judged:
    """Drivers look after their device in work queues and timers, which wait for the same locks and cores as all others."""
    moments = [span.end for span in reset.spans] or [reset.end]
    if not any(stall.start <= moment <= stall.end + TOGETHER_NS for moment in moments):
        return None
    return 0.45, f"the driver gave up on {reset.subject} while all tasks waited for the disk, and no core was seen to be full"


def _steps(stall: Finding[WritebackStall], case: Case) -> Iterator[Step]:
    yield Step("the disk does not keep up with writes: iostat -x 1 shows which")


KIND = Kind(
    facts=WritebackStall,
    detect=detect,
    role="pain",
    title=lambda finding: "waits for a disk that does not keep up with writes",
    rules=(
        Rule(WritebackStall, CoreSaturated, _saturates, "a core that is full while nothing is written"),
        Rule(WritebackStall, NapiStarved, _starves, "late polls while nothing is written"),
        Rule(WritebackStall, NicReset, _resets, "resets while nothing is written"),
        Rule(WritebackStall, SoftLockup, _hangs, "tasks that hang while nothing is written"),
    ),
    steps=_steps,
)
