"""How many zombies came while an image was soaked, from where, and what that promises for a node's life.

Counted are groups that were removed and are not released at the end: one that dies and goes away again is none. Where no events
can be seen, the kernel's count is taken, by its lowest points, which what comes and goes does not move.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from exhume.diagnosis.findings.churn import Churned, Group, churned, within
from exhume.diagnosis.findings.leak_places import LeakPlace, by_events, zombie_counts
from exhume.host.quantities import MINUTE, SECOND, counted, duration
from exhume.image.gate_bound import Bound, needed_s
from exhume.image.gate_model import Blamed, Check, Options
from exhume.recording.recording import Recording
from exhume.sources.cgroup_events import SETTLE_NS
from exhume.text import printable

NAME = "growth"
EVENTS, COUNT = "cgroup events", "the kernel's count"
# Of the time that is judged, at either end: the lowest count in each is compared.
EDGE = 0.1
# Fewer than these are no rhythm, however they are spread.
FEWEST = 5
# How sure a leak must be for the soak to end before its time. It is looked for up to 200 times, hence so sure.
CERTAIN = 1e-6
# Of the time that is judged, what must have passed by then: what comes in a burst looks steady while it lasts.
EARLIEST = 0.25
_MOST_BLAMED = 20


@dataclass(frozen=True, slots=True)
class Grown:
    """What came in the time that is judged."""

    bound: Bound
    steady: bool
    """All along, and not at once: a step is no leak."""
    source: str


def growth(recording: Recording, options: Options) -> Grown | str:
    """What came below the directory that is judged; a sentence where it cannot be known."""
    seen = churned(recording)
    trusted = recording.on("cgroup-events") and not seen.lost
    if trusted:
        return _by_events(seen, (group for group in seen.groups if within(options.under, group.life.path)), options)
    why = f"{seen.lost:,} cgroup events were lost" if seen.lost else recording.why_off("cgroup-events")
    if options.under != "/":
        return f"what came below {printable(options.under)} only cgroup events tell: {why}"
    return _by_count(recording, options) or f"nothing counts them: {recording.why_off('memcg')}"


def _by_events(seen: Churned, groups: Iterable[Group], options: Options) -> Grown:
    start = seen.start + round(options.settle_s * 1e9)
    stayed = [group for group in seen.unreleased(groups) if group.life.removed >= start]
    bound = Bound(len(stayed), max(0.0, (seen.end - SETTLE_NS - start) / 1e9), options.alpha)
    return Grown(bound, len(stayed) >= FEWEST and _spread(stayed, start, seen.end - SETTLE_NS), EVENTS)


def _spread(groups: list[Group], start: int, end: int) -> bool:
    """Whether each third of the time has its part of them, as diagnosis/findings/churn.py asks of the whole."""
    thirds = [0, 0, 0]
    for group in groups:
        thirds[min(2, max(0, (group.life.removed - start) * 3 // max(1, end - start)))] += 1
    return min(thirds) * 10 >= sum(thirds)


def _by_count(recording: Recording, options: Options) -> Grown | None:
    """The lowest count at the end less the lowest at the beginning: no fewer than what came in between and stayed."""
    counts = zombie_counts(recording)
    if not counts:
        return None
    first, last = counts[0][0] + round(options.settle_s * 1e9), counts[-1][0]
    edge = round((last - first) * EDGE)
    lowest = [
        min((dying for time, dying, _ in counts if begin <= time <= end), default=-1)
        for begin, end in (
            (first, first + edge),
            (first + (last - first) // 3 - edge, first + (last - first) // 3 + edge),
            (last - (last - first) // 3 - edge, last - (last - first) // 3 + edge),
            (last - edge, last),
        )
    ]
    if last - first - 2 * edge <= 0 or min(lowest) < 0:
        return None
    came = max(0, lowest[3] - lowest[0])
    parts = [max(0, after - before) for before, after in pairwise(lowest)]
    steady = came >= FEWEST and min(parts) * 10 >= came
    return Grown(Bound(came, (last - first - 2 * edge) / 1e9, options.alpha), steady, COUNT)


def leaking(recording: Recording, options: Options, headroom: float) -> list[tuple[LeakPlace, Grown]]:
    """Places of which it is shown that they alone bring more in a node's life than there is room for."""
    seen = churned(recording)
    if not recording.on("cgroup-events") or seen.lost:
        return []
    found = []
    for place in by_events(recording):
        if within(options.under, place.home) or within(options.under, place.path):
            there = {shape for _, shape in place.covers}
            grown = _by_events(seen, (g for g in seen.groups if g.parent == place.home and g.shape in there), options)
            if shown(grown, options, headroom):
                found.append((place, grown))
    return found[:_MOST_BLAMED]


def shown(grown: Grown, options: Options, headroom: float) -> bool:
    """Whether even the slowest leak that fits what was seen is too fast for a node's life."""
    return grown.steady and grown.bound.fewest_in(options.life_s) > headroom


def certain(recording: Recording, options: Options, planned_s: float) -> bool:
    """Whether a leak is beyond doubt before a soak of that length is over."""
    sure = replace(options, alpha=CERTAIN)
    grown = growth(recording, sure)
    if isinstance(grown, str) or grown.bound.seconds < EARLIEST * (planned_s - options.settle_s):
        return False
    return shown(grown, sure, options.limit)


def check(grown: Grown | str, total: int | None, options: Options, places: list[tuple[LeakPlace, Grown]]) -> Check:
    """`total` is what is there already, of all that the limit is for."""
    if isinstance(grown, str):
        return Check(NAME, "unknown", f"growth cannot be judged: {grown}", limit=options.limit)
    bound = grown.bound
    if bound.seconds <= 0:
        return Check(NAME, "unknown", "the soak was too short to say anything of growth: give it more time with --for")
    headroom = room(total, options)
    rate = 60 * bound.upper_per_s
    life, brings = duration(options.life_s * SECOND), bound.most_in(options.life_s)
    came = f"{counted(bound.seen, 'new zombie')} in {duration(bound.seconds * SECOND)}, by {grown.source}"
    measured, limit = round(brings), round(headroom)
    if shown(grown, options, headroom) or places:
        least = round(bound.fewest_in(options.life_s))
        said = (
            f"{came}: a leak. At no less than {rate_said(60 * bound.lower_per_s)} a minute ({options.confidence}) {life} bring"
        )
        said += f" {least:,}, and there is room for {headroom:,.0f}"
        return Check(NAME, "failed", said, least, limit, tuple(blamed(*one, options) for one in places), HELP)
    if bound.seen >= FEWEST and not grown.steady:
        came += ", at once and not all along"
    nothing = f"{duration(bound.seconds * SECOND)} without a new zombie exclude" if not bound.seen else f"{came}. That excludes"
    said = f"{nothing} no leak slower than {rate_said(rate)} a minute ({options.confidence}), "
    said += f"which would bring {brings:,.0f} in {life}"
    if brings <= headroom:
        return Check(NAME, "passed", f"{said}: there is room for {headroom:,.0f}", measured, limit, help=HELP)
    judged = needed_s(options.life_s, headroom, options.alpha) / (1 if grown.source == EVENTS else 1 - 2 * EDGE)
    whole = judged + options.settle_s + SETTLE_NS / 1e9
    needed = duration(math.ceil(whole / 60) * MINUTE)
    said += f", and there is room for {headroom:,.0f}: this soak cannot promise it. A soak of {needed} without one could"
    return Check(NAME, "warning", said, measured, limit, help=HELP)


HELP = (
    "Zombies that come all the time fill the kernel's tree of memory cgroups within a node's life; then every walk over it "
    "holds a core. Find the source with exhume zombies --follow 30s and take it out of the image."
)


def blamed(place: LeakPlace, grown: Grown, options: Options) -> Blamed:
    subject = place.unit or place.pod or place.path
    rate = 60 * grown.bound.seen / grown.bound.seconds
    came = f"{grown.bound.seen:,} zombies in {duration(grown.bound.seconds * SECOND)}"
    said = f"{printable(subject)} left {came}, {rate_said(rate)} a minute"
    if subject != place.path:
        said += f", at {printable(place.path)}"
    return Blamed(subject, f"{said}: {rate / 60 * options.life_s:,.0f} in {duration(options.life_s * SECOND)}")


def room(total: int | None, options: Options) -> float:
    """What a node may still gain. Where it is over the limit already that is told elsewhere, and growth is judged by itself."""
    return float(options.limit - total if total is not None and total < options.limit else options.limit)


def rate_said(rate: float) -> str:
    return f"{rate:.2g}" if rate < 10 else f"{rate:,.0f}"
