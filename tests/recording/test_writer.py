"""Writing: what was appended is on disk, whole, bounded, for root alone, whatever happens to the disk or to the writer."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from exhume.errors import ExhumeError, Refused
from exhume.recording import layout, sealing
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording, labels
from exhume.recording.schema import TABLES
from exhume.recording.writer import Writer
from tests.examples import PROFILE, examples
from tests.recording.made import ABOUT, BEGIN, NODE, SAMPLES, SECOND, dictionaries, recordings, rows_of, second, write, writer


def size_of(path: Path) -> int:
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # sealed, or gone, as we look
                total += os.lstat(os.path.join(directory, name)).st_size
    return total


def segments(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.glob("*/*") if one.is_dir())


def test_a_recording_is_laid_out_as_documented_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    store = write(tmp_path / "r", 25)
    assert not store.lost
    assert not store.troubles
    (chapter,) = [one for one in (tmp_path / "r").iterdir() if one.is_dir()]
    assert layout.is_chapter(chapter.name)
    assert [one.split("/")[1] for one in segments(tmp_path / "r")] == [
        "0000005000000-0000005009991",
        "0000005010000-0000005019991",
        "0000005020000-0000005024991",
    ]
    assert {one.name for one in chapter.iterdir() if one.is_file()} == {
        "chapter.json",
        "stacks.parquet",
        "frames.parquet",
        "threads.parquet",
    }
    for path in [tmp_path / "r", *(tmp_path / "r").rglob("*")]:
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_its_size_is_known_without_looking(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    for at in range(25):
        store.append(second(at, names=at == 0))
        store.settle()
        assert store.size_bytes == size_of(tmp_path / "r")
    store.pin(BEGIN, BEGIN + SECOND, "because")
    store.close()
    assert store.size_bytes == size_of(tmp_path / "r")
    again = writer(tmp_path / "r")
    assert again.size_bytes == size_of(tmp_path / "r")
    again.close()


@settings(max_examples=examples(40))
@given(recordings())
def test_whatever_is_written_comes_back_from_the_open_and_from_the_sealed_segment(rows: Recording) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = writer(Path(directory) / "r")
        store.append(rows)
        opened = Folder(f"{directory}/r").load()
        store.close()
        assert not store.troubles
        sealed = Folder(f"{directory}/r")
        loaded = sealed.load()
        assert not [note for note in sealed.notes if "names are missing" not in note]  # these rows are any rows
    for table in set(TABLES) - {"summary", "stacks", "frames", "threads", "sources", "counters"}:
        assert rows_of(opened, table) == rows_of(loaded, table) == rows_of(rows, table), table
    for table, used in (("stacks", rows["samples"].ints("stack")), ("threads", rows["samples"].ints("thread"))):
        last = {row["id"]: row for row in rows[table].rows()}
        expected = [last[one] for one in sorted(set(used.tolist())) if one in last]
        for read in (opened, loaded):
            assert [{**row, "frames": tuple(row.get("frames", ()))} for row in read[table].rows()] == [
                {**row, "frames": row.get("frames", ())} for row in expected
            ]
    assert set(rows_of(loaded, "counters")) <= set(rows_of(rows, "counters"))
    assert {row[1:3] for row in rows_of(loaded, "counters")} == {row[1:3] for row in rows_of(rows, "counters")}
    assert loaded.sources().keys() == rows.sources().keys()


def test_a_row_with_an_id_that_was_written_replaces_the_earlier_one(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    store.append(second(0, names=True))
    later = second(1)
    later["frames"].add(3, "learnt_later", "[kernel]", "kernel", -1)
    store.append(later)

    def name() -> str:
        rows = Folder(str(tmp_path / "r")).load()["frames"].rows()
        return next(str(row["name"]) for row in rows if row["id"] == 3)

    assert name() == "learnt_later"
    for at in range(2, 12):
        store.append(second(at))
    again = second(12)
    again["frames"].add(3, "learnt_last", "[kernel]", "kernel", -1)
    store.append(again)
    store.settle()
    assert name() == "learnt_last"
    store.close()
    assert name() == "learnt_last"


def test_every_segment_knows_the_counters_and_sources_that_did_not_change_in_it(tmp_path: Path) -> None:
    write(tmp_path / "r", 35)
    folder = Folder(str(tmp_path / "r"))
    assert len(folder.segments) == 4
    rows = folder.load(BEGIN + 32 * SECOND, BEGIN + 33 * SECOND)
    constant = rows.counter("constant")
    assert constant is not None
    assert constant.values.tolist() == [7]
    assert rows.on("cpu")
    ticks = rows.counter("ticks", labels(cpu=0))
    assert ticks is not None
    assert ticks.values.tolist() == [31, 32]
    assert ticks.times.tolist() == [BEGIN + 32 * SECOND, BEGIN + 32 * SECOND + 100_000_000]
    whole = folder.load()
    assert len(whole.counters("constant")[()].values) == 1
    assert whole.counters("ticks")[labels(cpu=0)].values.tolist() == list(range(35))
    assert len(whole["sources"]) == 1


def test_more_series_than_are_carried_cost_the_ones_that_changed_longest_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exhume.recording.carry.SERIES", 10)
    store = writer(tmp_path / "r")
    first = second(0, names=True)
    for i in range(20):
        first.count(BEGIN + 10 + i, f"series{i}", i)
    store.append(first)
    store.append(second(11))
    store.close()
    names = {row[1] for row in rows_of(Folder(str(tmp_path / "r")).load(BEGIN + 5 * SECOND), "counters")}
    assert "series19" in names
    assert "series0" not in names


def test_a_new_chapter_begins_when_asked_and_has_dictionaries_of_its_own(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    store.append(second(0, names=True))
    before = store.chapter
    store.turn()
    assert store.chapter != before
    store.append(second(1, names=True))
    store.close()
    chapters = [one for one in (tmp_path / "r").iterdir() if one.is_dir()]
    assert len(chapters) == 2
    assert all((chapter / "stacks.parquet").exists() for chapter in chapters)
    assert Folder(str(tmp_path / "r")).count("samples") == 2 * SAMPLES


def test_a_second_recorder_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    with pytest.raises(ExhumeError, match="another recorder writes"):
        writer(tmp_path / "r")
    store.close()
    writer(tmp_path / "r").close()


def test_a_directory_that_holds_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ExhumeError, match="not a recording"):
        writer(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["precious"]


def test_a_recording_of_a_newer_exhume_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_text('{"schema": "exhume.recording/99"}')
    with pytest.raises(ExhumeError, match="newer exhume"):
        writer(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a link to somebody else")
@pytest.mark.parametrize("where", ["theirs/rec", "theirs/rec/deeper", "theirs/rec/..//rec", "ours/deeper"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_of_another_user_is_not_followed(
    tmp_path: Path, where: str, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "theirs").mkdir()
    target = tmp_path / "srv"
    if there:
        target.mkdir()
        target.chmod(0o755)
    (tmp_path / "theirs" / "rec").symlink_to(target)
    os.lchown(tmp_path / "theirs" / "rec", 65534, 65534)
    (tmp_path / "ours").symlink_to("theirs/rec")
    with pytest.raises(Refused, match=r"theirs/rec is a symbolic link of user 65534"):
        writer(tmp_path / where)
    assert target.exists() == there
    if there:
        assert stat.S_IMODE(target.stat().st_mode) == 0o755
        assert list(target.iterdir()) == []
    monkeypatch.setenv("SUDO_UID", "65534")  # that user became root by sudo
    writer(tmp_path / where).close()


def test_a_link_of_our_own_leads_to_the_recording(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data/rec")
    write(tmp_path / "link", 3)
    assert (tmp_path / "data" / "rec" / "recording.json").exists()
    assert Folder(str(tmp_path / "link")).window == Folder(str(tmp_path / "data" / "rec")).window


def test_links_in_circles_and_names_below_files_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    with pytest.raises(ExhumeError, match="leads in circles"):
        writer(tmp_path / "circle")
    with pytest.raises(ExhumeError, match=r"cannot record into .*/file/rec: Not a directory"):
        writer(tmp_path / "file" / "rec")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory to somebody else")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(ExhumeError, match="belongs to user 65534"):
        writer(tmp_path / "theirs")


def test_the_oldest_segments_go_first_and_the_budget_holds_at_every_moment(tmp_path: Path) -> None:
    budget = 150_000
    store = writer(tmp_path / "r", budget_bytes=budget, segment_ns=3 * SECOND)
    largest = 0
    for at in range(150):
        if at and at % 40 == 0:
            store.turn()
        store.append(second(at, names=at % 40 == 0))
        largest = max(largest, size_of(tmp_path / "r"))
        store.settle()
        largest = max(largest, size_of(tmp_path / "r"))
    store.close()
    assert not store.lost
    assert not store.troubles
    assert largest <= budget
    folder = Folder(str(tmp_path / "r"))
    assert folder.window[0] > BEGIN + 3 * SECOND
    assert folder.window[1] >= BEGIN + 149 * SECOND
    assert folder.window[1] - folder.window[0] > 20 * SECOND
    for chapter in (one for one in (tmp_path / "r").iterdir() if one.is_dir()):
        assert layout.spans(os.listdir(chapter)), "a chapter without segments goes"


def test_what_is_older_than_asked_goes(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", keep_ns=30 * SECOND, segment_ns=5 * SECOND)
    for at in range(90):
        store.append(second(at, names=at == 0))
        store.settle()
    store.close()
    start, end = Folder(str(tmp_path / "r")).window
    assert 30 * SECOND <= end - start <= 45 * SECOND


def test_a_pinned_segment_stays_when_older_and_newer_ones_go(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", budget_bytes=150_000, segment_ns=3 * SECOND)
    for at in range(150):
        store.append(second(at, names=at == 0))
        store.settle()
        if at == 10:
            store.pin(BEGIN + 4 * SECOND, BEGIN + 5 * SECOND, "sealed")
            store.pin(BEGIN + 10 * SECOND, BEGIN + 11 * SECOND, "open")
            store.pin(BEGIN + 20 * SECOND, BEGIN + 21 * SECOND, "to come")
    store.close()
    pinned = {one.pinned: (one.start, one.end) for one in Folder(str(tmp_path / "r")).segments if one.pinned}
    assert set(pinned) == {"sealed", "open", "to come"}
    for reason, moment in (("sealed", 4), ("open", 10), ("to come", 20)):
        assert pinned[reason][0] <= BEGIN + moment * SECOND <= pinned[reason][1]
    assert not store.lost


def test_pins_that_exceed_the_budget_are_told_and_kept(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", budget_bytes=60_000, segment_ns=3 * SECOND)
    store.pin(0, 1 << 62, "everything")
    for at in range(60):
        store.append(second(at, names=at == 0))
        store.settle()
    store.close()
    assert store.lost.keys() == {"over budget"}
    assert any("pinned" in trouble or "budget" in trouble for trouble in store.troubles)
    assert store.take_troubles()
    assert store.troubles == []
    assert size_of(tmp_path / "r") <= 60_000
    assert Folder(str(tmp_path / "r")).window[0] == BEGIN


def test_where_pins_go_an_incident_that_lasts_does_not_end_the_recording(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", budget_bytes=150_000, segment_ns=3 * SECOND, pins_go=True)
    store.pin(0, 1 << 62, "everything")
    for at in range(150):
        store.append(second(at, names=at == 0))
        store.settle()
    assert store._retention.free(at_least=1) == 0  # the disk is full of what others wrote
    store.close()
    assert (store.lost, store.troubles) == ({}, [])
    assert size_of(tmp_path / "r") <= 150_000
    start, end = Folder(str(tmp_path / "r")).window
    assert end > BEGIN + 149 * SECOND
    assert start > BEGIN + 60 * SECOND


def test_where_pins_go_they_leave_half_of_the_budget_to_the_last_minutes_and_the_latest_of_them_stay(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", budget_bytes=150_000, segment_ns=3 * SECOND, pins_go=True)
    store.pin(0, BEGIN + 60 * SECOND, "long")
    store.pin(BEGIN + 90 * SECOND, BEGIN + 92 * SECOND, "short")
    for at in range(200):
        store.append(second(at, names=at == 0))
        store.settle()
    pinned_bytes = store._retention.pinned_bytes
    store.close()
    assert not store.lost
    kept = Folder(str(tmp_path / "r")).segments
    pinned = [one for one in kept if one.pinned]
    assert "short" in {one.pinned for one in pinned}
    assert len(pinned) > 2
    assert pinned_bytes <= 75_000
    loose = [one for one in kept if not one.pinned]
    assert loose[-1].end - loose[0].start >= 20 * SECOND
    assert loose[-1].end > BEGIN + 199 * SECOND


def test_retention_touches_nothing_that_is_not_ours(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "samples.parquet").write_text("precious")
    write(tmp_path / "r", 25)
    (chapter,) = [one for one in (tmp_path / "r").iterdir() if one.is_dir()]
    oldest = tmp_path / "r" / segments(tmp_path / "r")[0]
    (oldest / "notes.txt").write_text("somebody's")
    (chapter / "0000000000000-0000000000001").symlink_to(outside)
    (tmp_path / "r" / "20000101T000000Z").symlink_to(outside)
    store = writer(tmp_path / "r", budget_bytes=20_000)
    for at in range(60):
        store.append(second(at, names=at == 0))
        store.settle()
    store.close()
    assert (outside / "samples.parquet").read_text() == "precious"
    assert (oldest / "notes.txt").read_text() == "somebody's"
    assert [one.name for one in oldest.iterdir()] == ["notes.txt"]


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "exhume-test", str(path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_is_told_and_recording_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 600):
        store = writer(disk / "r")
        store.append(second(0, names=True))
        (disk / "filler").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize))
        chapter = store.chapter
        for at in range(1, 30):
            store.append(second(at))
        assert store.lost["disk full"] > 0
        assert any("disk full" in trouble for trouble in store.troubles)
        (disk / "filler").unlink()
        for at in range(30, 33):
            store.append(second(at, names=store.chapter != chapter))
        store.close()
        folder = Folder(str(disk / "r"))
        times = folder.load()["samples"].ints("time")
        assert times.max() >= BEGIN + 32 * SECOND
        assert BEGIN in times
        assert not folder.notes


def test_on_a_full_disk_old_segments_make_room_for_new_ones(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 500):
        store = writer(disk / "r", segment_ns=3 * SECOND)
        chapter = 0
        for at in range(120):
            store.append(second(at, names=store.chapter != chapter))
            chapter = store.chapter
            store.settle()
        store.close()
        times = Folder(str(disk / "r")).load()["samples"].ints("time")
        assert times.max() >= BEGIN + 119 * SECOND
        assert times.min() > BEGIN + 3 * SECOND


def test_names_that_did_not_reach_the_disk_are_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = writer(tmp_path / "r")
    store.append(second(0))
    before = store.chapter
    monkeypatch.setattr(os, "pwritev", _failing(os.pwritev, 1))
    store.append(second(1, names=True))
    assert store.chapter != before
    assert store.lost["disk error"] == 30
    store.append(second(2, names=True))
    store.close()
    loaded = Folder(str(tmp_path / "r")).load()
    stacks = {row["id"] for row in loaded["stacks"].rows()}
    assert set(loaded["samples"].ints("stack").tolist()) <= stacks


def _failing(call: Callable[..., Any], times: int) -> Callable[..., Any]:
    left = [times]

    def fail(*args: Any, **keywords: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(5, "Input/output error")
        return call(*args, **keywords)

    return fail


def test_a_write_that_was_cut_short_leaves_a_whole_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = writer(tmp_path / "r")
    store.append(second(0, names=True))
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, data, at: real(fd, [bytes(data[0])[:40]], at))
    store.append(second(1))
    monkeypatch.setattr(os, "pwritev", real)
    store.append(second(2))
    folder = Folder(str(tmp_path / "r"))
    assert sorted(set((folder.load()["samples"].ints("time") - BEGIN) // SECOND)) == [0, 2]
    assert not folder.notes
    store.close()
    assert "disk full" in store.lost


@pytest.mark.parametrize("what", ["recording", "chapter", "segment"])
def test_a_directory_that_is_removed_under_the_recorder_is_made_again(tmp_path: Path, what: str) -> None:
    import shutil

    store = writer(tmp_path / "r")
    for at in range(12):
        store.append(second(at, names=at == 0))
    store.settle()
    chapter = store.chapter
    open_segment = next((tmp_path / "r").glob("*/open-*"))
    shutil.rmtree({"recording": tmp_path / "r", "chapter": open_segment.parent, "segment": open_segment}[what])
    store.append(second(12))
    assert store.chapter != chapter
    assert store.lost["directory removed"] == SAMPLES
    store.append(second(13, names=True))
    store.close()
    assert any("removed" in trouble for trouble in store.troubles)
    times = Folder(str(tmp_path / "r")).load()["samples"].ints("time")
    assert BEGIN + 13 * SECOND in times
    assert BEGIN + 12 * SECOND not in times


def test_without_a_parent_everything_is_lost_and_told_and_nothing_is_raised(tmp_path: Path) -> None:
    import shutil

    (tmp_path / "parent").mkdir()
    store = writer(tmp_path / "parent" / "r")
    store.append(second(0, names=True))
    shutil.rmtree(tmp_path / "parent")
    store.append(second(1))
    store.append(second(2))
    store.close()
    assert store.lost["directory removed"] >= 2 * SAMPLES
    assert not (tmp_path / "parent").exists()


def test_when_the_parent_is_back_recording_goes_on(tmp_path: Path) -> None:
    import shutil

    (tmp_path / "parent").mkdir()
    store = writer(tmp_path / "parent" / "r")
    store.append(second(0, names=True))
    shutil.rmtree(tmp_path / "parent")
    store.append(second(1))
    (tmp_path / "parent").mkdir()
    chapter = store.chapter
    store.append(second(2, names=True))
    assert store.chapter == chapter
    store.close()
    assert len(Folder(str(tmp_path / "parent" / "r")).load()["samples"]) == SAMPLES
    with pytest.raises(ExhumeError, match="there is no recording"):
        Folder(str(tmp_path / "parent" / "other"))


def test_somebody_elses_directory_in_place_of_the_removed_one_is_left_alone(tmp_path: Path) -> None:
    import shutil

    store = writer(tmp_path / "r")
    store.append(second(0, names=True))
    shutil.rmtree(tmp_path / "r")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "theirs").write_text("precious")
    for at in range(1, 4):
        store.append(second(at))
    store.close()
    assert store.lost["directory removed"] >= 3 * SAMPLES
    assert [one.name for one in (tmp_path / "r").iterdir()] == ["theirs"]


def test_a_wall_clock_that_was_set_back_does_not_make_the_newest_the_oldest(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", budget_bytes=100_000, segment_ns=3 * SECOND)
    for at in range(90):
        rows = Recording(NODE)
        whole = second(at, names=at % 30 == 0)
        for name, table in whole.tables.items():
            if name != "anchors":
                rows[name].extend(table)
        rows["anchors"].add(BEGIN + at * SECOND, 1, 2, (1_790_000_000 - at * 100) * SECOND, 100)
        if at and at % 30 == 0:
            store.turn()
        store.append(rows)
        store.settle()
    store.close()
    assert not store.lost
    start, end = Folder(str(tmp_path / "r")).window
    assert end >= BEGIN + 89 * SECOND
    assert start > BEGIN + 3 * SECOND


def test_a_segment_that_could_not_be_sealed_stays_readable_and_is_sealed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = writer(tmp_path / "r")
    for at in range(11):
        if at == 10:
            monkeypatch.setattr(os, "fsync", _failing(os.fsync, 1))
        store.append(second(at, names=at == 0))
    store.settle()
    assert any("could not be sealed" in trouble for trouble in store.troubles)
    assert len(Folder(str(tmp_path / "r")).load()["samples"]) == 11 * SAMPLES
    assert not list((tmp_path / "r").glob("*/tmp-*"))
    for at in range(11, 22):
        store.append(second(at))
    store.close()
    folder = Folder(str(tmp_path / "r"))
    assert all(one.sealed for one in folder.segments)
    assert len(folder.load()["samples"]) == 22 * SAMPLES


class Crash(BaseException):
    """The recorder dies here: nothing may catch this and tidy up."""


@pytest.mark.ci
def test_a_crash_at_any_step_of_sealing_leaves_everything_readable_and_is_made_good(tmp_path: Path) -> None:
    steps = 0
    while True:
        path = tmp_path / f"r{steps}"
        store = writer(path)
        for at in range(3):
            store.append(second(at, names=at == 0))
        segment = store._segment
        assert segment is not None
        store._segment = None
        segment.close()
        store.close()
        if not _crash_after(steps, path, segment.chapter, segment.name):
            break
        assert_whole(path, 3)
        writer(path).close()
        assert_whole(path, 3)
        assert not [one for one in segments(path) if "open-" in one or "tmp-" in one]
        steps += 1
    assert steps > 25


def _crash_after(steps: int, path: Path, chapter: str, name: str) -> bool:
    """Whether the crash came before sealing was done."""
    left = [steps]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **keywords: Any) -> Any:
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return call(*args, **keywords)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for call in ("rename", "unlink", "mkdir", "rmdir", "write", "fsync"):
            patch.setattr(os, call, counted(getattr(os, call)))
        try:
            sealing.seal(str(path / chapter), name)
        except Crash:
            return True
    return False


def assert_whole(path: Path, seconds: int) -> None:
    folder = Folder(str(path))
    loaded = folder.load()
    assert len(loaded["samples"]) == seconds * SAMPLES
    assert {row["id"] for row in loaded["stacks"].rows()} == set(loaded["samples"].ints("stack").tolist())
    assert folder.summary().idle.sum() == sum(
        row["id"] % 5 == 0
        for row in loaded["stacks"].rows()
        for _ in range((loaded["samples"].ints("stack") == row["id"]).sum())
    )
    assert not folder.notes


KILLED = """
import sys
from pathlib import Path
from tests.recording.made import second, writer, SECOND
store = writer(Path(sys.argv[1]), segment_ns=3 * SECOND)
for at in range(100_000):
    store.append(second(at, names=at == 0))
    print(at, flush=True)
"""


def test_a_killed_recorder_loses_nothing_that_it_had_appended(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    for attempt in range(2 if PROFILE == "everyday" else 6):
        path = tmp_path / f"r{attempt}"
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(float(random.uniform(0, 0.15)))
            child.send_signal(signal.SIGKILL)
            appended = [0, *(int(line) for line in child.stdout.read().split("\n")[:-1])][-1]
        for _ in range(2):
            folder = Folder(str(path))
            loaded = folder.load()
            times = loaded["samples"].ints("time")
            assert {(time - BEGIN) // SECOND for time in times.tolist()} >= set(range(appended + 1))
            assert set(loaded["samples"].ints("stack").tolist()) <= {row["id"] for row in loaded["stacks"].rows()}
            writer(path).close()


def test_rows_without_a_clock_are_written_too(tmp_path: Path) -> None:
    rows = Recording(NODE)
    rows["events"].add(3, "line", "", "info", "early", ())
    store = Writer(str(tmp_path / "r"), NODE, ABOUT, budget_bytes=1 << 20)
    store.append(Recording(NODE))
    store.append(rows)
    store.close()
    assert rows_of(Folder(str(tmp_path / "r")).load(), "events") == [(3, "line", "", "info", "early", ())]
    assert not store.troubles


def test_a_name_that_is_not_text_is_kept_visible(tmp_path: Path) -> None:
    rows = second(0)
    dictionaries(rows)
    rows["events"].add(BEGIN, "line", "\udc80\ud800x", "info", "", labels(comm="\udcff"))
    store = writer(tmp_path / "r")
    store.append(rows)
    store.close()
    assert not store.troubles
    (event,) = Folder(str(tmp_path / "r")).load()["events"].rows()
    assert event["subject"] == "\\udc80\\ud800x"


def test_rows_that_go_back_have_segments_that_begin_with_them(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", late_ns=0)
    order = [100, 101, 50, 51, 50, 102, 7, 7, 103]
    for at, when in enumerate(order):
        store.append(second(when, names=not at))
    store.close()
    assert not store.lost
    folder = Folder(str(tmp_path / "r"))
    assert folder.window[0] == BEGIN + 7 * SECOND
    begin, end = folder.window
    assert len(folder.load(begin, end, ["samples"])["samples"]) == len(order) * SAMPLES
    for when in set(order):
        start = BEGIN + when * SECOND
        found = len(folder.load(start, start + SECOND, ["samples"])["samples"])
        assert found == order.count(when) * SAMPLES
    starts = [segment.start for segment in folder.segments]
    assert len(set(starts)) == len(starts)


def test_many_segments_may_begin_at_the_same_time(tmp_path: Path) -> None:
    store = writer(tmp_path / "r", late_ns=0)
    for at in range(6):
        rows = second(0, names=not at)
        store.append(rows)
        store.cut()
    store.close()
    folder = Folder(str(tmp_path / "r"))
    assert len(folder.segments) == 6
    assert len(folder.load(*folder.window, ["samples"])["samples"]) == 6 * SAMPLES


def test_rows_of_a_recorder_that_come_late_change_no_segment(tmp_path: Path) -> None:
    store = writer(tmp_path / "r")
    for at, when in enumerate([0, 1, 2, 1, 3, 10, 9, 11]):
        store.append(second(when, names=not at))
    store.close()
    assert [one.split("/")[1] for one in segments(tmp_path / "r")] == [
        "0000005000000-0000005003991",
        "0000005010000-0000005011991",
    ]
