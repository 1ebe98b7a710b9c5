"""Load that is nobody's fault."""

import pytest

from exhume.lab import workshop
from exhume.lab.scenarios.load import SCENARIOS
from tests.lab.runs import broken, needs_root, play

pytestmark = pytest.mark.ci

FULL, HEALTHY = SCENARIOS


@needs_root
def test_a_full_machine_is_full_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    truth = play(FULL, 8, 500)
    assert broken(truth) == []
    assert truth["measured"]["user_share"] <= truth["measured"]["busy_share"] <= 1


@needs_root
def test_a_busy_node_that_is_well_gets_its_work_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    truth = play(HEALTHY, 8, 500)
    assert broken(truth) == []
    assert truth["truth"]["cause"] is None
    assert truth["truth"]["health"] == ["healthy"]
    assert truth["run"] in truth["truth"]["innocent"]
