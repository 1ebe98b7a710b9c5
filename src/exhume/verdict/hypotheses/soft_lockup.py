"""soft-lockup: a core that did not schedule for so long that the kernel itself complained."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.core_saturated import offender
from exhume.verdict.hypotheses.model import TOGETHER_NS, Case, Hypothesis, Judged, Rule
from exhume.verdict.report import Culprit


def _starves(lockup: Finding, napi: Finding) -> Judged:
    core = lockup.value("core")
    apart = max(0, lockup.start - napi.end, napi.start - lockup.end)
    if apart > TOGETHER_NS or core is None:
        return None
    served = {span.core for span in napi.spans if span.core >= 0}
    if not served:
        return 0.5, "at the same time; which core serves the queue is not known"
    return (0.9, f"the queue is served by core {core}, which did not schedule") if core in served else None


def _resets(lockup: Finding, reset: Finding) -> Judged:
    """A device whose queue nobody named, but whose driver gave up while a core was stuck."""
    apart = max(0, reset.start - lockup.end, lockup.start - reset.end)
    return (0.5, f"the driver gave up on {reset.subject} while a core was stuck") if apart <= TOGETHER_NS else None


def _culprits(lockup: Finding, case: Case) -> Iterator[Culprit]:
    if who := offender(lockup):
        yield Culprit(who, 1.0)


HYPOTHESIS = Hypothesis(
    "soft-lockup",
    title=lambda finding: "a core that is stuck in the kernel",
    harm="hold a core in the kernel until it complains of a lockup",
    rules=(
        Rule("napi-starved", _starves, "late polls of queues that other cores serve"),
        Rule("nic-reset", _resets, "resets while no core is stuck"),
    ),
    culprits=_culprits,
    step="dmesg -T shows the call trace of the core that was stuck",
)
