"""A made fleet: the same for the same seed, as the contract has it, and the whole way from files to what was planted."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from exhume.cli.main import main
from exhume.fleet.directory import load
from exhume.fleet.model import JOBS, MINUTES
from exhume.lab.fleet import write
from exhume.lab.fleet_facts import CAUSES, DAY_MINUTES, Cause, Made, Settings, make
from exhume.lab.fleet_minutes import blocks
from exhume.lab.fleet_summary import as_fleet, lives

TYPES = {"VARCHAR": "string", "TIMESTAMP": "timestamp[us]", "INTEGER": "int32", "BIGINT": "int64", "DOUBLE": "double"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("fleet") / "two"
    write(directory, Settings(220, 10, 4, "two"))
    return directory


def digest(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_the_same_seed_makes_the_same_files_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write(tmp_path / name, Settings(30, 2, seed))
    one, again, other = (digest(tmp_path / name) for name in "abc")
    assert one == again
    assert set(one) == {"nodes.parquet", "minutes/00000.parquet", "jobs.parquet", "truth.json"}
    assert all(one[name] != other[name] for name in one)


@pytest.mark.parametrize(("name", "columns"), [("minutes/00000.parquet", MINUTES), ("jobs.parquet", JOBS)])
def test_the_tables_are_those_of_the_contract(made: Path, name: str, columns: tuple[tuple[str, str, str], ...]) -> None:
    schema = pq.read_schema(made / name)
    assert schema.names == [column for column, _, _ in columns]
    for column, kind, _ in columns:
        found = str(schema.field(column).type)
        assert found == TYPES[kind] or (column == "node" and found.startswith("dictionary<values=string"))


def test_minutes_take_few_bytes(made: Path) -> None:
    files = list((made / "minutes").iterdir())
    rows = sum(pq.read_metadata(path).num_rows for path in files)
    assert 0.98 * 220 * 10 * DAY_MINUTES < rows <= 220 * 10 * DAY_MINUTES
    assert sum(path.stat().st_size for path in files) / rows < 1


@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_planted_is_what_makes_nodes_sick(cause: Cause) -> None:
    made = make(Settings(2000, 14, 6, cause))
    struck = np.zeros(2000, dtype=np.bool_)
    for planted in made.planted:
        struck |= np.all([made.facts[name] == value for name, value in planted.items()], axis=0)
    sick = (made.leak_per_day > 0) | made.starved
    if cause == "none":
        assert not made.planted
        assert 0.03 < sick.mean() < 0.45
    else:
        assert 0.05 < struck.mean() < 0.9
        assert sick[struck].mean() > 0.9
        # What is missing in the inventory is there all the same.
        assert sick[~struck].mean() < 0.15


def test_the_agent_does_not_start_in_one_zone_and_is_enabled_everywhere() -> None:
    made = make(Settings(2000, 14, 6, "agent"))
    zone, agent = made.facts["topology.kubernetes.io/zone"], made.facts["unit:ecs.service"]
    shares = sorted(float((agent[zone == name] == "active").mean()) for name in ("zone-a", "zone-b", "zone-c"))
    assert shares[0] < 0.1
    assert shares[1] > 0.8
    assert set(made.facts["unit:ecs.service:enabled"].tolist()) <= {"enabled", None}


def minutes(made: Made) -> dict[str, NDArray[Any]]:
    (block,) = blocks(made)
    table = block.table
    found = {name: table[name].to_numpy() for name in ("dying", "resets")}
    found["node"] = table["node"].combine_chunks().indices.to_numpy()
    found["days"] = (table["time"].to_numpy() - table["booted"].to_numpy()).astype(np.int64) / 86_400e6
    return found


def test_zombies_grow_by_the_leak_and_are_gone_after_a_reboot() -> None:
    made = make(Settings(60, 14, 9, "agent"))
    table = minutes(made)
    index = next(i for i, boots in enumerate(made.boots) if made.leak_per_day[i] > 0 and len(boots) > 1)
    here = table["node"] == index
    dying, days = table["dying"][here], table["days"][here]
    assert np.diff(dying).min() < -100
    assert np.median(dying[days > 1] / days[days > 1]) == pytest.approx(8640, rel=0.05)


def test_resets_begin_on_the_eighth_day() -> None:
    made = make(Settings(100, 14, 9, "agent"))
    table = minutes(made)
    leaking = made.leak_per_day[table["node"]] > 0
    late = table["resets"][leaking & (table["days"] > 8.5)].mean()
    early = table["resets"][leaking & (table["days"] < 7.5)].mean()
    assert late > 1 / 800
    assert early < late / 20


def test_jobs_die_of_resets_on_their_nodes_more_often_than_by_themselves(made: Path) -> None:
    jobs = pq.read_table(made / "jobs.parquet").to_pylist()
    assert {job["outcome"] for job in jobs} == {"succeeded", "failed", "stopped", None}
    assert all((job["ended"] is None) == (job["outcome"] is None) for job in jobs)
    assert all(job["ended"] is None or job["ended"] >= job["started"] for job in jobs)
    truth = json.loads((made / "truth.json").read_text())
    starved = set(truth["starved"])
    shares = [
        np.mean([job["outcome"] == "failed" for job in jobs if job["outcome"] and (job["node"] in starved) == there])
        for there in (True, False)
    ]
    assert shares[0] > shares[1] + 0.05


def test_the_summary_judges_as_the_minutes_do(made: Path) -> None:
    """What bench/ counts without minutes is what the loader says with them."""
    read = {node.name: node for node in load(str(made)).nodes}
    quick = as_fleet(make(Settings(220, 10, 4, "two")))
    differing = [node.name for node in quick.nodes if read[node.name].sick != node.sick]
    assert len(differing) <= 4
    for node in quick.nodes:
        assert dict(read[node.name].facts) == dict(node.facts)
        assert read[node.name].uptime_s == pytest.approx(node.uptime_s, abs=601 * 60)


def test_a_life_begins_where_the_window_does() -> None:
    assert [(life.begin, life.end) for life in lives([-100, 50], 200)] == [(100, 150), (0, 150)]


@pytest.mark.ci
def test_from_files_to_the_causes(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["fleet", "cohorts", str(made), "--json", "-o", str(page)]) == 2
    found = json.loads(capsys.readouterr().out)
    truth = json.loads((made / "truth.json").read_text())
    assert sorted((each["facts"] for each in found["cohorts"]), key=str) == sorted(truth["causes"], key=str)
    assert set(found) == {"schema", "cohorts", "dose", "misfits"}
    assert set(found["cohorts"][0]) == {"facts", "lift", "support", "confidence", "because"}
    assert found["dose"]["zombies_per_day"] == pytest.approx(8640, rel=0.02)
    assert page.read_text().startswith("<!doctype html>")
    assert main(["fleet", "cohorts", str(made)]) == 2
    told = capsys.readouterr().out
    assert told.startswith("CRITICAL")
    assert "a reboot resets it" in " ".join(told.split())


def test_a_fleet_without_a_cause_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "fleet", "--nodes", "80", "--days", "3", "--cause", "none", "-o", str(tmp_path / "f")]) == 0
    assert main(["fleet", "cohorts", str(tmp_path / "f")]) == 1
    assert "no fact separates them" in capsys.readouterr().out
    assert main(["lab", "fleet", "-o", str(tmp_path / "f")]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["lab", "fleet"],
        ["lab", "fleet", "-o", "x", "--nodes", "0"],
        ["lab", "fleet", "-o", "x", "--seed", "-1"],
        ["lab", "list", "-o", "x"],
        ["fleet", "cohorts", "x", "--level", "0"],
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str]) -> None:
    assert main(words) == 64


def test_a_source_that_says_nothing_cannot_be_judged(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("node,zone\na,b\nc,d\n")
    assert main(["fleet", "cohorts", str(tmp_path)]) == 3
    assert main(["fleet", "cohorts", str(tmp_path / "none")]) == 64
    (tmp_path / "nodes.csv").write_text("node,zone,sick\na,b,false\nc,d,false\n")
    assert main(["fleet", "cohorts", str(tmp_path)]) == 0
