"""Logs beside each other: files with both clocks, one of them, or the other, become one recording on one axis."""

import os
from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume.imports.importing import bring_in
from exhume.imports.incoming import Anchor
from exhume.recording.folder import Folder

SECOND = 1_000_000_000
BOOTED = 1_794_700_000 * SECOND  # 2026-11-14T23:46:40Z
PAUSED = (
    "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
    "Time since last napi 6596000 usec. napi scheduled: 1"
)
RESET = "ena 0000:20:03.0 eth0: Device reset completed, status: 0"
SYSLOG = f"""\
2026-11-15T03:46:39.900000+00:00 node-7 systemd[1]: Started something.
2026-11-15T03:46:40.100000+00:00 node-7 kernel: [14400.100000] {PAUSED}
2026-11-15T03:46:41.000000+00:00 node-7 kubelet[812]: {PAUSED}
2026-11-15T03:46:42.250000+00:00 node-7 kernel: [14402.250000] {RESET}
"""
DMESG = f"""\
[    0.000000] Linux version 6.18.44 (somebody) #1 SMP
[14400.100000] {PAUSED}
[14460.500000] watchdog: BUG: soft lockup - CPU#39 stuck for 23s! [kubelet:812]
"""
OF_DAY = f"""\
2026-11-14T12:00:00.000000+00:00 node-7 kernel: {RESET}
2026-11-15T03:46:50.000000+00:00 node-7 kernel: {RESET}
"""


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def written(path: Path, name: str, text: str) -> str:
    (path / name).write_text(text)
    os.utime(path / name, ns=(BOOTED + 86_400 * SECOND,) * 2)
    return str(path / name)


def test_a_syslog_with_both_clocks_and_a_raw_dmesg_are_one_recording(tmp_path: Path) -> None:
    files = [written(tmp_path, "syslog", SYSLOG), written(tmp_path, "dmesg.txt", DMESG)]
    brought = bring_in(files, str(tmp_path / "out"))
    assert brought.events == 3
    assert any("1 line is in several of the files" in note for note in brought.notes)
    assert [kind for _, kind in brought.files] == ["kernel log", "kernel log"]
    folder = Folder(str(tmp_path / "out"))
    assert (folder.node.hostname, folder.node.kernel) == ("node-7", "6.18.44")
    events = folder.load(tables=["events"])["events"]
    found = sorted(zip(events.ints("time").tolist(), events.texts("kind"), strict=True))
    assert found == [
        (14_400_100_000_000, "nic-queue-paused"),
        (14_402_250_000_000, "nic-reset-done"),
        (14_460_500_000_000, "soft-lockup"),
    ]
    assert folder.real_ns(14_402_250_000_000) == BOOTED + 14_402_250_000_000
    assert folder.real_ns(14_460_500_000_000) == BOOTED + 14_460_500_000_000
    assert folder.time_at(BOOTED + 14_400_100_000_000) == 14_400_100_000_000


def test_the_time_of_day_alone_beside_a_raw_dmesg_is_refused_by_a_sentence_that_says_what_to_give(tmp_path: Path) -> None:
    files = [written(tmp_path, "messages", OF_DAY), written(tmp_path, "dmesg.txt", DMESG)]
    with pytest.raises(ExhumeError, match=r"messages has the time of day.*--anchor"):
        bring_in(files, str(tmp_path / "out"))


def test_with_an_anchor_both_are_placed_and_what_was_before_the_boot_is_left_out_and_told(tmp_path: Path) -> None:
    files = [written(tmp_path, "messages", OF_DAY), written(tmp_path, "dmesg.txt", DMESG)]
    brought = bring_in(files, str(tmp_path / "out"), anchor=Anchor(0, BOOTED, "given"))
    folder = Folder(str(tmp_path / "out"))
    events = folder.load(tables=["events"])["events"]
    found = sorted(zip(events.ints("time").tolist(), events.texts("kind"), strict=True))
    assert found == [
        (14_400_100_000_000, "nic-queue-paused"),
        (14_410_000_000_000, "nic-reset-done"),
        (14_460_500_000_000, "soft-lockup"),
    ]
    assert brought.events == 3
    assert any("1 event is from before the machine was booted" in note for note in brought.notes)
    assert folder.real_ns(14_410_000_000_000) == BOOTED + 14_410_000_000_000


def test_a_log_with_the_time_of_day_alone_keeps_it(tmp_path: Path) -> None:
    brought = bring_in([written(tmp_path, "messages", OF_DAY)], str(tmp_path / "out"))
    folder = Folder(str(tmp_path / "out"))
    times = folder.load(tables=["events"])["events"].ints("time").tolist()
    assert sorted(times) == [BOOTED - 42_400 * SECOND, BOOTED + 14_410 * SECOND]
    assert folder.real_ns(times[0]) == times[0]
    assert brought.anchor is None
