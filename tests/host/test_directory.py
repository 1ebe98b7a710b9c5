"""A directory as a root: the same by openat2, by single steps and by a process that is really rooted there."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.host.directory import Directory
from exhume.host.paths import MOST_LINKS
from exhume.host.tree import LARGEST, MOST_TROUBLES, Entry, Tree, complain
from tests.examples import examples

NAMES = ("a", "b", "c", "\udcff", "..", ".", "")


@pytest.fixture(params=[True, False], ids=["openat2", "steps"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Directory]:
    with Directory(str(tmp_path), openat2=request.param) as opened:
        yield opened


def test_a_file_is_read_and_described(tree: Directory, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hostname").write_text("node\n")
    (tmp_path / "etc" / "hostname").chmod(0o640)
    checked: Tree = tree
    assert checked.read("/etc/hostname") == b"node\n"
    assert checked.entry("/etc/hostname") == Entry("file", 0o640, 5)
    assert checked.names("/") == ["etc"]
    assert checked.names("/etc/hostname") == []
    assert checked.read("/etc") is None
    assert checked.real("/etc/../etc/./hostname") == "/etc/hostname"
    assert checked.real("/") == "/"
    assert not checked.live
    assert checked.troubles == []


def test_links_are_followed_in_the_root_as_a_process_there_would(tree: Directory, tmp_path: Path) -> None:
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "usr" / "lib" / "x.service").write_text("[Unit]\n")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "up").symlink_to("../../../../lib/x.service")
    (tmp_path / "absolute").symlink_to("/lib/x.service")
    for path in ("/lib/x.service", "/up", "/absolute"):
        assert tree.read(path) == b"[Unit]\n"
        assert tree.real(path) == "/usr/lib/x.service"
    assert tree.entry("/absolute", follow=False) == Entry("link", 0o777, 0, "/lib/x.service")
    assert tree.names("/lib") == ["x.service"]
    assert tree.entry("/lib/", follow=False) == Entry("directory", stat.S_IMODE((tmp_path / "usr/lib").stat().st_mode))


def test_as_many_links_as_the_kernel_follows_and_no_more(tree: Directory, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("end")
    for number in range(1, MOST_LINKS + 2):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    assert tree.read(f"/{MOST_LINKS}") == b"end"
    assert tree.real(f"/{MOST_LINKS}") == "/0"
    assert tree.read(f"/{MOST_LINKS + 1}") is None
    assert tree.real(f"/{MOST_LINKS + 1}") is None
    assert tree.entry(f"/{MOST_LINKS + 1}") is None
    assert tree.troubles == []


def test_what_must_not_be_opened_is_not(tree: Directory, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
    for name in ("pipe", "socket", "to-pipe"):
        entry = tree.entry("/" + name)
        assert entry is not None
        assert entry.kind == "other"
        assert tree.read("/" + name) is None
        assert tree.names("/" + name) == []
    assert tree.troubles == []


def test_a_sparse_file_of_ten_gigabytes_is_cut_and_said(tree: Directory, tmp_path: Path) -> None:
    with open(tmp_path / "big.service", "wb") as file:
        file.truncate(10 << 30)
    content = tree.read("/big.service")
    assert content is not None
    assert len(content) == LARGEST
    assert tree.read("/big.service", 16) == bytes(16)
    assert tree.troubles == ["/big.service has 10 GiB; its first 1 MiB were read."]


def test_a_directory_of_too_many_names_is_cut_in_order_and_said(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.service").touch()
    with Directory(str(tmp_path), most_names=10) as tree:
        assert tree.names("/") == [f"{number:02}.service" for number in range(10)]
        assert tree.names("/") == [f"{number:02}.service" for number in range(10)]
        assert tree.troubles == ["/ holds more than 10 names; the first of them were read."]


def test_a_name_that_is_no_utf8_goes_round(tree: Directory, tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff\n.service", "wb") as file:
        file.write(b"x")
    assert tree.names("/") == ["\udcff\n.service"]
    assert tree.read("/\udcff\n.service") == b"x"
    for impossible in ("/\ud800", "/a\0b", "/" + "a" * 300, "/a" * 3000):
        assert tree.entry(impossible) is None
        assert tree.read(impossible) is None
        assert tree.names(impossible) == []
        assert tree.real(impossible) is None
    assert tree.troubles == []


def test_more_directories_than_descriptors_are_kept(tree: Directory, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "file").write_text(str(number))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for number in range(300):
            assert tree.read(f"/d{number}/file") == str(number).encode()
            assert tree.real(f"/d{number}/file") == f"/d{number}/file"
    assert len(os.listdir("/proc/self/fd")) - before <= 64


def test_what_may_not_be_read_is_said_once(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user who may not read it")
    with tempfile.TemporaryDirectory(prefix="exhume-test-") as root:
        os.chmod(root, 0o755)
        (Path(root) / "closed").mkdir(mode=0o700)
        (Path(root) / "closed" / "file").write_text("x")
        (Path(root) / "secret").touch(mode=0o600)
        os.seteuid(65534)
        try:
            with Directory(root) as tree:
                for _ in range(2):
                    assert tree.read("/closed/file") is None
                    assert tree.names("/closed") == []
                    assert tree.read("/secret") is None
        finally:
            os.seteuid(0)
    denied = "cannot be read: Permission denied."
    assert tree.troubles == [f"/closed/file {denied}", f"/closed {denied}", f"/secret {denied}"]


def test_troubles_are_bounded() -> None:
    troubles: list[str] = []
    for number in range(1000):
        complain(troubles, f"{number % 500}")
    assert len(troubles) == MOST_TROUBLES + 1
    assert troubles[-1] == "More could not be read than is listed here."


def test_the_live_root_is_known_by_what_it_is(tmp_path: Path) -> None:
    with Directory("/") as tree:
        assert tree.live
        assert tree.read("/proc/self/comm") is not None
    with Directory("/proc/self/root") as tree:
        assert tree.live
    with pytest.raises(UsageError, match="cannot be opened as a root directory: No such file or directory"):
        Directory(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="NUL"):
        Directory("a\0b")


def make(root: str, made: list[tuple[str, str, list[str]]]) -> None:
    for kind, at, target in made:
        path = root + "/" + at
        if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
            continue  # a link is on the way: what is made is made in the root
        try:
            if kind == "directory":
                os.makedirs(path)
            elif kind == "file":
                with open(path, "xb") as file:
                    file.write(os.fsencode(at))
            else:
                os.symlink("/".join(target) or ".", path)
        except OSError:
            continue  # its parent is missing or not a directory, or it is there


PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5)
PLACES = st.lists(st.sampled_from(("a", "b", "c", "\udcff")), min_size=1, max_size=3).map("/".join)
MADE = st.lists(st.tuples(st.sampled_from(("directory", "file", "link", "link")), PLACES, PATHS), max_size=14)


def seen(tree: Directory, path: str) -> tuple[object, ...]:
    return (tree.entry(path), tree.entry(path, follow=False), tree.real(path), tree.names(path), tree.read(path))


@settings(max_examples=examples(200))
@given(made=MADE, paths=st.lists(PATHS, min_size=1, max_size=8))
def test_steps_and_openat2_agree_on_any_tree_of_links(made: list[tuple[str, str, list[str]]], paths: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory(prefix="exhume-test-") as root:
        make(root, made)
        with Directory(root) as kernel, Directory(root, openat2=False) as steps:
            for path in ["/" + "/".join(names) for names in paths]:
                told = seen(kernel, path)
                assert told == seen(steps, path)
                assert told == seen(kernel, path)  # the second time by kept descriptors
                entry, _, real, names, content = told
                assert (real is None) == (entry is None)
                if real is not None:
                    assert isinstance(real, str)
                    assert kernel.entry(real, follow=False) == entry
                    assert kernel.names(real) == names
                    assert kernel.read(real) == content
            assert kernel.troubles == steps.troubles == []
