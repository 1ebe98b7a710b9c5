"""core-saturated: a core that does nothing but kernel work. What needs that core waits."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.findings.spans import overlap_ns, total_ns
from exhume.verdict.hypotheses.model import (
    MOSTLY,
    NEARLY,
    SECOND_NS,
    TOGETHER_NS,
    Case,
    Hypothesis,
    Judged,
    Rule,
    looked,
    program,
)
from exhume.verdict.report import Culprit

# Threads of the kernel, whose work is everybody's: whoever gave it that work is to be named, not they. Programs may call
# themselves so: the kernel's own are in the root cgroup.
HANDS = ("ksoftirqd/", "kworker/", "kswapd", "napi/", "migration/", "rcu", "kcompactd", "khugepaged")


def _starves(core: Finding, napi: Finding) -> Judged:
    """A queue is polled on the core that takes its interrupts. Once ksoftirqd owns the work there, or while softirqs are
    off, a long stay in the kernel keeps the poll waiting; another core's does not. Joined by core and by overlap in time."""
    number = core.value("core")
    late = [span for span in napi.spans if span.core == number]
    if not late and any(span.core >= 0 for span in napi.spans):
        return None
    together = overlap_ns(late, core.spans)
    whole = total_ns(late)
    if together:
        share = together / whole
        when = f"{together / 1e6:,.0f} of the {whole / 1e6:,.0f} ms in which the poll was late on core {number}"
        if napi.value("stalls") is None:
            sure = 0.97 if share >= NEARLY else 0.9
            return sure, f"at the same time, and the queue is served by core {number}"
        if share >= MOSTLY:
            return (0.99 if share >= NEARLY else 0.95), f"the core was full of kernel time for {when}"
        return 0.6, f"the core was full of kernel time for only {when}"
    if not late and (alike := _alike(core, napi)):
        return 0.75, f"which core serves the queue is not known, but this one was full {alike}"
    apart = max(0, core.start - napi.end, napi.start - core.end)
    if late and napi.value("stalls") is not None:
        # Both were measured, and were not at the same time.
        return (0.3, f"on core {number}, too, but not at the same time") if apart <= TOGETHER_NS else None
    if apart <= TOGETHER_NS:
        if not late:
            return 0.4, "at the same time; which core serves the queue is not known"
        return 0.9, f"at the same time, and the queue is served by core {number}"
    if not late:
        return None
    return 0.4, f"core {number} serves the queue and is full again now; the complaint is {apart / 60e9:,.0f} min old"


def _alike(core: Finding, napi: Finding) -> str:
    """Whether the core was full for just as long as the poll was late: begin and end of both are within a tenth of it."""
    for late in napi.spans:
        length = late.end - late.start
        for full in core.spans:
            near = max(abs(full.start - late.start), abs(full.end - late.end)) <= length / 10
            if length >= SECOND_NS and near:
                return f"for the same {(full.end - full.start) / 1e6:,.0f} ms"
    return ""


def _locks_up(core: Finding, lockup: Finding) -> Judged:
    if lockup.value("core") != core.value("core"):
        return None
    apart = max(0, core.start - lockup.end, lockup.start - core.end)
    return (0.9, f"the same core, at the same time: {lockup.subject}") if apart <= TOGETHER_NS else None


def offender(finding: Finding) -> str:
    """Who held the core, where that is no hand of others'; of one that is busy with packets, who sends them."""
    if sender := finding.value("packets sent by"):
        return str(finding.value("sender's cgroup") or sender)
    process = str(finding.value("process") or "")
    # Who waits, spins on a lock or for other cores to answer is a victim by construction; who did it is elsewhere.
    waits = finding.number("spun on a lock") + finding.number("waited for other cores")
    if not process or finding.number("network itself") >= MOSTLY or waits >= MOSTLY or finding.value("waits"):
        return ""
    return "" if of_the_kernel(finding) else program(finding)


def of_the_kernel(finding: Finding) -> bool:
    """Whether its process is one of the kernel's own threads."""
    own = finding.value("its cgroup") in (None, "", "/")
    return bool(finding.value("kernel thread")) or (own and str(finding.value("process") or "").startswith(HANDS))


def _culprits(core: Finding, case: Case) -> Iterator[Culprit]:
    if (who := offender(core)) and core.value("packets sent by"):
        yield Culprit(who, core.number("its sends"))
    elif who:
        yield Culprit(who, min(1.0, core.number("its system time") / max(1.0, core.number("longest"))))


def _step(core: Finding, case: Case) -> str:
    if sender := core.value("packets sent by"):
        where = core.value("sender's cgroup")
        return f"stop or slow down {sender}{f' of {where}' if where else ''}; or let other cores receive: queues/rx-N/rps_cpus"
    if core.number("network itself") >= MOSTLY:
        return "find who sends that much; let other cores receive: /proc/irq/N/smp_affinity, ethtool -L, queues/rx-N/rps_cpus"
    if looked(core):
        return ""
    return f"exhume diagnose takes stack samples for ten seconds, and shows what the kernel does on core {core.value('core')}"


HYPOTHESIS = Hypothesis(
    "core-saturated",
    title=lambda finding: f"long stays of {offender(finding) or 'somebody'} in the kernel",
    harm="hold a core in the kernel",
    rules=(
        Rule("soft-lockup", _locks_up, "a lockup on another core"),
        Rule("napi-starved", _starves, "late polls while that core is not full"),
    ),
    culprits=_culprits,
    step=_step,
)
