"""A crash loop without a leak: cgroups come and go, and nothing of them stays."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.lab import workshop
from exhume.lab.churn import count, kept
from exhume.lab.scenarios.crash_loops import SCENARIOS
from tests.lab.runs import broken, needs_root, play

pytestmark = pytest.mark.ci

(SCENARIO,) = SCENARIOS
CREATE, DELETE, DIRECTORY = 0x100, 0x200, 0x40000000


def event(mask: int, name: bytes) -> bytes:
    padded = name + bytes(-len(name) % 16)
    return struct.pack("=iIII", 1, mask, 0, len(padded)) + padded


@needs_root
def test_it_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    truth = play(SCENARIO, 8, 2000)
    assert broken(truth) == []
    measured = truth["measured"]
    assert 0 <= measured["cgroups_made"] - measured["cgroups_removed"] <= 1


def test_directories_are_counted_and_files_are_not() -> None:
    data = event(CREATE | DIRECTORY, b"a" * 64) + event(CREATE, b"file") + event(DELETE | DIRECTORY, b"a" * 64)
    assert count(data) == (1, 1)
    assert count(data + event(CREATE | DIRECTORY, b"b")) == (2, 1)
    assert count(b"") == (0, 0)


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd_to_be_counted(data: bytes) -> None:
    made, removed = count(data)
    assert 0 <= made <= len(data) // 16
    assert 0 <= removed <= len(data) // 16


def test_what_is_kept_of_each() -> None:
    assert kept([]) == 0
    assert kept([(0, 80), (5, 85), (10, 90), (15, 95)]) == 1
    assert kept([(0, 80), (5, 80), (10, 81), (15, 80)]) == 0


def test_what_others_make_and_lose_at_once_does_not_count() -> None:
    assert kept([(0, 80), (5, 80), (10, 3080), (15, 3080), (20, 3080), (25, 80), (30, 80)]) == 0
    assert kept([(0, 80), (0, 500), (5, 500)]) == 0


@needs_root
@pytest.mark.skipif(not os.path.isdir("/sys/fs/cgroup"), reason="no cgroups here")
def test_the_kernel_tells_of_each_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    from exhume.lab.churn import Churn
    from tests.lab.runs import patiently

    monkeypatch.setenv(workshop.SWITCH, "1")
    with workshop.Lab() as lab:
        top = lab.cgroup("memory", "docker")
        churn = Churn(top)
        for number in range(50):
            os.mkdir(top.directory / f"c{number}")
            os.rmdir(top.directory / f"c{number}")
        assert patiently(lambda: churn.removed == 50)
        assert churn.made == 50
        churn.close()
