"""oom: the kernel kills for memory: the search for a victim and the unmapping of what it had are work of their own."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import TOGETHER_NS, Case, Hypothesis, Judged, Rule, filled_by, held_by, in_the_trace
from exhume.verdict.report import Culprit

SOON_NS = 10 * 10**9
SEARCHED, UNMAPPED = "looked for a process to kill", "gave back memory"


def _soon(oom: Finding, other: Finding) -> bool:
    """Whether it was while the kernel killed, or soon after."""
    return oom.start - SOON_NS <= other.end and other.start <= oom.end + SOON_NS


def _victims(oom: Finding, other: Finding) -> bool:
    """Whether it is the one that was killed who gives its memory back: others end, too."""
    comm = str(other.value("process") or "").rsplit(" [", 1)[0]
    cgroup = other.value("its cgroup")
    return bool(comm and comm == oom.value("process")) or bool(
        cgroup and cgroup in (oom.value("its cgroup"), oom.value("limit of"))
    )


def _saturates(oom: Finding, core: Finding) -> Judged:
    if not _soon(oom, core):
        return None
    if (searched := filled_by(core, SEARCHED, "a process to kill is looked for", 0.9)) is not None:
        return searched
    return (
        filled_by(core, UNMAPPED, "memory of the process that was killed is given back", 0.85) if _victims(oom, core) else None
    )


def _starves(oom: Finding, napi: Finding) -> Judged:
    if not _soon(oom, napi):
        return None
    if (searched := held_by(napi, SEARCHED, "a process to kill was looked for", 0.9)) is not None:
        return searched
    return (
        held_by(napi, UNMAPPED, "memory of the process that was killed was given back", 0.85) if _victims(oom, napi) else None
    )


def _locks_up(oom: Finding, lockup: Finding) -> Judged:
    traced = in_the_trace(lockup, SEARCHED, "a process to kill is looked for") or in_the_trace(
        lockup, UNMAPPED, "memory of a process is given back"
    )
    if traced is not None:
        return traced
    apart = max(0, oom.start - lockup.end, lockup.start - oom.end)
    return (0.4, "at the same time") if apart <= TOGETHER_NS else None


def _culprits(oom: Finding, case: Case) -> Iterator[Culprit]:
    where = oom.value("limit of") or oom.value("its cgroup") or oom.subject
    if where:
        yield Culprit(str(where), 1.0)


HYPOTHESIS = Hypothesis(
    "oom",
    title=lambda finding: "searches for a process to kill, and the unmapping of what it had,",
    rules=(
        Rule("core-saturated", _saturates, "a core that is full while nothing is killed"),
        Rule("napi-starved", _starves, "late polls while nothing is killed"),
        Rule("soft-lockup", _locks_up, "a lockup while nothing is killed"),
    ),
    culprits=_culprits,
    step="dmesg -T | grep -i -A30 oom-kill shows who had the memory; raise the limit of {subject}, or find its leak",
)
