"""steal: the hypervisor gives this machine's time to others."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final

from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.kind import HARDLY, MOSTLY, Case, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.machine import IDLE, Machine, machine
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.soft_lockup import SoftLockup
from exhume.diagnosis.findings.stretches import growth, spans, times
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND
from exhume.record import record
from exhume.recording.recording import Recording, labels

# Share of all cores' time from which steal explains why anything is slow.
MUCH: Final = 0.3
_STAT = "/proc/stat"
# Cores are read ten times a second: what lasts a second may be seen for less.
_NEARLY = 0.9
_SHORTEST_NS = round(_NEARLY * SECOND)
# Share of all cores' time that may be idle where work is said to wait for a core.
_LEFT_OVER = 0.2
_OF_ALL, _WAITING = "of all cores' time", "/proc/pressure/cpu some"


@record(frozen=True, slots=True, kw_only=True)
class Steal(Facts):
    kind: ClassVar[str] = "steal"
    whole_machine: bool
    """Otherwise single cores are concerned, and the times are those of the worst one."""
    steal_ratio: Annotated[float, Shown("steal", _OF_ALL, _STAT, digits=3)]
    worst_core: Annotated[int, Shown("worst core", source=_STAT)]
    worst_core_ratio: Annotated[float, Shown("steal there", "of its time", _STAT, digits=3)]
    idle_ratio: Annotated[float | None, Shown("idle", _OF_ALL, _STAT, digits=3)] = None
    lasted_s: Annotated[float | None, Shown("lasted", "s", _STAT, digits=1)] = None
    cpu_wait_ratio: Annotated[float | None, Shown("tasks waiting for a core", "of the time", _WAITING, digits=3)] = None

    def summary(self) -> str:
        if not self.whole_machine:
            return (
                f"the hypervisor takes {self.worst_core_ratio:.0%} of the time of core {self.worst_core}, "
                f"{self.steal_ratio:.0%} of all cores' time"
            )
        said = (
            f"the hypervisor takes {self.steal_ratio:.0%} of this machine's CPU time "
            f"(core {self.worst_core}: {self.worst_core_ratio:.0%})"
        )
        if self.cpu_wait_ratio is not None:
            said += f"; tasks waited for a core {self.cpu_wait_ratio:.0%} of the time"
        return said

    def short(self) -> tuple[str, str]:
        worst, node = f"core {self.worst_core}: {self.worst_core_ratio:.0%}", f"{self.steal_ratio:.0%} of all cores' time"
        return "CPU time taken by the hypervisor", f"{node} · {worst}" if self.whole_machine else f"{worst} · {node}"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    cores = machine(recording)
    if cores is None or cores.sampled:
        return Examined(Steal.kind, unseen=recording.why_off("cpu"))
    taken = cores.steps("steal")
    parts = times(taken.above(thresholds.steal_ratio, _SHORTEST_NS))
    if parts:
        return Examined(Steal.kind, (_of_node(recording, cores, parts, thresholds),))
    alone = {core: times(cores.stolen_from(core).above(thresholds.steal_core_ratio, _SHORTEST_NS)) for core in cores.stolen}
    alone = {core: found for core, found in alone.items() if found}
    if alone:
        return Examined(Steal.kind, (_of_cores(cores, alone),))
    stolen = taken.most(_SHORTEST_NS)
    return Examined(Steal.kind, ruled_out=f"{stolen:.1%}" if stolen else "none reported")


def _of_node(recording: Recording, cores: Machine, parts: list[tuple[int, int]], thresholds: Thresholds) -> Finding[Steal]:
    stolen, idle = cores.share("steal", during=parts), cores.share(*IDLE, during=parts)
    worst, there = max(
        ((core, cores.stolen_from(core).mean(parts)) for core in cores.stolen), key=lambda item: (item[1], -item[0])
    )
    waiting = growth(recording, "pressure_us", labels(cgroup="", kind="some", resource="cpu"))
    waited = waiting.mean(parts) / 1e6 if waiting is not None else None
    facts = Steal(
        subject="node",
        whole_machine=True,
        steal_ratio=stolen,
        worst_core=worst,
        worst_core_ratio=there,
        idle_ratio=idle,
        lasted_s=sum(end - start for start, end in parts) / 1e9,
        cpu_wait_ratio=waited,
    )
    # A little of it is what a shared host is like, and so is much for a moment; it hurts who has work to do meanwhile. Tasks
    # that a quota holds back count as waiting, too (seen on 6.18: 88 % of the time, with 64 % of the cores idle), so waiting is
    # only put down to steal where no core is left over.
    much = stolen >= thresholds.steal_wait_ratio
    hurts = much and waited is not None and waited >= thresholds.cpu_wait_ratio and idle <= _LEFT_OVER
    lasts = max(end - start for start, end in parts) >= _NEARLY * thresholds.stretch_s * SECOND
    severity: Severity = "warning" if lasts and (stolen >= thresholds.steal_warning_ratio or hurts) else "info"
    return Finding(facts, severity, parts[0][0], parts[-1][1], spans(parts))


def _of_cores(cores: Machine, alone: dict[int, list[tuple[int, int]]]) -> Finding[Steal]:
    """One virtual CPU that does not get to run is told, though the machine as a whole does: its queue may starve."""
    shares = {core: cores.stolen_from(core).mean(parts) for core, parts in alone.items()}
    worst = max(shares, key=lambda core: (shares[core], -core))
    where = tuple(span for core, parts in sorted(alone.items()) for span in spans(parts, core))
    facts = Steal(
        subject="node",
        whole_machine=False,
        steal_ratio=cores.share("steal", during=alone[worst]),
        worst_core=worst,
        worst_core_ratio=shares[worst],
    )
    return Finding(facts, "info", min(span.start for span in where), max(span.end for span in where), where)


def _starves(steal: Finding[Steal], napi: Finding[NapiStarved]) -> Judged:
    stolen = napi.facts.steal_ratio
    if not stolen:
        return None
    return (0.85 if stolen >= MOSTLY else 0.4), f"the hypervisor took {stolen:.0%} of the core's time while the poll was late"


def _not_accounted(steal: Finding[Steal], core: Finding[CoreSaturated]) -> Judged:
    """A virtual CPU that does not run is not accounted at all on hosts that do not report what they take."""
    if core.facts.unaccounted_ms is None or steal.facts.steal_ratio < HARDLY:
        return None
    return 0.6, "a core that the hypervisor does not let run is not accounted, and it takes time from this machine"


def _locks_up(steal: Finding[Steal], lockup: Finding[SoftLockup]) -> Judged:
    """A virtual CPU that is not let run neither schedules nor answers the others, which wait for it."""
    apart = max(0, steal.start - lockup.end, lockup.start - steal.end)
    if apart or lockup.facts.core is None:
        return None
    much = steal.facts.steal_ratio >= MUCH
    return (0.7 if much else 0.4), "the hypervisor took that much of all cores' time at that moment"


def _steps(steal: Finding[Steal], case: Case) -> Iterator[Step]:
    yield Step("the host is oversold or the instance has used up its credits: move to another one")


KIND = Kind(
    facts=Steal,
    detect=detect,
    role="pain",
    title=lambda finding: "other guests of the hypervisor",
    rules=(
        Rule(Steal, NapiStarved, _starves, "late polls on a core from which nothing is taken"),
        Rule(Steal, SoftLockup, _locks_up, "a lockup while nothing is taken"),
        Rule(Steal, CoreSaturated, _not_accounted, "a core that stands still on bare metal"),
    ),
    steps=_steps,
)
