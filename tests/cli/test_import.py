"""exhume import: what it prints, what it refuses, and that reading commands take files directly."""

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli import importing as command
from exhume.cli.main import main
from exhume.imports import foreign, incoming

SECOND = 1_000_000_000
WALL = 1_767_225_600  # 2026-01-01


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "FORMATS", {"made up": "tests.recorder.made_format"})
    monkeypatch.setenv("TZ", "UTC")


def written(tmp_path: Path, text: str = "made-up boot\n5 0 bash f;g\n6 1 swapper do_idle\n") -> str:
    path = tmp_path / "stacks"
    path.write_text(text)
    return str(path)


def test_it_says_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "rec")
    assert main(["import", written(tmp_path), "-o", place]) == 0
    out = capsys.readouterr().out
    assert "2 samples, 0 events from made up" in out
    assert "5.000 to 6.0" in out
    assert "! no file says what time of day it was" in out
    assert main(["info", place]) == 0


def test_an_anchor_gives_the_time_of_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "rec")
    assert main(["import", written(tmp_path), "-o", place, "--anchor", "5.0=2026-01-01T10:00:00Z", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "exhume.import/1"
    assert said["anchor"] == {"time_ns": 5 * SECOND, "real_ns": (WALL + 36_000) * SECOND, "how": "given"}
    assert (said["samples"], said["files"][0]["format"]) == (2, "made up")
    assert main(["flame", place, "--at", "10:00:00", "--for", "500ms", "--folded"]) == 0
    assert capsys.readouterr().out == "bash;f_[k];g_[k] 1\n"


def test_one_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", written(tmp_path, "made-up boot\n5 0 bash f;g\n"), "-o", str(tmp_path / "rec")]) == 0
    assert "1 sample, 0 events from made up" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"\xfd7zXZ\0", "packed by xz"),
        (b"\x28\xb5\x2f\xfd", "zstd -dc"),
        (b"PK\x03\x04", "unzip"),
        ("x".encode("utf-16"), "iconv"),
    ],
)
def test_what_must_be_unpacked_first_is_told(
    tmp_path: Path, begin: bytes, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(begin + b"rest")
    assert main(["import", str(path), "-o", str(tmp_path / "rec")]) == 3
    assert what in capsys.readouterr().err


def test_a_mark_of_utf_8_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfmade-up boot\n5 0 bash f;g\n")
    assert main(["import", str(path), "-o", str(tmp_path / "rec")]) == 0


def test_who_waits_for_a_fifo_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    said = threading.Event()

    def write() -> None:
        said.wait(20)
        fifo.write_text("made-up boot\n5 0 bash f;g\n")

    writer = threading.Thread(target=write)
    writer.start()
    monkeypatch.setattr(incoming, "_WAITED_MS", 1)
    monkeypatch.setattr(sys, "stderr", Teller(said))
    assert main(["import", str(fifo), "-o", str(tmp_path / "rec")]) == 0
    writer.join()
    assert said.is_set()
    said.set()
    assert "1 sample" in capsys.readouterr().out


class Teller(io.StringIO):
    """Lets somebody know when it is said what is waited for."""

    def __init__(self, said: threading.Event) -> None:
        super().__init__()
        self._said = said

    def write(self, text: str) -> int:
        if "waiting for somebody to write to" in text:
            self._said.set()
        return super().write(text)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(args: object) -> int:
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(command, "run", missing)
    assert main(["import", "x", "-o", "y"]) == 3
    assert "this needs numpy, which is not installed: pip install '.[all]' in a clone of exhume" in capsys.readouterr().err


def test_a_boot_is_a_number_or_an_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["import", "x", "-o", str(tmp_path / "rec"), "--boot", "yesterday"])
    assert "'yesterday' is not a boot; say 0 (the last), -1 (the one before)" in capsys.readouterr().err
    assert main(["import", written(tmp_path), "-o", str(tmp_path / "rec"), "--boot", "-1"]) == 0
    assert "--boot was not needed" in capsys.readouterr().out


def test_quiet_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", written(tmp_path), "-o", str(tmp_path / "rec"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", written(tmp_path), "-o", str(tmp_path)]) == 64
    assert "is not empty: name a directory that is new" in capsys.readouterr().err


def test_nothing_in_it_is_said_by_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", written(tmp_path, "made-up boot\n"), "-o", str(tmp_path / "rec")]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "nothing was found: no sample was found in it" in said.err
    assert not (tmp_path / "rec").exists()


def test_a_directory_that_was_there_stays_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.mkdir(mode=0o700)
    shared.mkdir()
    shared.chmod(0o1777)  # which the store refuses to make its own
    before = {place: place.stat() for place in (mine, shared)}
    for place in (mine, shared):
        assert main(["import", written(tmp_path, "made-up boot\n"), "-o", str(place)]) == 3
        assert list(place.iterdir()) == []
        assert (place.stat().st_ino, place.stat().st_mode) == (before[place].st_ino, before[place].st_mode)
    assert "is there for others as well" in capsys.readouterr().err


def test_damage_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", written(tmp_path, "made-up boot\n1 broken x\n"), "-o", str(tmp_path / "rec")]) == 3
    assert capsys.readouterr().err == "exhume: it is broken at byte 7\n"


def test_reading_commands_take_the_file_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert main(["flame", path, "--folded"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["bash;f_[k];g_[k] 1", "swapper;do_idle_[k] 1"]
    assert "seconds since boot" in said.err
    assert main(["heat", path]) == 0
    assert main(["info", path]) == 0


@pytest.mark.parametrize(
    "text", ["", "5", "=", "5=", "5=yesterday", "boot=10:00", "x=2026-01-01T00:00:00Z", "5=+3s", "-5=2026-01-01T00:00:00Z"]
)
def test_what_is_no_anchor_is_told_how_one_looks(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import", "x", "-o", str(tmp_path / "rec"), f"--anchor={text}"])
    assert ended.value.code == 64
    assert "is not an anchor; say 12345.678=2026-01-31T12:04:31Z" in capsys.readouterr().err


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1))
def test_an_anchor_is_exact_to_the_nanosecond(seconds: int, fraction: int) -> None:
    found = command.anchor(f"{seconds}.{fraction:09}=2026-01-01T00:00:00Z")
    assert found == (seconds * SECOND + fraction, WALL * SECOND, "given", True)
