"""Time that goes back inside of one file: what comes later and is older is found as everything else."""

from pathlib import Path

import numpy as np
import pytest

from exhume.node import log_import
from exhume.profile.importing import perf_script
from exhume.recorder import importing
from exhume.recorder.importing import bring_in
from exhume.recording import chosen, incoming
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
