"""oom: the kernel kills for memory: the search for a victim and the unmapping of what it had are work of their own."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import TOGETHER_NS, Case, Hypothesis, Judged, Rule, filled_by, held_by, in_the_trace
from exhume.verdict.report import Culprit

SEARCHED, UNMAPPED = "looked for a process to kill", "gave back memory"


def _saturates(oom: Finding, core: Finding) -> Judged:
    return filled_by(core, SEARCHED, "a process to kill is looked for", 0.9) or filled_by(
        core, UNMAPPED, "memory of a process is given back", 0.85
    )


def _starves(oom: Finding, napi: Finding) -> Judged:
    return held_by(napi, SEARCHED, "a process to kill was looked for", 0.9) or held_by(
        napi, UNMAPPED, "memory of a process was given back", 0.85
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
    where = oom.value("cgroup") or oom.subject
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
