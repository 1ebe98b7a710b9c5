"""core-saturated: one core full of kernel time while the machine as a whole is not."""

from itertools import pairwise
from typing import NamedTuple

from exhume.findings.cores import Stretch, busy, cores, saturated
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "core-saturated"


class _Row(NamedTuple):
    time: int
    system: int
    core: int
    comm: str


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    everyone = cores(recording)
    if not everyone:
        return Examined(KIND, unseen=recording.why_off("cpu"))
    findings = []
    peak = (0.0, 0)
    for core in everyone:
        peak = max(peak, (core.share("system", "irq", "softirq"), core.number))
        stretches = [
            stretch
            for stretch in saturated(core, thresholds.core_saturated_ratio, thresholds.core_saturated_ms)
            if busy(everyone, stretch.start, stretch.end) < thresholds.cpu_full_ratio
        ]
        if stretches:
            softirq = core.share("irq", "softirq", start=stretches[0].start, end=stretches[0].end)
            findings.append(_finding(recording, stretches, softirq, busy(everyone)))
    if findings:
        return Examined(KIND, tuple(sorted(findings, key=lambda finding: -finding.number("longest"))))
    return Examined(KIND, ruled_out=f"busiest in the kernel is core {peak[1]} with {peak[0]:.0%}")


def _finding(recording: Recording, stretches: list[Stretch], softirq: float, machine: float) -> Finding:
    core = stretches[0].core
    longest = max(stretches, key=lambda stretch: stretch.ms)
    times = f"{len(stretches)} times, longest {longest.ms:,} ms" if len(stretches) > 1 else f"for {longest.ms:,} ms"
    what = "softirq" if softirq > 0.5 else "system"
    evidence = [
        Evidence("core", core, "", "/proc/stat"),
        Evidence("longest", longest.ms, "ms", "/proc/stat"),
        Evidence("episodes", len(stretches), "", "/proc/stat"),
        Evidence("kernel time", round(longest.ratio, 3), "of the core's time", "/proc/stat"),
        Evidence("machine busy", round(machine, 3), "of all cores' time", "/proc/stat"),
    ]
    summary = f"core {core} at {longest.ratio:.0%} {what} time, {times}; the machine as a whole is {machine:.0%} busy"
    suspect = _suspect(recording, longest)
    if suspect is not None:
        comm, pid, system_ms, cgroup = suspect
        evidence.append(Evidence("process", f"{comm} [{pid}]", "", "/proc/PID/stat: system time while on this core"))
        evidence.append(Evidence("its system time", system_ms, "ms", "/proc/PID/stat"))
        if cgroup:
            evidence.append(Evidence("its cgroup", cgroup, "", "/proc/PID/cgroup"))
        summary += f"; {comm} [{pid}] used {system_ms:,} ms of system time there"
    return Finding(KIND, f"core {core}", "warning", stretches[0].start, stretches[-1].end, summary, tuple(evidence))


def _suspect(recording: Recording, stretch: Stretch) -> tuple[str, int, int, str] | None:
    """Who used most system time around that stretch on that core. Nobody, unless it is at least half of the stretch."""
    spans: dict[tuple[int, int, int], set[_Row]] = {}
    cgroups: dict[int, str] = {}
    for row in recording["processes"].rows():
        one = _Row(row["time"], row["system"], row["core"], row["comm"])
        spans.setdefault((row["pid"], row["tid"], row["start"]), set()).add(one)
        if row["cgroup"]:
            cgroups[row["pid"]] = row["cgroup"]
    threaded = {pid for pid, tid, _ in spans if tid}
    best = (0, "", 0)
    for (pid, tid, _), rows in spans.items():
        if tid == 0 and pid in threaded:
            continue  # a core is kept busy by a thread, and the process as a whole has but one last core
        used = sum(
            max(0, after.system - before.system)
            for before, after in pairwise(sorted(rows))
            if stretch.core in (before.core, after.core) and before.time < stretch.end and after.time > stretch.start
        )
        best = max(best, (used, max(rows).comm, pid))
    system_ms = best[0] * 10  # USER_HZ is 100 wherever there is a perf clock
    if system_ms < stretch.ms / 2:
        return None
    return best[1], best[2], system_ms, cgroups.get(best[2], "")
