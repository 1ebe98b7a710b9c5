"""The command, on a real socket: its address, its answers, and how it ends."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.cli.main import main

FOLDED = "main;work 5\nmain;rest 3\n"


@contextmanager
def served(*arguments: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    command = [sys.executable, "-m", "exhume", "view", *arguments, "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def got(url: str, token: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers={"X-Exhume-Token": token} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_printed_address_works_and_ctrl_c_ends_it(recorded: str) -> None:
    with served(recorded, "--from", "+5s", "--for", "2s") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        base, _, token = url.partition("/?token=")
        assert got(f"{base}/api/about")[0] == 401
        status, body = got(f"{base}/api/about", token)
        about = json.loads(body)
        assert (status, about["initial"]) == (200, {"from": 5_000_000, "to": 7_000_000})
        assert got(url)[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        _, told = process.communicate()
        assert "Traceback" not in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_imported_goes_with_it(tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    files = [tmp_path / "a.folded", tmp_path / "b.folded"]
    for file in files:
        file.write_text(FOLDED)
    with served(*map(str, files)) as (process, url):
        base, _, token = url.partition("/?token=")
        assert json.loads(got(f"{base}/api/about", token)[1])["name"] == "2 files"
        assert json.loads(got(f"{base}/api/flame", token)[1])["total"] == 16
        process.send_signal(number)
        assert process.wait(120) == 0
    assert list(tmp_path.glob("exhume-import-*")) == []


def test_a_port_that_is_taken_is_told(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["view", recorded, "--no-open", "--port", str(port)]) == 3
    assert f"127.0.0.1:{port} cannot be served on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--port", "x"], ["--port", "70000"], ["--host", "no.such.host.invalid"], ["--from", "never"]]
)
def test_wrong_usage_is_told(recorded: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["view", recorded, "--no-open", *arguments])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    assert code == 64
    assert "Traceback" not in capsys.readouterr().err


def test_a_recording_is_shown_alone(recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "a.folded"
    other.write_text(FOLDED)
    assert main(["view", recorded, str(other), "--no-open"]) == 64
    assert "shown alone" in capsys.readouterr().err
    assert main(["view", str(tmp_path / "nothing"), "--no-open"]) == 3


@pytest.mark.parametrize("damage", ["mark", "chapter", "empty"])
def test_a_recording_that_cannot_be_read_ends_it_with_a_sentence(recorded: str, tmp_path: Path, damage: str) -> None:
    """It may have an address by then: what is in it is looked at while the page is loaded."""
    path = shutil.copytree(recorded, tmp_path / "r")
    chapters = [chapter.parent for chapter in path.glob("*/chapter.json")]
    if damage == "mark":
        (path / "recording.json").write_text('{"schema": "exhume.recording/99"}')
    for chapter in chapters if damage == "chapter" else ():
        (chapter / "chapter.json").write_text("{")
    for chapter in chapters if damage == "empty" else ():
        shutil.rmtree(chapter)
    with served(str(path)) as (process, url):
        assert process.wait(120) == 3
        assert not url or damage != "empty"
        assert process.stderr is not None
        told = process.stderr.read()
        assert str(path) in told
        assert "Traceback" not in told


def test_a_page_that_waits_does_not_keep_it_from_ending(recorded: str) -> None:
    """A browser holds its connections open, and one of them may have asked for something."""
    with served(recorded) as (process, url):
        base, _, token = url.partition("/?token=")
        host, _, port = base.rpartition("/")[0].removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"GET /api/about?token={token} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            assert connection.recv(12) == b"HTTP/1.1 200"
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0


def test_what_is_no_request_is_refused(recorded: str) -> None:
    with served(recorded) as (_, url):
        host, _, port = url.rpartition("/")[0].rpartition("/")[0].removeprefix("http://").partition(":")
        for raw in (b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET http://evil/ HTTP/1.1\r\nHost: evil\r\n\r\n"):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(raw)
                assert connection.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 421")


def children(of: int) -> set[int]:
    return {int(pid) for task in Path(f"/proc/{of}/task").iterdir() for pid in (task / "children").read_text().split()}


def test_ctrl_c_does_not_wait_for_what_is_being_worked_out(recorded: str) -> None:
    """Incidents are looked for in a process of its own, which goes with the server."""
    with served(recorded) as (process, url):
        base, _, token = url.partition("/?token=")
        assert got(f"{base}/api/overview", token)[0] == 200
        judging = children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in judging)


def test_what_is_not_installed_is_named(
    recorded: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "exhume.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["view", recorded, "--no-open"]) == 3
    assert "this needs uvicorn, which is not installed" in capsys.readouterr().err
