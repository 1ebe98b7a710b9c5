"""reclaim: memory is short, on the node or in a cgroup, and somebody has to find some."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import MOSTLY, Case, Hypothesis, Judged, Rule, held_by, in_the_trace, looked, seen_there
from exhume.verdict.report import Advice, Culprit

# Direct reclaim as a share of all cores' time from which it is the first thing to be got rid of.
DEAR = 0.15


def _saturates(reclaim: Finding, core: Finding) -> Judged:
    if looked(core):
        reclaimed, walked = core.number("reclaimed memory"), core.number("walked memory cgroups")
        if reclaimed >= MOSTLY:
            sure, seen = seen_there(core, reclaimed)
            return min(0.9, sure), f"memory is reclaimed {seen}"
        if reclaimed + walked >= MOSTLY:
            return 0.5, f"reclaim, {walked:.0%} of it in visits to memory cgroups that had nothing to give"
        return None
    if str(core.value("process") or "").startswith("kswapd"):
        return 0.8, "it is kswapd that keeps this core busy"
    return 0.4, "reclaim is kernel time; no stack was taken to show that it is this core's"


def _starves(reclaim: Finding, napi: Finding) -> Judged:
    return held_by(napi, "reclaimed memory", "memory was reclaimed on that core", 0.9)


def _locks_up(reclaim: Finding, lockup: Finding) -> Judged:
    return in_the_trace(lockup, "reclaimed memory", "memory is reclaimed")


def _refaults(reclaim: Finding, storm: Finding) -> Judged:
    """What is reclaimed and still in use is read again; without pressure, pages are dropped by those who use them."""
    waited = max(reclaim.number("waited for memory"), reclaim.number("waited there"))
    if storm.number("refaults") < 0.5 * max(1.0, storm.number("major faults")) or waited < 0.1:
        return None
    return 0.75, "most pages that are read from disk were reclaimed a moment ago, and tasks wait for memory"


def _culprits(reclaim: Finding, case: Case) -> Iterator[Culprit]:
    for what in ("its unit", "its pod", "cgroup", "process"):
        value = reclaim.value(what)
        if value and value != "/":
            yield Culprit(str(value), max(reclaim.number("waited there"), reclaim.number("its share")) or 1.0)
            return


def _advice(reclaim: Finding, case: Case) -> Iterator[Advice]:
    share = reclaim.number("direct share")
    if share >= DEAR:
        where = reclaim.value("cgroup") or reclaim.value("process") or "what allocates most"
        yield Advice(
            f"remove the source: give {where} more memory or less work, and consolidate what is left",
            f"direct reclaim takes {share:.0%} of all cores' time",
            cost="capacity",
        )
    if case.of("cpu-throttled", serious=False):
        yield Advice(
            "changing CPU quotas first",
            "tasks are throttled while they reclaim: with the memory shortage gone their quota may be enough",
            against=True,
        )


def _step(reclaim: Finding, case: Case) -> str:
    cgroup = reclaim.value("cgroup")
    if not cgroup:
        return "free memory or move work away; exhume diagnose -v and systemd-cgtop -m show which cgroup grows"
    available = reclaim.number("available")
    spare = f" while the node has {available / 2**30:,.1f} GiB to spare" if available >= 2**30 else ""
    return f"{cgroup} is at its own limit{spare}: raise that limit, or let it do with less; more memory for the node is no help"


HYPOTHESIS = Hypothesis(
    "reclaim",
    title=lambda finding: "passes of memory reclaim",
    rules=(
        Rule("core-saturated", _saturates, "a core that is full while nothing is scanned"),
        Rule("napi-starved", _starves, "late polls while nothing is scanned"),
        Rule("soft-lockup", _locks_up, "a lockup while nothing is scanned"),
        Rule("page-fault-storm", _refaults, "major faults of pages that were never in memory"),
    ),
    culprits=_culprits,
    step=_step,
    advice=_advice,
)
