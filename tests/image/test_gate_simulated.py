"""The gate on simulated leaks of known rate: how often it is wrong, on either side, is no more than it says."""

from collections import Counter

import numpy as np
import pytest

from exhume.image.gate_growth import NAME, check, growth, room
from exhume.image.gate_model import Options
from tests.diagnosis.findings.lives import life
from tests.image.test_gate import soaked

SOAKS = 150
DAY = 86_400
OPTIONS = Options(limit=1_000, life_s=14 * DAY)


def statuses(in_a_life: float, hours: float, seed: int) -> Counter[str]:
    """What is said of soaks of an image that leaks so many in fourteen days, at random."""
    random = np.random.default_rng(seed)
    seconds = hours * 3600
    found: Counter[str] = Counter()
    for _ in range(SOAKS):
        recording = soaked(seconds, on=("cpu", "cgroup-events"))
        moments = random.uniform(0, seconds - 1, random.poisson(in_a_life * (seconds - 1) / OPTIONS.life_s))
        for number, at in enumerate(np.sort(moments).tolist()):
            life(recording, "/system.slice/a.service", at - 0.1, at, number)
        said = check(growth(recording, OPTIONS), 0, OPTIONS, [])
        assert said.name == NAME
        found[said.status] += 1
    return found


ROOM = room(0, OPTIONS)
WRONG = 0.05 * SOAKS + 3 * (0.05 * 0.95 * SOAKS) ** 0.5  # three deviations more than what is said


@pytest.mark.parametrize("hours", [1.1, 6, 24])
def test_a_leak_at_the_limit_is_seldom_passed_and_seldom_failed(hours: float) -> None:
    found = statuses(ROOM, hours, round(hours * 10))
    assert found["passed"] <= WRONG
    assert found["failed"] <= WRONG
    assert found["unknown"] == 0


def test_an_image_without_a_leak_is_never_failed_and_passes_when_the_soak_is_long_enough() -> None:
    assert statuses(0, 0.5, 1) == {"warning": SOAKS}
    assert statuses(0, 1.1, 1) == {"passed": SOAKS}


def test_a_leak_of_the_incidents_rate_is_failed_within_minutes() -> None:
    """One each ten seconds: 120,960 in fourteen days."""
    assert statuses(OPTIONS.life_s / 10, 1 / 6, 2)["failed"] >= 0.99 * SOAKS
