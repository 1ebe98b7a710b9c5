"""Counters of the kernel, read plainly."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.lab import rates
from tests.lab.runs import patiently

WHOLE = st.lists(st.integers(0, 1 << 40), min_size=8, max_size=8)


def test_time_that_the_hypervisor_took_is_not_the_machines() -> None:
    before = (0,) * 8
    after = (60, 0, 20, 10, 0, 0, 10, 300)
    assert rates.share(before, after, rates.USER) == 0.6
    assert rates.share(before, after, rates.SYSTEM, rates.SOFTIRQ) == 0.3
    assert rates.share(before, before, rates.USER) == 0.0


@given(WHOLE, WHOLE, st.sets(st.sampled_from(range(7))))
def test_a_share_is_a_share(before: list[int], after: list[int], columns: set[int]) -> None:
    assert 0 <= rates.share(before, after, *columns) <= 1


def test_numbers_by_their_names() -> None:
    text = "nr_periods 12\nnr_throttled 7\nthrottled_time 900\n"
    assert rates.named(text, "nr_throttled") == 7
    assert rates.named(text, "nr_thro") == 0
    assert rates.named("", "nr_throttled") == 0


def test_the_kernels_files_are_understood() -> None:
    assert len(rates.ticks(rates.ALL_CORES)) == 8
    assert sum(rates.ticks(rates.ALL_CORES)) >= sum(rates.ticks(min(os.sched_getaffinity(0)))) > 0
    assert rates.ticks(9999) == (0,) * 8
    assert rates.vmstat("pgfault") > 0


@pytest.mark.skipif(bool(rates.no_pressure()), reason=rates.no_pressure())
def test_pressure_only_grows() -> None:
    assert 0 <= rates.pressure_us("cpu") <= rates.pressure_us("cpu")


def test_a_rate_is_of_what_has_grown() -> None:
    counts: Iterator[int] = iter((100, 150, 150))
    rate = rates.Rate(lambda: next(counts))
    assert rate.grown == 50
    assert rate.per_second > 0


def test_a_core_is_all_of_its_time_in_some_state() -> None:
    everything = rates.CoreTime(rates.ALL_CORES, *range(rates.STEAL))
    try:
        assert patiently(lambda: everything.full_s > 0)
        assert everything.highest == pytest.approx(1)
        assert everything.mean == pytest.approx(1)
    finally:
        everything.close()
