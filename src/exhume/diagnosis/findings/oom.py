"""oom: the kernel killed for memory: whom, in which cgroup, and whose limit it was."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, ClassVar

from exhume.diagnosis.findings.core_facts import CoreSaturated, filled_by
from exhume.diagnosis.findings.events import severity
from exhume.diagnosis.findings.kind import TOGETHER_NS, Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Shown, Span
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.offender import Offender
from exhume.diagnosis.findings.soft_lockup import SoftLockup, in_the_trace
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.owners import owner
from exhume.host.quantities import SECOND, ago, counted
from exhume.record import record
from exhume.recording.events import OomKill, oom_kills
from exhume.recording.recording import Recording
from exhume.text import printable

_LOG = "kernel log"
# Work that a kill causes is done in this time after it.
_SOON_NS = 10 * 10**9


class Constraint(Enum):
    """enum oom_constraint in include/linux/oom.h."""

    NONE = "none"
    CPUSET = "cpuset"
    MEMORY_POLICY = "memory-policy"
    MEMCG = "memcg"


# As the `oom-kill:` line has them since 5.0 (ef8444ea01d7).
_IN_LOG = {
    "CONSTRAINT_NONE": Constraint.NONE,
    "CONSTRAINT_CPUSET": Constraint.CPUSET,
    "CONSTRAINT_MEMORY_POLICY": Constraint.MEMORY_POLICY,
    "CONSTRAINT_MEMCG": Constraint.MEMCG,
}
_REASONS = {
    Constraint.NONE: "the node ran out of memory",
    Constraint.CPUSET: "the memory that a cpuset allows ran out",
    Constraint.MEMORY_POLICY: "the memory that a NUMA policy allows ran out",
    Constraint.MEMCG: "a cgroup reached its memory limit",
}


@record(frozen=True, slots=True, kw_only=True)
class Oom(Facts):
    """Kills at one limit; the subject is the process that was killed last."""

    kind: ClassVar[str] = "oom"
    kills: Annotated[int, Shown("kills", source=_LOG)]
    last_line: Annotated[str, Shown("last line", source=_LOG)] = ""
    limit_cgroup: Annotated[str, Shown("limit of", source=_LOG)] = ""
    """Whose limit was reached; empty if it was the node's, or unknown."""
    victim_comm: Annotated[str, Shown("process", source=_LOG)] = ""
    """Of most of the victims."""
    cgroup: Annotated[str, Shown("cgroup", source=_LOG)] = ""
    """The one whose limit was reached, else that of the last victim."""
    victim_cgroup: Annotated[str, Shown("its cgroup", source=_LOG)] = ""
    """Of the last victim."""
    constraint: Constraint
    last_age_s: int
    """From the last kill to the end of the recording."""

    def summary(self) -> str:
        reason = _REASONS[self.constraint]
        if self.limit_cgroup:
            whose = str(owner(self.limit_cgroup))
            named = f" ({whose})" if whose and whose not in self.limit_cgroup else ""
            reason = f"{printable(self.limit_cgroup)}{named} reached its memory limit"
        said = f"{reason}: {self.kills} killed, last {printable(self.subject) or 'a process'} {ago(self.last_age_s * SECOND)}"
        if self.victim_cgroup and self.victim_cgroup != self.limit_cgroup:
            said += f", of {printable(self.victim_cgroup)}"
        return said

    def short(self) -> tuple[str, str]:
        where = f"limit of {printable(self.limit_cgroup)}" if self.limit_cgroup else _REASONS[self.constraint]
        last = f"last {printable(self.subject)}" if self.subject else ""
        return f"{counted(self.kills, 'OOM kill')}", " · ".join(part for part in (where, last) if part)

    @property
    def focus_offender(self) -> Offender | None:
        """The victim."""
        if not self.victim_comm:
            return None
        return Offender(process=Process(self.victim_comm), seen_in=_LOG, cgroup=self.victim_cgroup)

    @property
    def focus_line(self) -> str:
        return self.last_line

    @property
    def cgroup_paths(self) -> tuple[str, ...]:
        return (self.cgroup,) if self.cgroup else ()


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("kernel-log"):
        return Examined(Oom.kind, unseen=recording.why_off("kernel-log"))
    findings = []
    every = oom_kills(recording)
    for memcg in (False, True):
        groups: dict[str, list[OomKill]] = {}
        listed = _current([kill for kill in every if kill.memcg == memcg], recording.window[0])
        # The line that names the limit is rate-limited, the one that names the victim is not (mm/oom_kill.c).
        limits = {kill.comm: kill.limit_cgroup for kill in listed if kill.limit_cgroup}
        for kill in listed:
            groups.setdefault(kill.limit_cgroup or limits.get(kill.comm, ""), []).append(kill)
        for limit, seen in sorted(groups.items()):
            constraint = _IN_LOG.get(seen[-1].constraint, Constraint.MEMCG if memcg else Constraint.NONE)
            findings.append(_finding(seen, limit, constraint, thresholds))
    if findings:
        findings.sort(key=lambda finding: (finding.severity == "info", -finding.facts.kills, finding.start))
        return Examined(Oom.kind, tuple(findings))
    killed = recording.counter("vmstat_oom_kill")
    counted = f", {killed.delta} counted meanwhile" if killed is not None and len(killed.times) > 1 else ""
    return Examined(Oom.kind, ruled_out=f"no kill in the kernel log{counted}")


def _current(seen: list[OomKill], start: int) -> list[OomKill]:
    """Those of the recording; if it has none, those that the log still had from before it."""
    return [kill for kill in seen if kill.time >= start] or seen


def _finding(seen: list[OomKill], limit: str, constraint: Constraint, thresholds: Thresholds) -> Finding[Oom]:
    last = seen[-1]
    victims = Counter(kill.comm for kill in seen if kill.comm)
    facts = Oom(
        subject=last.comm,
        kills=len(seen),
        last_line=last.event.message,
        limit_cgroup=limit,
        victim_comm=max(victims, key=lambda name: (victims[name], name), default=""),
        cgroup=limit or last.cgroup,
        victim_cgroup=last.cgroup,
        constraint=constraint,
        last_age_s=last.event.age_s,
    )
    spans = tuple(Span(-1, kill.time, kill.time) for kill in seen)
    return Finding(facts, severity(last.event, thresholds, "warning"), seen[0].time, last.time, spans)


def _soon(oom: Finding[Oom], other: Finding[Facts]) -> bool:
    """Whether it was while the kernel killed, or soon after."""
    return oom.start - _SOON_NS <= other.end and other.start <= oom.end + _SOON_NS


def _is_victim(oom: Oom, offender: Offender | None) -> bool:
    """Whether the memory that is given back is that of the victim: other processes end, too."""
    if offender is None:
        return False
    comm, cgroup = offender.process.comm, offender.cgroup
    return bool(comm and comm == oom.victim_comm) or bool(cgroup and cgroup in (oom.victim_cgroup, oom.limit_cgroup))


def _saturates(oom: Finding[Oom], core: Finding[CoreSaturated]) -> Judged:
    if not _soon(oom, core):
        return None
    work = core.facts.work
    if (searched := filled_by(core, work.oom_ratio, "a process to kill is looked for", 0.9)) is not None:
        return searched
    if not _is_victim(oom.facts, core.facts.offender):
        return None
    return filled_by(core, work.unmap_ratio, "memory of the process that was killed is given back", 0.85)


def _starves(oom: Finding[Oom], napi: Finding[NapiStarved]) -> Judged:
    if not _soon(oom, napi):
        return None
    work = napi.facts.work
    if (searched := held_by(napi, work.oom_ratio, "a process to kill was looked for", 0.9)) is not None:
        return searched
    if not _is_victim(oom.facts, napi.facts.offender):
        return None
    return held_by(napi, work.unmap_ratio, "memory of the process that was killed was given back", 0.85)


def _locks_up(oom: Finding[Oom], lockup: Finding[SoftLockup]) -> Judged:
    work = lockup.facts.work
    searched = in_the_trace(work.oom_ratio, "a process to kill is looked for")
    if (traced := searched or in_the_trace(work.unmap_ratio, "memory of a process is given back")) is not None:
        return traced
    apart = max(0, oom.start - lockup.end, lockup.start - oom.end)
    return (0.4, "at the same time") if apart <= TOGETHER_NS else None


def _culprits(oom: Finding[Oom], case: Case) -> Iterator[Culprit]:
    if where := oom.facts.limit_cgroup or oom.facts.victim_cgroup or oom.subject:
        yield Culprit(where, 1.0)


def _steps(oom: Finding[Oom], case: Case) -> Iterator[Step]:
    yield Step(f"dmesg -T | grep -i -A30 oom-kill shows who had the memory; raise the limit of {oom.subject}, or find its leak")


KIND = Kind(
    facts=Oom,
    detect=detect,
    role="condition",
    title=lambda finding: "searches for a process to kill, and the unmapping of what it had,",
    rules=(
        Rule(Oom, CoreSaturated, _saturates, "a core that is full while nothing is killed"),
        Rule(Oom, NapiStarved, _starves, "late polls while nothing is killed"),
        Rule(Oom, SoftLockup, _locks_up, "a lockup while nothing is killed"),
    ),
    culprits=_culprits,
    steps=_steps,
)
