"""No input of 10 MB makes a command use more than 512 MB of memory or 30 s of CPU time, its children included."""

import shutil
from pathlib import Path

import pytest

from tests.hostile.bombs import BOMBS
from tests.hostile.measure import Used, used

CODES = (0, 1, 2, 3, 64)
MEMORY, CPU_S = 512 * 10**6, 30.0
FULL = 9_500_000
SMALL = 60_000
SMALL_BUDGET = "0.1"


def read(command: list[str], place: Path, **environment: str) -> Used:
    found = used([word.replace("{}", str(place)) for word in command], **environment)
    assert found.code in CODES, f"{command}: {found}"
    assert "Traceback" not in found.text, f"{command}: {found}"
    assert "a bug in exhume" not in found.text, f"{command}: {found}"
    for made in (place / "out", place / "x"):
        shutil.rmtree(made, ignore_errors=True)
        if made.is_file():
            made.unlink()
    return found


def on_disk(place: Path) -> int:
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(min(path.stat().st_size, path.stat().st_blocks * 512) for path in files)


@pytest.mark.ci
@pytest.mark.parametrize("name", sorted(BOMBS))
def test_a_small_one_is_read_or_refused_within_a_tenth_of_the_budget(name: str, tmp_path: Path) -> None:
    for command in BOMBS[name](tmp_path, SMALL):
        found = read(command, tmp_path, EXHUME_BUDGET=SMALL_BUDGET)
        assert found.memory_bytes < 300 * 10**6, f"{command}: {found}"
        assert found.cpu_s < 6, f"{command}: {found}"


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(BOMBS))
def test_ten_megabytes_use_no_more_than_512_mb_and_30_s(name: str, tmp_path: Path) -> None:
    commands = BOMBS[name](tmp_path, FULL)
    assert on_disk(tmp_path) <= 11 * 10**6
    for command in commands:
        found = read(command, tmp_path)
        assert found.memory_bytes <= MEMORY, f"{command}: {found}"
        assert found.cpu_s <= CPU_S, f"{command}: {found}"


def test_what_is_too_much_is_said_with_the_file_the_limit_and_the_way_to_allow_more(tmp_path: Path) -> None:
    (command,) = BOMBS["log_of_equal_lines"](tmp_path, 1_500_000)
    found = read(command, tmp_path, EXHUME_BUDGET="0.02")
    assert found.code == 3
    assert f"exhume: {tmp_path}/in " in found.text
    assert "of input. If you trust it, EXHUME_BUDGET=0.2 allows ten times as much" in found.text


def test_a_budget_that_is_no_number_is_wrong_usage(tmp_path: Path) -> None:
    found = read(["info", "{}"], tmp_path, EXHUME_BUDGET="much")
    assert (found.code, found.text.startswith("exhume: EXHUME_BUDGET must be a number")) == (64, True)
