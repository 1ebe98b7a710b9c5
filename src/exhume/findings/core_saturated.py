"""core-saturated: one core full of kernel time while the machine as a whole is not."""

from exhume.findings.cores import Stretch, busy, cores, saturated
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "core-saturated"


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
    suspect = _suspect(recording, core)
    if suspect is not None:
        comm, pid, system_ms, cgroup = suspect
        evidence.append(Evidence("process", f"{comm} [{pid}]", "", "/proc/PID/stat: system time, last core"))
        evidence.append(Evidence("its system time", system_ms, "ms", "/proc/PID/stat"))
        if cgroup:
            evidence.append(Evidence("its cgroup", cgroup, "", "/proc/PID/cgroup"))
        summary += f"; {comm} [{pid}] used {system_ms:,} ms of system time there"
    return Finding(KIND, f"core {core}", "warning", stretches[0].start, stretches[-1].end, summary, tuple(evidence))


def _suspect(recording: Recording, core: int) -> tuple[str, int, int, str] | None:
    """Who used most system time, among the processes and threads that were last seen on that core."""
    spans: dict[tuple[int, int, int], list[dict[str, object]]] = {}
    cgroups: dict[int, str] = {}
    for row in recording["processes"].rows():
        spans.setdefault((row["pid"], row["tid"], row["start"]), []).append(row)
        if row["cgroup"]:
            cgroups[row["pid"]] = row["cgroup"]
    best: tuple[int, str, int] | None = None
    threaded = {pid for pid, tid, _ in spans if tid != pid}
    for (pid, tid, _), rows in spans.items():
        last = rows[-1]
        if last["core"] != core or (tid == pid and pid in threaded):
            continue
        used = _int(last["system"]) - (_int(rows[0]["system"]) if len(rows) > 1 else 0)
        if used > 0 and (best is None or used > best[0]):
            best = (used, str(last["comm"]), pid)
    if best is None:
        return None
    return best[1], best[2], best[0] * 10, cgroups.get(best[2], "")


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
