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
        return 0.4, "at the same time; which core serves the queue is not known"
    return (0.9, f"the queue is served by core {core}, which did not schedule") if core in served else None


def _resets(lockup: Finding, reset: Finding) -> Judged:
    """A device whose queue nobody named, but whose driver gave up while a core was stuck."""
    apart = max(0, reset.start - lockup.end, lockup.start - reset.end)
    if apart > TOGETHER_NS:
        return None
    if lockup.value("core") is None:
        return 0.3, f"tasks hung when the driver gave up on {reset.subject}, but no core was seen to be stuck"
    return 0.45, f"the driver gave up on {reset.subject} while a core was stuck; which core serves it is not known"


def _culprits(lockup: Finding, case: Case) -> Iterator[Culprit]:
    if who := offender(lockup):
        yield Culprit(who, 1.0)


HYPOTHESIS = Hypothesis(
    "soft-lockup",
    title=lambda finding: f"long stays of {offender(finding) or 'somebody'} in the kernel",
    harm="hold a core, or tasks, until the kernel complains",
    rules=(
        Rule("napi-starved", _starves, "late polls of queues that other cores serve"),
        Rule("nic-reset", _resets, "resets while no core is stuck"),
    ),
    culprits=_culprits,
    step="dmesg -T shows the call trace of the core that was stuck",
)
