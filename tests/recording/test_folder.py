"""Reading: any window of a recording, whether it is written, was killed, or was damaged since."""

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND
from exhume.recording import arrow
from exhume.recording.folder import Folder
from exhume.recording.recording import Node, Recording
from exhume.recording.summary import join, summarise
from exhume.recording.tally import of_recording
from exhume.recording.writer import Writer
from tests.examples import examples
from tests.recording.made import ABOUT, BEGIN, NODE, REAL, SAMPLES, rows_of, second, write, writer


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """35 seconds in four sealed segments."""
    path = tmp_path_factory.mktemp("folder") / "r"
    write(path, 35)
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 seconds: one sealed segment, and one that is still open."""
    path = tmp_path_factory.mktemp("killed") / "r"
    store = writer(path)
    for at in range(15):
        store.append(second(at, names=at == 0))
    store.settle()
    copy = path.parent / "copy"
    shutil.copytree(path, copy)
    store.close()
    return copy


def expected(start: int, end: int) -> Recording:
    whole = Recording(NODE)
    for at in range(35):
        whole.extend(second(at, names=at == 0))
    kept = Recording(NODE)
    for name, table in whole.tables.items():
        for row in table.rows():
            if "time" not in row or start <= row["time"] < end:
                kept[name].add(*row.values())
    return kept


def test_a_folder_says_what_it_is(recorded: Path) -> None:
    folder = Folder(str(recorded))
    assert folder.node == NODE
    assert folder.about["hz"] == 97
    assert folder.about["begun"].endswith("Z")
    assert folder.boots == ["boot-1"]
    assert folder.window == (BEGIN, BEGIN + 34 * SECOND + 991_000_000)
    assert [one.sealed for one in folder.segments] == [True] * 4
    assert all(one.size > 0 and not one.pinned for one in folder.segments)
    assert folder.count("samples") == 35 * SAMPLES
    assert folder.count("stacks") == 12
    assert folder.notes == []


@settings(max_examples=examples(40))
@given(st.integers(-2, 36), st.integers(0, 999), st.integers(0, 12_000))
def test_a_window_has_its_rows_and_no_others(recorded: Path, second_: int, ms: int, length_ms: int) -> None:
    start = BEGIN + second_ * SECOND + ms * 1_000_000
    end = start + length_ms * 1_000_000
    folder = Folder(str(recorded))
    loaded, wanted = folder.load(start, end), expected(start, end)
    for table in ("samples", "cpu", "events"):
        assert rows_of(loaded, table) == rows_of(wanted, table), table
    assert all(start <= time < end for time in loaded["counters"].ints("time").tolist())
    used = set(wanted["samples"].ints("stack").tolist())
    assert [row["id"] for row in loaded["stacks"].rows()] == sorted(used)
    assert {row["id"] for row in loaded["frames"].rows()} == {i for stack in used for i in range(stack, stack + 5)}
    counted, names = folder.profile(start, end)
    assert counted.count.tolist() == of_recording(wanted).count.tolist()
    assert counted.stack.tolist() == of_recording(wanted).stack.tolist()
    assert rows_of(names, "frames") == rows_of(loaded, "frames")


def test_a_profile_can_be_of_some_cores(recorded: Path) -> None:
    counted, _ = Folder(str(recorded)).profile(cores=[1, 7])
    assert set(counted.core.tolist()) == {1}
    assert counted.count.sum() == 35 * SAMPLES // 2


def test_the_summary_counts_every_sample_sealed_or_open(recorded: Path, killed: Path) -> None:
    for path, seconds in ((recorded, 35), (killed, 15)):
        folder = Folder(str(path))
        loaded = folder.load()
        samples = loaded["samples"]
        naive = summarise(samples.ints("time"), samples.ints("core"), (samples.ints("stack") % 5).astype(np.int8))
        seen = folder.summary()
        assert len(seen.time) == seconds * 2
        for name in seen._fields:
            assert np.array_equal(getattr(seen, name), getattr(naive, name)), name
        assert rows_of(folder.load(tables=["summary"]), "summary") == rows_of(loaded, "summary")
    part = Folder(str(recorded)).summary(BEGIN + 3 * SECOND, BEGIN + 5 * SECOND)
    assert sorted(set(part.time.tolist())) == [BEGIN + 3 * SECOND, BEGIN + 4 * SECOND]
    assert len(join([part, part]).time) == len(part.time)


def test_wall_time_and_back(recorded: Path) -> None:
    folder = Folder(str(recorded))
    for moment in (BEGIN, BEGIN + 17 * SECOND + 5, BEGIN + 34 * SECOND, BEGIN + 10_000 * SECOND):
        assert folder.real_ns(moment) == REAL + moment
        assert folder.time_at(REAL + moment) == moment


def test_a_stepped_wall_clock_is_followed(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    for at in range(30):
        rows = Recording(NODE)
        step = 3_600 * SECOND if at >= 15 else 0
        rows["anchors"].add(BEGIN + at * SECOND, 0, 0, REAL + BEGIN + at * SECOND + step, 1)
        store.append(rows)
    store.close()
    folder = Folder(str(tmp_path / "r"))
    assert folder.real_ns(BEGIN + 3 * SECOND) == REAL + BEGIN + 3 * SECOND
    assert folder.real_ns(BEGIN + 25 * SECOND) == REAL + BEGIN + 3_625 * SECOND
    assert folder.time_at(REAL + BEGIN + 3_625 * SECOND) == BEGIN + 25 * SECOND
    assert folder.time_at(REAL + BEGIN + 3 * SECOND) == BEGIN + 3 * SECOND


def test_a_window_without_an_anchor_gets_the_nearest_one(recorded: Path) -> None:
    rows = Folder(str(recorded)).load(BEGIN + 5 * SECOND, BEGIN + 5 * SECOND + 100_000_000)
    assert rows.real_ns(BEGIN + 5 * SECOND) == REAL + BEGIN + 5 * SECOND


def test_only_the_tables_that_were_asked_for_are_loaded(recorded: Path) -> None:
    loaded = Folder(str(recorded)).load(tables=["cpu", "threads"])
    assert {name for name, table in loaded.tables.items() if len(table)} == {"cpu", "threads"}


def test_chapters_whose_ids_mean_different_things_are_kept_apart(tmp_path: Path) -> None:
    for comm in ("first", "second"):
        store = writer(tmp_path / "r")
        at = 0 if comm == "first" else 12
        rows = second(at)
        rows["threads"].add(0, 1, 1, 0, comm, "", "", "", "", "")
        rows["frames"].add(0, f"{comm}_function", "", "kernel", -1)
        rows["stacks"].add(0, "user", (0, 0))
        store.append(rows)
        store.close()
    folder = Folder(str(tmp_path / "r"))
    loaded = folder.load()
    comms = {row["id"]: row["comm"] for row in loaded["threads"].rows()}
    stacks = {row["id"]: row["frames"] for row in loaded["stacks"].rows()}
    names = {row["id"]: row["name"] for row in loaded["frames"].rows()}
    samples = [row for row in loaded["samples"].rows() if row["thread"] in comms and row["stack"] in stacks]
    assert {comms[row["thread"]] for row in samples} == {"first", "second"}
    for row in samples:
        assert [names[frame] for frame in stacks[row["stack"]]] == [f"{comms[row['thread']]}_function"] * 2
    counted, tallied = folder.profile()
    assert counted.count.sum() == 2 * SAMPLES
    assert rows_of(tallied, "threads") == rows_of(loaded, "threads")


def test_only_the_last_boot_is_read(tmp_path: Path) -> None:
    for boot, real in (("old", 0), ("new", 100 * SECOND)):
        node = Node("n", boot, "6.18", "v1", 2)
        store = Writer(str(tmp_path / "r"), node, ABOUT, budget_bytes=1 << 30)
        rows = second(0, names=True, node=node)
        if real:
            rows = Recording(node)
            rows["anchors"].add(5, 1, 2, REAL + BEGIN + real, 1)
        store.append(rows)
        store.close()
    folder = Folder(str(tmp_path / "r"))
    assert folder.boots == ["old", "new"]
    assert folder.node.boot_id == "new"
    assert folder.count("samples") == 0
    assert folder.window == (0, 1_000_000)


def open_file(path: Path, table: str) -> Path:
    return next(path.glob(f"*/open-*/{table}.arrows"))


def test_a_stream_that_is_cut_anywhere_gives_the_batches_that_are_whole(killed: Path, tmp_path: Path) -> None:
    data = open_file(killed, "samples").read_bytes()
    rows = [arrow.read_stream(data[:cut])[0] for cut in range(0, len(data) + 1, 7)]
    counts = [0 if table is None else table.num_rows for table in rows]
    assert counts == sorted(counts)
    assert set(counts) == {SAMPLES * seconds for seconds in range(6)} - ({SAMPLES * 5} if len(data) % 7 else set())
    path = tmp_path / "r"
    shutil.copytree(killed, path)
    for cut in (0, 1, 100, len(data) // 2, len(data) - 1):
        open_file(path, "samples").write_bytes(data[:cut])
        folder = Folder(str(path))
        assert 10 * SAMPLES <= len(folder.load()["samples"]) < 15 * SAMPLES
        assert any("cut short" in note for note in folder.notes) == (cut > 0)
    writer(path).close()
    assert len(Folder(str(path)).load()["samples"]) == 14 * SAMPLES


@settings(max_examples=examples(100))
@given(st.data())
def test_a_stream_with_any_byte_changed_is_read_without_an_error(killed: Path, data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(["samples", "counters", "anchors", "events"]))
    raw = bytearray(open_file(killed, table).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    arrow.read_stream(bytes(raw))


@given(st.binary(max_size=200))
def test_garbage_is_no_stream(garbage: bytes) -> None:
    assert arrow.read_stream(garbage)[0] is None


@settings(max_examples=examples(25))
@given(st.data())
def test_a_damaged_recording_is_read_as_far_as_it_goes(recorded: Path, killed: Path, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([recorded, killed]))
    files = sorted(file for file in whole.rglob("*") if file.is_file() and file.suffix in (".parquet", ".arrows"))
    file = data.draw(st.sampled_from(files))
    raw = file.read_bytes()
    damaged = bytearray(raw)
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(damaged) - 1))]
    else:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        file.write_bytes(damaged)
        folder = Folder(str(whole))
        folder.load()
        folder.load(BEGIN + 12 * SECOND, BEGIN + 13 * SECOND)
        folder.profile()
        folder.summary()
        assert folder.count("samples") >= 0
        assert folder.window[1] > folder.window[0]
        assert folder.segments
        folder.time_at(folder.real_ns(BEGIN))
    finally:
        file.write_bytes(raw)


def test_a_damaged_table_costs_that_table_alone_and_is_told(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(recorded, path)
    file = sorted(path.glob("*/*/samples.parquet"))[1]
    raw = bytearray(file.read_bytes())
    raw[30] ^= 0xFF
    file.write_bytes(raw)
    folder = Folder(str(path))
    loaded = folder.load()
    assert len(loaded["samples"]) == 25 * SAMPLES
    assert len(loaded["cpu"]) == 70
    (note,) = folder.notes
    assert "samples.parquet is damaged" in note


def test_what_is_not_finished_or_not_ours_is_passed_over(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(recorded, path)
    (chapter,) = [one for one in path.iterdir() if one.is_dir()]
    sealed = next(one for one in chapter.iterdir() if one.is_dir())
    shutil.copytree(sealed, chapter / "tmp-0000009000000-0000009060000")
    shutil.copytree(sealed, chapter / f"open-{sealed.name.split('-')[0]}")
    shutil.copytree(sealed, chapter / "somebody-elses")
    (path / "20260101T000000Z").mkdir()
    (path / "notes").mkdir()
    folder = Folder(str(path))
    assert folder.count("samples") == 35 * SAMPLES
    assert len(folder.segments) == 4
    assert folder.notes == []


def test_a_recording_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", segment_ns=2 * SECOND, budget_bytes=120_000)
    store.append(second(0, names=True))
    done = threading.Event()
    trouble: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                loaded = Folder(str(tmp_path / "r")).load()
                stacks = {row["id"] for row in loaded["stacks"].rows()}
                assert set(loaded["samples"].ints("stack").tolist()) <= stacks
        except BaseException as error:
            trouble.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(1, 120):
        store.append(second(at))
    done.set()
    reader.join()
    store.close()
    assert not trouble


def test_what_is_not_a_recording_is_said_in_a_sentence(tmp_path: Path, recorded: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    store = writer(tmp_path / "new")
    for path, sentence in (
        ("nowhere", "there is no recording"),
        ("file", "is not a recording"),
        ("empty", "is not a recording"),
        ("new", "holds nothing yet"),
    ):
        with pytest.raises(ExhumeError, match=sentence):
            Folder(str(tmp_path / path))
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_somebody_else_is_told_to_be_root(recorded: Path) -> None:
    code = (
        "import os, sys; from exhume.recording.folder import Folder; from exhume.errors import ExhumeError; os.setuid(65534)\n"
        f"try: Folder({str(recorded)!r})\nexcept ExhumeError as error: print(error)"
    )
    for directory in [recorded, *list(recorded.parents)[:-2]]:
        directory.chmod(0o755 if directory != recorded else 0o700)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "run this as root" in done.stdout, done.stderr


def test_anybody_with_duckdb_can_read_it(recorded: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb, an independent reader")
    rows = duckdb.sql(f"select count(*), core from '{recorded}/*/*/samples.parquet' group by core order by core").fetchall()
    assert rows == [(35 * SAMPLES // 2, 0), (35 * SAMPLES // 2, 1)]
    (chapter,) = [one for one in recorded.iterdir() if one.is_dir()]
    joined = duckdb.sql(
        f"""select frames.name, threads.comm, count(*) from '{chapter}/*/samples.parquet' samples
        join '{chapter}/stacks.parquet' stacks on samples.stack = stacks.id
        join '{chapter}/frames.parquet' frames on frames.id = stacks.frames[-1]
        join '{chapter}/threads.parquet' threads on threads.id = samples.thread
        group by all order by all"""
    ).fetchall()
    assert sum(row[2] for row in joined) == 35 * SAMPLES
    assert joined[0][:2] == ("function_10", "comm0")
    (name, label) = duckdb.sql(
        f"select name, labels->>'cpu' from '{chapter}/*/counters.parquet' where name = 'ticks'"
    ).fetchall()[0]
    assert (name, label) == ("ticks", "0")
    types = duckdb.sql(f"describe select * from '{chapter}/*/samples.parquet'").fetchall()
    assert [row[1] for row in types] == ["BIGINT", "SMALLINT", "INTEGER", "INTEGER"]


def test_when_nobody_recorded_is_a_gap(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    for at in (*range(12), *range(60, 75)):
        store.append(second(at, names=at == 0))
    store.close()
    folder = Folder(str(tmp_path / "r"))
    ((begin, end),) = folder.gaps()
    assert abs(begin - BEGIN - 12 * SECOND) < SECOND
    assert abs(end - BEGIN - 60 * SECOND) < SECOND
    first, last = folder.window
    assert abs(folder.covered(first, last) - 27 * SECOND) < 2 * SECOND
    assert folder.gaps(BEGIN, BEGIN + 10 * SECOND) == []
    inside = (BEGIN + 20 * SECOND, BEGIN + 40 * SECOND)
    assert folder.gaps(*inside) == [inside]
    assert folder.covered(*inside) == 0


def test_whether_it_is_being_written_is_told_by_its_lock(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    store.append(second(0, names=True))
    assert Folder(str(tmp_path / "r")).written
    store.close()
    assert not Folder(str(tmp_path / "r")).written


def test_every_boot_can_be_looked_at(tmp_path: Path) -> None:
    for boot in ("boot-1", "boot-2"):
        node = replace(NODE, boot_id=boot)
        store = Writer(str(tmp_path / "r"), node, ABOUT, budget_bytes=1 << 30)
        store.append(second(0, names=True, node=node))
        if boot == "boot-2":
            store.append(second(1, node=node))
        store.close()
    last, before = Folder(str(tmp_path / "r")), Folder(str(tmp_path / "r"), -1)
    assert (last.node.boot_id, before.node.boot_id) == ("boot-2", "boot-1")
    assert (last.count("samples"), before.count("samples")) == (2 * SAMPLES, SAMPLES)
    for wrong in (1, -2):
        with pytest.raises(ExhumeError, match="has 2 boots: 0 is the last one, -1 the first"):
            Folder(str(tmp_path / "r"), wrong)


@pytest.mark.parametrize("table", ["stacks", "frames", "threads"])
def test_names_that_are_missing_are_told(tmp_path: Path, table: str) -> None:
    write(tmp_path / "r", 3)
    (file,) = (tmp_path / "r").glob(f"*Z/{table}.parquet")
    file.unlink()
    folder = Folder(str(tmp_path / "r"))
    folder.count(table)
    assert any(f"{table}.parquet is not there: names are missing" in note for note in folder.notes)
    file.write_bytes(b"PAR1")
    folder = Folder(str(tmp_path / "r"))
    folder.count(table)
    assert any(f"{table}.parquet is damaged: names are missing" in note for note in folder.notes)
