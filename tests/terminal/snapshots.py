"""Render every case, and keep what it shows in files."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from tests.terminal import screen
from tests.terminal.cases import Case
from tests.terminal.inputs import provide
from tests.terminal.screen import COLOUR, PLAIN, Form

DIRECTORY: Final = Path(__file__).parent / "snapshots"
COMMAND: Final = "python -m tests.terminal"


# Stands for the directory of the inputs where a command prints it whole, and is as long, so that lines break alike.
PLACE: Final = "/made/for/the/snapshots/of/the/terminal"


@contextmanager
def workplace() -> Iterator[Path]:
    """A directory whose path is as long as PLACE."""
    base = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir=base if len(base) < len(PLACE) - 16 else "/tmp") as directory:
        place = Path(directory, "x" * (len(PLACE) - len(directory) - 1))
        place.mkdir()
        yield place


def argparse_is_another() -> str:
    """Why help and usage cannot be compared here: argparse of Python 3.13 lays them out in another way than before."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output", metavar="FILE")
    same = "-o FILE, --output FILE" in parser.format_help()
    return "" if same else "the snapshots of help and usage are of argparse before Python 3.13"


def shown(case: Case, form: Form, directory: Path) -> str:
    """The session as a screen or a pipe has it: each command line, what it printed, and its exit code if that is not 0."""
    provide(case.made, directory)
    parts = []
    with ExitStack() as stack:
        stack.enter_context(screen.known_place(directory))
        for name, replacement in case.instead.items():
            stack.enter_context(mock.patch(name, replacement))
        for line, argv in zip(case.typed, case.commands, strict=True):
            printed, code = screen.run(argv, form)
            printed += "" if not printed or printed.endswith("\n") else "⏎\n"
            parts.append(f"$ exhume {line}\n{printed}" + (f"[exit code {code}]\n" if code else ""))
    return screen.normalised("\n".join(parts)).replace(str(directory), PLACE)


def files(case: Case, directory: Path) -> dict[str, str]:
    """The snapshots of a case by file name. Those in colour only where there is any."""
    made = {}
    for form in PLAIN:
        made[f"{case.name}.{form.suffix}"] = screen.spelled(shown(case, form, directory))
    for form in COLOUR:
        text = shown(case, form, directory)
        if "\x1b" in text:
            made[f"{case.name}.{form.suffix}"] = screen.spelled(text)
    return made
