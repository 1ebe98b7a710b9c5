"""./exhume of a clone whose Python cannot be started: a sentence, and no word of the shell."""

import os
import shutil
import subprocess
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
