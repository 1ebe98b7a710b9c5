"""How much of the throttling of containers does kernel reclaim explain? Two series a node in, a share and its interval out.

Both come and go with the load of the day, so that they meet without having to do with each other. Say a share f of the
throttling is reclaim's doing and falls into its time, and the rest falls there only as often as chance has it, p. Then what is
seen there is f + (1 - f) p, so f = (seen - p) / (1 - p). Chance is learnt from the data: reclaim is shifted in time, by whole
days where there are enough of them, so that the rhythm of the day stays and only what is common to the minute is lost. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from exhume.host.quantities import DAY_S

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SHIFTS = 200
RESAMPLES = 2000
CONFIDENCE = 0.95
# Days from which shifts are by whole days, and by whole weeks, each with up to an hour more or less.
ENOUGH_DAYS, ENOUGH_WEEKS_DAYS = 3, 28
_JITTER_S = 3600.0
# In shorter data shifts are anything but a small part of it.
_LEAST_PART = 0.05
# What an interval is made of: so many pieces of time of a node, or so many nodes.
_PIECES, _FEWEST_PIECES, _ENOUGH_NODES = 24, 8, 20
# Where reclaim goes on nearly all the time, nothing can be said about its time.
_MOST_EXPECTED = 0.9


@dataclass(frozen=True, slots=True)
class Track:
    """Of one node, a value every step; NaN where nothing is known."""

    node: str
    throttled_s: Floats
    """Seconds of throttling in the step."""
    reclaimed: Floats
    """Pages a second that reclaim scanned."""


@dataclass(frozen=True, slots=True)
class Share:
    node: str
    """Empty for all of them."""
    throttled_s: float
    reclaim_ratio: float
    """Share of the time in which there was reclaim."""
    coinciding: float
    """Share of the throttling that fell into that time."""
    expected: float
    """The same by chance."""
    explained: float | None
    """None where it cannot be told."""
    low: float | None
    high: float | None
    chance: float
    """That so much coincides by luck."""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Correlation:
    overall: Share
    nodes: tuple[Share, ...]
    """Those that were throttled, most explained seconds first."""
    steps: int
    step_s: float
    rhythm: str
    """What the null keeps: week, day, or nothing."""
    left_out: tuple[str, ...]
    """Nodes without throttling, or of which one of the two is not known."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Of a node, by pieces of time: throttling, of it in reclaim, of it in shifted reclaim; and for each shift the latter."""

    node: str
    total: Floats
    inside: Floats
    expected: Floats
    shifted: Floats
    reclaim_steps: int
    steps: int


def correlate(tracks: Sequence[Track], step_s: float, above: float, seed: int = 0) -> Correlation:
    draws = np.random.default_rng(seed)
    longest = max((len(track.throttled_s) for track in tracks), default=0)
    unit, rhythm = _unit(longest, step_s)
    counted, left_out = [], []
    for each in tracks:
        track = _whole(each, unit)
        known = ~(np.isnan(track.throttled_s) | np.isnan(track.reclaimed))
        if known.sum() < _PIECES or not float(track.throttled_s[known].sum()) > 0:
            left_out.append(track.node)
        else:
            counted.append(_count(track, known, _offsets(draws, len(known), unit, step_s), above))
    shares = [_share(each.node, [each]) for each in counted]
    shares.sort(key=lambda each: (-(each.explained or 0.0) * each.throttled_s, each.node))
    return Correlation(_share("", counted), tuple(shares), longest, step_s, rhythm, tuple(sorted(left_out)))


def _unit(steps: int, step_s: float) -> tuple[int, str]:
    """How many steps the rhythm has that a shift must keep; 0 where the data are too short for any."""
    day = round(DAY_S / step_s)
    if steps >= ENOUGH_WEEKS_DAYS * day:
        return 7 * day, "week"
    return (day, "day") if steps >= ENOUGH_DAYS * day else (0, "nothing")


def _whole(track: Track, unit: int) -> Track:
    """The last whole days, or weeks: what is shifted turns round at the end, and must find the same time of the day there."""
    steps = len(track.throttled_s)
    left_out = steps % unit if unit and steps >= 2 * unit else 0
    return Track(track.node, track.throttled_s[left_out:], track.reclaimed[left_out:])


def _offsets(draws: np.random.Generator, steps: int, unit: int, step_s: float) -> list[int]:
    if unit and steps >= 2 * unit:
        jitter = int(_JITTER_S / step_s)
        times = draws.integers(1, steps // unit, SHIFTS)
        return [int(each) for each in times * unit + draws.integers(-jitter, jitter + 1, SHIFTS)]
    least = max(1, int(steps * _LEAST_PART))
    return [int(each) for each in draws.integers(least, max(least + 1, steps - least), SHIFTS)]


def _count(track: Track, known: Bools, offsets: list[int], above: float) -> _Counted:
    steps = len(known)
    throttled = np.where(known, track.throttled_s, 0.0)
    active = known & (np.nan_to_num(track.reclaimed) > above)
    piece = np.arange(steps) * _PIECES // steps
    total = np.bincount(piece, throttled, _PIECES).astype(np.float64)
    inside = np.bincount(piece, throttled * active, _PIECES).astype(np.float64)
    whole = float(total.sum())
    expected, shifted = np.zeros(_PIECES), np.zeros(len(offsets))
    # Only where there is reclaim, and where nothing is known: both are rare.
    burst, unknown = np.flatnonzero(active), np.flatnonzero(~known)
    for index, offset in enumerate(offsets if len(burst) else ()):
        there = (burst + offset) % steps
        part = np.bincount(piece[there], throttled[there], _PIECES)
        # Where shifted reclaim is not known, throttling is left out, and the rest stands for it.
        seen = whole - float(throttled[(unknown + offset) % steps].sum())
        scale = whole / seen if seen > 1e-9 * whole else 0.0
        shifted[index] = min(whole, float(part.sum()) * scale)
        expected += np.minimum(part * scale, total) / len(offsets)
    return _Counted(track.node, total, inside, expected, shifted, int(active.sum()), int(known.sum()))


def _share(node: str, counted: Sequence[_Counted]) -> Share:
    total = sum(float(each.total.sum()) for each in counted)
    if total <= 0:
        return Share(node, 0.0, 0.0, 0.0, 0.0, None, None, None, 1.0, "nothing was throttled")
    inside = sum(float(each.inside.sum()) for each in counted) / total
    expected = min(1.0, sum(float(each.expected.sum()) for each in counted) / total)
    shifted = np.sum([each.shifted for each in counted], axis=0) / total
    chance = float((1 + (shifted >= inside - 1e-12).sum()) / (1 + len(shifted)))
    reclaim = sum(each.reclaim_steps for each in counted) / max(1, sum(each.steps for each in counted))
    if expected > _MOST_EXPECTED:
        why = f"reclaim goes on {reclaim:.0%} of the time: when it does says nothing then; a higher --above may"
        return Share(node, total, reclaim, inside, expected, None, None, None, chance, why)
    explained = (inside - expected) / (1 - expected)
    low, high = _interval(counted) if reclaim > 0 else (0.0, 0.0)
    return Share(node, total, reclaim, inside, expected, explained, low, high, chance)


def _interval(counted: Sequence[_Counted]) -> tuple[float | None, float | None]:
    """By drawing nodes again, or pieces of time where there are few nodes; None for what is too little."""
    rows = [np.array([each.total, each.inside, each.expected]) for each in counted]
    units = np.array([row.sum(axis=1) for row in rows]) if len(rows) >= _ENOUGH_NODES else np.concatenate(rows, axis=1).T
    units = units[units[:, 0] > 0]
    if len(units) < _FEWEST_PIECES:
        return None, None
    total, inside, expected = (_weights(len(units)) @ units).T
    left = np.maximum(total - expected, 1e-12)
    drawn = (inside - expected) / left
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(min(1.0, high))


@lru_cache(maxsize=4)
def _weights(units: int) -> Floats:
    """How often each is drawn; the same draws for every node, which take longer than all the rest."""
    return np.random.default_rng(units).multinomial(units, np.full(units, 1 / units), RESAMPLES).astype(np.float64)
