"""Processes that want a core, by any name."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CORE = 1
HELD_MS = 600
"""How long a core is held. The kernel lets fair tasks in for at most 50 ms of each second (fair_server in
kernel/sched/deadline.c), so that one wait is at least WAITED_NS long."""
WAITED_NS = 200_000_000


def needs_a_core_to_hold() -> None:
    if os.geteuid():
        pytest.skip("it takes root to make real-time processes")
    if CORE not in os.sched_getaffinity(0) or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("it takes a second core to watch from")


@contextmanager
def named(comm: bytes, *, spin: bool = False) -> Iterator[int]:
    """A process that calls itself so, and sleeps, or wants a core all the time."""
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            Path("/proc/self/comm").write_bytes(comm)
            if spin:
                os.sched_setaffinity(0, {CORE})
            os.write(tell, b"x")
            while spin:
                pass
            signal.pause()
        finally:
            os._exit(0)
    try:
        os.read(ready, 1)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
