"""page-fault-storm: memory is read again and again (major faults), or page faults are most of what the cores do."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from exhume.diagnosis.findings.core_facts import CoreSaturated, filled_by
from exhume.diagnosis.findings.cpu_full import CpuFull
from exhume.diagnosis.findings.held import Who
from exhume.diagnosis.findings.kernel_work import FAULT
from exhume.diagnosis.findings.kind import MOSTLY, Advice, Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.machine import KERNEL, machine
from exhume.diagnosis.findings.major_faults import ORIGINS, Origin, major_faults
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.offender import Offender
from exhume.diagnosis.findings.sampled_work import Sampled, Whose, most, sampled
from exhume.diagnosis.findings.stretches import growth, spans, times
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

_SAMPLES = "stack samples"
# A process is named from this share of the faults on.
_NAMED = 0.3
# Major faults a second from which memory is short, rather than mapped and released again and again.
_MANY_MAJOR = 1000
Parts = list[tuple[int, int]]


@record(frozen=True, slots=True, kw_only=True)
class PageFaultStorm(Facts):
    """Of major faults if there are many, otherwise of all; each number None where it could not be seen."""

    kind: ClassVar[str] = "page-fault-storm"
    major_faults_per_s: Annotated[int | None, Shown("major faults", "per second", "/proc/vmstat pgmajfault")] = None
    """None: there were few."""
    origin: Origin | None = None
    """Of what major faults bring in."""
    refaults_source: str = ""
    refaults_per_s: Annotated[int | None, Shown("refaults", "pages/s", ".refaults_source")] = None
    swapped_in_per_s: Annotated[int | None, Shown("swapped in", "pages/s", "/proc/vmstat pswpin, zswpin")] = None
    page_cache_growth_bytes_per_s: Annotated[int | None, Shown("page cache grew", "bytes/s", "/proc/meminfo Cached")] = None
    dropped: Annotated[bool, Shown("let go", source="/proc/meminfo Cached, /proc/vmstat pgsteal, stack samples")] = False
    """What is read does not stay although it is not reclaimed."""
    waited_ratio: Annotated[
        float | None, Shown("waited for memory or I/O", "of the time", "/proc/pressure/memory or io, some", digits=3)
    ] = None
    contended: bool = True
    """Tasks wait for memory or I/O above the threshold, or it is not known."""
    fault_ratio: Annotated[float | None, Shown("fault share", "of all cores' time", _SAMPLES, digits=3)] = None
    fault_of_busy_ratio: Annotated[float | None, Shown("fault share of busy", "of the busy time", _SAMPLES, digits=3)] = None
    kernel_ratio: float | None = None
    """Of all cores' time; only known where the time in page faults is not."""
    faults_per_s: Annotated[int | None, Shown("faults", "per second", "/proc/vmstat pgfault")] = None
    """Minor and major."""
    offender: Annotated[Offender | None, Shown()] = None
    """The program that has most of them."""
    offender_ratio: Annotated[float | None, Shown("its share", "of the faults", ".offender_source", digits=3)] = None

    @property
    def offender_source(self) -> str:
        return self.offender.seen_in if self.offender is not None else ""

    @property
    def focus_offender(self) -> Offender | None:
        return self.offender

    def summary(self) -> str:
        said = self._faults()
        if self.origin not in (None, Origin.NEW) and not self.contended:
            said += f"; hardly anybody waits for it ({self.waited_ratio or 0:.0%} of the time)"
        if self.offender is not None:
            said += f"; {self.offender_ratio or 0:.0%} of it by {printable(str(self.offender.process))}"
            said += f" in {printable(self.offender.cgroup)}" if self.offender.cgroup else ""
        return said

    def _faults(self) -> str:
        if self.major_faults_per_s is not None and self.origin is not None:
            return f"{self.major_faults_per_s:,} major page faults a second: {ORIGINS[self.origin]}"
        if self.fault_of_busy_ratio is not None:
            whole = f"{self.fault_ratio or 0:.0%} of all cores' time"
            return f"page faults take {self.fault_of_busy_ratio:.0%} of the busy time, {whole}"
        kernel = f"{self.kernel_ratio or 0:.0%} of all cores' time"
        return f"{self.faults_per_s or 0:,} page faults a second while the kernel takes {kernel}"

    def short(self) -> tuple[str, str]:
        by = f" of {self.offender.process}" if self.offender is not None else ""
        if self.major_faults_per_s is not None:
            waited = f" · tasks waited {self.waited_ratio:.0%} of the time" if self.waited_ratio is not None else ""
            return f"major page faults{by}", f"{self.major_faults_per_s:,} per second{waited}"
        if self.fault_ratio is not None:
            return f"page faults{by}", f"{self.fault_ratio:.0%} of all cores' time"
        return f"page faults{by}", f"{self.faults_per_s or 0:,} per second · kernel {self.kernel_ratio or 0:.0%}"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    shortest = round(thresholds.stretch_s * SECOND)
    major = growth(recording, "vmstat_pgmajfault")
    seen = sampled(recording)
    if major is None and seen is None:
        return Examined(PageFaultStorm.kind, unseen=recording.why_off("vmstat"))
    if major is not None and (stretches := major.above(thresholds.major_faults, shortest)):
        return Examined(PageFaultStorm.kind, (_major(recording, thresholds, seen, times(stretches)),))
    minor = _minor(recording, thresholds, seen, shortest)
    if minor is not None:
        return Examined(PageFaultStorm.kind, (minor,))
    said = []
    if major is not None:
        said.append(f"{major.most(shortest):,.0f} major faults a second")
    if seen is not None:
        said.append(f"{seen.steps(seen.doing(FAULT)).most(shortest):.0%} of all cores' time in page faults")
    return Examined(PageFaultStorm.kind, ruled_out=", ".join(said))


def _major(recording: Recording, thresholds: Thresholds, seen: Sampled | None, parts: Parts) -> Finding[PageFaultStorm]:
    """A storm only if it is read again and tasks wait for it: a program that starts reads its files for the first time."""
    read = major_faults(recording, seen, seen.doing(FAULT) if seen is not None else None, parts)
    whose, source = _by_counts(recording, parts), "/proc/PID/stat majflt"
    if whose is None and seen is not None:
        whose, source = seen.most_by(seen.during(parts) & seen.doing(FAULT)), _SAMPLES
    offender, offender_ratio = _offender(whose, source)
    fault_ratio, fault_of_busy_ratio = _shares(seen, parts)
    facts = PageFaultStorm(
        subject="node",
        major_faults_per_s=round(read.rate),
        origin=read.origin,
        refaults_source=f"/proc/vmstat {read.refaults.source}" if read.refaults is not None else "",
        refaults_per_s=round(read.refaults.pages) if read.refaults is not None else None,
        swapped_in_per_s=round(read.swapped) if read.swapped else None,
        page_cache_growth_bytes_per_s=round(read.grew) if read.grew is not None else None,
        dropped=read.dropped,
        waited_ratio=read.waited,
        contended=read.waited is None or read.waited >= thresholds.fault_wait_ratio,
        fault_ratio=fault_ratio,
        fault_of_busy_ratio=fault_of_busy_ratio,
        offender=offender,
        offender_ratio=offender_ratio,
    )
    severity: Severity = "warning" if facts.contended and facts.origin is not Origin.NEW else "info"
    return Finding(facts, severity, parts[0][0], parts[-1][1], spans(parts))


def _minor(recording: Recording, thresholds: Thresholds, seen: Sampled | None, shortest: int) -> Finding[PageFaultStorm] | None:
    """Faults that need no disk: a core is free of them by what its programs do with memory, not by more of it."""
    faults, cores = growth(recording, "vmstat_pgfault"), machine(recording)
    kernel_ratio = None
    if seen is not None:
        parts = times(seen.steps(seen.doing(FAULT), seen.busy).above(thresholds.fault_ratio, shortest))
        # A machine that does next to nothing may do it in page faults.
        if not parts or seen.steps(seen.doing(FAULT)).mean(parts) < thresholds.fault_ratio / 4:
            return None
    elif faults is not None and cores is not None:
        many = times(faults.above(thresholds.minor_faults * max(1, recording.node.cpus), shortest))
        parts = [part for part in many if cores.share(*KERNEL, during=[part]) >= thresholds.fault_ratio]
        if not parts:
            return None
        kernel_ratio = cores.share(*KERNEL, during=parts)
    else:
        return None
    whose = seen.most_by(seen.during(parts) & seen.doing(FAULT)) if seen is not None else None
    offender, offender_ratio = _offender(whose, _SAMPLES)
    fault_ratio, fault_of_busy_ratio = _shares(seen, parts)
    facts = PageFaultStorm(
        subject="node",
        fault_ratio=fault_ratio,
        fault_of_busy_ratio=fault_of_busy_ratio,
        kernel_ratio=kernel_ratio,
        faults_per_s=round(faults.mean(parts)) if faults is not None else None,
        offender=offender,
        offender_ratio=offender_ratio,
    )
    severity: Severity = "warning" if (fault_ratio or 0.0) >= thresholds.fault_ratio else "info"
    return Finding(facts, severity, parts[0][0], parts[-1][1], spans(parts))


def _offender(whose: Whose | None, source: str) -> tuple[Offender | None, float | None]:
    """With its share of the faults."""
    if whose is None or whose.share < _NAMED:
        return None, None
    return Offender(process=whose.process, seen_in=source, cgroup=whose.cgroup), whose.share


def _shares(seen: Sampled | None, parts: Parts) -> tuple[float | None, float | None]:
    """Page faults, as shares of all cores' time and of the busy time."""
    if seen is None:
        return None, None
    fault = seen.doing(FAULT)
    return seen.steps(fault).mean(parts), seen.steps(fault, seen.busy).mean(parts)


def _by_counts(recording: Recording, parts: Parts) -> Whose | None:
    """Whose major faults they are, by what each process counts itself."""
    found = []
    for at in recording.counters("process_major_faults"):
        of = dict(at)
        grown = growth(recording, "process_major_faults", at)
        if grown is not None:
            found.append((Who(of.get("comm", ""), int(of["pid"]), 0, of.get("cgroup", "")), round(grown.total(parts))))
    return most(found, sum(count for _, count in found))


def _saturates(storm: Finding[PageFaultStorm], core: Finding[CoreSaturated]) -> Judged:
    return filled_by(core, core.facts.work.page_fault_ratio, "page faults are served", 0.9)


def _starves(storm: Finding[PageFaultStorm], napi: Finding[NapiStarved]) -> Judged:
    return held_by(napi, napi.facts.work.page_fault_ratio, "page faults were served there", 0.85)


def _fills(storm: Finding[PageFaultStorm], full: Finding[CpuFull]) -> Judged:
    share = storm.facts.fault_of_busy_ratio or 0.0
    return (0.8, f"page faults are {share:.0%} of what the cores are busy with") if share >= MOSTLY else None


def _culprits(storm: Finding[PageFaultStorm], case: Case) -> Iterator[Culprit]:
    if storm.facts.offender is not None:
        yield Culprit(storm.facts.offender.name, storm.facts.offender_ratio or 1.0)


def _steps(storm: Finding[PageFaultStorm], case: Case) -> Iterator[Step]:
    yield Step("pidstat -r 1 shows who faults; give it memory, or keep what it maps")


def _advice(storm: Finding[PageFaultStorm], case: Case) -> Iterator[Advice]:
    if (storm.facts.major_faults_per_s or 0) >= _MANY_MAJOR:
        return
    yield Advice(
        "fewer, larger pages or an allocator that keeps what it has",
        "minor faults are memory that is mapped and given back again and again; here they are what the cores are busy with",
    )


def _title(storm: Finding[PageFaultStorm]) -> str:
    return "page faults" + (f" of {storm.facts.offender.name}" if storm.facts.offender is not None else "")


KIND = Kind(
    facts=PageFaultStorm,
    detect=detect,
    role="pain",
    title=_title,
    rules=(
        Rule(PageFaultStorm, CoreSaturated, _saturates, "a core that is full without faults in its stacks"),
        Rule(PageFaultStorm, NapiStarved, _starves, "late polls without faults on that core"),
        Rule(PageFaultStorm, CpuFull, _fills, "cores that are as full with the faults gone"),
    ),
    culprits=_culprits,
    steps=_steps,
    advice=_advice,
)
