"""Whether a node of a fleet is sick, how bad, and why in words: one rule and one scale, whatever the figures were read from."""

from dataclasses import dataclass

from exhume.diagnosis.findings.forecast import PAIN, days_to_pain
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.fleet.model import Node
from exhume.text import printable

LIMITS = Thresholds()
# A reset or two happen to healthy nodes: a driver is updated, a link is replaced.
RESETS = 3
# Where it is known how long there were many zombies, a shorter time than this does not count.
ZOMBIES_S = 300.0
# A leak that is slower than this does not hurt within two years.
SLOWEST_PER_DAY = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was seen of a node; None where nobody looked."""

    health: str = ""
    """The agent's or the report's own word: healthy, warning, critical; empty or unknown where there is none."""
    cause: str = ""
    subject: str = ""
    live: float | None = None
    zombies: float | None = None
    """Now."""
    most_zombies: float | None = None
    zombies_s: float | None = None
    """How long there were many (`Thresholds.many_zombies`); None, as is the most: only how many there are now is known."""
    leak_per_day: float | None = None
    resets: float | None = None
    stall_s: float | None = None
    """Polls of network devices were late, all together."""
    saturated_s: float | None = None
    seen_s: float = 0.0
    """How long the node was looked at: what the seconds are a share of."""


@dataclass(frozen=True, slots=True)
class Judged:
    sick: bool | None
    badness: float
    why: str


def sick(figures: Figures, thresholds: Thresholds | None = None) -> Judged:
    """Sick is a node with many zombies, with RESETS or more, with late polls or a saturated core for more than their share of
    the time; or if a check of the node itself says so."""
    limits = thresholds or LIMITS
    reasons: list[tuple[float, str]] = []
    told = figures.health in ("warning", "critical")
    if told and figures.cause:
        reasons.append((0.0, f"{printable(figures.cause, 40)} of {printable(figures.subject, 80)}"))
    most = max(figures.zombies or 0, figures.most_zombies or 0)
    if (figures.zombies is not None or figures.zombies_s is not None) and _many(figures, limits):
        reasons.append(((figures.zombies or most) / PAIN, f"{most:,.0f} zombies"))
    if figures.resets is not None and (count := round(figures.resets)) >= RESETS:
        reasons.append((1.0 + min(10.0, count / 2), f"{count:,} NIC resets"))
    for seconds, share, words in (
        (figures.stall_s, limits.napi_stall_ratio, "polls late"),
        (figures.saturated_s, limits.core_saturated_warning_ratio, "a core full of kernel time"),
    ):
        if seconds is not None and figures.seen_s > 0 and seconds / figures.seen_s > share:
            reasons.append(
                (min(3.0, seconds / figures.seen_s / share / 3), f"{words} {seconds / figures.seen_s:.1%} of the time")
            )
    looked = figures.health in ("healthy", "warning", "critical") or any(
        each is not None for each in (figures.zombies, figures.zombies_s, figures.resets, figures.stall_s, figures.saturated_s)
    )
    why = "; ".join(text for _, text in reasons)
    if told:
        # What the figures show beside it is likely why: only where they show nothing the cause is not visible.
        reasons.append((3.0 if figures.health == "critical" else 1.0, ""))
        why = f"{figures.health}: {why or 'cause not visible'}"
    badness = max(0.1 if reasons else 0.0, sum(weight for weight, _ in reasons))
    if not reasons and (days := pain_in(figures.zombies, figures.leak_per_day)) is not None:
        # Not sick yet: below everything that is, the sooner the worse.
        badness = min(0.05, 0.05 / (1 + days))
    return Judged(bool(reasons) if looked else None, badness, why)


def _many(figures: Figures, limits: Thresholds) -> bool:
    if figures.zombies_s is not None:
        return figures.zombies_s >= ZOMBIES_S
    return limits.many_zombies(figures.zombies or 0.0, figures.live or 0.0)


def pain_in(zombies: float | None, leak_per_day: float | None) -> float | None:
    """Days until zombies hurt, at the rate of now; None where they do not grow."""
    if zombies is None:
        return None
    if zombies >= PAIN:
        return 0.0
    if leak_per_day is None or leak_per_day < SLOWEST_PER_DAY:
        return None
    return days_to_pain(int(zombies), leak_per_day / 24)


def pain_of(node: Node) -> float | None:
    return pain_in(node.zombies, node.leak_per_day)
