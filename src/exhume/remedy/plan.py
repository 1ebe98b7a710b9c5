"""The plan: from a target, or from what a report found, to ordered steps and to what is left to people.

A remedy never decides that something is wrong. It goes by the findings that it is given, or by what a person names.
"""

import shlex
from dataclasses import dataclass, field

from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.defunct_processes import DefunctProcesses
from exhume.diagnosis.findings.kind import Case, Remedy
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.memcg_walk import MemcgWalk
from exhume.diagnosis.findings.model import Facts, Finding, is_of, of
from exhume.diagnosis.findings.registry import BY_NAME
from exhume.diagnosis.findings.unused_agent import UnusedAgent
from exhume.diagnosis.report import Report
from exhume.errors import ExhumeError, Refused, Unreadable, UsageError
from exhume.host.systemd import names
from exhume.host.systemd.units import Units
from exhume.host.tree import Tree
from exhume.remedy import defunct, plan_zombies
from exhume.remedy.manager import Manager
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Plan, Relief, Step
from exhume.remedy.plan_target import NODE, is_finding
from exhume.remedy.plan_target import unit as unit_of
from exhume.remedy.plan_unit import Keep, UnitPlanner
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import kind_of
from exhume.remedy.steps.cgroups import remove_empty_cgroups
from exhume.remedy.templates import relief_of
from exhume.remedy.whose import elsewhere, not_a_unit, units
from exhume.text import from_path, printable

OF_UNITS = (MemcgLeak, CrashLoop, UnusedAgent)
Findings = tuple[Finding[Facts], ...]

MOST_PLACES = 50
"""In so many places leaked directories are looked at: each may have tens of thousands."""
MOST_TOLD = 100
"""So much is told of what is left to people, and of what needs nothing: a report may have thousands of findings."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How it is to be done, as far as somebody said."""

    keep: Keep | None = None
    force: bool = False
    reboot: plan_zombies.Reboot = "no"
    zombies_matter: int = 1000
    """From so many on a reboot is worth speaking of (thresholds.zombies_floor)."""


@dataclass(slots=True)
class _Draft:
    """A plan while it is being made."""

    steps: list[Step] = field(default_factory=list)
    relief: list[Relief] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)

    def plan(self, target: str, why: str) -> Plan:
        settled = tuple(dict.fromkeys(self.settled))
        if len(settled) > MOST_TOLD:
            settled = (*settled[:MOST_TOLD], f"and {len(settled) - MOST_TOLD:,} more")
        return Plan(target, why, _once(self.steps), relief=_at_most(tuple(dict.fromkeys(self.relief))), settled=settled)


class Planner:
    """Makes plans for one node while its tree is open; changes nothing."""

    def __init__(self, node: Node, tree: Tree, protection: Protection, wishes: Wishes | None = None) -> None:
        self._node = node
        self._tree = tree
        self._protection = protection
        self._wishes = wishes or Wishes()
        self._planner = UnitPlanner(tree, protection, node.manager, self._wishes.force)

    @property
    def _units(self) -> Units:
        return self._protection.units

    def plan(self, target: str, report: Report | None = None) -> Plan:
        """Refused names what stands in the way; UsageError what is not there."""
        if target == NODE:
            if report is None:
                raise UsageError("a plan for the node needs a report")
            behind = _behind(report)
            verdict = report.verdict
            offered = verdict.remedies if verdict.cause is not None else _remedies(report, behind)
            return self._of_findings(NODE, verdict.summary, behind, offered, besides=_besides(report, behind))
        if report is not None and is_finding(target) and (found := report.find(target)):
            return self._of_findings(target, found[0].summary, found, _remedies(report, found), named=True)
        if report is not None and target in BY_NAME:
            seen = report.health in ("healthy", "warning", "critical")
            return Plan(target, report.verdict.summary, (), settled=(f"the report has no {target}",) if seen else ())
        if is_finding(target) and not self._units.path(f"{target}.service"):
            told = ", ".join(dict.fromkeys(one.kind for one in report.findings)) if report is not None else ""
            raise UsageError(
                f"there is no finding {printable(target)} in the report"
                + (f"; it has {told}" if told else "")
                + ("" if target[1:].isdigit() else f"; nor is there a unit {printable(target)}.service")
                if report is not None
                else f"{printable(target)} is no unit of this node; of a finding the report must be named: --from"
            )
        return self._of_unit(unit_of(target, self._tree, self._units, self._node.manager), report)

    def _of_unit(self, name: str, report: Report | None) -> Plan:
        about = [one for one in (report.findings if report is not None else ()) if one.facts.unit == name]
        why = about[0].summary if about else "asked for by name"
        theirs = [_theirs(one, self._node.manager) for one in about]
        if theirs and all(theirs):
            raise Refused(f"{theirs[0]}; without the report the node's own {printable(name)} is meant")
        draft = _Draft()
        self._act(name, why, draft)
        self._afterwards(_homes(about), draft)
        return draft.plan(name, why)

    def _act(self, name: str, why: str, draft: "_Draft") -> None:
        keep = self._wishes.keep
        try:
            made = self._planner.keep(name, keep, why) if keep is not None else self._planner.silence(name, why)
        except Refused as refused:
            told = "".join(f". What helps: {one.text}" for one in relief_of(self._units.canonical(name)))
            raise Refused(f"{refused}{told}") from None
        draft.steps += made.steps
        draft.relief += made.relief
        if made.settled:
            draft.settled.append(made.settled)
        else:
            draft.relief += self._for_good(name)

    def _of_findings(
        self,
        target: str,
        why: str,
        findings: Findings,
        offered: tuple[Remedy, ...],
        named: bool = False,
        besides: tuple[Relief, ...] = (),
    ) -> Plan:
        """Steps for the remedies that are offered; a unit without one is left to people, with the reason."""
        fixes = {remedy.target for remedy in offered if remedy.id == "fix"}
        draft = _Draft()
        done: set[str] = set()
        for one in findings:
            name = one.facts.unit or one.subject
            if isinstance(one.facts, OF_UNITS) and name not in done:
                done.add(name)
                self._try_unit(one, fixes, named and len(findings) == 1, draft)
        leaks = {(one.facts.directory, one.subject): one for one in reversed(of(findings, CgroupDirsLeak))}
        places = tuple(reversed(leaks.values())) if CgroupDirsLeak.kind in fixes else ()
        for leak in places[:MOST_PLACES]:
            self._directories(leak, draft)
        for leak in places[MOST_PLACES:]:
            text = f"after {MOST_PLACES} places no more are looked at; when those are clean, make a new plan"
            draft.relief.append(Relief(leak.subject, leak.summary, text))
        if DefunctProcesses.kind in fixes and (found := of(findings, DefunctProcesses)):
            self._defunct(found[0], draft)  # it is of the whole node
        walkers = [one.facts.focus_offender for one in findings if isinstance(one.facts, MemcgWalk | CoreSaturated)]
        for unit in dict.fromkeys(walker.unit for walker in walkers if walker is not None):
            draft.relief += relief_of(unit) if unit and self._protection.named(unit) else ()
        if any(remedy.id == "purge-zombies" for remedy in offered):
            self._afterwards(_homes(findings), draft)
        draft.relief += besides
        return draft.plan(target, why)

    def _try_unit(self, one: Finding[Facts], fixes: set[str], strictly: bool, draft: "_Draft") -> None:
        """What cannot be is said beside what can; only where it is all that was asked for it is refused."""
        try:
            unit = one.facts.unit
            if why_not := _theirs(one, self._node.manager) or not_a_unit(one.subject, unit):
                raise Refused(why_not)
            if unit not in fixes:
                raise Refused(_not_offered(unit))
            self._act(unit_of(unit, self._tree, self._units, self._node.manager), one.summary, draft)
        except (Refused, UsageError) as why:
            if strictly:
                raise
            draft.relief.append(Relief(one.facts.unit or one.subject, one.summary, str(why)))

    def _directories(self, one: Finding[CgroupDirsLeak], draft: "_Draft") -> None:
        directory, path = one.facts.directory, one.subject
        mount = directory.removesuffix(path) if path != "/" else directory.rstrip("/")
        if not path.startswith("/") or not directory.endswith(path if path != "/" else "") or not mount.startswith("/"):
            draft.relief.append(Relief(one.subject, one.summary, "the report does not say in which hierarchy they are"))
            return
        step = remove_empty_cgroups(mount, (path,), f"{one.summary}; only those without a process and an owner go")
        try:
            gone = kind_of(step).done(step, self._node)
        except ExhumeError as why:  # a report may name any directory
            draft.relief.append(Relief(one.subject, one.summary, str(why)))
            return
        if gone:
            draft.settled.append(f"no directory is left below {printable(from_path(directory))}")
        else:
            draft.steps.append(step)

    def _defunct(self, one: Finding[DefunctProcesses], draft: "_Draft") -> None:
        try:
            planner = self._planner if self._node.manager is not None else None
            made, more = defunct.offers(self._node.root, self._protection, planner)
        except Unreadable as why:
            made, more = [], [Relief(one.subject, one.summary, f"which processes there are now is not seen: {why}")]
        draft.steps += made
        draft.relief += more
        draft.settled += [] if made or more else ["no defunct process is left"]

    def _afterwards(self, homes: tuple[str, ...], draft: "_Draft") -> None:
        if self._node.manager is None and not self._node.root.same_kernel():
            return  # an image: nothing runs, and it has no zombies
        looked = plan_zombies.look(self._node, homes)
        made = plan_zombies.afterwards(looked, self._wishes.reboot, self._wishes.zombies_matter)
        draft.steps += made.steps
        draft.relief += made.relief
        draft.settled += made.settled

    def _for_good(self, name: str) -> tuple[Relief, ...]:
        """A node that is fixed by hand comes back sick with the next image."""
        root = self._node.root
        where = "" if root.own else f" --host {shlex.quote(root.path)}"
        text = f"exhume fix {shlex.quote(name)}{where} --for-image prints the same change for the image's recipe"
        return (Relief(name, "a new node of the same image, or the next build of it, has it again", text),)


def _at_most(relief: tuple[Relief, ...]) -> tuple[Relief, ...]:
    if len(relief) <= MOST_TOLD:
        return relief
    more = Relief(f"{len(relief) - MOST_TOLD:,} more", "they are not told one by one", "name one of them: exhume fix UNIT")
    return (*relief[:MOST_TOLD], more)


def _theirs(one: Finding[Facts], manager: Manager | None) -> str:
    """Whose the unit is that a finding names, where one of its cgroups says that it is not the node's own."""
    facts = one.facts
    named = [
        path
        for path in (one.subject, *facts.cgroup_paths)
        if "/" in path and (facts.unit in units(path) or (path == one.subject and not facts.unit))
    ]
    # The program that makes the groups has to be stopped, unless it makes them for others.
    maker = facts.maker if isinstance(facts, MemcgLeak | CgroupDirsLeak) else None
    if not facts.unit and maker is not None and not maker.hand:
        named.append(maker.cgroup)
    return next((why for path in named if (why := elsewhere(path, manager))), "")


def _behind(report: Report) -> Findings:
    """What the verdict blames, or, where it names no cause, every serious finding that something can be done about."""
    verdict = report.verdict
    if verdict.cause is None:
        return tuple(one for one in report.findings if one.serious)
    culprits = {one.subject for one in verdict.culprits}
    chain = {id(link.finding) for link in verdict.chain}
    if verdict.cause == DefunctProcesses.kind:  # its culprit is restarted: what it is needs no stopping
        culprits = set()
    blamed = [one for one in report.findings if one.facts.unit in culprits or one.subject in culprits]
    ordered = [one for one in report.findings if id(one) in chain]
    return tuple({id(one): one for one in (*ordered, *blamed)}.values())


def _remedies(report: Report, findings: Findings) -> tuple[Remedy, ...]:
    """What the findings offer, whether the verdict blames them or not."""
    offered: dict[Remedy, None] = {}
    for finding in findings:
        # Without the others: there may be thousands, and some remedies are for all findings of a kind.
        case = Case(report.node, (finding,), report.verdict.chain)
        offered |= dict.fromkeys(BY_NAME[finding.kind].remedies(finding, case))
    return tuple(offered)


def _not_offered(unit: str) -> str:
    """Why a unit is left alone: others than these are not acted on, or the verdict blames something else."""
    if names.kind(unit) in names.ACTED_ON:
        return f"the report has no remedy for {printable(unit)}: exhume fix {shlex.quote(unit)} plans by its name"
    words = f"{', '.join(names.ACTED_ON[:-1])} or {names.ACTED_ON[-1]}"
    return f"{printable(unit)} is no {words} of this node's systemd: it is not touched"


def _besides(report: Report, behind: Findings) -> tuple[Relief, ...]:
    """Units that are in trouble and that the verdict does not blame: a plan for the node leaves them alone, and says so."""
    done = {one.facts.unit for one in behind}
    serious = [one for one in report.findings if one.serious and isinstance(one.facts, OF_UNITS)]
    found = {one.facts.unit: one for one in serious if one.facts.unit not in done}
    text = "the verdict does not blame it, so that this plan leaves it alone: exhume fix {}"
    return tuple(Relief(name, one.summary, text.format(shlex.quote(name))) for name, one in found.items() if name)


def _homes(findings: "Findings | list[Finding[Facts]]") -> tuple[str, ...]:
    """Where the zombies are, by the report; nothing where one of them is at the top, which is everywhere."""
    homes = tuple(dict.fromkeys(one.facts.home for one in findings if is_of(one, MemcgLeak)))
    return homes if all(home.startswith("/") for home in homes) and "/" not in homes else ()


def _once(steps: list[Step]) -> tuple[Step, ...]:
    """The manager reads its files once for all, after the last of them; not where a start counts on it before."""
    if any(step.kind == "start-unit" for step in steps):
        return tuple(steps)
    last = max((place for place, step in enumerate(steps) if step.kind == "reload"), default=-1)
    kept = [step for place, step in enumerate(steps) if step.kind != "reload" or place == last]
    return tuple(dict.fromkeys(kept))
