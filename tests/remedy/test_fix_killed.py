"""`exhume fix --apply` as a process, killed by strace at an exact system call; then undone, or resumed and undone."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exhume.remedy import carry_out
from tests.remedy.nodes import UNITS, node, snapshot

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]
UNIT = "[Unit]\nDescription=x\n[Service]\nExecStart=/opt/agent\nRestart=always\n"
CALLS = {"fsync": 22, "rename,renameat,renameat2": 3, "symlink,symlinkat": 3, "unlink,unlinkat": 4}


def made(root: Path) -> Path:
    wants = root / UNITS / "multi-user.target.wants"
    wants.mkdir(parents=True)
    (root / UNITS / "ecs.service").write_text(UNIT)
    for link in (wants / "ecs.service", root / UNITS / "agent.service"):
        link.symlink_to(f"/{UNITS}/ecs.service")
    return root


def killed(root: Path, call: str, number: int) -> bool:
    """Whether it came so far as to be killed."""
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    fix = [sys.executable, "-P", "-m", "exhume", "fix", "ecs.service", "--host", str(root), "--apply", "--yes"]
    done = subprocess.run([*trace, *fix], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("resumed", [False, True], ids=["undo", "resume"])
def test_a_kill_at_every_such_call_is_undone_to_the_byte(tmp_path: Path, call: str, resumed: bool) -> None:
    kills = 0
    for number in range(1, CALLS[call] + 1):
        root = made(tmp_path / str(number))
        before = snapshot(root)
        kills += killed(root, call, number)
        if resumed and carry_out.pending(node(root)) is not None:
            assert carry_out.resume(node(root)).exit_code == 0
            assert os.readlink(root / UNITS / "ecs.service") == "/dev/null"
        if carry_out.last(node(root)) is not None:
            assert carry_out.undo(node(root)).exit_code == 0
        assert snapshot(root) == before, (call, number)
    assert kills
