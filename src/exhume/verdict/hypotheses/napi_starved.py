"""napi-starved: a network queue whose poll was due and did not run. Its driver gives up after seconds."""

from collections.abc import Iterator
from dataclasses import replace

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.core_saturated import offender
from exhume.verdict.hypotheses.model import SECOND_NS, TOGETHER_NS, Case, Hypothesis, Judged, Rule
from exhume.verdict.report import Culprit


def _resets(napi: Finding, reset: Finding) -> Judged:
    if napi.subject != reset.subject:
        if reset.subject not in str(napi.value("core serves") or "").split(", "):
            return None
        same = _resets(replace(napi, subject=reset.subject), reset)
        return same and (0.7 * same[0], f"{same[1]}; which device that was is not known, but its core serves {reset.subject}")
    resets = [span.end for span in reset.spans] or [reset.end]
    if napi.value("late polls") is not None:
        told = [span.end for span in napi.spans] or [napi.end]
        gaps = [moment - line for moment in resets for line in [*told, napi.end] if -SECOND_NS <= moment - line <= TOGETHER_NS]
        if gaps:
            return 0.99, f"the driver reset {reset.subject} {max(0, min(gaps)) / 1e9:.1f} s after its poll was found late"
        return None
    # The driver said nothing of a late poll: then it is only as sure as the stall was long. They give up after seconds.
    after = [
        (span.end - span.start, moment - span.end)
        for span in napi.spans
        for moment in resets
        if span.start <= moment <= span.end + TOGETHER_NS
    ]
    if not after:
        return None
    length, gap = max(after)
    when = f"{gap / 1e9:.1f} s after" if gap > 0 else "during"
    said = f"the driver reset {reset.subject} {when} a stall of {length / 1e6:,.0f} ms"
    return (0.9, said) if length >= SECOND_NS else (0.4, f"{said}, which is short: drivers wait for seconds")


def _culprits(napi: Finding, case: Case) -> Iterator[Culprit]:
    if not napi.number("network itself") and (who := offender(napi)):
        yield Culprit(who, napi.number("its share"))


HYPOTHESIS = Hypothesis(
    "napi-starved",
    title=lambda finding: f"long stays of {offender(finding)} in the kernel" if offender(finding) else "late polls",
    harm="keep {subject} from being polled",
    rules=(Rule("nic-reset", _resets, "resets without a late poll before them"),),
    culprits=_culprits,
    step="exhume latency --device {subject} shows it as it happens; free that core, or poll elsewhere: taskset -p "
    "for a NAPI thread, /proc/irq/N/smp_affinity for an interrupt",
)
