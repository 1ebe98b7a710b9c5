"""An iterator in a process of its own gives what it would give here, and ends when nobody takes it any more."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from exhume.errors import ExhumeError, UsageError
from exhume.imports.ahead import ahead
from exhume.imports.incoming import Damaged


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


def given(items: list[object]) -> Iterator[object]:
    yield from items


def broken(error: Exception) -> Iterator[int]:
    yield 1
    yield 2
    raise error


def endless(note: str) -> Iterator[bytes]:
    Path(note).write_text(str(os.getpid()), encoding="ascii")
    while True:
        yield bytes(1 << 16)


def dies() -> Iterator[int]:
    yield 1
    os.kill(os.getpid(), signal.SIGKILL)


def children() -> list[int]:
    told = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(number) for number in told.split() if Path(f"/proc/{number}/cmdline").read_bytes().count(b"import work")]


@pytest.fixture(autouse=True)
def find_this(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process has nothing of the directory that it begins in."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.mark.parametrize("number", [0, 1, 1000])
def test_all_items_come_and_in_their_order(number: int) -> None:
    with ahead(numbers, number) as items:
        assert list(items) == list(range(number))
    assert not children()


def test_arrays_come_as_they_are() -> None:
    items = [np.arange(1 << 20), b"raw" * 1000, np.zeros(0)]
    with ahead(given, items) as taken:
        for got, wanted in zip(taken, items, strict=True):
            assert np.array_equal(got, wanted)  # type: ignore[arg-type]


def test_items_that_are_errors_or_nothing_are_items() -> None:
    items: list[object] = [None, (), "kept"]
    with ahead(given, items) as taken:
        assert list(taken) == items


@pytest.mark.parametrize(
    "error", [Damaged("it ends at byte 7"), UsageError("that cannot be meant"), ExhumeError("one sentence")]
)
def test_what_it_raises_comes_after_the_items_before_it(error: ExhumeError) -> None:
    with ahead(broken, error) as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(type(error), match=str(error)):
            next(items)
    assert not children()


def test_a_fault_of_ours_says_where_it_was() -> None:
    with ahead(broken, ValueError("the third")) as items, pytest.raises(RuntimeError, match="in broken"):
        list(items)


def test_one_that_is_killed_is_no_end() -> None:
    with ahead(dies) as items, pytest.raises(ExhumeError, match="ended by signal 9 before it was done"):
        list(items)
    assert not children()


def test_who_ends_early_leaves_no_process_behind(tmp_path: Path) -> None:
    with ahead(endless, str(tmp_path / "pid")) as taken:
        assert len(next(taken)) == 1 << 16
        assert children() == [int((tmp_path / "pid").read_text(encoding="ascii"))]
    assert not children()
    with ahead(endless, str(tmp_path / "pid")):
        pass  # not one was taken
    assert not children()


def test_it_ends_with_who_was_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"""
from tests.imports.test_ahead import *
with ahead(endless, {str(note)!r}) as taken:
    next(taken)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        until = time.monotonic() + 60
        while not note.exists() or not note.read_text(encoding="ascii"):
            assert time.monotonic() < until
            time.sleep(0.02)
        child = Path("/proc", note.read_text(encoding="ascii"))
        parent.kill()
    until = time.monotonic() + 60
    while child.exists() and child.joinpath("stat").read_text(encoding="ascii").rpartition(") ")[2][0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.02)
