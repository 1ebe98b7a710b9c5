"""cpu-throttled: a cgroup that used up its own quota. Its tasks wait; the node has nothing to do with it.

A group counts the periods in which its own quota was used up (nr_throttled of its cfs_bandwidth), so the one that counts is the
one whose quota bites: groups below it stand still with it and count nothing.
"""

from dataclasses import dataclass

from exhume.findings.machine import BUSY, machine
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.stretches import Steps, growth, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.node.owners import owner
from exhume.recording.recording import Labels, Recording, labels
from exhume.text import printable

KIND = "cpu-throttled"
MOST_TOLD = 5
_STAT = "cpu.stat"


@dataclass(frozen=True, slots=True)
class _Throttled:
    cgroup: str
    periods: int
    throttled: int
    often: bool
    parts: list[tuple[int, int]]


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("throttling"):
        return Examined(KIND, unseen=recording.why_off("throttling"))
    findings, in_all = [], 0
    for at in recording.counters("cpu_periods"):
        steps = _steps(recording, at)
        if steps is None:
            continue
        in_all += round(steps.amount.sum())
        found = _worst(dict(at)["cgroup"], steps, thresholds)
        if found is not None:
            findings.append(_finding(recording, at, found))
    if findings:
        findings.sort(key=lambda finding: (finding.severity == "info", -finding.number("throttled"), finding.subject))
        return Examined(KIND, tuple(findings[:MOST_TOLD]))
    groups = recording.counter("cpu_quota_groups")
    count = groups.last if groups is not None else 0
    return Examined(KIND, ruled_out=f"{in_all} throttled periods in {count} cgroups with a quota")


def _steps(recording: Recording, at: Labels) -> Steps | None:
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


def _finding(recording: Recording, at: Labels, found: _Throttled) -> Finding:
    cpus, whose = _quota(recording, at), str(owner(found.cgroup))
    ratio = found.throttled / max(1, found.periods)
    named = printable(found.cgroup) + (f" ({whose})" if whose and whose not in found.cgroup else "")
    held = f"{found.throttled} of {found.periods} periods throttled"
    summary = f"{named} is held back by its own quota of {cpus:g} CPUs: {held}"
    lost = growth(recording, "cpu_throttled_ns", at)
    evidence = [
        Evidence("throttled periods", found.throttled, "", f"{_STAT} nr_throttled"),
        Evidence("periods", found.periods, "", f"{_STAT} nr_periods"),
        Evidence("throttled", round(ratio, 3), "of its periods", _STAT),
        Evidence("throttled time", round(lost.total(found.parts) / 1e6) if lost is not None else 0, "ms", _STAT),
        Evidence("quota", round(cpus, 3), "CPUs", "cpu.max or cpu.cfs_quota_us"),
    ]
    cores = machine(recording)
    if cores is not None:
        busy = cores.share(*BUSY, during=found.parts)
        evidence.append(Evidence("machine busy", round(busy, 3), "of all cores' time", cores.source))
        summary += f", while the machine as a whole was {busy:.0%} busy"
    above = _above(recording, found.cgroup)
    if above is not None:
        evidence.append(Evidence("parent quota", round(_quota(recording, above), 3), "CPUs", f"of {dict(above)['cgroup']}"))
    severity: Severity = "warning" if found.often else "info"
    start, end = found.parts[0][0], found.parts[-1][1]
    return Finding(KIND, found.cgroup, severity, start, end, summary, tuple(evidence), spans(found.parts))


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
