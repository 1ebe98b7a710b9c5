"""How the node stands, from two judges: findings every few seconds without samples, and now and then a verdict with them.

A verdict sees more, so it counts while it is fresh; findings that have become worse since are believed at once, and when
nothing is found any more the verdict was about the past.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from exhume.agent.gathering import Gathered
from exhume.findings.model import SEVERITIES, Finding

# As long as the window that findings are judged in: what the verdict saw is out of it then.
FRESH_S = 60.0
_HEALTHS = ("healthy", "warning", "critical")


class Standing:
    """Times are seconds of a clock that only goes forward. The two methods are called in different threads; each sets values
    whole, and the next look, seconds later, sets right what crossed."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered
        self._verdict: tuple[float, str] | None = None

    def found(self, serious: Iterable[Finding], now_s: float) -> None:
        health = worst(serious)
        if health == "healthy":
            self._verdict = None
            self._gathered.quiet()
            return
        if (verdict := self._verdict) is not None and now_s - verdict[0] < FRESH_S and verdict[1] in _HEALTHS:
            health = max(health, verdict[1], key=_HEALTHS.index)
        self._gathered.health(health)

    def verdict(self, report: Mapping[str, Any], now_s: float, wall_s: float) -> None:
        """A report as `exhume diagnose --json` prints it."""
        self._verdict = now_s, str(report["health"])
        self._gathered.verdict(report, wall_s)


def worst(findings: Iterable[Finding]) -> str:
    """The health that findings alone speak of."""
    return _HEALTHS[max((SEVERITIES.index(finding.severity) for finding in findings), default=0)]
