"""What a root gives out, and what it says when it cannot."""

from pathlib import Path

import pytest

from exhume.errors import Unreadable
from exhume.host.root import Root


def test_a_missing_file_is_named_as_the_node_calls_it(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"^/proc/stat is not there$"):
        Root(str(tmp_path)).read("proc/stat")


def test_a_directory_in_place_of_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "proc" / "stat").mkdir(parents=True)
    with pytest.raises(Unreadable, match="Is a directory"):
        Root(str(tmp_path)).read("proc/stat")


def test_an_endless_file_is_cut() -> None:
    assert len(Root().read("dev/zero", 100_000)) == 100_000


def test_the_live_node_is_read_whole() -> None:
    assert Root().own
    assert b"\ncpu0 " in Root().read("proc/stat")
    assert Root().read("proc/self/status").startswith(b"Name:")
