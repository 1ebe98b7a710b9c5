"""core-saturated: one core full of kernel time while the others are not, all of them at once, or one without accounted time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from exhume.diagnosis.findings import all_cores, subjects
from exhume.diagnosis.findings.core_facts import CoreSaturated, PacketSender
from exhume.diagnosis.findings.core_missing import unaccounted
from exhume.diagnosis.findings.core_suspect import Suspect, suspect
from exhume.diagnosis.findings.cores import KERNEL, Core, Stretch, busy, cores, others_share, saturated
from exhume.diagnosis.findings.held import Held, Who
from exhume.diagnosis.findings.kernel_work import NETWORK, telling
from exhume.diagnosis.findings.kind import MOSTLY, NEARLY, TOGETHER_NS, Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.model import Examined, Finding, Severity, Span
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.offender import innermost, offender, process_of, work_shares
from exhume.diagnosis.findings.sampled import unfit
from exhume.diagnosis.findings.senders import sender
from exhume.diagnosis.findings.soft_lockup import SoftLockup
from exhume.diagnosis.findings.spans import overlap_ns, total_ns
from exhume.diagnosis.findings.stalls import held_while
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import MILLISECOND, SECOND, duration, milliseconds
from exhume.recording.recording import Recording

_SAMPLES = "stack samples of that core in that time"
_ALL_SAMPLES = "stack samples of all cores in that time"
# Less than this is noise on any virtual machine.
_STOLEN = 0.01


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    everyone = cores(recording)
    why = unfit(recording) if not everyone or everyone[0].sampled else ""
    if why or not everyone:
        return Examined(CoreSaturated.kind, unseen=why or recording.why_off("cpu"))
    machine = busy(everyone)
    tickless = {dict(at).get("cpu") for at in recording.counters("cpu_nohz_full")}
    found = [(core, saturated(core, thresholds.core_saturated_ratio, 0)) for core in everyone]
    told = [stretch for _, stretches in found for stretch in stretches if stretch.ms >= thresholds.core_saturated_ms]
    alone = _alone(everyone, told, thresholds)
    crowd = [stretch for stretch in told if stretch not in alone]
    findings: list[Finding[CoreSaturated]] = all_cores.findings(recording, everyone, crowd, machine, thresholds)
    longest = (0, everyone[0].number)
    for core, stretches in found:
        longest = max([longest, *((stretch.ms, core.number) for stretch in stretches)])
        mine = [stretch for stretch in stretches if stretch.ms >= thresholds.core_saturated_ms]
        if mine:
            alone_here = [stretch for stretch in mine if stretch in alone]
            findings.append(_finding(recording, core, alone_here or mine, bool(alone_here), machine, thresholds))
    ticking = [core for core in everyone if str(core.number) not in tickless]
    missing: dict[int, list[Stretch]] = {}
    for stretch in unaccounted(ticking, everyone, thresholds.core_unaccounted_ms):
        missing.setdefault(stretch.core, []).append(stretch)
    findings += [_missing(core, missing[core.number]) for core in ticking if core.number in missing]
    if findings:
        findings.sort(key=lambda finding: (finding.severity == "info", -finding.facts.longest_ms))
        return Examined(CoreSaturated.kind, tuple(findings))
    if not longest[0]:
        return Examined(CoreSaturated.kind, ruled_out="no core was full of kernel time")
    return Examined(
        CoreSaturated.kind, ruled_out=f"longest at a stretch in the kernel is core {longest[1]} with {milliseconds(longest[0])}"
    )


def _alone(everyone: list[Core], stretches: list[Stretch], thresholds: Thresholds) -> set[Stretch]:
    """Those in which the rest of the machine was not in the kernel as well: if it was, this core is not the story. A rest that
    is busy with its own programs is no excuse: a node that trains is always that."""
    if len(everyone) < 2 or not stretches:
        return set()
    together = others_share(everyone, stretches, *KERNEL) >= thresholds.others_kernel_ratio
    return {stretch for stretch, others in zip(stretches, together.tolist(), strict=True) if not others}


def _finding(
    recording: Recording, core: Core, stretches: list[Stretch], alone: bool, machine: float, thresholds: Thresholds
) -> Finding[CoreSaturated]:
    longest = max(stretches, key=lambda stretch: stretch.ms)
    stolen = core.share("steal", start=longest.start, end=longest.end)
    interrupts = core.share("irq", "softirq", start=longest.start, end=longest.end) / max(0.01, 1 - stolen)
    facts = CoreSaturated(
        subject=subjects.core(core.number),
        read_from=core.source,
        core=core.number,
        longest_ms=longest.ms,
        episodes=len(stretches),
        kernel_ratio=longest.ratio,
        interrupt_ratio=interrupts,
        machine_busy_ratio=machine,
        steal_ratio=stolen if stolen >= _STOLEN else None,
        alone=alone,
    )
    spans = tuple(Span(core.number, stretch.start, stretch.end) for stretch in stretches)
    by_ticks = suspect(recording, longest, facts.in_interrupts)
    seen = held_while(recording, core.number, spans)
    if seen is not None and seen.known:
        facts = _sampled(facts, recording, seen, longest, by_ticks)
    elif by_ticks is not None:
        who = Who(by_ticks.comm, by_ticks.pid, 0, by_ticks.cgroup)
        facts = replace(
            facts,
            offender=offender(recording, who, "/proc/PID/stat: last seen on that core"),
            offender_system_ms=by_ticks.system_ms,
            system_time_from="/proc/PID/stat",
        )
    if seen is not None and seen.share(NETWORK) >= 0.5:
        facts = replace(facts, sender=_sender(recording, spans))
    lasts = alone and _lasts(recording.window, stretches, thresholds)
    severity: Severity = "warning" if lasts and not facts.polls else "info"
    return Finding(facts, severity, stretches[0].start, stretches[-1].end, spans)


def _sender(recording: Recording, spans: Sequence[Span]) -> PacketSender | None:
    sent = sender(recording, spans)
    if sent is None:
        return None
    cgroup = "" if sent.who.cgroup == "/" else sent.who.cgroup
    return PacketSender(process=process_of(sent.who), send_ratio=sent.share, cgroup=cgroup)


def _lasts(window: tuple[int, int], stretches: list[Stretch], thresholds: Thresholds) -> bool:
    """Short bursts are normal; starvation is reported by its own detector."""
    start, end = window
    full = sum(stretch.end - stretch.start for stretch in stretches)
    long = max(stretch.ms for stretch in stretches) >= thresholds.core_saturated_warning_ms
    return long or full >= thresholds.core_saturated_warning_ratio * max(1, end - start)


def _sampled(
    facts: CoreSaturated, recording: Recording, seen: Held, longest: Stretch, by_ticks: Suspect | None
) -> CoreSaturated:
    """Add the offender and its work, by stack samples: they are of that core and that time, the ticks only of about then."""
    facts = replace(
        facts,
        samples_from=_SAMPLES,
        samples=seen.total,
        sampled_ratio=seen.covered,
        work=work_shares(seen.works, seen.total),
    )
    share = seen.samples / max(1, seen.total)
    if share < 0.5:
        return facts
    if seen.who.tid > 0:
        ticks = by_ticks if by_ticks is not None and by_ticks.pid == seen.who.pid else None
        who = seen.who._replace(cgroup=seen.who.cgroup or (ticks.cgroup if ticks is not None else ""))
        facts = replace(
            facts,
            offender=offender(recording, who, _SAMPLES, seen.stack),
            offender_system_ms=ticks.system_ms if ticks is not None else round(share * longest.ms),
            system_time_from="/proc/PID/stat" if ticks is not None else f"{_SAMPLES}, by their share",
        )
    return replace(
        facts,
        holder=process_of(seen.who),
        holder_ratio=share,
        did=seen.work.words,
        did_unclassified=seen.work.key == "kernel",
        function=telling(seen.stack) if seen.stack else "",
        stack=innermost(seen.stack),
    )


def _missing(core: Core, stretches: list[Stretch]) -> Finding[CoreSaturated]:
    facts = CoreSaturated(
        subject=subjects.core(core.number),
        read_from=core.source,
        core=core.number,
        longest_ms=max(stretch.ms for stretch in stretches),
        episodes=len(stretches),
        unaccounted_ms=sum(stretch.ms for stretch in stretches),
        by_samples=core.sampled,
    )
    spans = tuple(Span(core.number, stretch.start, stretch.end) for stretch in stretches)
    severity: Severity = "info" if core.sampled else "warning"
    return Finding(facts, severity, stretches[0].start, stretches[-1].end, spans)


def _starves(core: Finding[CoreSaturated], napi: Finding[NapiStarved]) -> Judged:
    """A queue is polled on the core that takes its interrupts. Once ksoftirqd owns the work there, or while softirqs are
    off, a long stay in the kernel keeps the poll waiting; another core's does not. Joined by core and by overlap in time."""
    number = core.facts.core
    late = [span for span in napi.spans if span.core == number]
    if not late and any(span.core >= 0 for span in napi.spans):
        return None
    together = overlap_ns(late, core.spans)
    whole = total_ns(late)
    if together:
        share = together / whole
        full_ms, late_ms = milliseconds(together / MILLISECOND), milliseconds(whole / MILLISECOND)
        when = f"{full_ms} of the {late_ms} in which the poll was late on core {number}"
        if napi.facts.measured is None:
            sure = 0.97 if share >= NEARLY else 0.9
            return sure, f"at the same time, and the queue is served by core {number}"
        if share >= MOSTLY:
            return (0.99 if share >= NEARLY else 0.95), f"the core was full of kernel time for {when}"
        return 0.6, f"the core was full of kernel time for only {when}"
    if not late and (alike := _alike(core, napi)):
        return 0.75, f"which core serves the queue is not known, but this one was full {alike}"
    apart = max(0, core.start - napi.end, napi.start - core.end)
    if late and napi.facts.measured is not None:
        # Both were measured, and were not at the same time.
        return (0.3, f"on core {number}, too, but not at the same time") if apart <= TOGETHER_NS else None
    if apart <= TOGETHER_NS:
        if not late:
            return 0.4, "at the same time; which core serves the queue is not known"
        return 0.9, f"at the same time, and the queue is served by core {number}"
    if not late:
        return None
    return 0.4, f"core {number} serves the queue and is full again now; the complaint is {duration(apart)} old"


def _alike(core: Finding[CoreSaturated], napi: Finding[NapiStarved]) -> str:
    """Whether the core was full for just as long as the poll was late: begin and end of both are within a tenth of it."""
    for late in napi.spans:
        length = late.end - late.start
        for full in core.spans:
            near = max(abs(full.start - late.start), abs(full.end - late.end)) <= length / 10
            if length >= SECOND and near:
                return f"for the same {milliseconds((full.end - full.start) / MILLISECOND)}"
    return ""


def _locks_up(core: Finding[CoreSaturated], lockup: Finding[SoftLockup]) -> Judged:
    if core.facts.core is None or lockup.facts.core != core.facts.core:
        return None
    apart = max(0, core.start - lockup.end, lockup.start - core.end)
    return (0.9, f"the same core, at the same time: {lockup.subject}") if apart <= TOGETHER_NS else None


def _culprits(core: Finding[CoreSaturated], case: Case) -> Iterator[Culprit]:
    facts = core.facts
    if facts.blamed:
        share = (facts.offender_system_ms or 0) / max(1, facts.longest_ms) if facts.sender is None else facts.sender.send_ratio
        yield Culprit(facts.blamed, min(1.0, share))


def _steps(core: Finding[CoreSaturated], case: Case) -> Iterator[Step]:
    facts = core.facts
    if (sends := facts.sender) is not None:
        where = f" of {sends.cgroup}" if sends.cgroup else ""
        yield Step(f"stop or slow down {sends.process}{where}; or let other cores receive: queues/rx-N/rps_cpus")
    elif facts.work.network_ratio >= MOSTLY:
        yield Step(
            "find who sends that much; let other cores receive: /proc/irq/N/smp_affinity, ethtool -L, queues/rx-N/rps_cpus"
        )
    elif not facts.looked:
        yield Step(f"exhume diagnose takes stack samples for ten seconds, and shows what the kernel does on core {facts.core}")


KIND = Kind(
    facts=CoreSaturated,
    detect=detect,
    role="symptom",
    title=lambda finding: f"long stays of {finding.facts.blamed or 'somebody'} in the kernel",
    harm=lambda facts: "hold a core in the kernel",
    rules=(
        Rule(CoreSaturated, SoftLockup, _locks_up, "a lockup on another core"),
        Rule(CoreSaturated, NapiStarved, _starves, "late polls while that core is not full"),
    ),
    culprits=_culprits,
    steps=_steps,
)
