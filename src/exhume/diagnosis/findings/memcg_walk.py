"""memcg-walk: time inside the kernel's iteration over memory cgroups, dead ones included, by the program that asked for it.

Stack samples say it best. A check has none: then the stacks that were taken because of a stall do, and the call traces that
the kernel printed when it found a core locked up in one.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, ClassVar, TypeVar

from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.events import aged
from exhume.diagnosis.findings.held import Who
from exhume.diagnosis.findings.kernel_work import telling
from exhume.diagnosis.findings.kind import HARDLY, MOSTLY, NEARLY, Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.offender import Offender, innermost, offender, process_of
from exhume.diagnosis.findings.sampled import period_ns
from exhume.diagnosis.findings.soft_lockup import SoftLockup, in_the_trace
from exhume.diagnosis.findings.spans import overlap_ns, total_ns
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.walk_families import RSTAT
from exhume.diagnosis.findings.walks import SAMPLES, Walk, by_samples, by_stalls, by_traces
from exhume.host.owners import owner
from exhume.host.quantities import MILLISECOND, SECOND, milliseconds
from exhume.record import record
from exhume.recording.recording import Recording

_FEWEST = 3
_MOST_FINDINGS = 10

Counted = TypeVar("Counted", Who, str, tuple[str, ...])


@record(frozen=True, slots=True, kw_only=True)
class MemcgWalk(Facts):
    kind: ClassVar[str] = "memcg-walk"
    seen_in: str
    walker: Annotated[Offender, Shown()]
    walked_ms: Annotated[int, Shown("walked", "ms", ".seen_in")]
    longest_ms: Annotated[int, Shown("longest", "ms", ".seen_in")]
    core: Annotated[int, Shown("core", source=".seen_in")]
    """The core that most of it was on."""
    family: Annotated[str, Shown("family", source=".seen_in")]
    """What made the kernel walk: see walk_families.py."""
    function: Annotated[str, Shown("function", source=".seen_in")]
    stack: Annotated[tuple[str, ...], Shown("stack", source=".seen_in")]
    walkers: Annotated[int, Shown("walkers", "programs that are told for it", ".seen_in")]
    """Programs that walk enough to be reported."""
    through: Annotated[str, Shown("through", source=".seen_in")] = ""
    """The file or the path in the kernel that leads to the walk."""
    lock_ratio: Annotated[float, Shown("spun on a lock", "of its walk", ".seen_in", digits=3, zero=False)] = 0.0
    samples_ratio: Annotated[float | None, Shown("share", "of its samples", ".seen_in", digits=3)] = None
    core_ratio: Annotated[float | None, Shown("core share", "of the core's samples meanwhile", ".seen_in", digits=3)] = None

    @property
    def focus_core(self) -> int:
        return self.core

    @property
    def focus_offender(self) -> Offender:
        return self.walker

    @property
    def focus_stack(self) -> tuple[str, ...]:
        return self.stack

    def summary(self) -> str:
        text = f"{self.walker.process} walked memory cgroups for {milliseconds(self.walked_ms)}"
        text += f", up to {milliseconds(self.longest_ms)} at a stretch" if 0 < self.longest_ms < self.walked_ms else ""
        text += f", through {self.through}" if self.through else ""
        text += f", {self.lock_ratio:.0%} of it waiting for a lock" if self.lock_ratio >= 0.5 else ""
        text += f": {self.samples_ratio:.0%} of its samples" if self.samples_ratio is not None else ""
        return f"{text}, most on core {self.core} ({self.function})"

    def short(self) -> tuple[str, str]:
        share = f"{self.samples_ratio:.0%} of its samples" if self.samples_ratio is not None else ""
        numbers = (f"{milliseconds(self.walked_ms)}", self.through or self.function, share)
        return f"{self.walker.process} walks memory cgroups", " · ".join(filter(None, numbers))


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    sampled = len(recording["samples"])
    found = recording.derived("samples", by_samples) if sampled else by_stalls(recording)
    traced = by_traces(recording, found)
    enough = {key: walk for key, walk in found.items() if _enough(recording, walk, thresholds)}
    walkers = len(enough) + len(traced)
    of_few = few(recording)
    told = [_finding(recording, key[0], walk, _severity(walk, thresholds, of_few), walkers) for key, walk in enough.items()]
    for key, walk in traced.items():
        told.append(_finding(recording, key[0], walk, aged(walk.age_s, thresholds, "warning"), walkers))
    if told:
        told.sort(key=lambda finding: (finding.severity == "info", -finding.facts.walked_ms, finding.subject))
        return Examined(MemcgWalk.kind, tuple(told[:_MOST_FINDINGS]))
    if sampled or recording.on("latency"):
        if not found:
            seen = f"{sampled:,} stack samples" if sampled else "stalls"
            return Examined(MemcgWalk.kind, ruled_out=f"none of the {seen} shows one")
        key, most = max(found.items(), key=lambda item: (item[1].walked_ns, item[0]))
        return Examined(MemcgWalk.kind, ruled_out=f"most by {key[0]} with {milliseconds(most.walked_ns / MILLISECOND)}")
    return Examined(MemcgWalk.kind, unseen=recording.why_off("samples"))


def _enough(recording: Recording, walk: Walk, thresholds: Thresholds) -> bool:
    start, end = recording.window
    times = recording["samples"].ints("time")
    seen_ns = max(SECOND, int(times.max() - times.min()) if len(times) else end - start)
    if walk.source == SAMPLES and walk.walked_ns < _FEWEST * period_ns(recording):
        return False
    return walk.walked_ns >= min(thresholds.memcg_walk_ms * 1_000_000, thresholds.memcg_walk_ratio * seen_ns)


# So many groups are visited in no time: who is in such a function is there for what it finds, not for the walk.
_FEW_GROUPS = 200


def few(recording: Recording) -> bool:
    totals = [row["total"] for row in recording["memcg"].rows() if row["path"] == "/"]
    return bool(totals) and 0 <= max(totals) < _FEW_GROUPS


def _severity(walk: Walk, thresholds: Thresholds, of_few: bool) -> Severity:
    if of_few and _most(walk.families) != RSTAT:
        return "info"
    long = walk.stretch_ns >= thresholds.memcg_walk_stretch_ms * 1_000_000
    return "warning" if long or walk.densest >= thresholds.memcg_walk_warning_ratio else "info"


def _finding(recording: Recording, name: str, walk: Walk, severity: Severity, walkers: int) -> Finding[MemcgWalk]:
    who, pids = _most(walk.whose), {who.pid for who in walk.whose}
    process = process_of(who) if len(pids) == 1 else Process(name, who.pid, len(pids) - 1)
    stack = _most(walk.stacks)
    facts = MemcgWalk(
        subject=who.unit or owner(who.cgroup).unit or str(process),
        seen_in=walk.source,
        walker=offender(recording, who, walk.source, stack, process),
        walked_ms=walk.walked_ns // 1_000_000,
        longest_ms=walk.stretch_ns // 1_000_000,
        core=walk.core,
        family=_most(walk.families),
        function=telling(stack),
        stack=innermost(stack),
        walkers=walkers,
        through=_most(walk.ways),
        lock_ratio=walk.spun_ns / max(1, sum(walk.stacks.values())),
        samples_ratio=walk.share,
        core_ratio=walk.core_share,
    )
    spans = tuple(sorted(walk.spans, key=lambda span: (span.start, span)))
    return Finding(facts, severity, spans[0].start, max(span.end for span in spans), spans)


def _most(counted: Counter[Counted]) -> Counted:
    return max(counted, key=lambda each: (counted[each], each))


def _saturates(walk: Finding[MemcgWalk], core: Finding[CoreSaturated]) -> Judged:
    there = [span for span in walk.spans if span.core == core.facts.core]
    share = overlap_ns(there, core.spans) / max(1, total_ns(core.spans))
    seen = core.facts.walk_ratio if core.facts.looked else 0.0
    if walk.spans and not there:
        seen = 0.0  # another program walked there
    share = max(share, seen)
    if share < HARDLY:
        return None
    through = f" through {walk.facts.through}" if walk.facts.through else ""
    said = f"{walk.facts.walker.process} walked them there{through} in"
    if share >= MOSTLY:
        return (0.99 if share >= NEARLY else 0.95), f"{said} {share:.0%} of that time"
    return 0.4, f"{said} only {share:.0%} of that time"


def _starves(walk: Finding[MemcgWalk], napi: Finding[NapiStarved]) -> Judged:
    cores = {span.core for span in napi.spans}
    there = [span for span in walk.spans if span.core in cores]
    share = overlap_ns(there, napi.spans) / max(1, total_ns(napi.spans))
    said = f"{walk.facts.walker.process} walked memory cgroups"
    if share >= MOSTLY and napi.facts.steal_ratio < MOSTLY:
        sure = 0.97 if share >= NEARLY else 0.93
        return sure, f"{said} on that core in {share:.0%} of the time in which the poll was late"
    return held_by(napi, napi.facts.work.memcg_walk_ratio, said)


def _locks_up(walk: Finding[MemcgWalk], lockup: Finding[SoftLockup]) -> Judged:
    return in_the_trace(lockup.facts.work.memcg_walk_ratio, "memory cgroups are walked")


def _culprits(walk: Finding[MemcgWalk], case: Case) -> Iterator[Culprit]:
    """All walkers, but only where the dead are known to be few: else it is the one that left them."""
    from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak  # late: causes import their effects
    from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs

    zombies = case.of(ZombieMemcgs, serious=False)
    few_dead = ZombieMemcgs.kind in case.ruled_out or (zombies and not any(each.serious for each in zombies))
    if not few_dead or case.of(CgroupDirsLeak):
        return
    walks = sorted(case.of(MemcgWalk), key=lambda each: -each.facts.walked_ms) or [walk]
    whole = sum(each.facts.walked_ms for each in walks)
    for each in walks:
        if not each.facts.walker.of_kernel:  # also those that wait for a lock meanwhile: all of them ask
            yield Culprit(each.facts.walker.name, each.facts.walked_ms / max(1, whole))


def _steps(walk: Finding[MemcgWalk], case: Case) -> Iterator[Step]:
    from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs  # late: causes import their effects

    if not case.of(ZombieMemcgs):
        yield Step("exhume zombies says how many groups there are to walk, and whose")


KIND = Kind(
    facts=MemcgWalk,
    detect=detect,
    role="condition",
    title=lambda finding: f"walks of memory cgroups by {finding.facts.walker.process}",
    rules=(
        Rule(MemcgWalk, CoreSaturated, _saturates, "the core being full while nobody walks"),
        Rule(MemcgWalk, NapiStarved, _starves, "late polls while nobody walks"),
        Rule(MemcgWalk, SoftLockup, _locks_up, "a lockup without a walk in its trace"),
    ),
    culprits=_culprits,
    steps=_steps,
)
