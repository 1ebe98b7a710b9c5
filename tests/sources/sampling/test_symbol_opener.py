"""The opener's own parsers, and that it does what it may without root."""

import os
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.sources.sampling.symbol_messages import Request, What
from exhume.sources.sampling.symbol_opener import Mapping, Missed, Opener, parse_maps, parse_status
from tests.sources.sampling.symbol_processes import in_a_child


def image(path: str | bytes, pid: int, inode: int = 0, device: int = 0) -> Request:
    return Request(What.IMAGE, 1, array("Q"), (pid,), os.fsencode(path), (os.major(device), os.minor(device)), inode)


def test_executable_mappings_of_files_are_found_with_spaces_and_all() -> None:
    raw = (
        b"55d0-55d4 r--p 00000000 fe:00 7                          /usr/bin/a\n"
        b"55d4-55d8 r-xp 00001000 fe:00 7                          /usr/bin/a b (deleted)\n"
        b"7f00-7f01 rwxp 00000000 00:00 0 \n"
        b"7ff0-7ff1 r-xp 00000000 00:00 0                          [vdso]\n"
    )
    assert parse_maps(raw) == [Mapping(0x55D4, 0x55D8, (0xFE, 0), 7, b"/usr/bin/a b (deleted)")]


def test_a_process_is_known_by_its_innermost_number_and_all_its_users() -> None:
    raw = b"Name:\tNSpid:\t9\nPid:\t700\nUid:\t1000\t0\t1000\t1000\nNSpid:\t700\t41\t1\n"
    assert parse_status(raw) == (1, (1000, 0, 1000, 1000))
    assert parse_status(b"Pid:\t700\n") == (700, ())


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(raw: bytes) -> None:
    parse_maps(raw)
    parse_status(raw)


def test_a_file_is_opened_for_reading_without_touching_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    os.utime(path, ns=(1, 1))
    fd = Opener().open(image(bytes(path), os.getpid(), path.stat().st_ino, path.stat().st_dev))
    try:
        assert os.pread(fd, 9, 0) == b"text"
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)
    if os.geteuid() == 0:
        assert path.stat().st_atime_ns == 1


def test_another_file_in_its_place_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    with pytest.raises(Missed, match="another by now"):
        Opener().open(image(bytes(path), os.getpid(), path.stat().st_ino + 1, path.stat().st_dev))


def test_a_file_with_the_same_number_on_another_file_system_is_missed(tmp_path: Path) -> None:
    """A tenant may choose numbers as it likes, and would give names to the library that all others map."""
    path = tmp_path / "file"
    path.write_bytes(b"text")
    with pytest.raises(Missed, match="another by now"):
        Opener().open(image(bytes(path), os.getpid(), path.stat().st_ino, os.makedev(4095, 7)))


@pytest.mark.parametrize("path", [b"", b"relative", b"/nul\0byte", b"//anon", b"[heap]", b"/" + b"x" * 4090])
def test_a_path_that_leads_nowhere_is_missed_or_refused(path: bytes) -> None:
    with pytest.raises((Missed, Unreadable)):
        Opener().open(image(path, os.getpid()))


def test_without_root_own_processes_can_be_asked_for_and_others_are_refused() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user without rights")

    def check() -> bool:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            Opener().open(image("/bin/sh", 1))
        except Unreadable as reason:
            return "without root" in str(reason)
        return False

    assert in_a_child(check)
