"""The incident, small: the promises of zombie-starvation hold, and it is gone afterwards."""

import re

import pytest

from exhume.lab import workshop
from exhume.lab.scenario import Settings
from exhume.lab.scenarios.starvation import SCENARIOS, patience_s
from tests.lab.runs import broken, needs_root, patiently, play, zombies

(SCENARIO,) = SCENARIOS
SCALE = 2000


@pytest.mark.ci
@needs_root
def test_a_walk_of_zombies_starves_the_link_and_kills_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    truth = play(SCENARIO, 10, SCALE)
    assert broken(truth) == []
    assert truth["measured"]["round_ms"] >= 1000
    assert re.fullmatch(r"exhume-lab-\d+-[0-9a-f]{6}/docker", truth["truth"]["culprits"][0])
    assert patiently(lambda: zombies(truth["run"]) < SCALE / 10)


def test_promises_grow_with_the_scale() -> None:
    small, large = ({each.what: each.bound for each in SCENARIO.promises(Settings(20, scale))} for scale in (2000, 20_000))
    assert large["zombies"] == 10 * small["zombies"]
    assert (small["worst_rtt_ms"], large["worst_rtt_ms"]) == (100, 300)
    assert {name for name in large if large[name] != small[name]} == {"zombies", "worst_rtt_ms"}


def test_the_job_waits_as_long_as_fits_the_scale() -> None:
    assert [patience_s(Settings(20, scale)) for scale in (100, 2000, 10_000, 20_000, 60_000)] == [0.1, 0.1, 0.5, 1.0, 1.0]


def test_who_walks_is_innocent_and_who_leaks_is_not() -> None:
    truth = SCENARIO.truth.of("exhume-lab-1-00ff00")
    assert "kubelet" in truth.innocent
    assert truth.culprits[0] == "exhume-lab-1-00ff00/docker"
    assert not set(truth.innocent) & set(truth.culprits)
