"""What a shared machine does beside the tests: `python -m tests.disturbance` until its stdin closes or SIGTERM arrives.

Four busy loops, and a process that makes and removes memory cgroups below a parent of its own. It prints `ready` once both run.
Deterministic tests pass beside it.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/sys/fs/cgroup/memory")
LOOPS = 4
CGROUPS_PER_SECOND = 200
BUSY = "while 1: pass"
PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def end_with_parent() -> None:
    """In a child: SIGKILL when the parent ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def churn(parent: Path, per_second: int) -> None:
    """Make and remove groups below the parent until killed. Each lives for a moment, so that walks find some of them."""
    interval = 1 / per_second
    alive: list[Path] = []
    due = time.monotonic()
    number = 0
    while True:
        alive.append(parent / f"g{number}")
        alive[-1].mkdir()
        number += 1
        if len(alive) > 20:
            alive.pop(0 if number % 2 else -2).rmdir()
        due += interval
        time.sleep(max(0.0, due - time.monotonic()))


def clean(parent: Path) -> None:
    for directory, _, _ in os.walk(parent, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--loops", type=int, default=LOOPS)
    options.add_argument("--cgroups", type=int, default=CGROUPS_PER_SECOND, metavar="PER_SECOND")
    options.add_argument("--churn", metavar="PARENT", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.churn:
        churn(Path(asked.churn), asked.cgroups)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    parent = MEMORY / f"exhume-test-churn-{os.getpid()}"
    children: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(asked.loops):
            busy = [sys.executable, "-S", "-c", BUSY]
            children += [subprocess.Popen(busy, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)]
        if asked.cgroups and os.access(MEMORY, os.W_OK) and (MEMORY / "tasks").exists():
            parent.mkdir()
            command = [sys.executable, "-m", "tests.disturbance", "--churn", str(parent), "--cgroups", str(asked.cgroups)]
            children.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[1], preexec_fn=end_with_parent)
            )
            while not any(entry.is_dir() for entry in parent.iterdir()) and children[-1].poll() is None:
                time.sleep(0.01)
        print("ready", flush=True)
        while os.read(0, 1 << 16):
            pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for child in children:
            child.kill()
            child.wait()
        clean(parent)


if __name__ == "__main__":
    main()
