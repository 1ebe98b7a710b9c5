"""Engines: files in groups, the parts of a pass put together, and what is asked for that is not there."""

import os
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.errors import ExhumeError, UsageError
from exhume.fleet import jobs_directory
from exhume.fleet.directory import connect, load
from exhume.fleet.engine import VARIABLE, Part, Progress, Result, chosen, grouped, watched
from exhume.fleet.jobs import explain
from exhume.fleet.model import Job
from tests.examples import examples

pytestmark = pytest.mark.ci

NOON = datetime(2025, 3, 1, 12)


class Parts:
    """Does what Ray does, one part after the other in this process."""

    def __init__(self, most: int) -> None:
        self.most, self.ran = most, 0

    def run(self, part: Part[Result], source: str, files: Sequence[str], progress: Progress | None = None) -> list[Result]:
        groups = grouped(files, [os.path.getsize(file) for file in files], self.most)
        self.ran += len(groups)
        found = []
        for group in groups:
            with connect() as connection:
                found.append(part(connection, source, group))
        return found


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(-1, 50))
def test_every_file_is_in_one_group_and_groups_are_even(sizes: list[int], most: int) -> None:
    files = [f"f{i:03d}" for i in range(len(sizes))]
    groups = grouped(files, sizes, most)
    assert sorted(file for group in groups for file in group) == files
    assert len(groups) == min(len(files), max(1, most))
    weights = [sum(sizes[int(file[1:])] + 1 for file in group) for group in groups]
    # Least-filled first: no group is ahead of another by more than its last file.
    assert not weights or max(weights) - min(weights) <= max(sizes) + 1


MINUTE = st.tuples(
    st.sampled_from(["a", "b", "ü'\";--"]),
    st.integers(0, 400),
    st.sampled_from([0, 3, 100, 200]),
    st.none() | st.integers(0, 5000),
    st.none() | st.integers(0, 2),
    st.none() | st.integers(0, 4000),
    st.integers(0, 3),
)


def written(root: Path, rows: list[Any], without: set[int]) -> None:
    """Minutes in four files, some of them without a column that the others have."""
    (root / "minutes").mkdir(parents=True)
    unique = {(row[0], row[1]): row for row in rows}
    for number in range(4):
        some = [row for row in unique.values() if row[6] == number]
        columns = {
            "node": pa.array([row[0] for row in some], pa.string()),
            "time": pa.array([NOON + timedelta(minutes=row[1]) for row in some], pa.timestamp("us")),
            "booted": pa.array([NOON - timedelta(minutes=row[2]) for row in some], pa.timestamp("us")),
            "live": pa.array([10 for _ in some], pa.int32()),
            "dying": pa.array([row[3] for row in some], pa.int64() if number % 2 else pa.int32()),
            "resets": pa.array([row[4] for row in some], pa.int32()),
            "stall_ms": pa.array([row[5] for row in some], pa.int32()),
        }
        if number in without:
            del columns["dying"], columns["stall_ms"]
        if some:
            pq.write_table(pa.table(columns), root / "minutes" / f"{number}.parquet")


@given(st.lists(MINUTE, min_size=1, max_size=60), st.sets(st.integers(0, 3)), st.integers(1, 5))
@settings(max_examples=examples(25))
def test_parts_come_to_the_same_as_the_whole(tmp_path_factory: Any, rows: list[Any], without: set[int], most: int) -> None:
    root = tmp_path_factory.mktemp("parts")
    written(root, rows, without)
    parts = Parts(most)
    assert load(str(root), engine=parts) == load(str(root))
    assert parts.ran >= 1


@given(st.lists(MINUTE, min_size=1, max_size=60), st.sets(st.integers(0, 3)), st.integers(2, 5))
@settings(max_examples=examples(12))
def test_jobs_explained_by_parts_are_explained_the_same(
    tmp_path_factory: Any, rows: list[Any], without: set[int], most: int
) -> None:
    root = tmp_path_factory.mktemp("jobs")
    written(root, rows, without)
    start = (NOON - datetime(1970, 1, 1)).total_seconds()
    jobs = [
        Job(f"j{i}", node, start + 60 * i, start + 60 * (i + 30), ("failed", "succeeded")[i % 2], 8.0, "\ud800: x")
        for i in range(0, 300, 25)
        for node in ("a", "b")
    ]
    whole = jobs_directory.load(str(root), rows=jobs)
    parts = jobs_directory.load(str(root), rows=jobs, engine=Parts(most))
    assert parts.names == whole.names
    for name in ("failed", "near", "chance", "sick", "gpu_hours"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
    assert len(whole.names) + whole.left_out == 12
    assert explain(parts) == explain(whole)


def test_duckdb_tells_how_far_it_is_and_goes_on_without_anybody_listening() -> None:
    told: list[float] = []
    with connect() as connection:
        with watched(connection, told.append):
            for _ in range(30):  # until the watcher has seen a pass that takes long enough to be seen
                query = "SELECT count(*) FROM range(40000000) t(i) WHERE (i * 7919) % 1000 = hash(i) % 1000"
                connection.execute(query).fetchall()
                if told:
                    break
        assert told
        assert all(0 < each <= 1 for each in told)
        with watched(connection, None):
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_duckdb_spills_to_a_private_directory_that_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"exhume-duckdb-{os.getpid()}").symlink_to("elsewhere")  # the name that could be foreseen
    with connect("100MB") as connection:
        told = connection.execute("SELECT current_setting('temp_directory')").fetchone()
        assert told is not None
        spill = Path(told[0])
        assert spill.parent == tmp_path
        assert not spill.is_symlink()
        assert spill.stat().st_mode & 0o777 == 0o700
        connection.execute("CREATE TEMP TABLE t AS SELECT i, hash(i) AS h FROM range(20000000) t(i)")
        assert list(spill.iterdir())
    assert not spill.exists()
    assert not (tmp_path / "elsewhere").exists()


def test_the_engine_is_chosen_by_option_or_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen() is None
    assert chosen("ray") is not None
    monkeypatch.setenv(VARIABLE, "ray")
    assert chosen() is not None
    assert chosen("duckdb") is None
    monkeypatch.setenv(VARIABLE, "spark\x1b")
    with pytest.raises(UsageError, match=r"spark\\x1b is no engine"):
        chosen()
    with pytest.raises(UsageError, match="goes with --engine ray"):
        chosen("duckdb", "head:6379")


def test_without_ray_a_sentence_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        import ray  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        written(tmp_path, [("a", 1, 0, 5, 0, 0, 0)], set())
        assert main(["fleet", "cohorts", str(tmp_path), "--engine", "ray"]) == ExhumeError.exit_code
        assert "pip install ray" in capsys.readouterr().err
    else:
        pytest.skip("Ray is installed here")
