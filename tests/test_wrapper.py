"""./exhume of a clone: whose files root runs, and a Python that cannot be started: a sentence, and no word of the shell."""

import grp
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

CLONE = Path(__file__).parent.parent


def clone(at: Path, python: Path) -> Path:
    """As much of one as the script looks at before Python runs."""
    (at / ".venv" / "bin").mkdir(parents=True)
    (at / ".venv" / "bin" / "python").symlink_to(python)
    shutil.copy(CLONE / "exhume", at / "exhume")
    shutil.copytree(CLONE / "requirements", at / "requirements")
    shutil.copy(CLONE / "requirements" / "core.lock", at / ".venv" / "locked")
    return at / "exhume"


def test_a_python_that_only_root_can_reach_is_said() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    at = Path(tempfile.mkdtemp(prefix="exhume-test-"))  # pytest's own directories are root's
    try:
        at.chmod(0o755)
        closed = at / "closed"
        closed.mkdir(mode=0o700)
        shutil.copy("/bin/true", closed / "python")
        script = clone(at / "clone", closed / "python")
        ran = subprocess.run([script, "check"], capture_output=True, text=True, user=65534, check=False)
        assert ran.returncode == 3
        assert ran.stderr == (
            f"exhume: the Python of {at}/clone/.venv is readable by root alone: use sudo, or make .venv anew with a Python "
            "that everybody may read\n"
        )
        assert subprocess.run([script, "check"], capture_output=True, check=False).returncode == 0
    finally:
        shutil.rmtree(at)


def test_a_python_that_is_gone_is_said(tmp_path: Path) -> None:
    script = clone(tmp_path / "clone", tmp_path / "gone")
    ran = subprocess.run([script, "check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 3
    assert ran.stderr.startswith(f"exhume: the Python of {tmp_path}/clone/.venv is ")
    assert ran.stderr.count("\n") == 1


OTHER = 65534  # nobody
MEMBER = next((each for each in grp.getgrall() if each.gr_gid not in (0, OTHER)), grp.getgrgid(0))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A clone of root's, with all that the launcher runs; its Python is one that only says that it ran."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to somebody else")
    at = tmp_path / "clone"
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho ran\n")
    interpreter.chmod(0o755)
    clone(at, interpreter)
    for directory in ("src/exhume/a/b", ".venv/lib/python3.11/site-packages"):
        (at / directory).mkdir(parents=True)
    for file in (
        "src/exhume/__main__.py",
        "src/exhume/a/b/deep.py",
        ".venv/lib/python3.11/site-packages/exhume.pth",
        ".venv/pyvenv.cfg",
    ):
        (at / file).touch()
    (tmp_path / "outside").mkdir()
    (at / "src/exhume/a/b/link").symlink_to(tmp_path / "outside")
    for path in (at, *at.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o022)
    return at


def launched(at: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")} | more
    return subprocess.run([at / "exhume", "check"], capture_output=True, text=True, env=environment, check=False)


RUN_AS_ROOT = [
    ".", "exhume", "requirements", "requirements/environment", "requirements/core.lock", "src", "src/exhume",
    "src/exhume/__main__.py", "src/exhume/a/b", "src/exhume/a/b/deep.py", "src/exhume/a/b/link",
    ".venv", ".venv/pyvenv.cfg", ".venv/bin", ".venv/bin/python",
    ".venv/lib/python3.11/site-packages", ".venv/lib/python3.11/site-packages/exhume.pth",
]  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("what", RUN_AS_ROOT)
@pytest.mark.parametrize("change", ["owner", "everybody", "group"])
def test_root_does_not_run_what_another_user_can_change(ours: Path, what: str, change: str) -> None:
    assert launched(ours).stdout == "ran\n"
    path = ours / what  # chown and chmod follow the link of .venv/bin/python to the interpreter
    if change == "owner":
        os.chown(path, OTHER, 0)
        why = "belongs to user nobody"
    elif change == "everybody":
        path.chmod(path.stat().st_mode | 0o002)
        why = "is writable for every user"
    else:
        os.chown(path, 0, MEMBER.gr_gid)
        path.chmod(path.stat().st_mode | 0o020)
        why = f"is writable for the group {MEMBER.gr_name}"
    with open(ours / "requirements/environment", "a") as sourced:
        sourced.write("echo sourced\n")
    ran = launched(ours)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert f"{os.path.normpath(path)} {why}" in ran.stderr
    assert f"chown -R root: {ours}" in ran.stderr


@pytest.mark.parametrize("mode", [0o022, 0o002])
def test_the_user_of_sudo_may_own_the_clone(ours: Path, mode: int) -> None:
    """Also with a private group and umask 002, as on Debian, Ubuntu and Fedora."""
    user = next((each for each in pwd.getpwall() if each.pw_uid and grp.getgrgid(each.pw_gid).gr_name == each.pw_name), None)
    if user is None:
        pytest.skip("no user with a private group")
    for path in (ours, *ours.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
        path.chmod((path.stat().st_mode | 0o220) & ~mode)
    sudo = {"SUDO_UID": str(user.pw_uid), "SUDO_GID": str(user.pw_gid), "SUDO_USER": user.pw_name}
    assert launched(ours, **sudo).stdout == "ran\n"
    refused = launched(ours, **sudo | {"SUDO_UID": str(OTHER), "SUDO_USER": "nobody"})
    assert (refused.returncode, refused.stdout) == (3, "")
    assert f"belongs to user {user.pw_name}" in refused.stderr
    assert launched(ours).returncode == 3  # a root shell of nobody's sudo


def test_another_user_may_run_a_clone_of_anybody(ours: Path) -> None:
    at = Path(tempfile.mkdtemp(prefix="exhume-test-"))  # pytest's own directories are root's
    try:
        at.chmod(0o755)
        shutil.copytree(ours, at / "clone", symlinks=False)
        (at / "clone").chmod(0o777)
        ran = subprocess.run([at / "clone/exhume"], capture_output=True, text=True, user=OTHER, check=False)
        assert ran.stdout == "ran\n"
    finally:
        shutil.rmtree(at)


def test_ctrl_c_waits_for_python_to_start(ours: Path) -> None:
    """Python's own start answers it with a traceback; exhume lets it in when it can answer itself."""
    if subprocess.run(["env", "--block-signal=INT", "true"], capture_output=True, check=False).returncode:
        pytest.skip("env of coreutils before 8.31")
    (ours.parent / "python").write_text(f"#!{sys.executable}\nprint(open('/proc/self/status').read())\n")
    (blocked,) = [line for line in launched(ours).stdout.splitlines() if line.startswith("SigBlk:")]
    assert int(blocked.split()[1], 16) == 1 << (signal.SIGINT - 1)
