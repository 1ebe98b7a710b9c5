"""crash-loop: something that is started again and again, by whatever shows it. Loops inside a unit are invisible to systemd.

What several sources show of one unit is one finding, told by the strongest of them. A rhythm without bad ends and without a
leak is information: probes, timers and workers have one, too.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, ClassVar

from exhume.diagnosis.findings.kind import Advice, Case, Culprit, Judged, Kind, Remedy, Rule, Step, within
from exhume.diagnosis.findings.loops import WAYS, Loop, Observation, Pauses, UnitState, Way, by_systemd
from exhume.diagnosis.findings.loops_churn import by_churn
from exhume.diagnosis.findings.loops_journal import SOURCE as _JOURNAL
from exhume.diagnosis.findings.loops_journal import by_journal
from exhume.diagnosis.findings.loops_processes import by_processes
from exhume.diagnosis.findings.memcg_leak import MemcgLeak, culprits, remedies
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown, is_of, unit_of
from exhume.diagnosis.findings.offender import Offender
from exhume.diagnosis.findings.once import once
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.unit_fix import fix_unit, fixable
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

MOST_TOLD = 5
_CGROUPS = "cgroup tracepoints"
_SOURCES: dict[Way, str] = {
    "systemd": "systemd NRestarts",
    "journal": _JOURNAL,
    "containers": _CGROUPS,
    "cgroup-churn": _CGROUPS,
    "processes": "start times of processes",
}
_DISPROOF = "zombies that grow while it is stopped"
_ALL: tuple[Callable[[Recording, Thresholds], list[Loop]], ...] = (by_systemd, by_journal, by_churn, by_processes)


@record(frozen=True, slots=True, kw_only=True)
class CrashLoop(Facts):
    """Each field is from the strongest source that knows it."""

    kind: ClassVar[str] = "crash-loop"
    ways: Annotated[tuple[Way, ...], Shown("by", source=".source", join=", ")]
    """The sources that show the loop, the strongest first."""
    observation: Observation
    """Of the strongest source that shows bad ends or a leak, else of the strongest."""
    restarts: Annotated[int | None, Shown("restarts", source=".restarts_source")] = None
    """As systemd counts them, also before the window."""
    restarts_in_window: Annotated[int, Shown("restarts in the window", source=".source")]
    period_s: Annotated[float | None, Shown("period", "s", ".period_source", digits=3)] = None
    """None if it was restarted only once."""
    cgroup: Annotated[str, Shown("cgroup", source=".cgroup_source")] = ""
    """A path or, for generated names, its shape."""
    unit_name: Annotated[str, Shown("unit", source=".unit_source")] = ""
    process: Annotated[Process | None, Shown("process", source=".process_source")] = None
    """What is started; without a PID, which is another one each time."""
    supervisor: Annotated[Process | None, Shown("supervisor", source=".supervisor_source")] = None
    """What starts it."""
    removed: Annotated[int, Shown("removed", "cgroups", _CGROUPS, zero=False)] = 0
    unreleased: Annotated[int | None, Shown("unreleased", "cgroups", _CGROUPS)] = None
    """Of the removed cgroups, those that stayed as zombies; None if no removal was seen."""
    state: Annotated[UnitState | None, Shown("state", source="systemd")] = None
    result: Annotated[str, Shown("result", source="systemd")] = ""
    enabled: Annotated[str, Shown("enabled", source="systemd UnitFileState")] = ""
    pauses: Annotated[Pauses | None, Shown("rhythm", source=_CGROUPS)] = None
    life_s: Annotated[float | None, Shown("life", "s", _CGROUPS, digits=3)] = None
    """The median from start to end."""
    bad_ends: Annotated[int | None, Shown("bad ends", source=".bad_ends_source")] = None
    ended_with: Annotated[str, Shown("ended with", source=_JOURNAL)] = ""
    restarts_source: str = ""
    period_source: str = ""
    cgroup_source: str = ""
    unit_source: str = ""
    process_source: str = ""
    supervisor_source: str = ""
    bad_ends_source: str = ""

    def summary(self) -> str:
        return f"{printable(self.subject)} {self.observation.sentence()}"

    def short(self) -> tuple[str, str]:
        if self.restarts is None:
            statement, _, details = self.observation.parts()
            return f"{printable(self.subject)} {statement}", details
        meanwhile = f"{self.restarts_in_window:,} while watched" if self.restarts_in_window else ""
        numbers = (f"{self.restarts:,} restarts", meanwhile, self.enabled)
        return f"{self.subject} crashes again and again", " · ".join(number for number in numbers if number)

    @property
    def focus_offender(self) -> Offender | None:
        return Offender(process=self.process, seen_in=self.process_source) if self.process is not None else None

    @property
    def unit(self) -> str:
        return self.unit_name or unit_of(self.subject)

    @property
    def cgroup_paths(self) -> tuple[str, ...]:
        return (self.cgroup,) if self.cgroup else ()

    @property
    def source(self) -> str:
        return _SOURCES[self.ways[0]] if self.ways else ""

    @property
    def leaks(self) -> bool:
        """Whether removed cgroups stayed as zombies."""
        return bool(self.unreleased)

    @property
    def name(self) -> str:
        """Its unit, else the subject."""
        return self.unit_name or self.subject


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    """The worst of them: nobody reads on."""
    examined = every(recording, thresholds)
    return replace(examined, findings=examined.findings[:MOST_TOLD])


@once
def every(recording: Recording, thresholds: Thresholds) -> Examined:
    """All loops, the worst first: those that end badly, of these those that leak, then by how often they begin anew."""
    by_subject: dict[tuple[str, Process | None], list[Loop]] = {}
    for by in _ALL:
        for loop in by(recording, thresholds):
            # Without a unit, who starts them tells one loop of a place from another.
            by_subject.setdefault((loop.subject, None if loop.unit else loop.supervisor), []).append(loop)
    findings = [_finding(loops) for loops in by_subject.values()]
    if findings:
        findings.sort(
            key=lambda one: (
                one.severity != "warning",
                not one.facts.leaks,
                -max(one.facts.restarts or 0, one.facts.restarts_in_window),
                one.subject,
                one.summary,
            )
        )
        return Examined(CrashLoop.kind, tuple(findings))
    seen = recording.on("cgroup-events")
    if not recording.on("units"):
        if not seen:
            return Examined(CrashLoop.kind, unseen=recording.why_off("units"))
        return Examined(CrashLoop.kind, ruled_out="no cgroup comes and goes in a rhythm")
    number = len(set(recording["units"].texts("unit")))
    also = ", no cgroup comes and goes in a rhythm" if seen else ""
    return Examined(CrashLoop.kind, ruled_out=f"none of {number} units restarts{also}")


def _finding(loops: list[Loop]) -> Finding[CrashLoop]:
    loops = sorted(
        loops,
        key=lambda loop: (
            WAYS.index(loop.by),
            -loop.restarts,
            loop.cgroup,
            str(loop.process or ""),
            loop.observation.sentence(),
        ),
    )
    first = loops[0]
    seen = [loop for loop in loops if loop.crashes] or loops
    severity: Severity = "warning" if seen[0].crashes else "info"
    counted = _first(loops, lambda loop: loop.total >= 0)
    periodic = _first(loops, lambda loop: loop.period_ns > 0)
    placed = _first(loops, lambda loop: bool(loop.cgroup))
    owned = _first(loops, lambda loop: bool(loop.unit))
    named = _first(loops, lambda loop: loop.process is not None)
    supervised = _first(loops, lambda loop: loop.supervisor is not None)
    removing = _first(loops, lambda loop: loop.removed > 0)
    stated = _first(loops, lambda loop: loop.state is not None)
    rhythmic = _first(loops, lambda loop: loop.pauses is not None)
    timed = _first(loops, lambda loop: loop.life_ns >= 0)
    ended = _first(loops, lambda loop: loop.bad_ends is not None)
    facts = CrashLoop(
        subject=first.subject,
        ways=tuple(dict.fromkeys(loop.by for loop in loops)),
        observation=seen[0].observation,
        restarts=counted.total if counted else None,
        restarts_source=_source(counted),
        restarts_in_window=first.restarts,
        period_s=periodic.period_ns / 1e9 if periodic else None,
        period_source=_source(periodic),
        cgroup=placed.cgroup if placed else "",
        cgroup_source=_source(placed),
        unit_name=owned.unit if owned else "",
        unit_source=_source(owned),
        process=named.process if named else None,
        process_source=_source(named),
        supervisor=supervised.supervisor if supervised else None,
        supervisor_source=_source(supervised),
        removed=removing.removed if removing else 0,
        unreleased=removing.unreleased if removing else None,
        state=stated.state if stated else None,
        result=stated.result if stated else "",
        enabled=stated.enabled if stated else "",
        pauses=rhythmic.pauses if rhythmic else None,
        life_s=timed.life_ns / 1e9 if timed else None,
        bad_ends=ended.bad_ends if ended else None,
        bad_ends_source=ended.bad_ends_source if ended else "",
        ended_with=next((loop.ended_with for loop in loops if loop.ended_with), ""),
    )
    # The times are of the sources that saw it loop: NRestarts stays as high after the loop as in it.
    return Finding(facts, severity, min(loop.start for loop in seen), max(loop.end for loop in seen))


def _first(loops: list[Loop], knows: Callable[[Loop], bool]) -> Loop | None:
    return next((loop for loop in loops if knows(loop)), None)


def _source(loop: Loop | None) -> str:
    return _SOURCES[loop.by] if loop is not None else ""


def _is_the_leak(loop: Finding[CrashLoop], leak: Finding[MemcgLeak]) -> Judged:
    facts = leak.facts
    if loop.subject and loop.subject in (facts.owner.unit, facts.maker_unit):
        return 0.9, "the unit that owns the leaked cgroups is the one that restarts"
    place = loop.facts.cgroup
    if (place and place in (facts.path, facts.home, facts.subject)) or within(facts.home, place):
        if stayed := loop.facts.unreleased:
            made = loop.facts.restarts_in_window
            return 0.9, f"{stayed:,} of the {made:,} groups that it made and removed there while we looked are zombies"
        return 0.6, "its groups live in the same place"
    if within(place, facts.home):
        return 0.8, "the zombies were below this unit's own cgroup"
    if facts.maker is not None and facts.maker.process in (loop.facts.supervisor, loop.facts.process):
        return 0.85, f"{facts.maker.process} makes the groups that stay behind"
    return None


def _leaks(loop: Finding[CrashLoop], zombies: Finding[ZombieMemcgs]) -> Judged:
    """A unit is only blamed for zombies inside its own cgroup, or for a number that fits: a slice holds those of many units."""
    if within(loop.facts.cgroup, zombies.facts.parent):
        return 0.8, "the zombies were below this unit's own cgroup"
    grew, meanwhile = zombies.facts.growth, loop.facts.restarts_in_window
    if stayed := loop.facts.unreleased:
        return 0.8, f"{stayed:,} of the {meanwhile:,} groups that it made and removed while we looked are zombies"
    if meanwhile >= 2 and 0.5 <= grew / meanwhile <= 2.0:
        return 0.6, f"{meanwhile:,} restarts and {grew:,} new zombies while we looked"
    restarts, count = loop.facts.restarts or 0, zombies.facts.zombies
    if restarts >= 100 and 0.8 <= count / restarts <= 1.25:
        return 0.6, f"{restarts:,} restarts, {count:,} zombies: about one each"
    return None


def _culprits(loop: Finding[CrashLoop], case: Case) -> Iterator[Culprit]:
    """What loops; if it leaks, other places that leak as well."""
    linked = case.linked(MemcgLeak)
    if linked is None:
        yield Culprit(loop.subject, 1.0)
        return
    yield Culprit(loop.subject, linked.facts.share_ratio)
    others = tuple(leak for leak in case.of(MemcgLeak) if leak is not linked)
    yield from culprits(linked, replace(case, findings=others))


def _advice(loop: Finding[CrashLoop], case: Case) -> Iterator[Advice]:
    from exhume.diagnosis.findings.unused_agent import UnusedAgent  # late: it looks for loops

    unit = loop.facts.name
    if fixable(loop.facts, unit) and any(agent.subject == unit for agent in case.of(UnusedAgent, serious=False)):
        yield Advice(f"disable {unit}: exhume fix {unit}", "it never gets to work, and nothing here needs it")


def _steps(loop: Finding[CrashLoop], case: Case) -> Iterator[Step]:
    facts = loop.facts
    unit = next((name for name in (facts.unit_name, facts.subject) if fixable(facts, name)), "")
    if unit:
        yield Step(f"journalctl -u {unit} -n 50 says why it exits")
        yield Step(f"exhume fix {unit} says how it is disabled, if nothing needs it", fix=unit)
    elif starter := facts.supervisor or facts.process:
        yield Step(f"find out why what {starter} starts there does not stay")
    else:
        yield Step(f"find out what starts {facts.subject} again and again")


def _remedies(loop: Finding[CrashLoop], case: Case) -> Iterator[Remedy]:
    """Stop what loops; where it leaks, also what was leaked."""
    leaked = next(
        (link.finding for link in case.chain if is_of(link.finding, MemcgLeak) or is_of(link.finding, ZombieMemcgs)), None
    )
    found = [*fix_unit(loop.facts, loop.facts.name, leaks=leaked is not None)]
    yield from found
    if leaked is not None:
        known = {(one.id, one.target) for one in found}
        yield from (one for one in remedies(leaked, case) if (one.id, one.target) not in known)


KIND = Kind(
    facts=CrashLoop,
    detect=detect,
    role="condition",
    title=lambda finding: f"zombie memory cgroups of the crash-looping {finding.subject}",
    rules=(
        Rule(CrashLoop, MemcgLeak, _is_the_leak, _DISPROOF),
        Rule(CrashLoop, ZombieMemcgs, _leaks, _DISPROOF),
    ),
    culprits=_culprits,
    steps=_steps,
    advice=_advice,
    remedies=_remedies,
)
