"""cpu-throttled: a cgroup that used up its own quota. Its tasks wait; the node has nothing to do with it.

A group counts the periods in which its own quota was used up (nr_throttled of its cfs_bandwidth), so the one that counts is the
one whose quota bites: groups below it stand still with it and count nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from exhume.diagnosis.findings.kind import Advice, Case, Culprit, Kind, Step
from exhume.diagnosis.findings.machine import BUSY, machine
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.stretches import Steps, growth, spans, times
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.owners import owner
from exhume.record import record
from exhume.recording.recording import Labels, Recording, labels
from exhume.text import printable

MOST_TOLD = 5
_STAT = "cpu.stat"


@record(frozen=True, slots=True, kw_only=True)
class CpuThrottled(Facts):
    """The subject is the cgroup."""

    kind: ClassVar[str] = "cpu-throttled"
    throttled_periods: Annotated[int, Shown("throttled periods", source=f"{_STAT} nr_throttled")]
    periods: Annotated[int, Shown("periods", source=f"{_STAT} nr_periods")]
    throttled_ratio: Annotated[float, Shown("throttled", "of its periods", _STAT, digits=3)]
    throttled_ms: Annotated[int, Shown("throttled time", "ms", _STAT)]
    quota_cpus: Annotated[float, Shown("quota", "CPUs", "cpu.max or cpu.cfs_quota_us", digits=3)]
    machine_busy_ratio: Annotated[float | None, Shown("machine busy", "of all cores' time", ".machine_source", digits=3)] = None
    """All cores together, meanwhile."""
    machine_source: str = ""
    parent_quota_cpus: Annotated[float | None, Shown("parent quota", "CPUs", ".parent_source", digits=3)] = None
    """Of the nearest group above it that has one."""
    parent_cgroup: str = ""

    @property
    def parent_source(self) -> str:
        return f"of {self.parent_cgroup}"

    def summary(self) -> str:
        whose = str(owner(self.subject))
        named = printable(self.subject) + (f" ({whose})" if whose and whose not in self.subject else "")
        held = f"{self.throttled_periods} of {self.periods} periods throttled"
        busy = self.machine_busy_ratio
        meanwhile = f", while the machine as a whole was {busy:.0%} busy" if busy is not None else ""
        return f"{named} is held back by its own quota of {self.quota_cpus:g} CPUs: {held}{meanwhile}"

    def short(self) -> tuple[str, str]:
        periods = f"{self.throttled_periods:,} of {self.periods:,} periods"
        return f"{self.subject} throttled by its quota", f"{periods} · quota {self.quota_cpus:g} CPUs"


@dataclass(frozen=True, slots=True)
class _Throttled:
    cgroup: str
    periods: int
    throttled: int
    often: bool
    parts: list[tuple[int, int]]


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("throttling"):
        return Examined(CpuThrottled.kind, unseen=recording.why_off("throttling"))
    findings: list[Finding[CpuThrottled]] = []
    in_all = 0
    for at in recording.counters("cpu_periods"):
        steps = _throttling(recording, at)
        if steps is None:
            continue
        in_all += round(steps.amount.sum())
        found = _worst(dict(at)["cgroup"], steps, thresholds)
        if found is not None:
            findings.append(_finding(recording, at, found))
    if findings:
        findings.sort(key=lambda finding: (not finding.serious, -finding.facts.throttled_ratio, finding.subject))
        return Examined(CpuThrottled.kind, tuple(findings[:MOST_TOLD]))
    groups = recording.counter("cpu_quota_groups")
    count = groups.last if groups is not None else 0
    return Examined(CpuThrottled.kind, ruled_out=f"{in_all} throttled periods in {count} cgroups with a quota")


def _throttling(recording: Recording, at: Labels) -> Steps | None:
    """Throttled periods against all, reading by reading."""
    periods, throttled = growth(recording, "cpu_periods", at), growth(recording, "cpu_throttled_periods", at)
    if periods is None or throttled is None or len(periods.times) != len(throttled.times):
        return None
    return Steps(periods.times, throttled.amount, periods.amount)


def _worst(cgroup: str, steps: Steps, thresholds: Thresholds) -> _Throttled | None:
    """A burst now and then is what a quota is for; only who is held back most of the time is in trouble."""
    for often, ratio, least in (
        (True, thresholds.throttled_warning_ratio, thresholds.throttled_warning_periods),
        (False, thresholds.throttled_ratio, thresholds.throttled_periods),
    ):
        parts = times(steps.above(ratio, 0))
        if not parts:
            continue
        within = steps.within(parts)
        throttled, periods = round(steps.amount[within].sum()), round(steps.per[within].sum())
        if throttled >= least and throttled >= ratio * periods:
            return _Throttled(cgroup, periods, throttled, often, parts)
    return None


def _finding(recording: Recording, at: Labels, found: _Throttled) -> Finding[CpuThrottled]:
    lost, cores, above = growth(recording, "cpu_throttled_ns", at), machine(recording), _above(recording, found.cgroup)
    facts = CpuThrottled(
        subject=found.cgroup,
        throttled_periods=found.throttled,
        periods=found.periods,
        throttled_ratio=found.throttled / max(1, found.periods),
        throttled_ms=round(lost.total(found.parts) / 1e6) if lost is not None else 0,
        quota_cpus=_quota(recording, at),
        machine_busy_ratio=cores.share(*BUSY, during=found.parts) if cores is not None else None,
        machine_source=cores.source if cores is not None else "",
        parent_quota_cpus=_quota(recording, above) if above is not None else None,
        parent_cgroup=dict(above)["cgroup"] if above is not None else "",
    )
    severity: Severity = "warning" if found.often else "info"
    return Finding(facts, severity, found.parts[0][0], found.parts[-1][1], spans(found.parts))


def _quota(recording: Recording, at: Labels) -> float:
    quota, period = recording.counter("cpu_quota_us", at), recording.counter("cpu_period_us", at)
    return quota.last / period.last if quota is not None and period is not None and period.last else 0.0


def _above(recording: Recording, cgroup: str) -> Labels | None:
    """The nearest group above it that has a quota, too."""
    known = recording.counters("cpu_quota_us")
    while (cgroup := cgroup.rpartition("/")[0]) != "":
        if (at := labels(cgroup=cgroup)) in known:
            return at
    return None


def advice(throttled: Finding[CpuThrottled], case: Case) -> Iterator[Advice]:
    """Throttling alone proves nothing; beside a leak or reclaim it is a symptom of those."""
    from exhume.diagnosis.findings.memcg_leak import MemcgLeak  # late: causes import their effects
    from exhume.diagnosis.findings.reclaim import Reclaim
    from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs

    if case.of(Reclaim):
        yield Advice(
            "changing CPU quotas first",
            "tasks are throttled and memory is reclaimed at once: time spent in reclaim is charged to their quota",
            against=True,
        )
    zombies, leaks = case.of(ZombieMemcgs, serious=False), case.of(MemcgLeak)
    if leaks or any(finding.serious for finding in zombies):
        dead = max([*(found.facts.zombies for found in zombies), *(leak.facts.zombies for leak in leaks)])
        yield Advice(
            "scan the cgroups (exhume zombies) and look through what the image enables",
            f"tasks are throttled on a node that has {dead:,} dead memory cgroups",
        )
        yield Advice(
            "scaling out",
            "new nodes come from the same image and inherit the leak; accounting of dead groups makes these numbers doubtful",
            cost="capacity",
            against=True,
        )


def _culprits(throttled: Finding[CpuThrottled], case: Case) -> Iterator[Culprit]:
    yield Culprit(throttled.subject, throttled.facts.throttled_ratio)


def _steps(throttled: Finding[CpuThrottled], case: Case) -> Iterator[Step]:
    yield Step(f"raise the limit or lower the load of {throttled.subject}")


KIND = Kind(
    facts=CpuThrottled,
    detect=detect,
    role="tenant",
    title=lambda finding: f"the quota of {finding.subject}",
    culprits=_culprits,
    steps=_steps,
    advice=advice,
)
