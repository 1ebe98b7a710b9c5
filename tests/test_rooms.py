"""The house rules: a room imports only rooms named before it, and no file carries what must not be in the repository."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "exhume"

# In this order. What is above all rooms (errors, text, budget, ...) may be used by every one and uses none.
ROOMS = """kernel host recording sources imports exports recorder diagnosis render image cluster remedy fleet lab agent web
cli""".split()
# They spell quantities as all others do; that module imports nothing of ours.
QUANTITIES = "exhume.host.quantities"
ABOVE = ("errors", "text", "record", "budget", "config", "python", "scratch", "__init__")


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide the room"
            found.add(node.module or "")
            if node.module == "exhume":
                found |= {f"exhume.{alias.name}" for alias in node.names if alias.name != "__version__"}
    return {name for name in found if name == "exhume" or name.startswith("exhume.")}


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_named_before_it(file: Path) -> None:
    mine = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if mine == "__main__":
        return
    allowed = {*ABOVE, *ROOMS[: ROOMS.index(mine) + 1]} if mine in ROOMS else set(ABOVE)
    used = {room(module) for module in imports(file) if mine in ROOMS or module != QUANTITIES}
    assert used <= allowed, f"{mine} must not import {sorted(used - allowed)}"


def test_every_directory_is_a_room_of_the_design() -> None:
    directories = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories <= set(ROOMS)


def test_no_file_names_a_registry_or_a_path_of_a_machine() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not files:
        pytest.skip("not a git checkout")
    forbidden = re.compile(
        rb"https?://[a-z0-9.-]*(pypi|pythonhosted|npmjs|golang|proxy)[a-z0-9.-]*|/root/\.|/opt/wheels|--index-url \S+:"
    )
    guilty = [
        name
        for name in files
        if Path(ROOT, name).is_file() and name != "tests/test_rooms.py" and forbidden.search(Path(ROOT, name).read_bytes())
    ]
    assert guilty == []


def test_the_lock_pins_every_package_by_hash() -> None:
    for name in ("core", "dev"):
        text = (ROOT / "requirements" / f"{name}.lock").read_text()
        pinned = re.findall(r"^([a-z0-9-]+)==[^ ]+ \\\n\s+--hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
        named = re.findall(r"^([a-zA-Z0-9-]+)==", text, re.MULTILINE)
        assert pinned == named
        assert "numpy" in pinned
