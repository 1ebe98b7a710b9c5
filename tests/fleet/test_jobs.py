"""Jobs and what happened on their nodes: what is put down to starvation is what chance does not bring."""

import csv
import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from exhume.cli.main import main
from exhume.errors import ExhumeError
from exhume.fleet.jobs import Jobs, explain
from exhume.fleet.jobs_directory import load

NOON = datetime(2026, 3, 1, 12)


def drawn(seed: int, count: int, deadly: float, chance: float = 0.15, fails: float = 0.05) -> tuple[Jobs, int]:
    """Jobs of which each is near an event by chance, and dies of it with that probability; and how many truly did."""
    draws = np.random.default_rng(seed)
    near = draws.random((count, 2)) < (chance / 4, chance)
    killed = draws.random(count) < deadly
    failed = (draws.random(count) < fails) | killed
    near[killed, 0] = True
    jobs = Jobs(
        tuple(map(str, range(count))),
        failed,
        near,
        np.tile((chance / 4, chance), (count, 1)),
        draws.random(count) < 0.5,
        draws.exponential(10, count),
        ("",) * count,
    )
    return jobs, int(killed.sum())


@pytest.mark.parametrize("deadly", [0.02, 0.1, 0.3])
def test_the_interval_holds_how_many_truly_died_of_it(deadly: float) -> None:
    held = 0
    for seed in range(40):
        jobs, killed = drawn(seed, 600, deadly)
        told = explain(jobs).killed
        assert told.low <= told.value <= told.high
        held += told.low <= killed <= told.high
    assert held >= 34  # of 40, at 95 %: by chance fewer once in a thousand


def test_where_nothing_died_of_it_nothing_is_put_down_to_it() -> None:
    claimed = sum(explain(drawn(seed, 600, 0.0)[0]).killed.low > 0 for seed in range(60))
    assert claimed <= 7


def test_no_jobs_and_no_failures() -> None:
    nothing = Jobs((), np.zeros(0, bool), np.zeros((0, 2), bool), np.zeros((0, 2)), np.zeros(0, bool), np.zeros(0), ())
    assert (explain(nothing).jobs, explain(nothing).killed.value) == (0, 0.0)
    well, _ = drawn(1, 100, 0.0, fails=0.0)
    assert explain(well).success_after.value == 1.0


def written(tmp_path: Path, jobs: list[tuple[object, ...]], resets: set[tuple[str, int]]) -> Path:
    """Two nodes, six hours of minutes each; resets by node and minute."""
    for name, header, rows in (
        ("jobs", ("job", "node", "started", "ended", "outcome", "gpus", "error"), jobs),
        (
            "minutes",
            ("node", "time", "live", "dying", "resets", "stall_ms", "saturated_ms"),
            [
                (node, NOON + timedelta(minutes=minute), 100, 60_000 if node == "a" else 0, int((node, minute) in resets), 0, 0)
                for node in ("a", "b")
                for minute in range(360)
            ],
        ),
    ):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)
    return tmp_path


def job(name: str, node: str, begin: int, end: int | None, outcome: str, error: str = "") -> tuple[object, ...]:
    ended = "" if end is None else NOON + timedelta(minutes=end)
    return (name, node, NOON + timedelta(minutes=begin), ended, outcome, 8, error)


def test_a_job_is_near_what_happened_on_any_of_its_nodes_in_its_last_minutes(tmp_path: Path) -> None:
    rows = [
        job("died", "b", 0, 103, "failed", "ActorDiedError: 12"),
        job("died", "a", 0, 103, "failed", "ActorDiedError: 12"),
        job("later", "a", 0, 120, "failed", "ValueError: x"),
        job("fine", "b", 0, 103, "succeeded"),
        job("runs", "a", 0, None, ""),
        job("stopped", "a", 0, 103, "stopped"),
        job("elsewhere", "c", 0, 103, "failed"),
        job("backwards", "a", 50, 10, "failed"),
    ]
    jobs = load(str(written(tmp_path, rows, {("a", 100)})))
    near = dict(zip(jobs.names, jobs.near[:, 0].tolist(), strict=True))
    assert near == {"died": True, "fine": False, "later": False}
    assert dict(zip(jobs.names, jobs.sick.tolist(), strict=True)) == {"died": True, "fine": False, "later": True}
    assert jobs.left_out == 1
    assert jobs.gpu_hours[jobs.names.index("died")] == pytest.approx(2 * 8 * 103 / 60)
    chance = jobs.chance[jobs.names.index("died"), 0]
    assert chance == pytest.approx(1 - (1 - 1 / 360) ** 6)
    assert [error[0] for error in explain(jobs).errors] == ["ActorDiedError", "ValueError"]


def test_the_command_tells_it_in_words_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [job(f"died-{i}", "a", 0, 30 * i + 33, "failed", "ActorDiedError") for i in range(10)]
    rows += [job(f"fine-{i}", "b", 0, 30 * i + 33, "succeeded") for i in range(10)]
    place = str(written(tmp_path, rows, {("a", 30 * i + 30) for i in range(10)}))
    assert main(["fleet", "jobs", place, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["failed"], told["near"], told["on_sick_nodes"]["succeeded"]) == ("exhume.jobs/1", 10, 10, 0)
    assert 5 < told["killed"]["low"] <= told["killed"]["value"] <= 10
    assert main(["fleet", "jobs", place]) == 0
    assert "starvation killed" in capsys.readouterr().out


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="no minutes"):
        load(str(tmp_path))
    (tmp_path / "minutes.csv").write_text("what\n1\n")
    (tmp_path / "jobs.csv").write_text("job,node\n")
    with pytest.raises(ExhumeError, match="no column `node`"):
        load(str(tmp_path))
