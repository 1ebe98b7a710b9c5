"""The modules of the page: their pure parts by node's own test runner, their types by TypeScript's checker."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STATIC = HERE.parent.parent / "src" / "exhume" / "web" / "static"
# From here on node takes a file for a module that looks like one.
NODE = (20, 19)


@cache
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(int(part) for part in re.findall(r"\d+", told)[:2]) < NODE:
        pytest.skip(f"node {told.strip()} is older than {'.'.join(map(str, NODE))}")
    return found


@pytest.mark.parametrize("file", sorted(HERE.glob("static/*.test.mjs")), ids=lambda file: file.name)
def test_the_pure_parts_of_the_page_do_what_they_say(file: Path) -> None:
    run = subprocess.run(
        [node(), str(file)], capture_output=True, text=True, timeout=120, env={**os.environ, "TZ": "UTC"}, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.ci
def test_the_types_of_the_page_hold() -> None:
    checker = HERE.parent.parent / "requirements" / "page" / "node_modules" / "typescript" / "bin" / "tsc"
    if not checker.is_file():
        pytest.skip("TypeScript's checker is not installed: ./test does that where npm is")
    run = subprocess.run(
        [node(), str(checker), "-p", str(STATIC / "jsconfig.json")], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for file in STATIC.iterdir():
        if file.suffix not in {".js", ".html", ".css"}:
            continue
        text = file.read_text("utf-8")
        addresses = set(re.findall(r"https?://[^\s'\"`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, f"{file.name}: {addresses}"
        assert re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text) is None, file.name


def test_what_the_page_asks_for_ahead_is_there() -> None:
    page = (STATIC / "index.html").read_text("utf-8")
    asked = re.findall(r'(?:href|src)="([a-z_]+\.(?:js|css))"', page)
    assert len(asked) == len(set(asked))
    assert [name for name in asked if not (STATIC / name).is_file()] == []
