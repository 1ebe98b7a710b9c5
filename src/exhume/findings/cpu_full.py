"""cpu-full: the machine is simply busy, by whom, and whether anybody waits."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exhume.findings.cores import TICK_NS
from exhume.findings.machine import BUSY, IDLE, KERNEL, Machine, machine
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.sampled import BRIEFEST_NS, unfit
from exhume.findings.sampled_work import sampled
from exhume.findings.stretches import SECOND_NS, growth, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.node.owners import owner
from exhume.recording.recording import Recording, labels
from exhume.text import printable

KIND = "cpu-full"
MOST_TOLD = 3
# Of a name in a sentence that has several.
_LONGEST_NAME = 72
Parts = list[tuple[int, int]]


class _Process(NamedTuple):
    used_ms: int
    pid: int
    comm: str
    cgroup: str
    others: int = 0
    """Processes of the same name and cgroup that are in the sum, too."""

    def __str__(self) -> str:
        whose = printable(str(owner(self.cgroup)) or self.cgroup.strip("/"), _LONGEST_NAME)
        pids = f"{self.pid} and {self.others} more" if self.others else str(self.pid)
        return f"{printable(self.comm, _LONGEST_NAME)} [{pids}]" + (f" of {whose}" if whose else "")


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    cores = machine(recording)
    if cores is None:
        return Examined(KIND, unseen=unfit(recording) or recording.why_off("cpu"))
    shortest = round(thresholds.cpu_full_s * SECOND_NS)
    busy = cores.full()
    parts = times(busy.above(thresholds.cpu_full_ratio, shortest)) or busy.best(thresholds.cpu_full_ratio, shortest)
    if parts and busy.length_ns < BRIEFEST_NS:
        return Examined(KIND, unseen=f"the cores were seen for {busy.length_ns / 1e6:,.0f} ms only")
    if parts:
        return Examined(KIND, (_finding(recording, thresholds, cores, parts),))
    worst, stolen = busy.most(shortest), cores.share("steal")
    if stolen >= thresholds.steal_ratio:
        return Examined(KIND, ruled_out=f"{worst:.0%} busy, {stolen:.0%} taken by the hypervisor")
    idle = cores.share(*IDLE)
    if worst >= 1 - idle + 0.1:
        return Examined(
            KIND, ruled_out=f"{idle:.0%} idle, at most {worst:.0%} busy for {min(shortest, busy.length_ns) / 1e9:.0f} s"
        )
    return Examined(KIND, ruled_out=f"{idle:.0%} idle")


def _finding(recording: Recording, thresholds: Thresholds, cores: Machine, parts: Parts) -> Finding:
    whole, user, kernel = (cores.share(*states, during=parts) for states in (BUSY, ("user", "nice"), KERNEL))
    evidence = [
        Evidence("busy", round(whole, 3), "of all cores' time", cores.source),
        Evidence("user", round(user, 3), "of all cores' time", cores.source),
        Evidence("kernel", round(kernel, 3), "of all cores' time", cores.source),
        Evidence("cores", cores.cores, "", cores.source),
        Evidence("lasted", round(sum(end - start for start, end in parts) / 1e9, 1), "s", cores.source),
    ]
    summary = f"all {cores.cores} cores together are {whole:.0%} busy ({user:.0%} user, {kernel:.0%} kernel)"
    full = _full(user, kernel)
    severity: Severity = "warning"
    waiting = growth(recording, "pressure_us", labels(cgroup="", kind="some", resource="cpu"))
    if waiting is None:
        summary += f": {full}"
    else:
        waited = waiting.mean(parts) / 1e6
        evidence.append(Evidence("tasks waiting for a core", round(waited, 3), "of the time", "/proc/pressure/cpu some"))
        if waited >= thresholds.cpu_wait_ratio:
            summary += f" and tasks waited for a core {waited:.0%} of the time: {full}"
        else:
            severity = "info"
            summary += f", but nobody waits ({waited:.0%} of the time)"
    told, more = _who(recording, parts)
    return Finding(KIND, "node", severity, parts[0][0], parts[-1][1], summary + told, (*evidence, *more), spans(parts))


def _full(user: float, kernel: float) -> str:
    """Of what: programs' own work can be moved away, what the kernel does for them may be one thing that all wait for."""
    if kernel >= 2 * user:
        return "the machine is full of work in the kernel"
    if 2 * kernel < user:
        return "the machine is full"
    return f"the machine is full, {kernel / (user + kernel):.0%} of it with work in the kernel"


def _who(recording: Recording, parts: Parts) -> tuple[str, list[Evidence]]:
    """The programs that used most, and the cgroup: one tenant's load, or that of several."""
    used, source = _of_samples(recording, parts), "stack samples"
    if not used:  # who lives less long than from one reading to the next is not in it
        used, source = _of_processes(recording, parts), "/proc/PID/stat, /proc/PID/cgroup"
    busiest = sorted(used, reverse=True)[:MOST_TOLD]
    evidence = [Evidence("CPU time of all", sum(process.used_ms for process in used), "ms", source)] if used else []
    for place, process in zip(("busiest", "second", "third"), busiest, strict=False):
        evidence.append(Evidence(place, str(process), "", source))
        evidence.append(Evidence(f"CPU time of the {place}", process.used_ms, "ms", source))
    if not busiest:
        return "", []
    said = "; most by " + ", ".join(f"{process} ({process.used_ms:,} ms)" for process in busiest)
    groups: Counter[str] = Counter()
    for process in used:
        groups[process.cgroup] += process.used_ms
    del groups[""], groups["/"]
    total = groups.total()
    if groups and total:
        cgroup, most = max(groups.items(), key=lambda item: (item[1], item[0]))
        evidence.append(Evidence("busiest cgroup", cgroup, "", source))
        evidence.append(Evidence("its share", round(most / total, 3), "of the CPU time of those looked at", source))
        said += f"; {most / total:.0%} of it in {printable(cgroup, _LONGEST_NAME)}"
    return said, evidence


def _of_processes(recording: Recording, parts: Parts) -> list[_Process]:
    """Who used CPU time meanwhile. The reader keeps those that were busy between two of its readings."""
    readings: dict[tuple[int, int], dict[int, int]] = {}
    named: dict[tuple[int, int], tuple[int, str, str]] = {}
    for row in recording["processes"].rows():
        if row["tid"] == 0:
            who = (row["pid"], row["start"])
            ticks = row["user"] + row["system"]
            known = readings.setdefault(who, {})
            known[row["time"]] = max(ticks, known.get(row["time"], 0))
            named[who] = max(named.get(who, (-1, "", "")), (row["time"], row["comm"], row["cgroup"]))
    cgroups = {(row["pid"], row["start"]): row["cgroup"] for row in recording["processes"].rows() if row["cgroup"]}
    found = []
    for who, used in readings.items():
        ticks = sum(
            max(0, used[after] - used[before])
            for before, after in pairwise(sorted(used))
            if any(before < end and after > start for start, end in parts)
        )
        if ticks:
            found.append(_Process(ticks * TICK_NS // 1_000_000, who[0], named[who][1], cgroups.get(who, "")))
    return found


def _of_samples(recording: Recording, parts: Parts) -> list[_Process]:
    seen = sampled(recording)
    if seen is None:
        return []
    here = seen.during(parts)
    lasted_ms = sum(end - start for start, end in parts) / 1e6
    cpus = max(recording.node.cpus, len(np.unique(seen.cores)))  # text of perf script may not say how many there are
    each_ms = lasted_ms * cpus / max(1.0, float(here.sum()))
    # Programs that are started anew again and again are one, whatever their PIDs.
    together: dict[tuple[str, str], Counter[int]] = {}
    for who, count in seen.by_process(here & seen.busy):
        together.setdefault((who.comm, who.cgroup), Counter())[who.pid] += count
    return [
        _Process(round(of.total() * each_ms), max(of, key=lambda pid: (of[pid], pid)), comm, cgroup, len(of) - 1)
        for (comm, cgroup), of in together.items()
    ]
