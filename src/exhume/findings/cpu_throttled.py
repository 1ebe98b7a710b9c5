"""cpu-throttled: a cgroup that used up its own quota. Its tasks wait; the node has nothing to do with it."""

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.thresholds import Thresholds
from exhume.node.owners import owner
from exhume.recording.recording import Recording

KIND = "cpu-throttled"
MOST_TOLD = 5


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("throttling"):
        return Examined(KIND, unseen=recording.why_off("throttling"))
    findings, throttled_in_all = [], 0
    start, end = recording.window
    for at, periods in recording.counters("cpu_periods").items():
        cgroup = dict(at)["cgroup"]
        throttled = _delta(recording, "cpu_throttled_periods", at)
        throttled_in_all += throttled
        if throttled < thresholds.throttled_periods or throttled < thresholds.throttled_ratio * periods.delta:
            continue
        ratio = throttled / max(1, periods.delta)
        quota, period = recording.counter("cpu_quota_us", at), recording.counter("cpu_period_us", at)
        cpus = quota.last / period.last if quota is not None and period is not None and period.last else 0.0
        whose = str(owner(cgroup))
        summary = (
            f"{cgroup}{f' ({whose})' if whose and whose not in cgroup else ''} is held back by its own quota of {cpus:g} CPUs: "
            f"{throttled} of {periods.delta} periods throttled"
        )
        evidence = (
            Evidence("throttled periods", throttled, "", "cpu.stat nr_throttled"),
            Evidence("periods", periods.delta, "", "cpu.stat nr_periods"),
            Evidence("throttled", round(ratio, 3), "of its periods", "cpu.stat"),
            Evidence("throttled time", _delta(recording, "cpu_throttled_ns", at) // 1_000_000, "ms", "cpu.stat"),
            Evidence("quota", round(cpus, 3), "CPUs", "cpu.max or cpu.cfs_quota_us"),
        )
        # A burst now and then is what a quota is for; only who is held back most of the time is in trouble.
        often = throttled >= thresholds.throttled_warning_periods and ratio >= thresholds.throttled_warning_ratio
        severity: Severity = "warning" if often else "info"
        findings.append(Finding(KIND, cgroup, severity, start, end, summary, evidence))
    if findings:
        findings.sort(key=lambda finding: (finding.severity == "info", -finding.number("throttled")))
        return Examined(KIND, tuple(findings[:MOST_TOLD]))
    groups = recording.counter("cpu_quota_groups")
    count = groups.last if groups is not None else 0
    return Examined(KIND, ruled_out=f"{throttled_in_all} throttled periods in {count} cgroups with a quota")


def _delta(recording: Recording, name: str, at: tuple[tuple[str, str], ...]) -> int:
    series = recording.counter(name, at)
    return series.delta if series is not None else 0
