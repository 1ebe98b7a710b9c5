"""irq-imbalance: one core takes all network interrupts, and has no time for the polls."""

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import MOSTLY, Hypothesis, Judged, Rule, filled_by, held_by, looked

NETWORK = "network itself"


def _saturates(imbalance: Finding, core: Finding) -> Judged:
    if core.value("core") != imbalance.value("core"):
        return None
    if looked(core):
        return filled_by(core, NETWORK, "packets are worked on", 0.9)
    if core.number("interrupt time") >= MOSTLY:
        return 0.8, f"interrupts take {core.number('interrupt time'):.0%} of that core's time, and it takes those of all queues"
    return None


def _starves(imbalance: Finding, napi: Finding) -> Judged:
    if all(span.core != imbalance.value("core") for span in napi.spans):
        return None
    return held_by(napi, NETWORK, "the core was busy with packets", 0.8)


HYPOTHESIS = Hypothesis(
    "irq-imbalance",
    title=lambda finding: "network interrupts that all go to one core",
    rules=(
        Rule("core-saturated", _saturates, "a core that is as full when others take the interrupts"),
        Rule("napi-starved", _starves, "late polls when other cores take the interrupts"),
    ),
    step="spread the interrupts: irqbalance, or /proc/irq/N/smp_affinity",
)
