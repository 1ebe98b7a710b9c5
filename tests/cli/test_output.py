"""Files that commands write: private, whole, through one function; and names in CSV that spreadsheets and terminals obey."""

import ast
import csv
import io
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import exhume.cli
from exhume.cli.export import FORMATS
from exhume.cli.main import main
from exhume.cli.output import output
from exhume.errors import ExhumeError
from exhume.text import cell
from tests.recording import made
from tests.render.made import write


@pytest.fixture(autouse=True)
def everybody_may_read() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("output") / "recording")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        *(["export", "REC", "--format", kind, "-o", "OUT"] for kind in FORMATS),
        ["flame", "REC", "-o", "OUT"],
        ["diagnose", "REC", "--html", "OUT"],
        ["diagnose", "REC", "--markdown", "OUT"],
        ["verify", "--before", "REC", "--after", "REC", "-o", "OUT"],
        ["verify", "--before", "REC", "--after", "REC", "--json", "-o", "OUT"],
        ["bundle", "REC", "-o", "OUT"],
    ],
    ids=lambda words: "-".join(word.strip("-") for word in words if word not in ("REC", "OUT")),
)
def test_what_a_command_writes_is_for_its_owner_alone(
    arguments: list[str], there: bool, recording: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.svg"
    if there and arguments[0] != "bundle":  # which overwrites nothing
        file.write_text("of an older exhume")
        file.chmod(0o644)
    assert main([{"REC": recording, "OUT": str(file)}.get(word, word) for word in arguments]) < 64
    assert file.stat().st_size > 100
    assert mode(file) == 0o600


def test_a_page_of_a_fleet_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert main(["lab", "fleet", "--nodes", "8", "-o", str(tmp_path / "fleet")]) == 0
    assert main(["fleet", "cohorts", str(tmp_path / "fleet"), "-o", str(tmp_path / "page.html")]) < 64
    assert mode(tmp_path / "page.html") == 0o600


@pytest.mark.parametrize("option", ["--junit", "--sarif"])
def test_results_for_a_pipeline_are_for_whom_the_umask_says(option: str, tmp_path: Path) -> None:
    os.umask(0o022)
    (tmp_path / "root" / "etc").mkdir(parents=True)
    assert main(["gate", "--root", str(tmp_path / "root"), option, str(tmp_path / "out")]) < 64
    assert mode(tmp_path / "out") == 0o644


def test_a_link_in_the_place_of_the_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "out").symlink_to("theirs")
    with output(str(tmp_path / "out")) as out:
        out(b"report")
    assert (tmp_path / "theirs").read_text() == "precious"
    assert (tmp_path / "out").read_text() == "report"
    assert not (tmp_path / "out").is_symlink()


def test_a_name_that_is_planted_for_the_unfinished_file_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / f"out.part-{os.getpid()}").symlink_to("theirs")
    with pytest.raises(ExhumeError, match="out could not be written: File exists"), output(str(tmp_path / "out")) as out:
        out(b"report")
    assert not (tmp_path / "theirs").exists()


def test_commands_write_files_through_one_function_only() -> None:
    guilty = []
    for file in Path(exhume.cli.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                words = [
                    word.value for word in (*node.args, *(key.value for key in node.keywords)) if isinstance(word, ast.Constant)
                ]
                name = ast.unparse(node.func)
                opens = name in ("open", "io.open") and any(
                    re.fullmatch(r"[rwax][bt+]*", str(word)) and str(word) not in ("r", "rb") for word in words
                )
                if opens or name.endswith((".write_text", ".write_bytes", "NamedTemporaryFile")):
                    guilty.append((file.name, node.lineno))
    assert {name for name, _ in guilty} <= {"output.py", "main.py", "audit.py"}, guilty
    # main.py: /dev/null in the place of a closed stderr; audit.py: a policy, which is no output but a file to keep


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "＠x", "＋1", "－1"])
def test_a_cell_is_no_formula(name: str) -> None:
    assert cell(name)[0] in "'\\"
    assert cell(name).isprintable()


@pytest.mark.parametrize("name", ["kubelet", "a=b", "x-y", "", "'=1'", "/system.slice/foo@1.service", "zwölf"])
def test_a_harmless_cell_stays_as_it_is(name: str) -> None:
    assert cell(name) == name


def test_names_of_tenants_are_harmless_in_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = ["=cmd|' /C calc'!A0", "@x", "+1", "-2", "\x1b]0;owned\x07", "\t=1", "\r=2", "\u202eabc", "\x9b2J"]
    rows = made.second(0, names=True)
    for number, name in enumerate(hostile, 100):
        rows["threads"].add(number, number, number, 0, name, "process", name, "", "", "")
    store = made.writer(tmp_path / "r")
    store.append(rows)
    store.close()
    assert main(["export", str(tmp_path / "r"), "--format", "csv", "--table", "threads"]) == 0
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.split("\n"))
    found = list(csv.DictReader(io.StringIO(text)))
    assert len(found) == 3 + len(hostile)
    for row in found:
        assert row["comm"][0] not in "=+-@\t\r"
        assert row["cgroup"][0] not in "=+-@\t\r"
