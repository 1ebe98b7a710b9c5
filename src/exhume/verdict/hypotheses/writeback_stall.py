"""writeback-stall: the disk does not keep up, and whoever writes waits for it."""

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import TOGETHER_NS, Hypothesis, Judged, Rule, filled_by, held_by, in_the_trace

WROTE = "wrote pages back"


def _saturates(stall: Finding, core: Finding) -> Judged:
    return filled_by(core, WROTE, "pages are written back", 0.9)


def _starves(stall: Finding, napi: Finding) -> Judged:
    return held_by(napi, WROTE, "pages were written back there", 0.85)


def _hangs(stall: Finding, lockup: Finding) -> Judged:
    traced = in_the_trace(lockup, WROTE, "pages are written back")
    if traced is not None:
        return traced
    apart = max(0, stall.start - lockup.end, lockup.start - stall.end)
    return (0.45, "tasks hung while all others waited for the disk") if apart <= TOGETHER_NS else None


def _resets(stall: Finding, reset: Finding) -> Judged:
    """Drivers look after their device in work queues and timers, which wait for the same locks and cores as all others."""
    moments = [span.end for span in reset.spans] or [reset.end]
    if not any(stall.start <= moment <= stall.end + TOGETHER_NS for moment in moments):
        return None
    return 0.45, f"the driver gave up on {reset.subject} while all tasks waited for the disk, and no core was seen to be full"


HYPOTHESIS = Hypothesis(
    "writeback-stall",
    title=lambda finding: "waits for a disk that does not keep up with writes",
    rules=(
        Rule("core-saturated", _saturates, "a core that is full while nothing is written"),
        Rule("napi-starved", _starves, "late polls while nothing is written"),
        Rule("nic-reset", _resets, "resets while nothing is written"),
        Rule("soft-lockup", _hangs, "tasks that hang while nothing is written"),
    ),
    step="the disk does not keep up with writes: iostat -x 1 shows which",
)
