"""page-fault-storm: memory is touched that is not there, again and again."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import Case, Hypothesis, Judged, Rule, filled_by, held_by, program
from exhume.verdict.report import Advice, Culprit

SERVED = "served page faults"


def _saturates(storm: Finding, core: Finding) -> Judged:
    return filled_by(core, SERVED, "page faults are served", 0.9)


def _starves(storm: Finding, napi: Finding) -> Judged:
    return held_by(napi, SERVED, "page faults were served there", 0.85)


def _fills(storm: Finding, full: Finding) -> Judged:
    share = storm.number("fault share of busy")
    return (0.8, f"page faults are {share:.0%} of what the cores are busy with") if share >= 0.5 else None


def _culprits(storm: Finding, case: Case) -> Iterator[Culprit]:
    if who := program(storm):
        yield Culprit(who, storm.number("its share") or 1.0)


def _advice(storm: Finding, case: Case) -> Iterator[Advice]:
    if storm.number("major faults") >= 1000:
        return
    yield Advice(
        "fewer, larger pages or an allocator that keeps what it has",
        "minor faults are memory that is mapped and given back again and again; here they are what the cores are busy with",
    )


HYPOTHESIS = Hypothesis(
    "page-fault-storm",
    title=lambda finding: "page faults" + (f" of {program(finding)}" if program(finding) else ""),
    rules=(
        Rule("core-saturated", _saturates, "a core that is full without faults in its stacks"),
        Rule("napi-starved", _starves, "late polls without faults on that core"),
        Rule("cpu-full", _fills, "cores that are as full with the faults gone"),
    ),
    culprits=_culprits,
    step="pidstat -r 1 shows who faults; give it memory, or keep what it maps",
    advice=_advice,
)
