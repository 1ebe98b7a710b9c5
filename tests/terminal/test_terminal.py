"""What every command prints is what its snapshots have, fits into the width, and has colours on a terminal alone."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.cli.main import COMMANDS
from tests.terminal import screen
from tests.terminal.cases import CASES, HELP, USAGE, Case
from tests.terminal.inputs import INPUTS
from tests.terminal.screen import COLOUR, PLAIN, Form
from tests.terminal.snapshots import COMMAND, DIRECTORY, argparse_is_another, shown, workplace
from tests.terminal.wider import WIDER, too_wide

# A heat map is made of letters in a pipe, and of coloured cells on a terminal, whose height it uses.
DRAWN_OTHERWISE = ("heat", "heat-by-core", "heat-long")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with workplace() as directory:
        yield directory


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_what_is_printed_is_what_the_snapshots_have(case: Case, place: Path) -> None:
    if case in (*HELP, *USAGE) and (why := argparse_is_another()):
        pytest.skip(why)
    differences = []
    plain, colour = ({form: shown(case, form, place) for form in forms} for forms in (PLAIN, COLOUR))
    for form, text in plain.items():
        assert "\x1b" not in text, f"{case.name}: a pipe gets escape sequences"
        assert not (wide := too_wide(case.name, text, form.columns)), f"{case.name}: wider than {form.columns}: {wide}"
        differences += difference(case, form, text)
    for form, text in colour.items():
        if case.name not in DRAWN_OTHERWISE:
            assert screen.without_colour(text) == plain[Form(form.columns, False)], f"{case.name}: a terminal gets other words"
        differences += difference(case, form, text if "\x1b" in text else None)
    if differences:
        pytest.fail("\n".join([*differences, "", f"If this is as it should be: {COMMAND} {case.name}"]), pytrace=False)


def difference(case: Case, form: Form, text: str | None) -> list[str]:
    """A unified diff from the snapshot to what is printed now; None has no snapshot."""
    path = DIRECTORY / f"{case.name}.{form.suffix}"
    kept = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    now = [] if text is None else screen.spelled(text).splitlines()
    return list(difflib.unified_diff(kept, now, path.name, "printed now", lineterm="", n=2))


def test_every_command_has_its_help_and_something_else_in_a_snapshot() -> None:
    typed = [argv for case in CASES for argv in case.commands if argv]
    assert {argv[0] for argv in typed if argv[1:] == ("--help",)} == set(COMMANDS)
    assert {argv[0] for argv in typed if "--help" not in argv} >= set(COMMANDS)


def test_no_snapshot_is_of_a_case_that_is_gone() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    names = {path.name.rsplit(".", 2)[0] for path in DIRECTORY.iterdir()}
    assert names == {case.name for case in CASES}
    assert {name for case in CASES for name in case.made} == set(INPUTS)


def test_every_exception_to_the_width_is_needed() -> None:
    for one in WIDER:
        needed = False
        for form in PLAIN:
            for path in DIRECTORY.glob(f"{one.cases}.{form.suffix}"):
                lines = path.read_text(encoding="utf-8").splitlines()
                needed |= any(len(line) > form.columns and re.match(one.line, line) for line in lines)
        assert needed, one


def test_codes_and_spaces_at_the_end_of_a_line_can_be_read() -> None:
    assert (
        screen.spelled("\x1b[31;1mno\x1b[0m  \n\x1b[48;5;124m \x1b[0m\x1b[K\r\n")
        == "‹red bold›no‹/›␠␠\n‹#124› ‹/›\\x1b[K\\x0d\n"
    )
