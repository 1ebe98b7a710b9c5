"""cpu-throttled: a cgroup that used up its own quota. Its tasks wait, and whoever waits for a lock that one of them holds."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import Case, Hypothesis
from exhume.verdict.report import Advice, Culprit


def advice(throttled: Finding, case: Case) -> Iterator[Advice]:
    """Throttling alone proves nothing; with a leak or with reclaim about it is a symptom of those."""
    if case.of("reclaim"):
        yield Advice(
            "changing CPU quotas first",
            "tasks are throttled and memory is reclaimed at once: time spent in reclaim is charged to their quota",
            against=True,
        )
    if case.of("zombie-memcgs") or case.of("memcg-leak"):
        yield Advice(
            "scan the cgroups (exhume zombies) and look through what the image enables",
            f"tasks are throttled on a node that has {_dead(case):,.0f} dead memory cgroups",
        )
        yield Advice(
            "scaling out",
            "new nodes come from the same image and inherit the leak; accounting of dead groups makes these numbers doubtful",
            cost="capacity",
            against=True,
        )


def _dead(case: Case) -> float:
    return max(finding.number("zombies") for finding in [*case.of("zombie-memcgs", serious=False), *case.of("memcg-leak")])


def _culprits(throttled: Finding, case: Case) -> Iterator[Culprit]:
    yield Culprit(throttled.subject, throttled.number("throttled"))


HYPOTHESIS = Hypothesis(
    "cpu-throttled",
    title=lambda finding: f"the quota of {finding.subject}",
    culprits=_culprits,
    step="raise the limit or lower the load of {subject}",
    advice=advice,
)
