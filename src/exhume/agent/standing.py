"""How the node stands, from two judges: findings every few seconds without samples, and now and then a verdict with them.

A verdict sees more, so it counts while it is fresh; findings that have become worse since are believed at once, and when
neither its cause nor anything that makes an incident is found any more the verdict was about the past. Whatever `exhume check`
would call the node by, whether it makes an incident or not, is its health.
"""

from collections.abc import Collection, Iterable

from exhume.agent.gathering import Gathered
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.findings.registry import TENANTS
from exhume.diagnosis.report import HEALTHS, Health, Report, health_of

# As long as the window that findings are judged in: what the verdict saw is out of it then.
FRESH_S = 60.0


class Standing:
    """Times are seconds of a clock that only goes forward. The two methods are called in different threads; each sets values
    whole, and the next look, seconds later, sets right what crossed."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered
        self._verdict: tuple[float, Health, object] | None = None
        """When, the health and the cause."""

    def found(self, findings: Iterable[Finding[Facts]], kinds: Collection[str], now_s: float, looked: bool = True) -> None:
        """`kinds` make an incident. `looked`: the cores were seen; healthy may only be said by somebody who has looked."""
        findings = list(findings)
        serious = [one for one in findings if one.serious and one.kind not in TENANTS]
        verdict = self._verdict
        if verdict is None or not any(one.kind in kinds or one.kind == verdict[2] for one in serious):
            # It was about the past: another condition that stays, as a leak does for weeks, does not keep it.
            self._verdict = verdict = None
            self._gathered.no_verdict()
        health = health_of(findings, looked)
        if verdict is not None and now_s - verdict[0] < FRESH_S and "unknown" not in (health, verdict[1]):
            health = max(health, verdict[1], key=HEALTHS.index)
        self._gathered.health(health)

    def verdict(self, report: Report, now_s: float, wall_s: float) -> None:
        self._verdict = now_s, report.health, report.verdict.cause
        self._gathered.verdict(report, wall_s)
