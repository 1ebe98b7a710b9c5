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
    return (0.5, "tasks hung while all others waited for the disk") if apart <= TOGETHER_NS else None


HYPOTHESIS = Hypothesis(
    "writeback-stall",
    title=lambda finding: "waits for a disk that does not keep up with writes",
    rules=(
        Rule("core-saturated", _saturates, "a core that is full while nothing is written"),
        Rule("napi-starved", _starves, "late polls while nothing is written"),
        Rule("soft-lockup", _hangs, "tasks that hang while nothing is written"),
    ),
    step="the disk does not keep up with writes: iostat -x 1 shows which",
)
