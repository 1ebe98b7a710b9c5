"""cpu-full: the machine is simply busy, by whom, and whether anybody waits."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from exhume.diagnosis.findings import subjects
from exhume.diagnosis.findings.cores import TICK_NS
from exhume.diagnosis.findings.kind import MOSTLY, Advice, Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.machine import BUSY, IDLE, KERNEL, Machine, machine
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.sampled import BRIEFEST_NS, unfit
from exhume.diagnosis.findings.sampled_work import sampled
from exhume.diagnosis.findings.stretches import growth, spans, times
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.owners import owner
from exhume.host.quantities import SECOND, duration, milliseconds
from exhume.record import record
from exhume.recording.recording import Recording, labels
from exhume.text import printable

# Of a name in a sentence that has several.
_LONGEST_NAME = 72
_OF_ALL = "of all cores' time"
Parts = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Program:
    """Processes of one name in one cgroup."""

    process: Process
    cgroup: str = ""

    def __str__(self) -> str:
        whose = printable(str(owner(self.cgroup)) or self.cgroup.strip("/"), _LONGEST_NAME)
        named = Process(printable(self.process.comm, _LONGEST_NAME), self.process.pid, self.process.more)
        return subjects.program(named, whose)


@record(frozen=True, slots=True, kw_only=True)
class CpuFull(Facts):
    kind: ClassVar[str] = "cpu-full"
    counted_in: str
    busy_ratio: Annotated[float, Shown("busy", _OF_ALL, ".counted_in", digits=3)]
    user_ratio: Annotated[float, Shown("user", _OF_ALL, ".counted_in", digits=3)]
    kernel_ratio: Annotated[float, Shown("kernel", _OF_ALL, ".counted_in", digits=3)]
    cores: Annotated[int, Shown("cores", source=".counted_in")]
    lasted_s: Annotated[float, Shown("lasted", "s", ".counted_in", digits=1)]
    waited_ratio: Annotated[
        float | None, Shown("tasks waiting for a core", "of the time", "/proc/pressure/cpu some", digits=3)
    ] = None
    """None: pressure was not recorded."""
    contended: bool = True
    """Tasks wait for a core above the threshold, or it is not known."""
    used_in: str = ""
    """Where the CPU time of programs was counted."""
    cpu_ms: Annotated[int | None, Shown("CPU time of all", "ms", ".used_in")] = None
    busiest: Annotated[Program | None, Shown("busiest", source=".used_in")] = None
    busiest_cpu_ms: Annotated[int | None, Shown("CPU time of the busiest", "ms", ".used_in")] = None
    second: Annotated[Program | None, Shown("second", source=".used_in")] = None
    second_cpu_ms: Annotated[int | None, Shown("CPU time of the second", "ms", ".used_in")] = None
    third: Annotated[Program | None, Shown("third", source=".used_in")] = None
    third_cpu_ms: Annotated[int | None, Shown("CPU time of the third", "ms", ".used_in")] = None
    busiest_cgroup: Annotated[str, Shown("busiest cgroup", source=".used_in")] = ""
    busiest_cgroup_ratio: Annotated[
        float | None, Shown("its share", "of the CPU time of those looked at", ".used_in", digits=3)
    ] = None
    """Of the CPU time of programs in a cgroup other than the root."""

    @property
    def programs(self) -> tuple[tuple[Program, int], ...]:
        """Those that used most, each with its CPU time in ms, the busiest first."""
        every = ((self.busiest, self.busiest_cpu_ms), (self.second, self.second_cpu_ms), (self.third, self.third_cpu_ms))
        return tuple((program, used) for program, used in every if program is not None and used is not None)

    def summary(self) -> str:
        said = f"all {self.cores} cores together are {self.busy_ratio:.0%} busy"
        said += f" ({self.user_ratio:.0%} user, {self.kernel_ratio:.0%} kernel)"
        if self.waited_ratio is None:
            said += f": {self._full}"
        elif self.contended:
            said += f" and tasks waited for a core {self.waited_ratio:.0%} of the time: {self._full}"
        else:
            said += f", but nobody waits ({self.waited_ratio:.0%} of the time)"
        if self.programs:
            said += "; most by " + ", ".join(f"{program} ({milliseconds(used)})" for program, used in self.programs)
        if self.busiest_cgroup_ratio is not None:
            said += f"; {self.busiest_cgroup_ratio:.0%} of it in {printable(self.busiest_cgroup, _LONGEST_NAME)}"
        return said

    @property
    def _full(self) -> str:
        """The work of programs can be moved away; what the kernel does for them may be one thing that all wait for."""
        user, kernel = self.user_ratio, self.kernel_ratio
        if kernel >= 2 * user:
            return "the machine is full of work in the kernel"
        if 2 * kernel < user:
            return "the machine is full"
        return f"the machine is full, {kernel / (user + kernel):.0%} of it with work in the kernel"

    def short(self) -> tuple[str, str]:
        waited = f" · tasks waited {self.waited_ratio:.0%} of the time" if self.waited_ratio is not None else ""
        kernel = f"{self.user_ratio:.0%} user · {self.kernel_ratio:.0%} kernel"
        return f"all {self.cores} cores {self.busy_ratio:.0%} busy", kernel + waited


class _Usage(NamedTuple):
    used_ms: int
    pid: int
    comm: str
    cgroup: str
    more: int = 0
    """Processes of the same name and cgroup that are in the sum, too."""

    @property
    def program(self) -> Program:
        return Program(Process(self.comm, self.pid, self.more), self.cgroup)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    cores = machine(recording)
    if cores is None:
        return Examined(CpuFull.kind, unseen=unfit(recording) or recording.why_off("cpu"))
    shortest = round(thresholds.cpu_full_s * SECOND)
    busy = cores.full()
    parts = times(busy.above(thresholds.cpu_full_ratio, shortest)) or busy.best(thresholds.cpu_full_ratio, shortest)
    if parts and busy.length_ns < BRIEFEST_NS:
        return Examined(CpuFull.kind, unseen=f"the cores were seen for {duration(busy.length_ns)} only")
    if parts:
        return Examined(CpuFull.kind, (_finding(recording, thresholds, cores, parts),))
    worst, stolen = busy.most(shortest), cores.share("steal")
    if stolen >= thresholds.steal_ratio:
        return Examined(CpuFull.kind, ruled_out=f"{worst:.0%} busy, {stolen:.0%} taken by the hypervisor")
    idle = cores.share(*IDLE)
    if worst >= 1 - idle + 0.1:
        return Examined(
            CpuFull.kind, ruled_out=f"{idle:.0%} idle, at most {worst:.0%} busy for {duration(min(shortest, busy.length_ns))}"
        )
    return Examined(CpuFull.kind, ruled_out=f"{idle:.0%} idle")


def _finding(recording: Recording, thresholds: Thresholds, cores: Machine, parts: Parts) -> Finding[CpuFull]:
    waiting = growth(recording, "pressure_us", labels(cgroup="", kind="some", resource="cpu"))
    waited = waiting.mean(parts) / 1e6 if waiting is not None else None
    used, used_in = _of_samples(recording, parts), "stack samples"
    if not used:  # programs that end between two readings are not counted here
        used, used_in = _of_processes(recording, parts), "/proc/PID/stat, /proc/PID/cgroup"
    busiest, second, third = (*sorted(used, reverse=True)[:3], None, None, None)[:3]
    cgroup, cgroup_ratio = _busiest_cgroup(used)
    facts = CpuFull(
        subject="node",
        counted_in=cores.source,
        busy_ratio=cores.share(*BUSY, during=parts),
        user_ratio=cores.share("user", "nice", during=parts),
        kernel_ratio=cores.share(*KERNEL, during=parts),
        cores=cores.cores,
        lasted_s=sum(end - start for start, end in parts) / 1e9,
        waited_ratio=waited,
        contended=waited is None or waited >= thresholds.cpu_wait_ratio,
        used_in=used_in,
        cpu_ms=sum(each.used_ms for each in used) if used else None,
        busiest=busiest.program if busiest else None,
        busiest_cpu_ms=busiest.used_ms if busiest else None,
        second=second.program if second else None,
        second_cpu_ms=second.used_ms if second else None,
        third=third.program if third else None,
        third_cpu_ms=third.used_ms if third else None,
        busiest_cgroup=cgroup,
        busiest_cgroup_ratio=cgroup_ratio,
    )
    severity: Severity = "warning" if facts.contended else "info"
    return Finding(facts, severity, parts[0][0], parts[-1][1], spans(parts))


def _busiest_cgroup(used: list[_Usage]) -> tuple[str, float | None]:
    """The cgroup and its share: one tenant's load, or that of several."""
    groups: Counter[str] = Counter()
    for each in used:
        groups[each.cgroup] += each.used_ms
    del groups[""], groups["/"]
    total = groups.total()
    if not total:
        return "", None
    cgroup, most = max(groups.items(), key=lambda item: (item[1], item[0]))
    return cgroup, most / total


def _of_processes(recording: Recording, parts: Parts) -> list[_Usage]:
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
            found.append(_Usage(ticks * TICK_NS // 1_000_000, who[0], named[who][1], cgroups.get(who, "")))
    return found


def _of_samples(recording: Recording, parts: Parts) -> list[_Usage]:
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
        _Usage(round(of.total() * each_ms), max(of, key=lambda pid: (of[pid], pid)), comm, cgroup, len(of) - 1)
        for (comm, cgroup), of in together.items()
    ]


def _starves(full: Finding[CpuFull], napi: Finding[NapiStarved]) -> Judged:
    """A thread that polls has to wait for its turn like any other; a softirq does not."""
    measured = napi.facts.measured
    if measured is None or measured.policy:
        return None  # a real-time program keeps the core, however many cores there are
    turns = measured.in_turns_ratio or measured.work.user_ratio
    if turns >= MOSTLY:
        return 0.7, f"programs had the core in {turns:.0%} of the time in which the poll was late, and all cores are full"
    return None


def _culprits(full: Finding[CpuFull], case: Case) -> Iterator[Culprit]:
    """Those that use most of it. None of them does anything wrong, but it is their work."""
    for program, used_ms in full.facts.programs:
        yield Culprit(str(program), used_ms / max(1, full.facts.cpu_ms or 0))


def _advice(full: Finding[CpuFull], case: Case) -> Iterator[Advice]:
    if full.facts.kernel_ratio < full.facts.user_ratio:
        yield Advice("move work away, or give it fewer threads", "the cores are busy with programs' own work", cost="capacity")
    else:
        yield Advice(
            "more cores",
            f"{full.facts.kernel_ratio:.0%} of their time is work in the kernel: "
            "see what it does (exhume flame) before adding to it",
            cost="capacity",
            against=True,
        )


def _steps(full: Finding[CpuFull], case: Case) -> Iterator[Step]:
    yield Step("move work away, or give it fewer threads: the busiest are named above")


KIND = Kind(
    facts=CpuFull,
    detect=detect,
    role="pain",
    title=lambda finding: "more programs than there are cores",
    rules=(Rule(CpuFull, NapiStarved, _starves, "late polls while there are idle cores"),),
    culprits=_culprits,
    steps=_steps,
    advice=_advice,
)
