"""steal: the hypervisor gives this machine's time to others."""

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import HARDLY, MOSTLY, Hypothesis, Judged, Rule

# Of all cores' time, from which it explains why anything is slow.
MUCH = 0.3


def _starves(steal: Finding, napi: Finding) -> Judged:
    stolen = napi.number("steal")
    if stolen >= MOSTLY:
        return 0.85, f"the hypervisor took {stolen:.0%} of the core's time while the poll was late"
    return (0.4, f"the hypervisor took {stolen:.0%} of the core's time while the poll was late") if stolen else None


def _not_accounted(steal: Finding, core: Finding) -> Judged:
    """A virtual CPU that does not run is not accounted at all on hosts that do not report what they take."""
    if core.value("not accounted") is None or steal.number("steal") < HARDLY:
        return None
    return 0.6, "a core that the hypervisor does not let run is not accounted, and it takes time from this machine"


def _locks_up(steal: Finding, lockup: Finding) -> Judged:
    """A virtual CPU that is not let run neither schedules nor answers the others, which wait for it."""
    apart = max(0, steal.start - lockup.end, lockup.start - steal.end)
    if apart or lockup.value("core") is None:
        return None
    return (0.7 if steal.number("steal") >= MUCH else 0.4), "the hypervisor took that much of all cores' time at that moment"


HYPOTHESIS = Hypothesis(
    "steal",
    title=lambda finding: "other guests of the hypervisor",
    rules=(
        Rule("napi-starved", _starves, "late polls on a core from which nothing is taken"),
        Rule("soft-lockup", _locks_up, "a lockup while nothing is taken"),
        Rule("core-saturated", _not_accounted, "a core that stands still on bare metal"),
    ),
    step="the host is oversold or the instance has used up its credits: move to another one",
)
