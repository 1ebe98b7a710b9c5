"""The verdict on a recording: health, cause, chain, and what was ruled out."""

from dataclasses import replace

from exhume.diagnosis.advice import advice, next_steps, remedies, switch_on
from exhume.diagnosis.chain import ACCUSES, Chain, accuses, chains, confidence, rank, strongest
from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.cpu_throttled import CpuThrottled
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.defunct_processes import DefunctProcesses
from exhume.diagnosis.findings.kind import MOSTLY, Case, Culprit, Link, Remedy
from exhume.diagnosis.findings.model import SEVERITIES, Examined, Facts, Finding
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.registry import BY_NAME, CAUSES, CONDITIONS, PAINS, SYMPTOMS, TENANTS, examine
from exhume.diagnosis.findings.sampled import made_up, unfit
from exhume.diagnosis.findings.soft_lockup import SoftLockup
from exhume.diagnosis.findings.steal import MUCH, Steal
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Health, Report, RuledOut, Source, Verdict, health_of, wall
from exhume.host.quantities import milliseconds
from exhume.record import record
from exhume.recording.recording import Recording

# How sure a finding on its own names what is wrong: it was measured, but nothing was shown to follow from it.
ALONE = 0.8
# Of a core's time, spent on reading what leaked, from which that is harm.
HURTS = 0.2


def judge(recording: Recording, thresholds: Thresholds) -> Report:
    return judge_examined(recording, examine(recording, thresholds))


def judge_examined(recording: Recording, examined: list[Examined]) -> Report:
    """Of a recording that the detectors have looked through."""
    findings = sorted(
        (finding for one in examined for finding in one.findings), key=lambda finding: -SEVERITIES.index(finding.severity)
    )
    start, end = recording.window
    times = {time: wall(recording, time) for finding in findings for time in (finding.start, finding.end)}
    sources = tuple(Source(row.name, row.state, row.cost_ns) for row in recording.sources().values())
    health = health_of(findings, recording.on("cpu"))
    verdict = _verdict(recording, health, findings, examined)
    return Report(
        recording.node, wall(recording, start), wall(recording, end), health, verdict, tuple(findings), times, sources
    )


def _verdict(recording: Recording, health: Health, findings: list[Finding[Facts]], examined: list[Examined]) -> Verdict:
    found = {finding.kind for finding in findings if finding.serious}
    base = Verdict(
        None,
        "",
        0.0,
        _too_little(recording),
        ruled_out=tuple(RuledOut(one.kind, one.ruled_out) for one in examined if one.ruled_out and one.kind not in found),
        unseen=tuple(RuledOut(one.kind, one.unseen) for one in examined if one.unseen),
    )
    if health == "unknown":
        return base
    judged = [finding for finding in findings if finding.kind not in TENANTS]
    if not any(finding.serious for finding in judged):
        case = Case(recording.node, tuple(findings), ())
        return replace(
            base,
            confidence=1.0,
            summary="No sign of starvation",
            advice=advice(case),
            next=_next(case) if case.of(CpuThrottled) else (),
        )
    named = _named(judged)
    case = Case(recording.node, tuple(findings), named.chain, tuple(item.kind for item in base.ruled_out))
    verdict = replace(
        base,
        cause=named.cause.kind if named.cause is not None else None,
        subject=named.subject,
        confidence=named.confidence,
        summary=_summary(named),
        chain=named.chain,
        culprits=_culprits(named, case),
        against=tuple(_against(named, case, judged)),
    )
    offered = remedies(case)
    return replace(
        verdict,
        remedies=offered,
        next=_next(case, offered),
        advice=advice(case),
        switch_on=switch_on(recording, case, named.cause is not None),
    )


def _too_little(recording: Recording) -> str:
    """Why nothing is said of a node of which only a file of another tool is known."""
    if made_up(recording):
        return (
            "Nothing can be said of when and for how long: the times of these stacks are made up; exhume flame shows what is "
            "in them, and what perf record -a writes has times"
        )
    seen = (
        (len(recording["samples"]), "stack sample", "stack samples"),
        (len(recording["events"]), "event of the kernel's log", "events of the kernel's log"),
    )
    told = " and ".join(f"{count:,} {one if count == 1 else many}" for count, one, many in seen if count)
    if not told:
        return "Nothing could be seen of this node"
    why = unfit(recording)
    return f"No sign of starvation in {told}, which is too little to judge the node" + (f": {why}" if why else "")


def _next(case: Case, offered: tuple[Remedy, ...] = ()) -> tuple[str, ...]:
    """The next steps, without those that only point to a fix which is offered anyway."""
    fixes = {remedy.target for remedy in offered if remedy.id == "fix"}
    return tuple(step.text for step in next_steps(case) if step.fix not in fixes)


@record(frozen=True, slots=True)
class _Named:
    """What the verdict rests on."""

    cause: Finding[Facts] | None
    chain: Chain
    confidence: float

    @property
    def subject(self) -> str:
        """Of a cause that is a symptom of nothing known, who did it."""
        first = (self.cause or self.chain[0].finding) if self.chain else None
        if first is None:
            return ""
        return (first.facts.blamed or first.subject) if self.cause is not None and first.kind in SYMPTOMS else first.subject


def _named(judged: list[Finding[Facts]]) -> _Named:
    serious = [finding for finding in judged if finding.serious]
    chain = strongest(judged)
    if chain and chain[-1].finding.kind in SYMPTOMS:
        return _Named(chain[0].finding, chain, confidence(chain)) if accuses(chain) else _seen(chain)
    symptoms = [finding for kind in reversed(SYMPTOMS) for finding in serious if finding.kind == kind]
    if symptoms:
        # Whatever else is there, nothing says that it did this. Of several of a kind, one of which it is known who did it.
        seen = [_seen((Link(finding, "", 1.0),)) for finding in symptoms if finding.kind == symptoms[0].kind]
        return next((named for named in seen if named.cause is not None), seen[0])
    if chain and accuses(chain) and chain[-1].finding.kind in PAINS:
        return _Named(chain[0].finding, chain, confidence(chain))
    pains = [finding for kind in PAINS for finding in serious if finding.kind == kind and _hurts(finding)]
    pains.sort(key=lambda finding: finding.kind != "steal")  # much of it explains why all else is slow
    if pains:
        return _Named(pains[0], (Link(pains[0], "", 1.0),), ALONE)
    if chain and accuses(chain):
        return _Named(chain[0].finding, chain, confidence(chain))
    first = min(serious, key=lambda finding: CAUSES.index(finding.kind) if finding.kind in CAUSES else len(CAUSES))
    alone = (Link(first, "", 1.0),)
    return _Named(first, alone, ALONE) if first.kind in CAUSES else _Named(None, alone, 0.0)


def _hurts(pain: Finding[Facts]) -> bool:
    """Some steal is always there on shared hosts: little of it comes after anything else that is wrong."""
    return not isinstance(pain.facts, Steal) or pain.facts.steal_ratio >= MUCH


def _held(facts: Facts) -> bool:
    """Whether it was seen what held the core: its stack, or that it is a real-time task, which lets no other task in."""
    match facts:
        case CoreSaturated():
            return bool(facts.stack) and bool(facts.blamed or facts.work.of_network)
        case NapiStarved(measured=seen):
            known = seen is not None and bool(seen.stack or seen.policy) and seen.in_turns_ratio < MOSTLY
            return known and bool(facts.blamed or facts.work.of_network)
        case SoftLockup():
            return bool(facts.stack) and bool(facts.blamed or facts.work.of_network)
    return False


def _seen(chain: Chain) -> _Named:
    """A symptom of which no cause is known. What held the core may have been seen all the same: that is one."""
    first = next((link for link in chain if link.finding.kind in SYMPTOMS), chain[0])
    rest = chain[chain.index(first) :]
    sure = confidence((first, *rest[1:]))
    if _held(first.finding.facts) and sure >= ACCUSES:
        return _Named(first.finding, (Link(first.finding, "", 1.0), *rest[1:]), min(ALONE, sure))
    return _Named(None, chain, 0.0)


def _summary(named: _Named) -> str:
    chain, cause = named.chain, named.cause
    last = chain[-1].finding
    if cause is None:
        return _unexplained(chain)
    if last.kind not in SYMPTOMS:
        # Nothing has come to harm yet: it is only about what is there, and where it comes from.
        if isinstance(cause.facts, CrashLoop) and len(chain) > 1:
            return f"{cause.subject} restarts again and again and leaves zombie memory cgroups behind; no harm seen yet"
        leaves = cause.kind in CONDITIONS[:3] or (isinstance(cause.facts, DefunctProcesses) and len(chain) > 1)
        reader = cause.facts.reader if isinstance(cause.facts, CgroupDirsLeak) else None
        return cause.summary + ("; no harm seen yet" if leaves and (reader is None or reader.core_ratio < HURTS) else "")
    if cause is last:
        return cause.summary
    title = BY_NAME[cause.kind].title(cause)
    harm = BY_NAME[last.kind].harm
    does = harm(last.facts) if harm is not None else "harm this node"
    return f"{title} {'' if named.confidence >= 0.8 else 'probably '}{does}"


def _unexplained(chain: Chain) -> str:
    """The worst that was seen; what may have led to it is in the chain, and is not proven."""
    first, last = chain[0].finding, chain[-1].finding
    facts = last.facts
    what = last.summary
    if isinstance(facts, CoreSaturated) and facts.unaccounted_ms is None and not facts.stack:
        what = f"{last.subject} was full of kernel time for {milliseconds(facts.longest_ms)}"
    if len(chain) > 1 and first.kind in CAUSES:
        return f"{what}; why is not proven, what may have led to it is below"
    if len(chain) > 1 and isinstance(first.facts, NapiStarved):
        what = f"{last.subject} was reset because its packets were not fetched for {milliseconds(first.facts.longest_ms)}"
        return f"{what}; who kept its core is not visible"
    # What held the core was seen: why it did so may be unknown, but it is an answer.
    napi = isinstance(facts, NapiStarved) and facts.measured is not None and bool(facts.measured.did)
    return what if napi or (isinstance(facts, CoreSaturated) and facts.stack) else f"{what}; why is not visible"


def _culprits(named: _Named, case: Case) -> tuple[Culprit, ...]:
    """Those of the cause, or of what the cause is a symptom of; none where nothing is known of it."""
    if named.cause is None:
        return ()
    for link in named.chain:
        if found := tuple(BY_NAME[link.finding.kind].culprits(link.finding, case)):
            return found
        if link.finding.kind in CAUSES:
            return ()  # Those further on only suffer from it.
    return ()


def _against(named: _Named, case: Case, judged: list[Finding[Facts]]) -> list[str]:
    """What does not fit the cause, and who else may have done it."""
    if named.cause is None:
        return []
    doubts = list(BY_NAME[named.cause.kind].against(named.cause, case))
    doubts += [f"{link.finding.kind}: {link.because}" for link in named.chain[1:] if link.confidence < 0.75]
    end, told = named.chain[-1].finding, {link.finding.kind for link in named.chain}
    rivals: dict[str, Chain] = {}
    for chain in chains(judged):
        head = chain[0].finding
        if chain[-1].finding is end and len(chain) > 1 and head.kind in CAUSES and head.kind not in told:
            rivals[head.kind] = max(rivals.get(head.kind, ()), chain, key=rank)
    for kind, chain in rivals.items():
        doubts.append(f"{kind} may have had a part in it ({confidence(chain):.0%}): {chain[1].because}")
    return doubts
