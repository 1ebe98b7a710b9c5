"""Many files, and files that do not agree: what stays open, what is found twice, what is told while they are read and after."""

import gzip
import os
import time
from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume.imports import foreign, importing
from exhume.imports.foreign import Brought, File, place
from exhume.imports.importing import bring_in
from exhume.imports.incoming import Anchor, Input, Wanted
from exhume.recording.folder import Folder
from exhume.recording.recording import Node
from tests.imports import made_perf as made

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
RESET = "ena 0000:20:03.0 eth0: Device reset completed, status: 0"


def texts(path: Path, number: int) -> Path:
    path.mkdir()
    for at in range(number):
        sample = f"bash 42/42 [000] {100 + at}.000000: 1 cycles:\n\tffffffff81000010 f+0x1 ([kernel.kallsyms])\n\n"
        (path / f"{at:03}.gz").write_bytes(gzip.compress(sample.encode()))
    return path


def test_a_directory_of_many_files_holds_few_of_them_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, held = 0, 0
    opened = foreign.open_file

    def counted(path: str, wanted: Wanted) -> File:
        nonlocal most, held
        most = max(most, len(os.listdir("/proc/self/fd")))
        found = opened(path, wanted)
        held = max(held, len(found.source.head()))
        return found

    monkeypatch.setattr(importing, "open_file", counted)
    before = len(os.listdir("/proc/self/fd"))
    brought = bring_in([str(texts(tmp_path / "captures", 60))], str(tmp_path / "rec"))
    assert most - before <= importing._MOST_FILES + 1
    assert held
    assert brought.samples == 60
    assert [name.rsplit("/", 1)[1] for name, _ in brought.files] == [f"{at:03}.gz" for at in range(60)]
    assert Folder(str(tmp_path / "rec")).count("samples") == 60
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_can_be_read_once_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_MOST_FILES", 0)
    read, write = os.pipe()
    os.write(write, gzip.decompress((texts(tmp_path / "captures", 3) / "001.gz").read_bytes()))
    os.close(write)
    brought = bring_in([str(tmp_path / "captures"), f"/dev/fd/{read}"], str(tmp_path / "rec"))
    os.close(read)
    assert brought.samples == 4


@pytest.mark.ci
def test_a_line_that_comes_a_hundred_thousand_times_is_found_again_at_once(tmp_path: Path) -> None:
    lines = "".join(f"[{at // 1000:5d}.{at % 1000:03d}000] {RESET}\n" for at in range(100_000))
    for name in ("dmesg.txt", "kern.log"):
        (tmp_path / name).write_text(lines)
    begun = time.process_time()
    brought = bring_in([str(tmp_path / "dmesg.txt"), str(tmp_path / "kern.log")], str(tmp_path / "rec"))
    assert brought.events == 100_000
    assert any("100,000 lines are in several of the files: they count once" in note for note in brought.notes)
    assert time.process_time() - begun < 60  # to look through all of them for each takes many minutes


def test_the_nearer_of_two_lines_is_the_same_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"[   10.000000] {RESET}\n[   13.000000] {RESET}\n")
    (tmp_path / "b.txt").write_text(f"[   11.600000] {RESET}\n[   14.900000] {RESET}\n")
    brought = bring_in([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], str(tmp_path / "rec"))
    assert brought.events == 3
    times = Folder(str(tmp_path / "rec")).load(tables=["events"])["events"].ints("time")
    assert sorted(times.tolist()) == [10 * SECOND, 13 * SECOND, 14_900_000_000]


def test_a_directory_in_which_nothing_can_be_read_says_why(tmp_path: Path) -> None:
    place = tmp_path / "perf.data"
    place.mkdir()
    (place / "data").write_bytes(made.file(b"", features={24: bytes(8)}))
    with pytest.raises(ExhumeError, match=r"has no file in it that exhume can read.*--threads.*run perf script"):
        bring_in([str(place)], str(tmp_path / "rec"))


def test_how_far_it_is_is_told_while_a_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "syslog").write_text(f"[  100.000000] {RESET}\n" + "[  100.500000] usb 1-1: of no matter\n" * 200_000)
    shares: list[float] = []
    bring_in([str(tmp_path / "syslog")], str(tmp_path / "rec"), progress=shares.append)
    assert len({round(share, 2) for share in shares}) > 4
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def looked(name: str, anchor: Anchor | None, hz: int = 97, event: str = "cycles") -> File:
    source = Input("/proc/self/stat")
    source.close()
    source.name = name
    about: dict[str, str | int | bool] = {"hz": hz, "event": event, "every_core": True}
    content = foreign._PutAway("boot", Node("", "", "", "", 0), about, [anchor] if anchor is not None else [], [])
    return File(source, "perf.data", content, Wanted())


def guess(booted: int) -> Anchor:
    return Anchor(HOUR, booted + HOUR, "guessed from the time of the file", sure=False)


def test_a_capture_that_seems_to_be_of_another_boot_is_told_and_not_moved() -> None:
    files = [looked(name, guess(booted)) for name, booted in (("a", HOUR), ("b", HOUR + SECOND), ("c", 9 * HOUR))]
    brought = Brought()
    placed = place(files, None, brought)
    (note,) = [note for note in brought.notes if "another boot" in note]
    assert note.startswith("c seems to be of another boot, or was copied")
    assert "--anchor" in note
    assert [placed.offset(file) for file in files] == [0, 0, 0]


@pytest.mark.parametrize(
    ("guesses", "told"), [([HOUR], False), ([HOUR, 2 * HOUR], False), ([HOUR, 20 * HOUR], True), ([20 * HOUR], False)]
)
def test_where_an_anchor_was_given_guesses_that_are_all_off_are_what_is_wrong(guesses: list[int], told: bool) -> None:
    brought = Brought()
    place([looked("x", guess(booted)) for booted in guesses], Anchor(0, 20 * HOUR, "given"), brought)
    assert any("another boot" in note for note in brought.notes) == told


def test_files_of_different_rates_and_events_are_told_and_stand_for_no_time() -> None:
    brought = Brought()
    placed = place([looked("a", None), looked("b", None, hz=999), looked("c", None, event="cpu-clock")], None, brought)
    assert placed.about["hz"] == 0
    assert (
        "the samples are taken at different rates, 97 Hz (a), 999 Hz (b): they are counted, and stand for no time"
        in brought.notes
    )
    assert "the samples are of different events, cycles (a), cpu-clock (c)" in brought.notes
    brought = Brought()
    placed = place([looked("a", None), looked("b", None), looked("log", None, hz=0, event="")], None, brought)
    assert placed.about["hz"] == 97
    assert not [note for note in brought.notes if "different" in note]
