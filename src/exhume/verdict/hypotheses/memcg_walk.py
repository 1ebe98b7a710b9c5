"""memcg-walk: the kernel goes from memory cgroup to memory cgroup for somebody. That is work, not a fault of who asked."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.findings.spans import overlap_ns, total_ns
from exhume.verdict.hypotheses.core_saturated import of_the_kernel
from exhume.verdict.hypotheses.model import (
    HARDLY,
    MOSTLY,
    NEARLY,
    Case,
    Hypothesis,
    Judged,
    Rule,
    held_by,
    in_the_trace,
    looked,
    program,
)
from exhume.verdict.report import Culprit


def _saturates(walk: Finding, core: Finding) -> Judged:
    number = core.value("core")
    there = [span for span in walk.spans if span.core == number]
    share = overlap_ns(there, core.spans) / max(1, total_ns(core.spans))
    seen = core.number("walked memory cgroups") + core.number("summed up statistics") if looked(core) else 0.0
    if walk.spans and not there:
        seen = 0.0  # it is somebody else who walked there
    if max(share, seen) < HARDLY:
        return None
    who = walk.value("process") or walk.subject
    through = f" through {walk.value('through')}" if walk.value("through") else ""
    if max(share, seen) >= MOSTLY:
        return (
            0.99 if max(share, seen) >= NEARLY else 0.95
        ), f"{who} walked them there{through} in {max(share, seen):.0%} of that time"
    return 0.4, f"{who} walked them there{through} in only {max(share, seen):.0%} of that time"


def _starves(walk: Finding, napi: Finding) -> Judged:
    cores = {span.core for span in napi.spans}
    there = [span for span in walk.spans if span.core in cores]
    share = overlap_ns(there, napi.spans) / max(1, total_ns(napi.spans))
    who = walk.value("process") or walk.subject
    if share >= MOSTLY and napi.number("steal") < MOSTLY:
        return (
            0.97 if share >= NEARLY else 0.93
        ), f"{who} walked memory cgroups on that core in {share:.0%} of the time in which the poll was late"
    return held_by(napi, "walked memory cgroups", f"{who} walked memory cgroups")


def _locks_up(walk: Finding, lockup: Finding) -> Judged:
    return in_the_trace(lockup, "walked memory cgroups", "memory cgroups are walked")


def _culprits(walk: Finding, case: Case) -> Iterator[Culprit]:
    """All who ask, but only where it is known that the dead are few: else it is those who left them."""
    few = "zombie-memcgs" in case.ruled_out or (case.of("zombie-memcgs", serious=False) and not case.of("zombie-memcgs"))
    if not few or case.of("cgroup-dirs-leak"):
        return
    walks = sorted(case.of("memcg-walk"), key=lambda each: -each.number("walked")) or [walk]
    whole = sum(each.number("walked") for each in walks)
    for each in walks:
        if not of_the_kernel(each) and (who := program(each)):  # also those who wait for the others: all of them ask
            yield Culprit(who, each.number("walked") / max(1.0, whole))


def _step(walk: Finding, case: Case) -> str:
    return "" if case.of("zombie-memcgs") else "exhume zombies says how many groups there are to walk, and whose"


def _title(walk: Finding) -> str:
    return f"walks of memory cgroups by {walk.value('process') or walk.subject}"


HYPOTHESIS = Hypothesis(
    "memcg-walk",
    title=_title,
    rules=(
        Rule("core-saturated", _saturates, "the core being full while nobody walks"),
        Rule("napi-starved", _starves, "late polls while nobody walks"),
        Rule("soft-lockup", _locks_up, "a lockup without a walk in its trace"),
    ),
    culprits=_culprits,
    step=_step,
)
