"""Too little memory, without a leak."""

import mmap
import os
from pathlib import Path

import pytest

from exhume.errors import Refused
from exhume.lab import workshop
from exhume.lab.scenarios import memory
from exhume.lab.tenant import without
from tests.lab.runs import broken, needs_root, play

pytestmark = pytest.mark.ci

PRESSURE, STORM = memory.SCENARIOS


@needs_root
@pytest.mark.long
def test_a_container_waits_for_its_own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    truth = play(PRESSURE, 8, 500)
    assert broken(truth) == []
    assert truth["measured"]["read_mb"] > memory.LIMIT_MB


@needs_root
@pytest.mark.long
def test_a_mapping_whose_pages_never_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    assert broken(play(STORM, 8, 500)) == []


def test_no_more_memory_than_the_lab_may_have() -> None:
    assert memory.LIMIT_MB + memory.WORKED_ON_MB <= 512
    assert memory.MAPPED_MB <= 512


def test_a_file_is_filled_and_not_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    memory.fill(file, 2)
    assert file.stat().st_size == 2 << 20
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        assert len(set(mapping[: mmap.PAGESIZE])) > 100


def test_a_file_that_cannot_be_written_is_told_as_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be written: No such file"):
        memory.fill(tmp_path / "no" / "where", 1)


@needs_root
@pytest.mark.skipif(bool(without("memory")), reason="no memory controller here")
def test_the_limit_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    with workshop.Lab() as lab:
        group = lab.cgroup("memory", "small")
        memory.limit(group, 32)
        file = "memory.max" if group.hierarchy.version == 2 else "memory.limit_in_bytes"
        assert int((group.directory / file).read_text()) == 32 << 20
        assert memory.times_at_limit(group) == 0


def test_tmpfs_is_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Path("/dev/shm")
    if not os.path.ismount(shared):
        pytest.skip("no tmpfs at /dev/shm")
    monkeypatch.setattr(memory, "FILES", (shared, shared))
    assert STORM.missing() in ("/dev/shm is no disk but tmpfs", without("memory"))
