"""Whether the leak is over: how many zombies came, by place, before and after, and whether their number still grows.

cgroup events tell each one that came and where, whatever else was let go meanwhile. Where they could not be watched, the count
of the node does, which also has in it what comes and goes on every node; then both sides are counted so.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from exhume.diagnosis.findings.churn import churned
from exhume.diagnosis.findings.leak_places import zombie_counts
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, counted, duration
from exhume.recording.recording import Ints, Recording
from exhume.remedy.criteria import CONFIDENCE, Criterion, Status
from exhume.remedy.criteria_looked import recorded
from exhume.remedy.criteria_statistics import abrupt, dispersion, gamma_below, poisson_lower, poisson_upper
from exhume.sources.cgroup_events import SETTLE_NS
from exhume.text import printable

EVENTS, COUNT = "cgroup events", "the count of the node"
_UNIT = "zombies a minute"
NODE = ""
"""The place of all, where places are not known."""
BLOCK_NS = 5_000_000_000
# What is left of a leak that was stopped is at most so much of it, or no more than is harmless.
PART = 0.05
# In less time a burst looks like a rate.
SHORTEST_S = 10.0
# What is let go is let go within this, or it was a zombie.
LONGEST_LAG_NS = 60_000_000_000
# Who waits as long as he was told is to have waited long enough.
_MARGIN_S = 5.0
# A count that falls by more than this, and by this share, was brought down: by a purge, by reclaim.
_FELL, _FELL_SHARE = 20, 0.05


@dataclass(frozen=True, slots=True)
class Leaks:
    """Zombies that came and stayed: when, on a clock that stands still while nobody looks, by the shape of the place that they
    lived in."""

    start: int
    seconds: float
    source: str
    places: dict[str, Ints] = field(default_factory=dict)
    lags: dict[str, Ints] = field(default_factory=dict)
    """Of those that did not stay: how long after their directory they went."""

    def at(self, places: Iterable[str] | None = None) -> Ints:
        """Of some places, or of all."""
        chosen = self.places.values() if places is None else [self.places[place] for place in places if place in self.places]
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *chosen]))

    def heap(self, times: Ints) -> float:
        """How many came at once, where they came in heaps: so many stand for one."""
        return dispersion(self._blocks(times))

    def abrupt(self, times: Ints) -> float:
        """The same where their rate may have changed: what began in between is no heap."""
        return abrupt(self._blocks(times))

    def _blocks(self, times: Ints) -> Ints:
        found = np.bincount((times - self.start) // BLOCK_NS, minlength=max(1, round(self.seconds * 1e9 / BLOCK_NS)))
        return found[1:] if self.source == COUNT else found  # a count has nothing in its first one to grow from

    def bounds(self, times: Ints, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Between what their rate a minute surely lies. Where they came in heaps, each heap counts as one."""
        heap = self.heap(times)
        lower = poisson_lower(len(times) / heap, confidence) * 60 * heap / max(self.seconds, 1e-9)
        return lower, self.most(times, heap, confidence)

    def most(self, times: Ints, heap: float, confidence: float = CONFIDENCE) -> float:
        """What their rate a minute surely is not above, if they come in heaps of that size."""
        return poisson_upper(len(times) / heap, confidence) * 60 * heap / max(self.seconds, 1e-9)

    def lag_ns(self, place: str) -> int:
        """How old a group there must be to have stayed: older than any that went."""
        return int(np.clip(self.lags[place].max(), SETTLE_NS, LONGEST_LAG_NS)) if place in self.lags else SETTLE_NS

    def usual_lag_ns(self, place: str) -> int:
        """The same where they mostly go. Where they mostly stay, the few that went do not tell how long it takes."""
        return self.lag_ns(place) if len(self.lags.get(place, ())) >= len(self.places.get(place, ())) else SETTLE_NS

    def older(self, lag_ns: int) -> "Leaks":
        """Without the last of the time, whose groups are younger than that."""
        young = max(0, lag_ns - SETTLE_NS)
        seconds = max(0.0, self.seconds - young / 1e9)
        end = self.start + round(seconds * 1e9)
        return replace(self, seconds=seconds, places={place: times[times <= end] for place, times in self.places.items()})

    def rate(self, times: Ints) -> float:
        return 60 * len(times) / max(self.seconds, 1e-9)

    def steady(self, times: Ints) -> bool:
        """Whether they came all along: each third of the time has its part. What comes in a heap or two is no leak yet."""
        thirds = np.bincount(np.clip((times - self.start) * 3 // max(1, int(self.seconds * 1e9)), 0, 2), minlength=3)
        return bool(thirds.min() * 10 >= thirds.sum() > 0)

    def leaking(self, harmless: float) -> list[str]:
        """The places that surely have more than is harmless, the most first."""
        surely = 1 - (1 - CONFIDENCE) / max(1, len(self.places))
        found = [place for place, times in self.places.items() if self.bounds(times, surely)[0] > harmless]
        return sorted(found, key=lambda place: (-len(self.places[place]), place))


def by_events(recording: Recording) -> Leaks | None:
    """None where they were not watched, or some were lost: what looks like a zombie may then be none."""
    seen = churned(recording)
    if not recording.on("cgroup-events") or seen.lost:
        return None
    start, end = recording.window
    looked = recorded(recording)
    lags: dict[str, list[int]] = {}
    for group in seen.groups:
        if 0 <= group.life.removed < group.life.released:
            lags.setdefault(group.shape, []).append(group.life.released - group.life.removed)
    zombies = [group for group in seen.groups if group.life.removed >= start and group.life.zombie(end)]
    removed = np.array([group.life.removed for group in zombies], dtype=np.int64)
    since = looked.before(removed)
    # Who was removed just before a hole, or in it, may have been released there.
    settled = looked.before(removed + SETTLE_NS) - since == SETTLE_NS
    places: dict[str, list[int]] = {}
    for group, time in zip(compress(zombies, settled), since[settled].tolist(), strict=True):
        places.setdefault(group.shape, []).append(start + time)
    found = {place: np.array(sorted(times), dtype=np.int64) for place, times in places.items()}
    went = {place: np.array(some, dtype=np.int64) for place, some in lags.items()}
    return Leaks(start, looked.without(SETTLE_NS) / 1e9, EVENTS, found, went)


def by_count(recording: Recording) -> Leaks | None:
    """By the growth of the smallest count of each few seconds: what is on its way out is not counted. What fell was let go."""
    counts = in_window(recording)
    if len(counts) < 2:
        return None
    start = counts[0][0]
    blocks: dict[int, int] = {}
    for time, zombies in counts:
        block = (time - start) // BLOCK_NS
        blocks[block] = min(zombies, blocks.get(block, zombies))
    came: list[int] = []
    base = most = blocks[0]
    for block, zombies in sorted(blocks.items()):
        if zombies < most - max(_FELL, _FELL_SHARE * most):
            base = most = zombies
        came += [start + block * BLOCK_NS] * max(0, zombies - most)
        most = max(most, zombies)
    # What came and went again is no leak: of the last stretch no more stayed than the count has grown by.
    left = max(0, max(0, blocks[max(blocks)] - base) - (most - base) + len(came))
    times = np.array(came[:left], dtype=np.int64)
    return Leaks(start, (counts[-1][0] - start) / 1e9, COUNT, {NODE: times} if left else {})


def in_window(recording: Recording) -> list[tuple[int, int]]:
    """(time, zombies of the node), of the recording's own time."""
    start, end = recording.window
    return [(time, zombies) for time, zombies, _ in zombie_counts(recording) if start - BLOCK_NS <= time <= end + BLOCK_NS]


def leaks(before: Recording | None, after: Recording) -> tuple[Leaks | None, Leaks | None]:
    """Both by the same source."""
    now = by_events(after)
    if before is None:
        return None, now or by_count(after)
    then = by_events(before)
    if then is not None and now is not None:
        return then, now
    return by_count(before) or then, by_count(after) or now


def heaps(then: Leaks | None, places: list[str], harmless: float) -> float:
    """How many came at once before, where there was a leak, or what may have been one: a silence is that of so many heaps."""
    if then is None:
        return 1.0
    times = then.at(places) if places else then.at()
    return then.abrupt(times) if places or then.rate(times) > harmless else 1.0


def silence_s(limit: float, count: int = 0, heap: float = 1.0) -> float | None:
    """How long to look if no more than these come; None where no time would be long enough."""
    if limit < 1e-6:
        return None
    return 60 * heap * poisson_upper(count / heap, CONFIDENCE) / limit + SETTLE_NS / 1e9 + _MARGIN_S


def leak_rate(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    then, now = leaks(before, after)
    harmless = thresholds.leak_per_minute
    if now is None:
        why = after.why_off("memcg") if not after.on("memcg") else after.why_off("cgroup-events")
        return Criterion("leak-rate", "cause", "not-seen", None, None, _UNIT, None, None, f"not visible: {why}")
    places = then.leaking(harmless) if then is not None else []
    if not places and then is not None and then.bounds(then.at())[0] > harmless:
        places = sorted({*then.places, *now.places})
    limit, was = harmless, None
    if then is not None:
        mine = then.at(places) if places else then.at()
        was = then.rate(mine)
        limit = max(harmless, PART * then.bounds(mine)[0]) if places else harmless
    elsewhere = [place for place in now.leaking(harmless) if place not in places and now.steady(now.at([place]))]
    chosen = places or elsewhere[:1] or _most(now)
    settled = now.older(max((one.usual_lag_ns(place) for one in (then, now) if one for place in places), default=SETTLE_NS))
    times = settled.at(chosen)
    surely = places or elsewhere
    where = _where(places or elsewhere[:1])
    judged = _judged(settled, times, limit, harmless if surely else math.inf, heaps(then, places, harmless), where)
    status, confidence, because, needed = judged
    if status != "failed" and elsewhere and now.seconds >= SHORTEST_S:
        times = now.at(elsewhere[:1])
        lower, _ = now.bounds(times)
        status, confidence, needed = "failed", CONFIDENCE, None
        because = f"zombies come elsewhere{_where(elsewhere[:1])}: {lower:,.1f} a minute at least"
    said = f"{because} ({now.source}, {duration(settled.seconds * SECOND)})"
    shown = harmless if status == "failed" else limit  # what it was held against
    return Criterion("leak-rate", "cause", status, was, settled.rate(times), _UNIT, shown, confidence, said, needed)


def _judged(
    now: Leaks, times: Ints, limit: float, harmless: float, before: float, where: str
) -> tuple[Status, float | None, str, float | None]:
    """`before` is how many came at once then: a leak in heaps is over only if several would have come."""
    count, minutes, heap = len(times), now.seconds / 60, now.heap(times)
    came = f"{count:,} came{where}" if count else f"none came{where}"
    if now.seconds < SHORTEST_S:
        return (
            "too-little",
            None,
            f"{came}, but {duration(now.seconds * SECOND)} are no time for a rate",
            silence_s(limit, heap=before),
        )
    lower, _ = now.bounds(times)
    if lower > harmless:
        sure = 1 - gamma_below(count / heap, harmless * minutes / heap)
        return "failed", max(CONFIDENCE, sure), f"the leak goes on: {came}, {lower:,.1f} a minute at least", None
    heap = max(heap, before)
    upper = now.most(times, heap)
    if upper <= limit:
        sure = gamma_below(count / heap + 1, limit * minutes / heap)
        return "passed", max(CONFIDENCE, sure), f"{came}: at most {upper:,.1f} a minute", None
    because = f"{came}: it may still be up to {upper:,.1f} a minute"
    if before > max(1.0, now.heap(times)):
        because += f", because about {before:,.0f} came at once before"
    longer = silence_s(limit, count, heap)
    return "too-little", None, because, max(1.1 * now.seconds, longer) if longer is not None else None


def _most(now: Leaks) -> list[str]:
    return [max(now.places, key=lambda place: (len(now.places[place]), place))] if now.places else []


def _where(places: list[str]) -> str:
    named = [printable(place, 80) for place in places if place != NODE]
    if not named:
        return ""
    more = f" and {counted(len(named) - 1, 'other place')}" if len(named) > 1 else ""
    return f" in {named[0]}{more}"
