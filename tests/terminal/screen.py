"""Run a command in this process as a terminal or a pipe of a given width would show it, and spell it for a text file."""

import io
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final, Self
from unittest import mock

from exhume import __version__
from exhume.cli.main import main

LINES: Final = 40
NOW_NS: Final = 1_769_861_071 * 1_000_000_000
"""2026-01-31 12:04:31 UTC: the wall clock while a case runs."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to show output: a terminal with colours, or a pipe of which COLUMNS names the width."""

    columns: int
    colour: bool

    @property
    def suffix(self) -> str:
        return f"{self.columns}.{'ansi' if self.colour else 'txt'}"


PLAIN: Final = (Form(80, False), Form(120, False))
COLOUR: Final = (Form(80, True), Form(120, True))

_NAMES: Final = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan"}
_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")
# A progress line is overwritten or erased when the command ends: it is not what stays on the screen.
_ERASED: Final = re.compile(r"(?:\r(?!\x1b\[K)[^\r\n]*)+\r\x1b\[K")

_SIZE: Final = re.compile(
    r"""(?mx)
    (?<=[ ]) (?P<column>[0-9.]+) (?=[ ] (?: B | KiB ) [ ]{2} (?: settings | recordings | the[ ]journal ) )   # uninstall
    | (?<=[ m]) [0-9.]+ (?=[ ] KiB[ ]in[ ][0-9]+[ ]segment | [ ]bytes[ ]a[ ]sample )              # info
    | (?<=[ ]) [0-9.]+ (?=[ ] KiB (?: $ | ,[ ]open[ ]it ) )                                      # bundle, flame -o
    """
)


class _Stream(io.TextIOWrapper):
    """Standard output or error into memory; both share one buffer, as they share one screen."""

    def __init__(self, buffer: io.BytesIO, terminal: bool) -> None:
        super().__init__(buffer, encoding="utf-8", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def run(argv: tuple[str, ...], form: Form) -> tuple[str, int]:
    """What the command leaves on the screen, and its exit code."""
    buffer = io.BytesIO()
    out, err = _Stream(buffer, form.colour), _Stream(buffer, form.colour)
    variables = {"COLUMNS": str(form.columns), "LINES": str(LINES)}
    with (
        mock.patch.dict(os.environ, variables),
        mock.patch.multiple(sys, stdin=io.StringIO(), stdout=out, stderr=err),
    ):
        try:
            code = main(list(argv))
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0
        finally:
            for stream in (out, err):
                stream.flush()
                stream.detach()
    return _ERASED.sub("", buffer.getvalue().decode()), code


class _Calendar(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(NOW_NS / 1e9, tz)


@contextmanager
def known_place(directory: Path) -> Iterator[None]:
    """Nothing of this machine: a working directory, environment, time zone, clock and user that are always the same."""
    (directory / "exhume.toml").touch()
    ours = {"TZ": "UTC", "TERM": "xterm-256color", "HOME": ".", "EXHUME_CONFIG": "exhume.toml", "EXHUME_BUDGET": "100"}
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH")}
    before = os.getcwd()
    os.chdir(directory)
    try:
        with (
            mock.patch.dict(os.environ, kept | ours, clear=True),
            mock.patch("time.time_ns", return_value=NOW_NS),
            mock.patch("time.time", return_value=NOW_NS / 1e9),
            mock.patch("exhume.image.audit_tree.datetime", _Calendar),
            mock.patch("exhume.remedy.journal.who", return_value={"uid": 0, "name": "root", "version": __version__}),
        ):
            time.tzset()
            yield
    finally:
        os.chdir(before)
        time.tzset()


def normalised(text: str) -> str:
    """Without what differs by release, file system, user and compressor: the version, and the sizes of files on disk."""
    return _SIZE.sub(lambda found: "#".rjust(len(found["column"] or "")), text.replace(__version__, "VERSION"))


def without_colour(text: str) -> str:
    return _COLOUR.sub("", text)


def spelled(text: str) -> str:
    """Codes as ‹bold red› and ‹/›, spaces at the end of a line as ␠, other control characters as \\x1b."""
    text = _COLOUR.sub(lambda found: f"‹{_code(found[1])}›", text)
    text = re.sub(r" +$", lambda found: "␠" * len(found[0]), text, flags=re.MULTILINE)
    return "".join(one if one == "\n" or one >= " " else f"\\x{ord(one):02x}" for one in text)


def _code(numbers: str) -> str:
    """`31;1` as `red bold`, the background `48;5;124` of a heat map as `#124`."""
    if numbers in ("", "0"):
        return "/"
    numbers = re.sub(r"48;5;(\d+)", r"#\1", numbers)
    return " ".join(_NAMES.get(number, number) for number in numbers.split(";"))
