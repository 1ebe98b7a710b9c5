"""Root runs no Python of the current directory: not by the launcher, not by any command, not by any child."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from exhume.cli.main import COMMANDS
from exhume.fleet import engine_ray
from exhume.host.children import leashed
from exhume.python import python
from exhume.web import children

CLONE = Path(__file__).parent.parent
SOURCE = CLONE / "src"
INSTALLED = "numpy pyarrow jeepney yaml pycxxfilt duckdb starlette uvicorn h11 anyio click prometheus_client exhume ray".split()
STACKS = "main;work 5\nmain;rest 3\n"
# Arguments with which each command does its work, in a directory with `stacks`, the recording `rec`, an image `root`.
ARGUMENTS = {
    "check": ["--for", "1s"],
    "diagnose": ["rec"],
    "zombies": ["--json"],
    "latency": ["--for", "1s"],
    "fix": ["some.service", "--host", "root"],
    "undo": ["--host", "root"],
    "history": ["--host", "root"],
    "verify": ["--before", "rec", "--after", "rec"],
    "checklist": ["--dir", "rec"],
    "record": ["new", "--for", "1s", "--quiet"],
    "agent": ["--print-config"],
    "info": ["rec"],
    "flame": ["stacks"],
    "view": ["nosuch", "--no-open"],
    "heat": ["rec"],
    "import": ["stacks", "-o", "imported"],
    "export": ["rec", "--format", "folded"],
    "bundle": ["rec", "-o", "bundle.tar.gz"],
    "audit": ["--root", "root"],
    "gate": ["--root", "root"],
    "fleet": ["status", "root"],
    "node": ["drain", "node-1"],
    "lab": ["list"],
    "uninstall": ["--host", "root", "--dry-run"],
    "completion": ["bash"],
}


class Trap:
    """A working directory with a module for every name that a Python of ours might look for in it."""

    def __init__(self, at: Path) -> None:
        self.at, self.mark = at, at / "ran.txt"
        at.mkdir()
        code = f"open({str(self.mark)!r}, 'a').write(__name__ + '\\n')\n"
        for name in {*sys.stdlib_module_names, *INSTALLED, "sitecustomize", "usercustomize", "pip", "venv", "ensurepip"}:
            (at / f"{name}.py").write_text(code)
        for package in ("exhume", "numpy"):  # a directory wins over a file of the same name
            (at / package).mkdir()
            for module in ("__init__", "__main__"):
                (at / package / f"{module}.py").write_text(code)

    @property
    def ran(self) -> list[str]:
        return self.mark.read_text().split() if self.mark.exists() else []


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trap")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("recording")
    (at / "stacks").write_text(STACKS)
    command = python("-m", "exhume", "import", str(at / "stacks"), "-o", str(at / "rec"))
    subprocess.run(command, check=True, capture_output=True)
    return at


def environment(trap: Trap) -> dict[str, str]:
    """Of a root shell whose PYTHONPATH names the current directory by an empty entry, as `X:$PYTHONPATH` does."""
    return {**os.environ, "PYTHONPATH": f":{trap.at}", "PYTHONSTARTUP": str(trap.at / "numpy.py"), "KUBECONFIG": "/nonexistent"}


def test_the_trap_catches_a_python_that_looks_there(trap: Trap) -> None:
    subprocess.run([sys.executable, "-m", "exhume", "check"], cwd=trap.at, capture_output=True)
    assert trap.ran != []


def test_every_command_is_tried() -> None:
    assert {*ARGUMENTS} == {*COMMANDS}


@pytest.mark.ci
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_nothing_of_the_current_directory(command: str, trap: Trap, recording: Path) -> None:
    units = trap.at / "root/etc/systemd/system"
    units.mkdir(parents=True)
    (units / "some.service").write_text("[Service]\nExecStart=/opt/some\n")
    shutil.copytree(recording / "rec", trap.at / "rec")
    (trap.at / "stacks").write_text(STACKS)
    done = subprocess.run(
        [CLONE / "exhume", command, *ARGUMENTS[command]],
        cwd=trap.at,
        env=environment(trap),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert trap.ran == []
    assert done.returncode not in (64, 70), done.stderr  # it did its work, or said why not
    assert "Traceback" not in done.stderr


@contextmanager
def running(trap: Trap, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [CLONE / "exhume", *arguments], cwd=trap.at, env=environment(trap), stdout=pipe, stderr=pipe, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)


def test_view_and_the_child_that_judges_run_nothing_of_it(trap: Trap, recording: Path) -> None:
    with running(trap, "view", str(recording / "rec"), "--no-open") as process:
        assert process.stdout is not None
        base, _, token = process.stdout.readline().strip().partition("/?token=")
        asked = urllib.request.Request(f"{base}/api/verdict", headers={"X-Exhume-Token": token})
        with urllib.request.urlopen(asked, timeout=300) as answer:
            assert "verdict" in json.loads(answer.read())
    assert trap.ran == []


def test_the_agent_and_its_first_children_run_nothing_of_it(trap: Trap, tmp_path: Path) -> None:
    with running(trap, "agent", "--dir", str(tmp_path / "rec"), "--listen", "127.0.0.1:0") as process:
        assert process.stderr is not None
        said = next((line for line in process.stderr if "metrics at" in line), "")
        assert "recording to" in said
    assert trap.ran == []


def mains() -> list[str]:
    """Every module that is run by `python -m`."""
    found = [file for file in SOURCE.rglob("*.py") if '__name__ == "__main__"' in file.read_text()]
    return sorted(str(file.relative_to(SOURCE).with_suffix("")).replace("/", ".") for file in found)


@pytest.mark.ci
@pytest.mark.parametrize("module", mains())
@pytest.mark.parametrize("leash", [False, True])
def test_a_child_runs_nothing_of_the_current_directory(module: str, leash: bool, trap: Trap) -> None:
    command = python("-m", module)
    done = subprocess.run(
        leashed(command) if leash else command,
        cwd=trap.at,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert trap.ran == []
    assert b"No module named" not in done.stderr


def test_the_judge_of_view_runs_nothing_of_it(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trap.at)
    child = children.begin("exhume.web.judging", {})
    children.finish(child)
    assert trap.ran == []


def test_an_isolated_process_has_isolated_children(monkeypatch: pytest.MonkeyPatch) -> None:
    command = python("-I", "-c", "from exhume.python import python; print(python('-m', 'x')[1:])")
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "['-I', '-m', 'x']\n"
    monkeypatch.setattr(sys, "flags", SimpleNamespace(isolated=0))
    assert python("-m", "x") == [sys.executable, "-P", "-m", "x"]


def test_ray_is_started_outside_of_it(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers look for modules in the directory that its driver connects in."""
    monkeypatch.chdir(trap.at)
    seen: list[str] = []
    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **_: seen.append(os.getcwd()),
        shutdown=lambda: None,
        exceptions=SimpleNamespace(),
    )
    monkeypatch.setattr(engine_ray, "_reached", lambda _: None)
    for address in ("", "127.0.0.1:6399"):
        with engine_ray._cluster(ray, address):
            assert os.getcwd() == str(trap.at)
    assert seen == ["/", "/"]


def starts_python(tree: ast.AST) -> list[int]:
    """Lines that start Python, or make a pool of processes, other than through exhume.python."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            last = node.attr if isinstance(node, ast.Attribute) else node.id
            guilty = last.endswith(("executable", "Executor")) and ast.unparse(node) in (
                "sys.executable",
                "sys._base_executable",
                "ProcessPoolExecutor",
            )
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            guilty = any(name.partition(".")[0] == "multiprocessing" or name == "executable" for name in names)
        elif isinstance(node, ast.List | ast.Tuple):
            words = [each.value for each in node.elts[:2] if isinstance(each, ast.Constant)]
            guilty = len(words) == 2 and bool(re.fullmatch(r"(\S*/)?python[0-9.]*", str(words[0]))) and str(words[1])[:1] == "-"
        else:
            guilty = False
        if guilty:
            found.append(getattr(node, "lineno", 0))
    return found


@pytest.mark.parametrize("line", ["f([sys.executable, '-m', 'x'])", "f(('python', '-c', 'x'))", "f(['/usr/bin/python3', '-c'])",
                                  "import multiprocessing", "from sys import executable"])  # fmt: skip
def test_another_way_to_start_python_is_noticed(line: str) -> None:
    assert starts_python(ast.parse(line))


def test_one_function_alone_starts_python() -> None:
    guilty = {
        str(file.relative_to(SOURCE)): lines
        for file in SOURCE.rglob("*.py")
        if file != SOURCE / "exhume" / "python.py" and (lines := starts_python(ast.parse(file.read_text())))
    }
    assert guilty == {}, "start Python through exhume.python.python"


def test_scripts_of_the_clone_start_python_isolated() -> None:
    for script in (
        "exhume",
        "requirements/environment",
        "requirements/lock",
        "requirements/ray",
        "deploy/onefile/build",
        "deploy/release/build",
    ):
        lines = [line for line in (CLONE / script).read_text().splitlines() if not line.lstrip().startswith("#")]
        begun = [line for line in lines if re.search(r"""(python3?|candidate)"? -[a-zA-Z]""", line)]
        assert begun, script
        assert [line for line in begun if not re.search(r"""(python3?|candidate)"? -[IP] """, line)] == [], script
