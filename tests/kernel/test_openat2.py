"""openat2: a path is resolved inside a root, and no link leads out of it."""

import os
from pathlib import Path

import pytest

from exhume.errors import Unreadable
from exhume.kernel.openat2 import open_in_root


def text_at(root: Path, path: bytes) -> str:
    at = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        try:
            fd = open_in_root(at, path, os.O_RDONLY)
        except Unreadable as reason:
            pytest.skip(str(reason))
        assert not os.get_inheritable(fd)
        with open(fd) as file:
            return file.read()
    finally:
        os.close(at)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("outside")
    inside = tmp_path / "root"
    (inside / "etc").mkdir(parents=True)
    (inside / "etc/file").write_text("inside")
    (inside / "absolute").symlink_to("/etc/file")
    (inside / "upwards").symlink_to("../../../etc/file")
    (inside / "outwards").symlink_to("../outside")
    (inside / "loop").symlink_to("loop")
    return inside


@pytest.mark.parametrize("path", [b"/etc/file", b"etc/file", b"/absolute", b"upwards", b"/../../etc/file", b"//etc/./file"])
def test_paths_and_links_stay_inside(root: Path, path: bytes) -> None:
    assert text_at(root, path) == "inside"


@pytest.mark.parametrize("path", [b"/outwards", b"/../outside", b"/loop", b"/missing", b""])
def test_what_is_not_inside_is_not_there(root: Path, path: bytes) -> None:
    with pytest.raises(OSError, match=r"No such file|Too many levels"):
        text_at(root, path)


def test_links_of_proc_that_jump_are_refused() -> None:
    with pytest.raises(OSError, match="Too many levels"):
        text_at(Path("/"), b"/proc/self/root/etc/passwd")
