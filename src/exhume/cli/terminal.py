"""What the terminal can do: colour, width, a progress line. Nothing of it when the output is not a terminal."""

import os
import shutil
import sys
import textwrap
from typing import TextIO

_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


class Style:
    """Colours text if its stream is a terminal that wants it."""

    def __init__(self, stream: TextIO, colour: bool | None = None) -> None:
        wanted = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self.colour = wanted if colour is None else colour

    def __call__(self, text: str, *names: str) -> str:
        if not self.colour or not names:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"


def width(stream: TextIO) -> int:
    """Columns to write in: the terminal's, or what COLUMNS says, within reason; 100 where there is neither."""
    if not stream.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return 100
    return max(40, min(140, shutil.get_terminal_size((100, 30)).columns))


def wrap(text: str, first: str, rest: str, columns: int) -> list[str]:
    """Text behind a first indent, its further lines behind another. Words that are too long are broken, never lost."""
    return textwrap.wrap(
        text, columns, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, replace_whitespace=False
    ) or [first.rstrip()]


class Progress:
    """One line on stderr that fills and vanishes; silent when stderr is not a terminal."""

    def __init__(self, what: str, shown: bool = True) -> None:
        self._what = what
        self._shown = shown and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._last = -1

    def __call__(self, part: float) -> None:
        step = int(part * 30)
        if self._shown and step != self._last:
            self._last = step
            sys.stderr.write(f"\r{self._what} {'━' * step}{'╌' * (30 - step)}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown and self._last >= 0:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._last = -1
