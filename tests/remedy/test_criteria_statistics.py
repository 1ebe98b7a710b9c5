"""The tests behind a proof, held against definitions, known values and simulation with fixed seeds."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.remedy.criteria_statistics import (
    Sequential,
    beta_below,
    dispersion,
    gamma_below,
    poisson_lower,
    poisson_most,
    poisson_upper,
    ranked_lower,
    rarer,
    share_bounds,
)


def poisson_at_most(count: int, mean: float) -> float:
    return sum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(count + 1))


def binomial_at_most(count: int, draws: int, chance: float) -> float:
    return sum(math.comb(draws, i) * chance**i * (1 - chance) ** (draws - i) for i in range(count + 1))


@given(st.integers(1, 60), st.floats(0.01, 90.0))
def test_a_gamma_share_is_a_sum_of_poisson_terms(count: int, mean: float) -> None:
    assert gamma_below(count, mean) == pytest.approx(1 - poisson_at_most(count - 1, mean), abs=1e-9)


@given(st.integers(1, 40), st.data(), st.floats(0.001, 0.999))
def test_a_beta_share_is_a_sum_of_binomial_terms(draws: int, data: st.DataObject, chance: float) -> None:
    count = data.draw(st.integers(1, draws))
    expected = 1 - binomial_at_most(count - 1, draws, chance)
    assert beta_below(count, draws - count + 1, chance) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("count", "lower", "upper"),
    # Half of the chi-square quantiles with 2k and 2k + 2 degrees of freedom, as printed in tables.
    [(0, 0.0, 2.996), (1, 0.0513, 4.744), (5, 1.970, 10.513), (20, 13.255, 29.062), (100, 84.139, 118.079)],
)
def test_bounds_of_a_rate_are_those_of_the_tables(count: int, lower: float, upper: float) -> None:
    assert poisson_lower(count, 0.95) == pytest.approx(lower, abs=2e-3)
    assert poisson_upper(count, 0.95) == pytest.approx(upper, abs=2e-3)


def test_bounds_of_a_large_count_are_near_the_normal_ones() -> None:
    assert poisson_upper(60_000, 0.95) == pytest.approx(60_000 + 1.645 * math.sqrt(60_000), rel=1e-4)
    assert poisson_lower(60_000, 0.95) == pytest.approx(60_000 - 1.645 * math.sqrt(60_000), rel=1e-4)


@pytest.mark.parametrize("mean", [0.3, 2.0, 11.0, 140.0])
def test_bounds_of_a_rate_cover_it_as_often_as_they_say(mean: float) -> None:
    drawn, often = np.unique(np.random.default_rng(3).poisson(mean, 20_000), return_counts=True)
    uppers = np.array([poisson_upper(count, 0.95) for count in drawn.tolist()])
    lowers = np.array([poisson_lower(count, 0.95) for count in drawn.tolist()])
    assert often[uppers >= mean].sum() / 20_000 >= 0.945
    assert often[lowers <= mean].sum() / 20_000 >= 0.945


@given(st.floats(0.0, 80.0))
def test_no_more_come_by_chance_than_are_said_to(mean: float) -> None:
    most = poisson_most(mean, 0.95)
    assert mean == 0 or 1 - poisson_at_most(most, mean) <= 0.05 + 1e-9
    assert most == 0 or 1 - poisson_at_most(most - 1, mean) > 0.05 - 1e-9


def test_what_comes_by_chance_of_very_many_is_soon_known() -> None:
    """A limit that somebody set to switch a criterion off."""
    assert poisson_most(1e6, 0.95) == pytest.approx(1e6 + 1.645 * 1e3, rel=1e-5)
    assert poisson_most(0.0, 0.95) == 0


@given(st.integers(0, 50), st.integers(0, 50))
def test_bounds_of_a_share_have_their_tails(count: int, rest: int) -> None:
    draws = count + rest
    low, high = share_bounds(count, draws, 0.95)
    assert 0 <= low <= high <= 1
    if count:
        assert 1 - binomial_at_most(count - 1, draws, low) == pytest.approx(0.05, abs=1e-6)
    if rest:
        assert binomial_at_most(count, draws, high) == pytest.approx(0.05, abs=1e-6)


def test_a_rate_that_did_not_change_is_seldom_said_to_be_less() -> None:
    generator = np.random.default_rng(11)
    pairs, often = np.unique(np.stack((generator.poisson(8, 20_000), generator.poisson(4, 20_000))), axis=1, return_counts=True)
    alarms = sum(n for (b, a), n in zip(pairs.T.tolist(), often.tolist(), strict=True) if rarer(b, 2.0, a, 1.0) <= 0.05)
    assert 0.01 < alarms / 20_000 <= 0.055


def test_a_rate_that_fell_is_said_to_be_less() -> None:
    assert rarer(60, 600, 0, 60) < 0.01
    assert rarer(3, 3600, 0, 600) > 0.5
    assert rarer(0, 3600, 0, 3600) == 1.0
    assert rarer(0, 3600, 5, 3600) == 1.0


def test_ranks_of_few_windows_are_counted_out() -> None:
    after, before = [0.0, 0.0, 1.0], [0.0, 2.0, 3.0, 1.0]
    every = np.array(after + before)
    order = np.array([(every < value).sum() + ((every == value).sum() + 1) / 2 for value in every])
    sums = [order[list(chosen)].sum() for chosen in combinations(range(7), 3)]
    expected = np.mean([total <= order[:3].sum() for total in sums])
    assert ranked_lower(after, before) == pytest.approx(expected)


@pytest.mark.parametrize("windows", [6, 60])
def test_ranks_give_false_alarms_as_seldom_as_they_say(windows: int) -> None:
    """Few and many windows: most of them have nothing in them, as those of bursts do."""
    generator = np.random.default_rng(5)
    runs = 1500
    drawn = generator.random((runs, 2 * windows)) * (generator.random((runs, 2 * windows)) < 0.4)
    alarms = sum(ranked_lower(row[:windows], row[windows:]) <= 0.05 for row in drawn)
    assert alarms / runs <= 0.065


def test_ranks_of_two_methods_agree_where_they_meet() -> None:
    generator = np.random.default_rng(9)
    for _ in range(20):
        after, before = generator.random(20), generator.random(20) + 0.15
        exact = ranked_lower(after, before)
        doubled = ranked_lower(np.append(after, 99.0), np.append(before, 99.0))
        assert doubled == pytest.approx(exact, abs=0.05)


def test_heaps_are_told_from_chance() -> None:
    generator = np.random.default_rng(2)
    assert dispersion([0] * 59 + [30]) == pytest.approx(30, rel=0.05)
    assert dispersion([1] * 60) == 1.0
    assert dispersion([]) == dispersion([4]) == dispersion([0, 0, 0]) == 1.0
    alarms = sum(dispersion(generator.poisson(2.0, 60)) > 1 for _ in range(1000))
    assert alarms / 1000 <= 0.08


@pytest.mark.ci
@pytest.mark.parametrize("heaps", [1, 30], ids=["one at a time", "thirty at once"])
@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0])
def test_looking_every_second_alarms_no_more_often_than_stated(rate: float, heaps: int) -> None:
    """At any harmless rate of arrivals (a minute), however many come at once, ten minutes long, a look each second."""
    generator = np.random.default_rng(17)
    runs, seconds, alpha = 4000, 600, 0.01
    hits = (generator.poisson(rate / 60, (runs, seconds)) * heaps > 0).cumsum(axis=1)
    ever = 0
    for row in hits:
        changed = np.flatnonzero(np.diff(row, prepend=0))  # the odds fall between two events
        for second in changed.tolist():
            if Sequential(1 / 60, seconds=second + 1, hit=int(row[second])).odds >= 1 / alpha:
                ever += 1
                break
    assert ever / runs <= alpha


@pytest.mark.parametrize(("a_minute", "within_s"), [(6, 180), (60, 20), (300, 10)])
def test_a_leak_that_goes_on_is_found_early(a_minute: float, within_s: int) -> None:
    generator = np.random.default_rng(23)
    found = 0
    for _ in range(200):
        test = Sequential(1 / 60)
        for happened in (generator.poisson(a_minute / 60, within_s) > 0).tolist():
            test.look([happened])
            if test.odds >= 100:
                found += 1
                break
    assert found >= 190


def test_odds_of_a_long_leak_stay_a_number() -> None:
    test = Sequential(1 / 60)
    test.look([True] * 3600)
    assert 1e100 < test.odds < math.inf
