"""exhume fleet: every sub-command is there, and what cohorts prints is safe, whatever nodes are called."""

import io
import json
from pathlib import Path

import pytest

from exhume.cli.fleet import SUBCOMMANDS
from exhume.cli.fleet_text import health, render
from exhume.cli.main import main
from exhume.cli.terminal import Style
from exhume.fleet.cohorts import cohorts
from exhume.fleet.model import Node
from tests.fleet.made import fleet, group


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_sub_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fleet", name, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"exhume fleet {name}" in told
    assert "examples:" in told


@pytest.mark.parametrize("words", [["fleet"], ["fleet", "cohort"], ["fleet", "cohorts"]])
def test_a_sub_command_that_is_not_there_is_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 64


def test_hostile_names_do_not_reach_the_terminal() -> None:
    bad = "\x1b[2J\u202e\n"
    nodes = group(30, 29, {f"unit:{bad}": bad}, bad) + group(30, 1, {f"unit:{bad}": "no"}, "b" + bad)
    found = cohorts(fleet([*nodes, Node("unknown", {"resets": 3.0})]))
    told = render(found, (f"a trouble {bad}",), Style(io.StringIO()), 100)
    assert "\\x1b" in told
    assert not set(told) & {"\x1b", "\u202e"}
    assert all(line.isprintable() for line in told.splitlines())


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], "unknown"),
        (group(9, 0, {}, "n"), "healthy"),
        (group(9, 4, {}, "n"), "warning"),
        (group(30, 30, {"kernel": "a"}, "n") + group(30, 0, {"kernel": "b"}, "m"), "critical"),
    ],
)
def test_health_is_what_the_exit_code_says(nodes: list[Node], expected: str) -> None:
    found = cohorts(fleet(nodes))
    assert health(found) == expected
    assert render(found, (), Style(io.StringIO()), 100).startswith(expected.upper())


def test_what_is_left_out_or_uncertain_is_told() -> None:
    nodes = [Node(f"n{i}", {"resets": float(i)}, sick=i >= 40, uptime_s=i * 86_400.0) for i in range(80)] + [Node("x")]
    told = " ".join(render(cohorts(fleet(nodes)), ("the inventory is old",), Style(io.StringIO()), 100).split())
    assert "not tried resets: measures of the sickness itself" in told
    assert "40 nodes that are not sick were up too briefly to tell" in told
    assert "of 1 nodes nothing says whether they are sick" in told
    assert "note the inventory is old" in told
    assert "the node is up for at least" in told


def test_several_sources_are_one_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    for directory in (first, second):
        directory.mkdir()
    sick = [f"n{i},{str(i < 20).lower()}" for i in range(60)]
    (first / "nodes.csv").write_text("\n".join(["node,sick", *sick]) + "\n")
    kernels = [f"n{i},{'5.4' if i < 20 else '6.1'}" for i in range(60)]
    (second / "nodes.csv").write_text("\n".join(["node,kernel", *kernels]) + "\n")
    assert main(["fleet", "cohorts", str(first), str(second), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["cohorts"][0]["facts"] == {"kernel": "5.4"}


def test_a_page_that_cannot_be_written_is_said_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "cohorts", str(tmp_path), "-o", str(tmp_path / "none" / "page.html")]) == 3
    assert "could not be written" in capsys.readouterr().err
