"""Input that once ended commands as a bug of ours (exit 70): giant times, deep JSON, few descriptors, Ctrl-C while loading."""

import ast
import base64
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import exhume
from exhume.cli.main import main
from exhume.errors import EXIT_BUG
from exhume.text import from_json
from tests.recording import made

# A perf.data of 40 samples, one of them at the end of time.
GIANT_TIME = (
    b"eNrtldtOwkAQhgfEoIQLYvoemEagnEtPauKF8Q0UUFBE5KR39hF8C99SLEsX6B+IExNDQnaSnU27O99+3YvOtXvjXV65eoYWYYr8SbEg+7SKZjh/"
    b"xSgaiQT9R8hjDkQ+pVSQ52NwO2z3x7R8Rp2kyAZp4bqc9XBdC4cOdSmRO8t1kheS2eyXjPgRHQYjHoxsr3uXfV+d40Hdsdh3QWcnUZ/Wlu+Pyxff"
    b"MxGyTnJywGlD/TZODjh54Nx/LPbNfuHkgVMAzgPTpwAcAzgd5v0YwCkCp8v0KQKnBJxHpk8JOGXgPDF9ysCpAKfH9KkApwqcZ6ZPFTg14PSZPjXg"
    b"1IHzwvSpA8cEzoDpYwKnAZxXpk8DOBZwhkwfCzg2cEZMHxs4DnDGTB8HOC5wJkwfFzgecKZMHw8458B5Y/rIOkfkI7LEnN74+7fn9X6L1n6PkdDW"
    b"+sBfQ/W9HfU9po/qe6rvqb6n+t6+9b0fRSh3UA=="
)
DEEP = "[" * 200_000


@pytest.fixture
def giant(tmp_path: Path) -> Path:
    (tmp_path / "perf.data").write_bytes(zlib.decompress(base64.b64decode(GIANT_TIME)))
    return tmp_path / "perf.data"


@pytest.mark.parametrize("command", ["flame", "diagnose", "info", "heat"])
def test_a_time_that_no_clock_shows_is_left_out(command: str, giant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(giant)]) != EXIT_BUG
    assert "a bug in exhume" not in capsys.readouterr().err


def test_samples_with_sensible_times_are_imported(giant: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(giant), "-o", str(tmp_path / "rec")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "39 samples" in told
    assert "1 of its rows have a time that no clock shows: left out" in told


@pytest.mark.parametrize("time", ["9223372036.854775807", "18446744073.709551615", "99999999999999999999.0", "4611686018.5"])
def test_giant_times_of_text_are_no_bug(time: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script").write_text(f"prog 1/1 [000] {time}: 1 cycles:\n\tffff main (/bin/prog)\n\n")
    (tmp_path / "log").write_text(f"[{time}] ena 0000:00:05.0 eth0: TX timeout\n")
    for name in ("script", "log"):
        assert main(["diagnose", str(tmp_path / name)]) != EXIT_BUG
    assert "a bug in exhume" not in capsys.readouterr().err


@pytest.mark.ci
@pytest.mark.parametrize("file", ["recording.json", "chapter.json"])
@pytest.mark.parametrize("command", ["info", "diagnose", "flame", "heat", "bundle"])
@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        DEEP.replace("[", '{"a":'),
        "",
        "null",
        '{"schema": "exhume.recording/' + "9" * 5000 + '"}',
        '{"schema": "exhume.recording/1", "node": ' + DEEP,
    ],
    ids=["lists", "objects", "empty", "null", "version", "inside"],
)
def test_json_that_is_nested_or_damaged_is_a_sentence(
    file: str, command: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made.write(tmp_path / "r", 3)
    (found,) = (tmp_path / "r").rglob(file)
    found.write_text(text)
    code = main([command, str(tmp_path / "r")])
    told = capsys.readouterr().err
    assert code != EXIT_BUG, told
    assert "a bug in exhume" not in told


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 30, "-1" + "0" * 30, "NaN"])
@pytest.mark.parametrize("key", ["time", "real", "cpus"])
def test_numbers_of_a_chapter_that_no_clock_has_are_damage(
    number: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write(tmp_path / "r", 3)
    (found,) = (tmp_path / "r").rglob("chapter.json")
    text = re.sub(rf'"{key}": *-?\d+', f'"{key}": {number}', found.read_text())
    assert number in text
    found.write_text(text)
    assert main(["diagnose", str(tmp_path / "r")]) != EXIT_BUG
    assert "a bug in exhume" not in capsys.readouterr().err


@pytest.mark.parametrize("text", [DEEP, DEEP.encode(), "{", b"\xff", "1" * 5000], ids=["deep", "bytes", "cut", "raw", "big"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        from_json(text)


def test_json_is_read_in_one_place() -> None:
    guilty = [
        file.name
        for file in Path(exhume.__file__).parent.rglob("*.py")
        if re.search(r"\.loads?\b|JSONDecoder", text := file.read_text())  # to look closer takes a while
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load", "json.JSONDecoder")
    ]
    assert guilty == ["text.py"]


@pytest.mark.ci
@pytest.mark.skipif(os.geteuid() != 0, reason="recording needs root")
@pytest.mark.parametrize("most", [12, 16, 28, 40, 64])
def test_few_open_files_are_no_bug(most: int, tmp_path: Path) -> None:
    limited = f'ulimit -n {most} && exec "$0" -m exhume record {tmp_path}/rec --for 1s'
    done = subprocess.run(["bash", "-c", limited, sys.executable], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 3), done.stderr
    assert "a bug in exhume" not in done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 3:
        assert "open files" in done.stderr


INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
sys.argv = ["exhume", "check", "--for", "1s"]
from exhume.__main__ import run
run()
"""


@pytest.mark.parametrize("name", ["exhume.cli.main", "argparse", "exhume.cli.check", "numpy"])
def test_ctrl_c_while_modules_are_loaded_ends_it_quietly(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED.format(name=name)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (130, "")


HELD_BACK = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["exhume", "--version"]
from exhume.__main__ import run
run()
"""


def test_ctrl_c_that_the_launcher_held_back_ends_it_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", HELD_BACK], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
