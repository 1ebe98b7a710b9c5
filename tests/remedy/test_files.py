"""Files put in place: whole, exact, and never outside of the root, whatever links are on the way."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError, Refused
from exhume.remedy import files, found
from exhume.remedy.files import Files, new_file, new_link
from exhume.remedy.found import ABSENT, Found, from_json, mark, same, to_json
from exhume.remedy.operations import Operations
from tests.examples import examples
from tests.remedy.nodes import scratch, snapshot

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")


def at(root: Path) -> Files:
    return Files(str(root), Operations())


def test_a_new_file_has_its_mode_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        at(tmp_path).put("/etc/systemd/x.conf", new_file(b"one", 0o664), "t")
    finally:
        os.umask(before)
    assert (tmp_path / "etc/systemd/x.conf").read_bytes() == b"one"
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("etc", "etc/systemd", "etc/systemd/x.conf")]
    assert modes == [0o755, 0o755, 0o664]
    assert sorted(os.listdir(tmp_path / "etc/systemd")) == ["x.conf"]


def test_a_file_with_all_it_has_goes_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    path.write_bytes(b"\0\xff binary")
    path.chmod(0o751)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("this file system keeps no extended attributes")
    os.utime(path, ns=(1, 1_234_567_891))
    before = snapshot(tmp_path)
    was = at(tmp_path).look("/agent")
    at(tmp_path).put("/agent", ABSENT, "t")
    assert snapshot(tmp_path) == {}
    at(tmp_path).put("/agent", from_json(to_json(was)), "t")
    assert snapshot(tmp_path) == before


@needs_root
def test_owners_of_files_and_links_come_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        os.chown(tmp_path / name, 12, 34, follow_symlinks=False)
    os.chmod(tmp_path / "file", 0o640)
    before = snapshot(tmp_path)
    for name in ("/file", "/link"):
        was = at(tmp_path).look(name)
        at(tmp_path).put(name, new_file(b"other", 0o644), "t")
        at(tmp_path).put(name, was, "t")
    assert snapshot(tmp_path) == before


def test_an_attribute_that_was_not_there_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    was = at(tmp_path).look("/file")
    try:
        os.setxattr(tmp_path / "file", "user.later", b"1")
    except OSError:
        pytest.skip("this file system keeps no extended attributes")
    at(tmp_path).put("/file", was, "t")
    assert at(tmp_path).look("/file") == was


def test_a_link_in_the_root_is_followed_in_the_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "usr/lib").mkdir(parents=True)
    outside.mkdir()
    (root / "lib").symlink_to("/usr/lib")
    (root / "up").symlink_to("../../../usr/lib")
    at(root).put("/lib/a", new_file(b"1", 0o644), "t")
    at(root).put("/up/b", new_file(b"2", 0o644), "t")
    assert sorted(os.listdir(root / "usr/lib")) == ["a", "b"]


def test_a_link_that_leads_out_of_the_root_is_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "absolute").symlink_to(outside)
    (root / "relative").symlink_to("../outside")
    (root / "magic").symlink_to("/proc/self/root")
    for name in ("/absolute/x", "/relative/x", "/magic/x", "/absolute/new/x"):
        with pytest.raises(Refused, match="leads nowhere in this root"):
            at(root).put(name, new_file(b"", 0o644), "t")
        with pytest.raises(Refused, match="leads nowhere in this root"):
            at(root).look(name)
    assert os.listdir(outside) == []


def test_links_in_circles_and_files_in_the_way_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ExhumeError, match="/circle/x: Too many levels of symbolic links"):
        at(tmp_path).look("/circle/x")
    with pytest.raises(ExhumeError, match="/file/x: Not a directory"):
        at(tmp_path).look("/file/x")


@pytest.mark.parametrize("path", ["", "/", "x", "//x", "/a/../x", "/a/./x", "/a/", "/a\0b", "/\ud800", "/" + "x" * 5000])
def test_paths_that_are_not_plain_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(Refused, match="plain names only"):
        at(tmp_path).look(path)


def test_what_cannot_be_put_back_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(files.LARGEST + 1))
    (tmp_path / "one").write_text("x")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="it has 1 MiB, more than any"):
        at(tmp_path).look("/large")
    with pytest.raises(Refused, match="has 2 names"):
        at(tmp_path).look("/one")
    assert at(tmp_path).look("/pipe") == Found("other")
    assert at(tmp_path).look("/nothing/at/all") == ABSENT


def test_directories_are_removed_only_when_empty(tmp_path: Path) -> None:
    (tmp_path / "full/inner").mkdir(parents=True)
    assert not at(tmp_path).remove_directory("/full")
    assert at(tmp_path).remove_directory("/full/inner")
    assert at(tmp_path).remove_directory("/full")
    assert at(tmp_path).remove_directory("/full/inner")
    assert at(tmp_path).missing_parents("/full/inner/x/file") == ("/full", "/full/inner", "/full/inner/x")


OWN = 0 if os.geteuid() == 0 else 0o600
"""Only root reads a file whose mode forbids it."""
names = st.binary(min_size=1, max_size=12).filter(lambda raw: not set(raw) & {0, 47} and raw not in (b".", b".."))
finds = st.one_of(
    st.builds(new_file, st.binary(max_size=300), st.integers(0, 0o777).map(lambda mode: mode | OWN)),
    st.builds(new_link, st.binary(min_size=1, max_size=60).filter(lambda raw: 0 not in raw).map(os.fsdecode)),
    st.just(ABSENT),
)


@settings(max_examples=examples(60))
@given(parts=st.lists(names, min_size=1, max_size=4), wanted=st.lists(finds, min_size=1, max_size=4))
def test_whatever_is_put_is_there(parts: list[bytes], wanted: list[Found]) -> None:
    path = "/" + os.fsdecode(b"/".join(parts))
    with scratch() as root:
        for one in wanted:
            at(root).put(path, one, "t")
            seen = at(root).look(path)
            assert same(seen, one)
            assert mark(seen) == mark(one)
            assert from_json(to_json(seen)) == seen


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    told=json_values
    | st.fixed_dictionaries(
        {"kind": st.sampled_from(["file", "link", "absent", "what"]) | json_values},
        optional=dict.fromkeys(("mode", "uid", "gid", "mtime_ns", "attributes", "content", "target"), json_values),
    )
)
def test_a_strange_record_of_what_was_is_a_sentence(told: object) -> None:
    try:
        assert isinstance(found.from_json(told), Found)
    except ExhumeError as error:
        assert "in a form that is known here" in str(error)  # noqa: PT017
