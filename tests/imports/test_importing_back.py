"""Time that goes back inside of one file: what comes later and is older is found as everything else."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from exhume.imports import importing, incoming, log_import, perf_script
from exhume.imports.importing import bring_in
from exhume.recording import chosen
from exhume.recording.choice import ALL
from exhume.recording.folder import Folder

SECOND = 1_000_000_000
RESET = "ena 0000:20:03.0 eth0: Device reset completed, status: 0"


@pytest.fixture(autouse=True)
def in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_READ", 1 << 15)
    monkeypatch.setattr(perf_script, "_BATCH", 500)
    monkeypatch.setattr(log_import, "_MOST_LINES", 50)


def script(begin: float, samples: int) -> str:
    return "".join(
        f"bash 42/42 [{at % 2:03d}] {begin + at / 100:.6f}: 1 cycles:\n\tffffffff81000010 f{at % 3}+0x1 ([kernel.kallsyms])\n\n"
        for at in range(samples)
    )


def imported(tmp_path: Path, text: str, kept: bool) -> Folder:
    (tmp_path / "file").write_text(text)
    brought = bring_in([str(tmp_path / "file")], str(tmp_path / "rec"), kept=kept)
    folder = Folder(str(tmp_path / "rec"))
    assert folder.count("samples") == brought.samples
    assert folder.count("events") == brought.events
    return folder


def found(folder: Folder) -> list[int]:
    """Samples by everything that asks for them: rows, a flame graph, a heat map, an export, and the same in two halves."""
    begin, end = folder.window
    middle = (begin + end) // 2 // SECOND * SECOND
    tally, _ = folder.profile(begin, end)
    summary = folder.summary(begin, end)
    halves = (folder.load(begin, middle, ["samples"]), folder.load(middle, end, ["samples"]))
    return [
        len(folder.load(begin, end, ["samples"])["samples"]),
        int(np.asarray(tally.count).sum()),
        sum(int(column.sum()) for column in summary[2:7]),
        sum(len(part["time"]) for _, part in chosen.samples(folder, begin, end, ALL)),
        sum(len(half["samples"]) for half in halves),
    ]


@pytest.mark.ci
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("most", [1 << 20, 300])
def test_a_newer_capture_before_an_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, most: int) -> None:
    monkeypatch.setattr(importing, "_MOST_UNSEALED", most)
    monkeypatch.setattr(importing, "_MOST_OPEN", most)
    folder = imported(tmp_path, script(1000, 9000) + script(100, 9000) + script(550.2, 9000) + script(99.9, 9000), kept)
    assert folder.window[0] // 1_000_000 == 99_900
    assert found(folder) == [36_000] * 5


def test_captures_that_all_begin_at_nothing(tmp_path: Path) -> None:
    folder = imported(tmp_path, script(0, 2000) * 30, True)
    assert found(folder) == [60_000] * 5


def test_a_log_from_its_end(tmp_path: Path) -> None:
    lines = [f"[{at:5d}.000000] {RESET}\n" for at in range(100, 3000)]
    folder = imported(tmp_path, "".join(reversed(lines)), True)
    begin, end = folder.window
    assert begin == 100 * SECOND
    assert len(folder.load(begin, end, ["events"])["events"]) == 2900
    assert len(folder.load(200 * SECOND, 300 * SECOND, ["events"])["events"]) == 100


DAY = 1_794_900_000
"""In seconds, of the wall clock."""


def captured(tmp_path: Path, name: str, booted: int, begin: int, samples: int) -> str:
    """As perf script -F +tod prints it: on both clocks."""
    lines = []
    for at in range(begin, begin + samples):
        tod = datetime.fromtimestamp(booted + at).strftime("%Y-%m-%d %H:%M:%S")
        function = f"f{at if at < begin + 10 else begin}"  # those with a name of their own are the first
        lines.append(
            f"a 1/1 [000] {tod}.000000 {at}.000000: 1 cycles:\n\tffffffff81000010 {function}+0x1 ([kernel.kallsyms])\n\n"
        )
    (tmp_path / name).write_text("".join(lines))
    return str(tmp_path / name)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_captures_of_two_boots_are_both_there_whichever_is_named_first(tmp_path: Path, order: tuple[int, int]) -> None:
    files = [captured(tmp_path, "old", DAY - 7200, 100, 20), captured(tmp_path, "new", DAY, 50, 30)]
    brought = bring_in([files[at] for at in order], str(tmp_path / "rec"))
    folder = Folder(str(tmp_path / "rec"))
    assert brought.samples == 50
    assert found(folder) == [50] * 5
    assert [folder.real_ns(time) // SECOND for time in folder.window] == [DAY - 7100, DAY + 79]
    assert not any("before the machine was booted" in note for note in brought.notes)
    assert any("new is of another boot: it was placed by its time of day" in note for note in brought.notes)


def test_a_log_of_a_later_boot_does_not_leave_a_capture_without_a_time(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{_iso(DAY + 60)} n kernel: [   60.000000] {RESET}\n")
    old = captured(tmp_path, "old", DAY - 7200, 100, 20)
    bring_in([str(tmp_path / "log"), old], str(tmp_path / "rec"))
    folder = Folder(str(tmp_path / "rec"))
    assert found(folder) == [20] * 5
    (event,) = folder.load(tables=["events"])["events"].ints("time").tolist()
    assert folder.real_ns(event) // SECOND == DAY + 60


def _iso(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000+00:00")


def test_samples_from_before_the_boot_that_was_given_are_told_and_the_others_keep_their_names(tmp_path: Path) -> None:
    file = captured(tmp_path, "file", DAY, 100, 6000)
    brought = bring_in([file], str(tmp_path / "rec"), anchor=incoming.Anchor(0, (DAY + 5100) * SECOND, "given"))
    folder = Folder(str(tmp_path / "rec"))
    assert brought.samples == 1000
    assert found(folder) == [1000] * 5
    assert any("5,000 samples are from before the machine was booted: left out" in note for note in brought.notes)
    rows = folder.load(tables=["samples", "stacks", "frames"])
    names = dict(zip(rows["frames"].ints("id").tolist(), rows["frames"].texts("name"), strict=True))
    stacks = dict(zip(rows["stacks"].ints("id").tolist(), rows["stacks"].lists("frames"), strict=True))
    assert {names[frame] for stack in rows["samples"].ints("stack").tolist() for frame in stacks[stack]} == {"f100"}
