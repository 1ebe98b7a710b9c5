"""cpu-full: there is more work than this machine has cores for."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import MOSTLY, Case, Hypothesis, Judged, Rule
from exhume.verdict.report import Advice, Culprit


def _starves(full: Finding, napi: Finding) -> Judged:
    """A thread that polls has to wait for its turn like any other; a softirq does not."""
    if napi.value("policy"):
        return None  # a real-time program lets nobody in, however many cores there are
    turns = napi.number("in turns") or napi.number("ran its own code")
    if turns >= MOSTLY:
        return 0.7, f"programs had the core in {turns:.0%} of the time in which the poll was late, and all cores are full"
    return None


def _culprits(full: Finding, case: Case) -> Iterator[Culprit]:
    """Those who use most of it. Nobody of them does anything wrong, but it is their work."""
    whole = full.number("CPU time of all")
    for place in ("busiest", "second", "third"):
        name = full.value(place)
        if name:
            yield Culprit(str(name), full.number(f"CPU time of the {place}") / max(1.0, whole))


def _advice(full: Finding, case: Case) -> Iterator[Advice]:
    user, kernel = full.number("user"), full.number("kernel")
    if kernel < user:
        yield Advice("move work away, or give it fewer threads", "the cores are busy with programs' own work", cost="capacity")
    else:
        yield Advice(
            "more cores",
            f"{kernel:.0%} of their time is work in the kernel: see what it does (exhume flame) before adding to it",
            cost="capacity",
            against=True,
        )


HYPOTHESIS = Hypothesis(
    "cpu-full",
    title=lambda finding: "more programs than there are cores",
    rules=(Rule("napi-starved", _starves, "late polls while there are idle cores"),),
    culprits=_culprits,
    step="move work away, or give it fewer threads: the busiest are named above",
    advice=_advice,
)
