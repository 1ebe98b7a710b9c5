"""Loops that systemd counts, before and after: how long it takes until one is over, and what one restart says."""

from collections.abc import Callable
from functools import partial

import pytest

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.remedy.criteria import Status
from exhume.remedy.criteria_signs import restarts
from tests.incidents.scene import Scene

LIMITS = Thresholds()


def restarted(seconds: int, *at: float, count: int = 40, read_to: float | None = None, waits: float = -1.0) -> Recording:
    """A unit with so many restarts, asked every five seconds: restarted at these; from `waits` on it waits for the next one."""
    scene = Scene(cpus=1, seconds=seconds, off=("samples",))
    for second in range(0, 1 + round(seconds if read_to is None else read_to), 5):
        waiting = 0 <= waits <= second
        scene.row(
            "units", time=scene.at(second), unit="agent.service", cgroup="/system.slice/agent.service", enabled="enabled",
            active="activating" if waiting else "active", sub="auto-restart" if waiting else "running",
            result="exit-code" if waiting else "success", restarts=count + sum(one <= second for one in at),
        )  # fmt: skip
    return scene.whole()


EACH_MINUTE = (60, 120, 180, 240, 300)


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ((200,), partial(restarted, 60, count=41), "too-little"),
        ((200,), partial(restarted, 900, count=41), "too-little"),
        ((200,), partial(restarted, 1100, count=41), "passed"),
        ((200,), partial(restarted, 1100, 5, count=41), "too-little"),
        (EACH_MINUTE, partial(restarted, 600, 5, count=41), "passed"),
        (EACH_MINUTE, partial(restarted, 600, 500, count=41), "failed"),
        (EACH_MINUTE, partial(restarted, 600, *range(50, 600, 60), count=41), "failed"),
        (EACH_MINUTE, partial(restarted, 600, waits=20), "failed"),
        (None, partial(restarted, 600, 5, count=41), "too-little"),
        (None, partial(restarted, 600, count=41), "passed"),
        (None, partial(restarted, 600, 200, 400, count=41), "failed"),
        (None, partial(restarted, 600, *range(600), count=41, read_to=588), "failed"),
    ],
)
def test_a_loop_goes_on_for_three_of_its_periods_and_one_restart_shows_none(
    before: tuple[float, ...] | None, after: Callable[[], Recording], status: Status
) -> None:
    found = restarts(restarted(360, *before) if before is not None else None, after(), LIMITS)
    assert found.status == status, found
    sure = status == "passed" and before == EACH_MINUTE
    assert (found.confidence is not None) == sure, "one restart is no test"
