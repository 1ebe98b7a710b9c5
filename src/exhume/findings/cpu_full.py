"""cpu-full: the machine is simply busy, by whom, and whether anybody waits."""

from itertools import pairwise
from typing import NamedTuple

from exhume.findings.cores import TICK_NS, busy, cores, share
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.rates import rate
from exhume.findings.thresholds import Thresholds
from exhume.node.owners import owner
from exhume.recording.recording import Recording, labels

KIND = "cpu-full"
MOST_TOLD = 3


class _Process(NamedTuple):
    used_ms: int
    pid: int
    comm: str
    whose: str

    def __str__(self) -> str:
        return f"{self.comm} [{self.pid}]" + (f" of {self.whose}" if self.whose else "")


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    everyone = cores(recording)
    if not everyone:
        return Examined(KIND, unseen=recording.why_off("cpu"))
    whole = busy(everyone)
    if whole < thresholds.cpu_full_ratio:
        stolen = share(everyone, "steal")
        if stolen >= thresholds.steal_ratio:
            return Examined(KIND, ruled_out=f"{whole:.0%} busy, {stolen:.0%} taken by the hypervisor")
        return Examined(KIND, ruled_out=f"{share(everyone, 'idle', 'iowait'):.0%} idle")
    user, kernel = share(everyone, "user", "nice"), share(everyone, "system", "irq", "softirq")
    waited_us = rate(recording, "pressure_us", labels(cgroup="", kind="some", resource="cpu"))
    start, end = recording.window
    evidence = [
        Evidence("busy", round(whole, 3), "of all cores' time", "/proc/stat"),
        Evidence("user", round(user, 3), "of all cores' time", "/proc/stat"),
        Evidence("kernel", round(kernel, 3), "of all cores' time", "/proc/stat"),
        Evidence("cores", len(everyone), "", "/proc/stat"),
    ]
    summary = f"all {len(everyone)} cores together are {whole:.0%} busy ({user:.0%} user, {kernel:.0%} kernel)"
    severity: Severity = "warning"
    if waited_us is None:
        summary += ": the machine is full"
    else:
        waited = waited_us / 1e6
        evidence.append(Evidence("tasks waiting for a core", round(waited, 3), "of the time", "/proc/pressure/cpu some"))
        if waited >= thresholds.cpu_wait_ratio:
            summary += f" and tasks waited for a core {waited:.0%} of the time: the machine is full"
        else:
            severity = "info"
            summary += f", but nobody waits ({waited:.0%} of the time)"
    busiest = _busiest(recording)
    for place, process in zip(("busiest", "second", "third"), busiest, strict=False):
        evidence.append(Evidence(place, str(process), "", "/proc/PID/stat, /proc/PID/cgroup"))
        evidence.append(Evidence(f"CPU time of the {place}", process.used_ms, "ms", "/proc/PID/stat"))
    if busiest:
        summary += "; most by " + ", ".join(f"{process} ({process.used_ms:,} ms)" for process in busiest)
    return Examined(KIND, (Finding(KIND, "node", severity, start, end, summary, tuple(evidence)),))


def _busiest(recording: Recording) -> list[_Process]:
    """Who used most CPU time while we looked. The reader keeps those that were busy between two of its readings."""
    readings: dict[tuple[int, int], dict[int, int]] = {}
    named: dict[tuple[int, int], tuple[str, str]] = {}
    for row in recording["processes"].rows():
        if row["tid"] == 0:
            who = (row["pid"], row["start"])
            readings.setdefault(who, {})[row["time"]] = row["user"] + row["system"]
            named[who] = (row["comm"], row["cgroup"] or named.get(who, ("", ""))[1])
    found = []
    for who, used in readings.items():
        ticks = sum(max(0, after - before) for before, after in pairwise(used[time] for time in sorted(used)))
        comm, cgroup = named[who]
        if ticks:
            found.append(_Process(ticks * TICK_NS // 1_000_000, who[0], comm, str(owner(cgroup)) or cgroup.strip("/")))
    return sorted(found, reverse=True)[:MOST_TOLD]
