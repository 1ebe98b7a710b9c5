"""Leaks that do not take the node down: what each scenario promises holds on this kernel, and it is gone afterwards."""

from pathlib import Path

import pytest

from exhume.lab import workshop
from exhume.lab.scenarios.leaks import SCENARIOS
from exhume.lab.works.list_groups import one_pass
from tests.lab.runs import broken, needs_root, patiently, play, zombies

pytestmark = pytest.mark.ci

BY_NAME = {each.name: each for each in SCENARIOS}
SCALE = 2000


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")


@needs_root
@pytest.mark.long
@pytest.mark.parametrize("name", BY_NAME)
def test_it_does_what_it_says(name: str) -> None:
    truth = play(BY_NAME[name], 8, SCALE)
    assert broken(truth) == []
    assert patiently(lambda: zombies(truth["run"]) < SCALE / 10)


def test_a_leak_that_does_not_hurt_is_a_warning_and_never_critical() -> None:
    for name in ("zombies-harmless", "two-culprits"):
        assert BY_NAME[name].truth.cause == "memcg-leak"
        assert BY_NAME[name].truth.health == ("warning",)


def test_both_culprits_are_told_apart() -> None:
    truth = BY_NAME["two-culprits"].truth.of("exhume-lab-1-00ff00")
    assert truth.culprits[0] == "exhume-lab-1-00ff00/docker"
    assert truth.lesser[0] == "exhume-lab-1-00ff00/kubepods/burstable"
    assert not set(truth.lesser) & set(truth.culprits)


def test_a_pass_reads_every_group_that_is_there_and_skips_those_that_are_not(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"crio-{number}.scope").mkdir()
        if number:
            (tmp_path / f"crio-{number}.scope" / "memory.stat").write_text("cache 0\n" * 20_000)
    (tmp_path / "memory.stat").write_text("")
    assert one_pass(str(tmp_path)) == 4
