"""A core that is full of network softirqs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.lab import workshop
from exhume.lab.scenarios.softirq import SCENARIOS, core_mask
from tests.lab.runs import broken, needs_root, play

pytestmark = pytest.mark.ci

(SCENARIO,) = SCENARIOS


@needs_root
@pytest.mark.long
def test_it_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    truth = play(SCENARIO, 8, 500)
    assert broken(truth) == []


def test_a_core_as_the_kernel_reads_it() -> None:
    assert core_mask(0) == "00000001"
    assert core_mask(31) == "80000000"
    assert core_mask(39) == "00000080,00000000"


@given(st.integers(0, 1023))
def test_a_mask_has_one_core(core: int) -> None:
    assert int(core_mask(core).replace(",", ""), 16) == 1 << core
