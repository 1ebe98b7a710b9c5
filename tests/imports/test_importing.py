"""Files into one recording on one axis: what each clock becomes, what is refused, and what is said."""

import os
from pathlib import Path

import numpy as np
import pytest

from exhume.errors import ExhumeError
from exhume.imports import foreign, importing
from exhume.imports.foreign import Brought
from exhume.imports.importing import bring_in
from exhume.imports.incoming import Anchor, Wanted
from exhume.recording.folder import Folder

SECOND = 1_000_000_000
WALL = 1_767_225_600


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "FORMATS", {"made up": "tests.recorder.made_format"})


def bring(tmp_path: Path, *texts: str, anchor: Anchor | None = None) -> tuple[Brought, Folder]:
    paths = []
    for at, text in enumerate(texts):
        path = tmp_path / f"file{at}"
        path.write_text(text)
        paths.append(str(path))
    place = str(tmp_path / "rec")
    return bring_in(paths, place, Wanted(), anchor), Folder(place)


def stacks(folder: Folder) -> list[tuple[int, int, str]]:
    """Time, core and stack of every sample, by name."""
    rows = folder.load()
    frames = dict(zip(rows["frames"].ints("id").tolist(), rows["frames"].texts("name"), strict=True))
    named = {
        int(number): ";".join(frames[frame] for frame in frames_of)
        for number, frames_of in zip(rows["stacks"].ints("id"), rows["stacks"].lists("frames"), strict=True)
    }
    samples = rows["samples"]
    columns = (samples.ints(name).tolist() for name in ("time", "core", "stack"))
    return sorted((time, core, named[stack]) for time, core, stack in zip(*columns, strict=True))


def test_samples_come_with_their_stacks_and_classes(tmp_path: Path) -> None:
    brought, folder = bring(tmp_path, "made-up boot\n1.5 0 bash f;g\n1.6 1 swapper do_idle\nbatch\n1.7 0 bash f;g\n")
    assert brought.samples == 3
    assert stacks(folder) == [(1_500_000_000, 0, "f;g"), (1_600_000_000, 1, "do_idle"), (1_700_000_000, 0, "f;g")]
    classes = folder.load()["stacks"]
    assert sorted(classes.texts("class")) == ["idle", "system"]
    assert folder.about["hz"] == 97
    assert folder.node.hostname == "made"
    assert folder.load(tables=["sources"]).on("samples")


@pytest.mark.ci
def test_hours_in_one_batch_are_cut_into_segments_of_a_minute(tmp_path: Path) -> None:
    lines = "".join(f"{60 * minute + 1} 0 bash f{minute % 3}\n" for minute in range(200))
    _, folder = bring(tmp_path, "made-up boot\n" + lines)
    assert len(stacks(folder)) == 200
    assert len(folder.segments) > 100
    assert len(folder.load(60 * SECOND, 180 * SECOND)["samples"]) == 2


def test_a_new_chapter_tells_all_names_anew(tmp_path: Path) -> None:
    _, folder = bring(tmp_path, "made-up boot\n1 0 bash f;g\nturn\n2 0 bash f;g\n3 0 bash h\n")
    assert [stack for _, _, stack in stacks(folder)] == ["f;g", "f;g", "h"]
    assert len({segment.path.rsplit("/", 2)[1] for segment in folder.segments}) == 2


def test_files_one_after_the_other_and_in_any_order_are_one_recording(tmp_path: Path) -> None:
    _, folder = bring(tmp_path, "made-up boot\n120 0 a x\n121 0 a y\n", "made-up boot\n1 0 b x\n2 1 b z\n")
    assert [stack for _, _, stack in stacks(folder)] == ["x", "z", "x", "y"]
    assert folder.window[0] <= SECOND
    assert folder.window[1] >= 121 * SECOND


def test_without_an_anchor_times_are_those_since_boot_and_it_says_so(tmp_path: Path) -> None:
    brought, folder = bring(tmp_path, "made-up boot\n5 0 a x\n")
    assert brought.anchor is None
    assert folder.real_ns(5 * SECOND) == 5 * SECOND
    assert any("seconds since boot" in note for note in brought.notes)


@pytest.mark.parametrize("guess", ["", " guess"])
def test_an_anchor_of_the_file_gives_the_time_of_day(tmp_path: Path, guess: str) -> None:
    brought, folder = bring(tmp_path, f"made-up boot {WALL}{guess}\n5 0 a x\n")
    assert folder.real_ns(5 * SECOND) == (WALL + 5) * SECOND
    assert any("--anchor sets it right" in note for note in brought.notes) == bool(guess)


def test_what_is_given_is_believed_before_what_is_guessed(tmp_path: Path) -> None:
    given = Anchor(10 * SECOND, (WALL + 100) * SECOND, "given")
    _, folder = bring(tmp_path, f"made-up boot {WALL}\n5 0 a x\n", anchor=given)
    assert folder.real_ns(10 * SECOND) == (WALL + 100) * SECOND


def test_a_log_by_the_time_of_day_is_put_beside_stacks_by_an_anchor(tmp_path: Path) -> None:
    texts = (f"made-up boot {WALL}\n5 0 a x\n", f"made-up wall\n{WALL + 6} ! eth0 was reset\n")
    _, folder = bring(tmp_path, *texts)
    (event,) = folder.load(tables=["events"])["events"].rows()
    assert event["time"] == 6 * SECOND
    assert event["message"] == "eth0 was reset"


def test_without_an_anchor_they_are_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match=r"file1 has the time of day.*--anchor"):
        bring(tmp_path, "made-up boot\n5 0 a x\n", f"made-up wall\n{WALL + 6} ! eth0 was reset\n")


def test_a_log_alone_keeps_the_time_of_day(tmp_path: Path) -> None:
    brought, folder = bring(tmp_path, f"made-up wall\n{WALL + 6} ! eth0 was reset\n{WALL + 7200} ! again\n")
    assert brought.events == 2
    assert folder.real_ns(folder.time_at((WALL + 6) * SECOND)) == (WALL + 6) * SECOND
    events = folder.load(tables=["events"])["events"].ints("time")
    assert np.diff(events).tolist() == [7194 * SECOND]


def test_of_a_directory_what_is_not_known_is_told_and_passed_over(tmp_path: Path) -> None:
    place = tmp_path / "captures"
    place.mkdir()
    (place / "b").write_text("made-up boot\n5 0 a x\n")
    (place / "a.png").write_bytes(b"\x89PNG")
    (place / "empty").touch()
    brought = bring_in([str(place)], str(tmp_path / "rec"))
    assert brought.samples == 1
    assert sum("passed over" in note for note in brought.notes) == 2


def test_a_file_that_is_nothing_known_is_an_error_with_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"\x89PNG")
    with pytest.raises(ExhumeError, match=r"x\.png is nothing that exhume can read: a recording of exhume record, perf\.data"):
        bring_in([str(path)], str(tmp_path / "rec"))
    with pytest.raises(ExhumeError, match=r"nothing-here cannot be read: No such file"):
        bring_in([str(tmp_path / "nothing-here")], str(tmp_path / "rec"))


def test_a_recording_of_ours_is_not_imported(tmp_path: Path) -> None:
    bring(tmp_path, "made-up boot\n5 0 a x\n")
    assert not importing.importable(str(tmp_path / "rec"))
    assert importing.importable(str(tmp_path))
    assert importing.importable(str(tmp_path / "file0"))


def test_a_line_that_several_files_have_counts_once(tmp_path: Path) -> None:
    texts = ("made-up boot\n5 ! reset\n9 ! reset\n", "made-up boot\n5.0001 ! reset\n20 ! reset\n5 ! other\n")
    brought, folder = bring(tmp_path, *texts)
    events = folder.load(tables=["events"])["events"]
    assert sorted(zip(events.ints("time").tolist(), events.texts("message"), strict=True)) == [
        (5 * SECOND, "other"),
        (5 * SECOND, "reset"),
        (9 * SECOND, "reset"),
        (20 * SECOND, "reset"),
    ]
    assert brought.events == 4
    assert any("1 line is in several of the files" in note for note in brought.notes)


def test_what_a_driver_says_twice_in_one_file_is_kept(tmp_path: Path) -> None:
    brought, _ = bring(tmp_path, "made-up boot\n5 ! reset\n5.1 ! reset\n")
    assert brought.events == 2


def test_a_file_of_another_boot_is_placed_by_its_time_of_day(tmp_path: Path) -> None:
    texts = (f"made-up boot {WALL}\n5 ! first\n", f"made-up boot {WALL + 86_400}\n7 ! second\n")
    brought, folder = bring(tmp_path, *texts)
    events = folder.load(tables=["events"])["events"]
    assert sorted(events.ints("time").tolist()) == [5 * SECOND, (86_400 + 7) * SECOND]
    assert folder.real_ns((86_400 + 7) * SECOND) == (WALL + 86_407) * SECOND
    assert any("is of another boot" in note for note in brought.notes)


def test_what_a_recording_of_several_files_is_about_is_that_of_its_samples(tmp_path: Path) -> None:
    _, folder = bring(tmp_path, "made-up boot\n5 0 a x\n", "made-up boot\n6 ! reset\n")
    assert (folder.about["hz"], folder.about["event"]) == (97, "cycles")
    assert folder.about["imported"] == f"{tmp_path}/file0, {tmp_path}/file1"


def test_a_guess_is_not_enough_to_put_a_log_beside_stacks(tmp_path: Path) -> None:
    with pytest.raises(
        ExhumeError, match=r"file1 has the time of day.*--anchor.*the time of a file would put 0\.000=2026-01-01T00:00:00Z"
    ):
        bring(tmp_path, f"made-up boot {WALL} guess\n5 0 a x\n", f"made-up wall\n{WALL + 6} ! eth0 was reset\n")


def test_samples_of_the_same_time_in_two_files_are_told(tmp_path: Path) -> None:
    text = "made-up boot\n5 0 a x\n9 0 a x\n"
    brought, _ = bring(tmp_path, text, text)
    assert any("file1 has samples of a time that other files have" in note for note in brought.notes)
    (tmp_path / "apart").mkdir()
    brought, _ = bring(tmp_path / "apart", text, "made-up boot\n9.1 0 a x\n12 0 a x\n")
    assert not any("other files have" in note for note in brought.notes)


def test_links_that_lead_nowhere_and_directories_are_passed_over(tmp_path: Path) -> None:
    place = tmp_path / "captures"
    (place / "sub").mkdir(parents=True)
    (place / "good").write_text("made-up boot\n5 0 a x\n")
    (place / "loop").symlink_to("loop")
    os.mkfifo(place / "pipe")
    brought = bring_in([str(place)], str(tmp_path / "rec"))
    assert brought.samples == 1
    assert [note.rsplit("/", 1)[1] for note in brought.notes if "passed over" in note] == [
        "loop is no file",
        "pipe is no file",
        "sub is no file",
    ]


def test_a_log_of_hours_beside_samples_does_not_make_the_cores_idle(tmp_path: Path) -> None:
    lines = "".join(f"{5 + tick / 97:.6f} 0 a x\n" for tick in range(97 * 6))
    _, folder = bring(tmp_path, "made-up boot\n" + lines, "made-up boot\n1 ! reset\n30000 ! reset\n")
    assert folder.window[1] - folder.window[0] > 29_000 * SECOND
    assert abs(folder.covered(*folder.window) - 6 * SECOND) < 2 * SECOND
    begin, end = folder.sampled
    assert (begin // SECOND, end // SECOND) == (5, 10)


def test_what_is_only_looked_at_is_left_unsealed_and_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lines = "".join(f"{at / 4} {at % 2} bash f;g{at % 3}\n" for at in range(100))
    path.write_text(f"made-up boot\n{lines}batch\n{lines}")
    bring_in([str(path)], str(tmp_path / "kept"))
    bring_in([str(path)], str(tmp_path / "looked"), kept=False)
    kept, looked = Folder(str(tmp_path / "kept")), Folder(str(tmp_path / "looked"))
    assert [segment.sealed for segment in kept.segments] == [True]
    assert [segment.sealed for segment in looked.segments] == [False]
    assert stacks(looked) == stacks(kept)
    assert not looked.written
    assert len(looked.summary().time) == 50
    assert [column.tolist() for column in looked.summary()] == [column.tolist() for column in kept.summary()]


def test_what_is_only_looked_at_is_sealed_where_it_is_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_MOST_OPEN", 3)
    path = tmp_path / "file"
    batches = [f"{at}.0 0 bash f\n{at}.1 0 bash g\n{at}.2 0 bash f\n{at}.3 0 bash f\nbatch\n" for at in range(5)]
    path.write_text("made-up boot\n" + "".join(batches) + "9.5 0 bash g\n")
    brought = bring_in([str(path)], str(tmp_path / "rec"), kept=False)
    folder = Folder(str(tmp_path / "rec"))
    assert [segment.sealed for segment in folder.segments] == [True] * 5 + [False]
    assert brought.samples == len(stacks(folder)) == 21
