"""The browser that is opened: who else is on the machine does not read the token from its arguments."""

import argparse
import os
import stat
import threading
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from exhume.cli import view
from exhume.web.showing import shown

URL = "http://127.0.0.1:41673/?token=abc-_&x=1"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> "tuple[list[str], threading.Event]":
    found: list[str] = []
    came = threading.Event()

    def open_(address: str) -> None:
        found.append(address)
        came.set()

    monkeypatch.setattr(webbrowser, "open", open_)
    return found, came


def test_the_browser_is_given_a_file_that_nobody_else_can_read(opened: "tuple[list[str], threading.Event]") -> None:
    with shown(URL):
        assert opened[1].wait(120)
        address = urlsplit(opened[0][0])
        assert address.scheme == "file"
        assert "abc" not in opened[0][0]
        path = Path(address.path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert "0;url=http://127.0.0.1:41673/?token=abc-_&amp;x=1" in path.read_text()
    assert not path.parent.exists()


def test_where_no_file_can_be_written_no_browser_is_opened(
    opened: "tuple[list[str], threading.Event]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    with shown(URL):
        assert not opened[1].wait(0.05)


@pytest.mark.parametrize(
    ("user", "display", "no_open", "wanted"),
    [(1000, ":0", False, True), (1000, "", False, False), (1000, ":0", True, False), (0, ":0", False, False)],
)
def test_a_browser_is_opened_where_there_is_a_display_and_not_as_root(
    opened: "tuple[list[str], threading.Event]",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    user: int,
    display: str,
    no_open: bool,
    wanted: bool,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with view._browser(argparse.Namespace(no_open=no_open), URL):
        assert opened[1].wait(5 if wanted else 0.05) is wanted
    assert ("as root" in capsys.readouterr().err) is (user == 0)
