"""Little programs that scenarios are made of, each a process of its own: python -m exhume.lab.work NAME ARGUMENT ...

A program dies with whoever started it, waits for a line on its standard input (so that it can be put into its cgroup first),
and says what it does as JSON, one object a line.
"""

import ctypes
import importlib
import json
import os
import sys
from typing import Final

from exhume.host.children import die_with_parent

_PR_SET_NAME = 15  # include/uapi/linux/prctl.h
PACKAGE: Final = "exhume.lab.works"
PARENT: Final = "EXHUME_LAB_PARENT"
"""In the environment of a program: who started it."""


def call(name: str) -> None:
    """What /proc calls this process; at most 15 letters."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def on_core(core: int, priority: int = 0) -> None:
    """Only on that core, and with a priority under the real-time policy SCHED_FIFO. No scenario does that on two cores."""
    os.sched_setaffinity(0, {core})
    if priority:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    die_with_parent(int(os.environ.get(PARENT, os.getppid())))
    name, *arguments = argv
    module = importlib.import_module(f"{PACKAGE}.{name.replace('-', '_')}")
    if not sys.stdin.readline():
        return 1
    module.main(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
