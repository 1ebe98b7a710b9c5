"""The tests behind a cohort against tables counted out by hand, and against each other."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.fleet import statistics
from exhume.fleet.statistics import Table
from tests.examples import examples


def counted_out(tables: list[Table]) -> Fraction:
    """Every way in which the sick could have been spread, stratum by stratum."""

    def chances(table: Table) -> dict[int, Fraction]:
        every = math.comb(table.total, table.sick)
        return {
            k: Fraction(math.comb(table.having, k) * math.comb(table.total - table.having, table.sick - k), every)
            for k in range(table.lowest, table.highest + 1)
        }

    observed = sum(table.both for table in tables)
    total = Fraction(0)
    for ways in itertools.product(*(chances(table).items() for table in tables)):
        if sum(k for k, _ in ways) >= observed:
            total += math.prod((chance for _, chance in ways), start=Fraction(1))
    return total


@st.composite
def a_table(draw: st.DrawFn) -> Table:
    total = draw(st.integers(0, 14))
    having, sick = draw(st.integers(0, total)), draw(st.integers(0, total))
    both = draw(st.integers(max(0, having + sick - total), min(having, sick)))
    return Table(both, having, sick, total)


@given(st.lists(a_table(), min_size=1, max_size=3))
@settings(max_examples=examples(150))
def test_the_tail_is_what_counting_every_way_gives(tables: list[Table]) -> None:
    assert math.exp(statistics.log_tail(tables)) == pytest.approx(float(counted_out(tables)), rel=1e-9)


def test_the_lady_who_tasted_tea() -> None:
    """Fisher, 1935: all eight cups right by chance is 1 in 70; six right or more is 17 in 70."""
    assert math.exp(statistics.log_tail([Table(4, 4, 4, 8)])) == pytest.approx(1 / 70)
    assert math.exp(statistics.log_tail([Table(3, 4, 4, 8)])) == pytest.approx(17 / 70)


def test_a_chance_that_no_float_can_hold_is_still_a_number() -> None:
    alone = statistics.log_tail([Table(2000, 2000, 2000, 5000)])
    assert -math.inf < alone < -3000
    twice = statistics.log_tail([Table(2000, 2000, 2000, 5000)] * 2)
    assert twice == pytest.approx(2 * alone)
    nearly = statistics.log_tail([Table(1990, 2000, 2000, 5000)] * 2)
    assert twice < nearly < alone


def test_the_quick_figure_is_the_mantel_haenszel_statistic() -> None:
    """Tables whose statistic is worked out by hand: (7 - 5 + 6 - 4) / sqrt(25/19 + 96/76)."""
    both, having, sick, total = (np.array([[float(v) for v in row]]) for row in ((7, 6), (10, 8), (10, 10), (20, 20)))
    expected = (7 - 5 + 6 - 4) / math.sqrt(10 * 10 * 10 * 10 / (400 * 19) + 8 * 12 * 10 * 10 / (400 * 19))
    assert statistics.surplus(both, having, sick, total)[0] == pytest.approx(expected)


def test_a_fact_that_nobody_or_everybody_has_is_no_surplus() -> None:
    both, having = np.array([[0.0], [5.0]]), np.array([[0.0], [10.0]])
    of, sick = np.full((2, 1), 10.0), np.full((2, 1), 5.0)
    assert statistics.surplus(both, having, sick, of).tolist() == [0.0, 0.0]


def test_facts_that_could_never_prove_anything_are_no_tries() -> None:
    rare = np.full(1000, math.log(0.2))
    common = np.full(7, math.log(1e-9))
    assert statistics.tries(np.concatenate((rare, common)), 0.01) == 7
    assert statistics.tries(common, 0.01) == 7
    assert statistics.tries(np.zeros(0), 0.01) == 1


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
def test_the_smallest_chance_is_that_of_the_most_extreme_table(case: tuple[int, int, int]) -> None:
    total, having, sick = case
    table = Table(min(having, sick), having, sick, total)
    found = statistics.smallest(*(np.array([float(each)]) for each in (having, sick, total)))[0]
    assert math.exp(found) == pytest.approx(float(counted_out([table])), rel=1e-9)


def test_the_slope_of_a_line_is_found_through_odd_points() -> None:
    x = np.arange(40.0)
    y = 8640 * x + 12
    y[::5] = 7.0
    found = statistics.slope(x, y)
    assert found is not None
    assert found.value == pytest.approx(8640, rel=0.01)
    assert found.low <= 8640 <= found.high
    assert found.at_zero == pytest.approx(12, abs=700)


def test_the_interval_of_a_slope_covers_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        x = draws.uniform(0, 10, 30)
        found = statistics.slope(x, 3 * x + draws.normal(0, 4, 30))
        assert found is not None
        covered += found.low <= 3 <= found.high
    assert 180 <= covered <= 200


def test_many_points_are_thinned_without_moving_the_slope() -> None:
    x = np.random.default_rng(1).uniform(0, 14, 20_000)
    found = statistics.slope(x, 100 * x)
    assert found is not None
    assert found.value == pytest.approx(100)
    assert found.points <= 1000


@pytest.mark.parametrize("x", [[], [1.0], [1.0, 1.0, 1.0, 1.0]])
def test_points_without_a_spread_have_no_slope(x: list[float]) -> None:
    assert statistics.slope(np.array(x), np.array(x)) is None


def test_ranks_correlate_through_any_bend_and_not_without_variation() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert statistics.rank_correlation(x, x**7) == pytest.approx(1)
    assert statistics.rank_correlation(x, -x) == pytest.approx(-1)
    assert statistics.rank_correlation(x, np.ones(5)) == 0.0
    # Two of five swapped: 1 - 6 * 2 / (5 * 24).
    assert statistics.rank_correlation(x, np.array([1.0, 3.0, 2.0, 4.0, 5.0])) == pytest.approx(0.9)
