"""What a soak can promise: the bound is exact where that is known, covers as it says, and is never better than the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.image.gate_bound import Bound, fewest, most, needed_s

MINUTE, DAY = 60.0, 86_400.0


# Garwood's exact limits, as tables of chi-square quantiles have them: half of chi2(0.95; 2k + 2) and of chi2(0.05; 2k).
@pytest.mark.parametrize(
    ("seen", "low", "high"),
    [(0, 0.0, 2.996), (1, 0.051, 4.744), (2, 0.355, 6.296), (3, 0.818, 7.754), (5, 1.970, 10.513), (10, 5.425, 16.962)],
)
def test_the_bounds_are_those_of_the_tables(seen: int, low: float, high: float) -> None:
    assert most(seen, 0.05) == pytest.approx(high, abs=5e-4)
    assert fewest(seen, 0.05) == pytest.approx(low, abs=5e-4)


def test_ten_minutes_without_a_zombie_exclude_no_leak_below_a_third_a_minute() -> None:
    bound = Bound(0, 10 * MINUTE)
    assert 60 * bound.upper_per_s == pytest.approx(0.29957, abs=1e-5)
    assert bound.most_in(14 * DAY) == pytest.approx(6_039, abs=1)
    assert needed_s(14 * DAY, 1_000) == pytest.approx(60.4 * MINUTE, rel=1e-3)
    # and a soak of that length does promise it
    assert Bound(0, needed_s(14 * DAY, 1_000)).most_in(14 * DAY) == pytest.approx(1_000)


def test_without_time_or_room_nothing_is_promised() -> None:
    assert Bound(0, 0.0).upper_per_s == math.inf
    assert Bound(0, 0.0).lower_per_s == 0.0
    assert needed_s(DAY, 0) == math.inf


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.001])
@pytest.mark.parametrize("mean", [0.05, 0.7, 3.0, 12.0, 400.0])
def test_a_leak_is_excluded_wrongly_no_more_often_than_was_said(mean: float, alpha: float) -> None:
    """Soaks of a leak of known rate: the bound lies below the truth in no more than alpha of them, and so on the other side."""
    drawn, times = np.unique(np.random.default_rng(1).poisson(mean, 200_000), return_counts=True)
    below = sum(count for seen, count in zip(drawn.tolist(), times.tolist(), strict=True) if most(seen, alpha) < mean)
    above = sum(count for seen, count in zip(drawn.tolist(), times.tolist(), strict=True) if fewest(seen, alpha) > mean)
    allowed = alpha * 200_000 + 5 * math.sqrt(alpha * 200_000)
    assert below <= allowed
    assert above <= allowed


@given(st.floats(0.001, 30), st.floats(0, 1))
def test_a_regular_leak_is_excluded_all_the_surer(period: float, phase: float) -> None:
    """One each `period` minutes, as a crash loop leaves them, wherever the ten minutes begin."""
    seen = math.floor(10 / period + phase)
    if seen == 0:
        assert 1 / period < 60 * Bound(0, 10 * MINUTE).upper_per_s  # what was missed is slower than what is excluded
    assert 60 * Bound(seen, 10 * MINUTE).upper_per_s >= 1 / period * 0.999


@given(st.integers(0, 2_000), st.floats(1, 1e6), st.sampled_from([0.2, 0.05, 1e-3, 1e-6]))
def test_more_zombies_or_less_time_never_make_a_better_promise(seen: int, seconds: float, alpha: float) -> None:
    bound = Bound(seen, seconds, alpha)
    assert bound.lower_per_s <= seen / seconds < bound.upper_per_s
    assert Bound(seen + 1, seconds, alpha).upper_per_s > bound.upper_per_s
    assert Bound(seen, seconds / 2, alpha).upper_per_s > bound.upper_per_s
    assert Bound(seen, seconds, alpha / 2).upper_per_s > bound.upper_per_s
    assert Bound(seen + 1, seconds, alpha).lower_per_s > bound.lower_per_s


def test_a_million_are_bounded_too() -> None:
    assert most(1_000_000, 0.05) == pytest.approx(1_000_000 + 1.645 * 1_000, rel=1e-5)
    assert fewest(1_000_000, 0.05) == pytest.approx(1_000_000 - 1.645 * 1_000, rel=1e-5)
