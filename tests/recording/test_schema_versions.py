"""Recordings of other versions: an old one opens, a newer one is refused in a sentence, columns come and go."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exhume.errors import ExhumeError
from exhume.recording.folder import Folder
from exhume.recording.schema import TABLES, VERSION
from tests.recording.made import BEGIN, REAL, SAMPLES, SECOND, write

# Made by the writer of version 1; fixtures/README.md says how.
VERSION_1 = Path(__file__).parent / "fixtures" / "version-1"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    write(tmp_path / "r", 5)
    return tmp_path / "r"


def rewrite(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_recording_of_version_1_opens_sealed_and_open_segment_alike() -> None:
    folder = Folder(str(VERSION_1))
    assert folder.node.hostname == "n"
    assert [one.sealed for one in folder.segments] == [True, False]
    loaded = folder.load()
    assert len(loaded["samples"]) == 5 * SAMPLES
    assert loaded["samples"].ints("time").min() == BEGIN
    assert {row["name"] for row in loaded["frames"].rows()} == {f"function_{i}" for i in range(16)}
    assert loaded.real_ns(BEGIN) == REAL + BEGIN
    assert len(folder.summary().time) == 10
    assert folder.notes == []


@pytest.mark.parametrize("file", ["recording.json", "chapter.json"])
def test_a_newer_recording_is_refused_in_a_sentence(recorded: Path, file: str) -> None:
    place = recorded / file if file == "recording.json" else next(recorded.glob("*/chapter.json"))
    rewrite(place, lambda document: document.update(schema=f"exhume.recording/{VERSION + 1}"))
    with pytest.raises(ExhumeError, match=f"newer exhume .schema version {VERSION + 1}"):
        Folder(str(recorded))


@pytest.mark.parametrize(
    "mark", ["", "[]", "{}", '{"schema": 7}', '{"schema": "pictures/1"}', '{"schema": "exhume.recording/x"}']
)
def test_a_mark_that_says_something_else_is_no_recording(recorded: Path, mark: str) -> None:
    (recorded / "recording.json").write_text(mark)
    with pytest.raises(ExhumeError, match="not a recording"):
        Folder(str(recorded))


@pytest.mark.parametrize("text", ["", "{", '{"schema": "exhume.recording/1"}', '{"schema": "exhume.recording/1", "node": 3}'])
def test_a_chapter_that_says_nothing_is_passed_over_and_told(recorded: Path, text: str) -> None:
    chapter = next(recorded.glob("*/chapter.json")).parent
    shutil.copytree(chapter, recorded / "20200101T000000Z")
    (recorded / "20200101T000000Z" / "chapter.json").write_text(text)
    folder = Folder(str(recorded))
    assert folder.count("samples") == 5 * SAMPLES
    assert "20200101T000000Z was passed over" in folder.notes[0]


def replaced(path: Path, change: Any) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def test_a_column_that_we_do_not_know_is_passed_over(recorded: Path) -> None:
    for name in ("samples", "cpu", "counters"):
        file = next(recorded.glob(f"*/*/{name}.parquet"))
        replaced(file, lambda table: table.append_column("temperature", pa.array([1.5] * table.num_rows)))
    replaced(next(recorded.glob("*/frames.parquet")), lambda table: table.append_column("line", pa.array([7] * table.num_rows)))
    folder = Folder(str(recorded))
    assert len(folder.load()["samples"]) == 5 * SAMPLES
    assert len(folder.load()["frames"]) == 16
    assert folder.notes == []


def test_a_column_that_an_older_recording_lacks_is_empty(recorded: Path) -> None:
    for table, column in (("cpu", "steal"), ("events", "severity"), ("events", "fields"), ("samples", "thread")):
        replaced(next(recorded.glob(f"*/*/{table}.parquet")), lambda read, column=column: read.drop_columns([column]))
    for table, column in (("stacks", "frames"), ("threads", "unit")):
        replaced(next(recorded.glob(f"*/{table}.parquet")), lambda read, column=column: read.drop_columns([column]))
    folder = Folder(str(recorded))
    loaded = folder.load()
    assert set(loaded["cpu"].ints("steal").tolist()) == {0}
    assert set(loaded["events"].texts("severity")) == {""}
    assert {row["fields"] for row in loaded["events"].rows()} == {()}
    assert {tuple(frames) for frames in loaded["stacks"].lists("frames")} == {()}
    assert set(loaded["samples"].ints("thread").tolist()) == {0}
    assert folder.notes == []


def test_a_column_of_another_kind_is_as_good_as_none(recorded: Path) -> None:
    def words(table: Any) -> Any:
        return table.set_column(table.schema.get_field_index("core"), "core", pa.array(["x"] * table.num_rows))

    replaced(next(recorded.glob("*/*/samples.parquet")), words)
    assert set(Folder(str(recorded)).load()["samples"].ints("core").tolist()) == {0}


def test_the_fixture_has_every_table_that_has_a_time_of_its_own() -> None:
    found = {file.stem for file in VERSION_1.rglob("*.parquet")} | {file.stem for file in VERSION_1.rglob("*.arrows")}
    assert found <= set(TABLES)
    assert {"samples", "stacks", "frames", "threads", "summary", "cpu", "counters", "sources", "anchors", "events"} <= found
    assert BEGIN % SECOND == 0
