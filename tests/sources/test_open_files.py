"""Who has a file open for reading: real processes, and fdinfo of any content."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.mounts import devices_by_mount
from exhume.host.root import Root
from exhume.sources import open_files
from exhume.sources.open_files import Inode, parse_fdinfo, readers

_WAIT = "import sys; print(flush=True); sys.stdin.read()"
_CHROOT = "import os, sys; fd = os.open(sys.argv[1], os.O_RDONLY); os.chroot(sys.argv[2]); " + _WAIT
_OVERLAY = """
import ctypes, os, subprocess, sys
path, room = sys.argv[1:]
assert ctypes.CDLL(None).unshare(0x20000) == 0
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", room], check=True)
for name in ("upper", "work", "merged"):
    os.mkdir(f"{room}/{name}")
layers = f"lowerdir={os.path.dirname(path)},upperdir={room}/upper,workdir={room}/work"
subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, f"{room}/merged"], check=True)
fd = os.open(f"{room}/merged/{os.path.basename(path)}", os.O_RDONLY)
print(flush=True)
sys.stdin.read()
"""
_FIRST_THREAD_ENDS = """
import ctypes, os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY)
def wait():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(") ")[2][0] != "Z":
        pass
    print(flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""
_SEEN = """
from exhume.sources.open_files import readers
from exhume.host.root import Root
print(readers(Root(), [(1, 2, 3)]).complete)
"""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the open files of all processes")


def inode(path: Path) -> Inode:
    status = path.stat()
    return os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


@root_only
def test_a_reader_is_named_and_a_writer_or_another_files_reader_is_not(tmp_path: Path) -> None:
    read, written, other = tmp_path / "read", tmp_path / "written", tmp_path / "other"
    for path in (read, written, other):
        path.write_text("x")
    command = [sys.executable, "-c", _WAIT]
    fds = [os.open(read, os.O_RDONLY), os.open(written, os.O_WRONLY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds) as process:
        for fd in fds:
            os.close(fd)
        assert process.stdout is not None
        process.stdout.readline()
        found = readers(Root(), [inode(read), inode(written), inode(other)])
        assert process.stdin is not None
        process.stdin.close()
    assert [user.rpartition("[")[2] for user in found.of(inode(read))] == [f"{process.pid}]"]
    assert found.of(inode(written)) == found.of(inode(other)) == ()
    assert found.complete


@root_only
@pytest.mark.parametrize("script", [_CHROOT, _OVERLAY, _FIRST_THREAD_ENDS], ids=["chroot", "overlay", "first thread ended"])
def test_a_reader_is_named_wherever_it_has_the_file_from(script: str, tmp_path: Path) -> None:
    read, room = tmp_path / "lower/read", tmp_path / "room"
    read.parent.mkdir()
    room.mkdir()
    read.write_text("x")
    command = [sys.executable, "-c", script, str(read), str(room)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("overlay cannot be mounted here")
        found = readers(Root(), [inode(read)])
        assert process.stdin is not None
        process.stdin.close()
    assert [user.rpartition("[")[2] for user in found.of(inode(read))] == [f"{process.pid}]"]


@root_only
@pytest.mark.parametrize(
    ("confined", "complete"),
    [
        ((), "True"),
        (("unshare", "--pid", "--fork", "--mount-proc"), "False"),
        (("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"), "False"),
    ],
)
def test_it_is_said_when_not_all_processes_are_visible(confined: tuple[str, ...], complete: str) -> None:
    done = subprocess.run([*confined, sys.executable, "-c", _SEEN], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == complete


def test_nothing_is_looked_at_when_nothing_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Root, "names", lambda *_: pytest.fail("looked at /proc"))
    assert readers(Root(), []).by_file == {}


def test_too_many_open_files_are_said_to_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "MOST_FILES", 0)
    with open(os.devnull):
        assert not readers(Root(), [(1, 2, 3)]).complete or os.geteuid() != 0


@pytest.mark.parametrize(
    ("flags", "expected"), [("0100000", (7, 24)), ("0100002", (7, 24)), ("0102001", None), ("9", None), ("", None)]
)
def test_fdinfo_of_what_is_open_for_reading(flags: str, expected: tuple[int, int] | None) -> None:
    assert parse_fdinfo(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t24\nino:\t7\n".encode()) == expected


def test_a_kernel_that_does_not_say_the_inode() -> None:
    assert parse_fdinfo(b"pos:\t0\nflags:\t0100000\nmnt_id:\t24\n") is None


@given(st.binary(max_size=300))
def test_any_fdinfo_and_any_mountinfo_parse(raw: bytes) -> None:
    parse_fdinfo(raw)
    assert all(device is None or len(device) == 2 for device in devices_by_mount(raw).values())
