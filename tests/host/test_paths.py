"""Paths inside a root: single steps do as openat2 does on any tree of links, and nothing leads out."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.paths import open_in, resolve
from exhume.host.root import Root
from exhume.host.tree import Entry
from exhume.kernel.openat2 import open_in_root
from tests.examples import examples

NAMES = ("a", "b", "c")
FLAGS = (
    os.O_PATH,
    os.O_PATH | os.O_NOFOLLOW,
    os.O_PATH | os.O_DIRECTORY,
    os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW,
    os.O_RDONLY | os.O_NONBLOCK,
    os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW,
    os.O_RDONLY | os.O_DIRECTORY,
)

parts = st.sampled_from([*NAMES, *NAMES, "..", ".", "", "missing"])
some_paths = st.builds(
    lambda begin, rest: begin + "/".join(rest), st.sampled_from(["", "/", "../"]), st.lists(parts, max_size=6)
)
kinds = st.sampled_from(["directory", "directory", "file", "fifo", "link", "link", "link"])
trees = st.lists(st.tuples(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), kinds, some_paths), max_size=12)


@contextmanager
def planted(made: list[tuple[list[str], str, str]]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as top:
        (Path(top) / "a").write_text("outside")
        (Path(top) / "outside").write_text("outside")
        root = Path(top) / "root"
        root.mkdir()
        for place, kind, target in made:
            path = root.joinpath(*place)
            if any(above.is_symlink() or not above.is_dir() for above in reversed(path.parents) if root in above.parents):
                continue
            if os.path.lexists(path):
                continue
            if kind == "directory":
                path.mkdir()
            elif kind == "file":
                path.write_text("inside")
            elif kind == "fifo":
                os.mkfifo(path)
            else:
                path.symlink_to(target or ".")
        yield root


def outcome(root_fd: int, path: str, flags: int, openat2: bool) -> tuple[int, int] | int:
    """Which file was opened, or the error."""
    try:
        fd = open_in(root_fd, path, flags, openat2)
    except OSError as error:
        return error.errno or 0
    try:
        assert not os.get_inheritable(fd)
        status = os.fstat(fd)
        return status.st_dev, status.st_ino
    finally:
        os.close(fd)


def has_openat2() -> bool:
    fd = os.open("/", os.O_PATH)
    try:
        os.close(open_in_root(fd, b"/", os.O_PATH))
    except (Unreadable, OSError):
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.skipif(not has_openat2(), reason="this kernel or sandbox has no openat2")
@settings(max_examples=examples(150), deadline=None)
@given(trees, st.lists(some_paths, min_size=1, max_size=8), st.sampled_from(FLAGS))
def test_steps_and_openat2_agree_on_any_tree_of_links(
    made: list[tuple[list[str], str, str]], asked: list[str], flags: int
) -> None:
    with planted(made) as root:
        at = os.open(root, os.O_PATH | os.O_DIRECTORY)
        try:
            for path in asked:
                assert outcome(at, path, flags, True) == outcome(at, path, flags, False), path
        finally:
            os.close(at)


@settings(max_examples=examples(150), deadline=None)
@given(trees, st.lists(some_paths, min_size=1, max_size=8))
def test_nothing_leads_out_and_names_are_resolved_as_descriptors_are(
    made: list[tuple[list[str], str, str]], asked: list[str]
) -> None:
    with planted(made) as root:
        inside = {(one.lstat().st_dev, one.lstat().st_ino) for one in (root, *root.rglob("*"))}

        def lookup(path: str) -> Entry | None:
            try:
                status = os.lstat(f"{root}{path}")
            except OSError:
                return None
            if stat.S_ISLNK(status.st_mode):
                return Entry("link", target=os.readlink(f"{root}{path}"))
            return Entry("directory" if stat.S_ISDIR(status.st_mode) else "file")

        at = os.open(root, os.O_PATH | os.O_DIRECTORY)
        try:
            for path in asked:
                found = outcome(at, path, os.O_PATH, False)
                assert isinstance(found, int) or found in inside, path
                named = resolve(path, lookup)
                if isinstance(found, int):
                    assert named is None, path
                else:
                    assert named is not None, path
                    status = os.lstat(f"{root}{named[0]}")
                    assert (status.st_dev, status.st_ino) == found, path
        finally:
            os.close(at)


@pytest.mark.parametrize("openat2", [True, False])
@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/proc/self/root/etc", True),
        ("/proc/self/exe", True),
        ("/proc/self/ns/net", True),
        ("/proc/self/status", False),
        ("/proc/mounts", False),
        ("/proc/net/dev", False),
    ],
)
def test_links_of_proc_that_jump_are_refused(path: str, refused: bool, openat2: bool) -> None:
    at = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        found = outcome(at, path, os.O_PATH, openat2)
        assert (found == 40) is refused  # ELOOP
        jumping = outcome(at, "/proc/self/exe", os.O_PATH | os.O_NOFOLLOW, openat2)
        assert not isinstance(jumping, int)
    finally:
        os.close(at)


def test_what_a_sandbox_forbids_is_done_by_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seccomp profiles from before openat2 answer EPERM."""

    def forbidden(root_fd: int, path: bytes, flags: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("exhume.host.paths.open_in_root", forbidden)
    (tmp_path / "file").write_text("inside")
    assert Root(str(tmp_path)).read("file") == b"inside"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "secret").write_text("outside")
    inside = tmp_path / "root"
    (inside / "etc").mkdir(parents=True)
    (inside / "etc/file").write_text("inside")
    for name, target in (
        ("absolute", "/etc/file"),
        ("upwards", "../../../etc/file"),
        ("outwards", "../secret"),
        ("exact", str(tmp_path / "secret")),
        ("loop", "loop"),
        ("proc", "/proc"),
        ("sys", "../../../../../../sys"),
        ("zero", "/dev/zero"),
        ("jump", "/proc/self/root/etc/passwd"),
    ):
        (inside / name).symlink_to(target)
    os.mkfifo(inside / "pipe")
    return Root(str(inside))


def test_a_root_follows_links_as_the_node_would(root: Root) -> None:
    assert root.read("absolute") == root.read("/upwards") == root.read("etc/../../etc/file") == b"inside"
    assert root.regular("absolute", 100) == b"inside"
    assert root.first_names("/etc", 5) == root.names("etc") == ["file"]
    assert root.real("absolute") == f"{root.path}/etc/file"
    assert root.exists("upwards")


@pytest.mark.parametrize(
    "name", ["outwards", "exact", "loop", "proc/stat", "sys/kernel", "zero", "jump", "pipe", "etc", "a\0b"]
)
def test_a_root_gives_out_nothing_from_elsewhere(root: Root, name: str) -> None:
    with pytest.raises(Unreadable):
        root.read(name)
    assert root.regular(name, 1 << 20) is None


def test_a_path_stays_below_the_root_as_it_was_given(root: Root) -> None:
    """/proc/PID/root leads into another mount namespace, where the kernel's own name of a file would be one of ours."""
    through = Root(f"/proc/self/root{root.path}")
    assert through.real("absolute") == f"{through.path}/etc/file"
    assert through.at("etc/file") == f"{through.path}/etc/file"
    assert through.real("") == through.path


def test_the_kernels_file_systems_of_another_root_are_its_own(root: Root) -> None:
    assert not os.path.exists(root.at("proc/stat"))
    assert not os.path.exists(root.at("sys"))
    assert root.at("etc/file") == f"{root.path}/etc/file"
    assert not root.same_kernel()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a device")
def test_a_device_in_another_root_is_not_opened(root: Root) -> None:
    try:
        os.mknod(f"{root.path}/device", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this sandbox makes no devices")
    with pytest.raises(Unreadable, match="not a regular file"):
        root.read("device", 10)
