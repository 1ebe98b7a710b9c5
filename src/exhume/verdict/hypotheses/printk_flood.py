"""printk-flood: so many kernel messages that whoever prints them to a slow console has no time for anything else."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import Case, Hypothesis, Judged, Rule, filled_by, held_by, in_the_trace, looked
from exhume.verdict.report import Culprit

PRINTED = "printed to a console"


def _saturates(flood: Finding, core: Finding) -> Judged:
    if looked(core):
        return filled_by(core, PRINTED, "kernel messages are printed")
    return 0.4, "both are there at once; no stack was taken to show that this core prints them"


def _starves(flood: Finding, napi: Finding) -> Judged:
    return held_by(napi, PRINTED, "kernel messages were printed there", 0.9)


def _locks_up(flood: Finding, lockup: Finding) -> Judged:
    return in_the_trace(lockup, PRINTED, "kernel messages are printed")


def _culprits(flood: Finding, case: Case) -> Iterator[Culprit]:
    message = flood.value("message")
    if message:
        yield Culprit(str(message), flood.number("its share") or 1.0)


HYPOTHESIS = Hypothesis(
    "printk-flood",
    title=lambda finding: "floods of kernel messages" + (f" ({finding.value('message')})" if finding.value("message") else ""),
    rules=(
        Rule("core-saturated", _saturates, "a core that is as full with dmesg -n 1"),
        Rule("napi-starved", _starves, "late polls with dmesg -n 1"),
        Rule("soft-lockup", _locks_up, "a lockup with dmesg -n 1"),
    ),
    culprits=_culprits,
    step="dmesg -w shows which message floods; dmesg -n 1 keeps it off a slow console",
)
