"""Files that do not answer: whoever asks goes on."""

import os
import threading
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.sources.sampling import patience
from exhume.sources.sampling.patience import PatientRoot


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers does so in time, however busy the machine is."""
    monkeypatch.setattr(patience, "WITHIN_S", 60.0)


def not_answered(root: PatientRoot, match: str) -> None:
    with patch.object(patience, "WITHIN_S", 0.05), pytest.raises(Unreadable, match=match):
        root.read("slow")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    let_go = threading.Event()
    read = Root.read

    def waits(self: Root, name: str, largest: int = 1 << 20) -> bytes:
        if name.startswith("slow"):
            let_go.wait(120)
        return read(self, name, largest)

    monkeypatch.setattr(Root, "read", waits)
    return let_go


def test_a_file_that_answers_is_read_and_a_missing_one_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    root = PatientRoot(Root(str(tmp_path)))
    assert root.read("there") == b"x"
    with pytest.raises(Unreadable, match="is not there"):
        root.read("missing")
    assert root.late == 0


def test_one_that_does_not_answer_is_left_and_others_are_read(tmp_path: Path, slow: threading.Event) -> None:
    for name in ("slow", "there"):
        (tmp_path / name).write_bytes(name.encode())
    root = PatientRoot(Root(str(tmp_path)))
    not_answered(root, "did not answer")
    assert root.read("there") == b"there"
    assert root.late == 1
    slow.set()


def test_when_nobody_answers_nobody_is_asked_for_a_while(
    tmp_path: Path, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow").write_bytes(b"")
    (tmp_path / "there").write_bytes(b"x")
    root = PatientRoot(Root(str(tmp_path)))
    for _ in range(patience.IN_A_ROW):
        not_answered(root, "did not answer")
    with pytest.raises(Unreadable, match="is not asked for"):
        root.read("there")
    slow.set()
    monkeypatch.setattr(patience, "PAUSE_S", 0.0)
    root._until = time.monotonic()
    assert root.read("there") == b"x"


def test_threads_that_are_stuck_are_bounded_and_end_when_they_come_back(
    tmp_path: Path, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "IN_A_ROW", 1000)
    (tmp_path / "slow").write_bytes(b"")
    root = PatientRoot(Root(str(tmp_path)))
    for _ in range(patience.MOST_STUCK + 3):
        not_answered(root, "did not answer")
    assert root.late == patience.MOST_STUCK
    stuck = list(root._stuck)
    slow.set()
    for thread in stuck:
        thread.join(120)
    assert [thread.is_alive() for thread in stuck] == [False] * patience.MOST_STUCK
    assert root.read("slow") == b""
    assert os.path.exists(tmp_path)


def test_closed_it_leaves_no_thread_behind(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    root = PatientRoot(Root(str(tmp_path)))
    root.read("there")
    thread = root._thread
    assert thread is not None
    root.close()
    root.close()
    thread.join(120)
    assert not thread.is_alive()
