"""The documentation is true: generated pages match the code, links lead somewhere, commands and options exist."""

import re
import shlex
from pathlib import Path

import pytest

from exhume.cli.main import COMMANDS, command_parser, main
from tests.docs import DOCS, PAGES
from tests.trees import Moving, incident

ROOT = DOCS.parent
FILES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run: .venv/bin/python -m tests.docs"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_link_to_a_file_leads_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", file.read_text()):
        if "://" not in target:
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def typed(file: Path) -> list[list[str]]:
    """What a reader would type: lines of code blocks that begin with exhume, a prompt or sudo before it."""
    commands = []
    for block in re.findall(r"```[a-z]*\n(.*?)```", file.read_text(), re.DOTALL):
        for line in block.splitlines():
            match = re.match(r"^(?:\$ )?(?:sudo )?(?:\./)?exhume (.*)$", line)
            if match and "[--" not in line:
                words = shlex.split(re.split(r"\s[|>#]|\s{3,}", match[1])[0], comments=True)
                commands.append(words)
    return commands


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_command_in_the_documentation_parses(file: Path) -> None:
    for words in typed(file):
        if words[0].startswith("-") or words[0] == "help":
            continue
        assert words[0] in COMMANDS, f"{file.name}: exhume {' '.join(words)}"
        command_parser(words[0]).parse_args(words[1:])


def test_the_documentation_shows_commands_at_all() -> None:
    assert sum(len(typed(file)) for file in FILES) >= 5


def test_the_readmes_example_is_what_check_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Word for word, but for the seconds that pass and the milliseconds that differ from run to run."""
    example = re.search(r"<!-- example -->\n```\n\$ sudo exhume check\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example is not None
    changing = re.compile(r"(for|used|\d+ times, longest) [\d,]+ ms|(\d+ min )?\d+ (s|min) ago|[\d.]+ m?s after|\s+")
    with Moving(incident(tmp_path), cpus=96, saturated=39, process=4242):
        main(["check", "--host", str(tmp_path)])
    assert changing.sub(" ", capsys.readouterr().out) == changing.sub(" ", example[1])
