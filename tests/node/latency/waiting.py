"""Processes that want a core, by any name, and patience with others who hold it at the same time."""

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec

import pytest

CORE = 1
TRIES = 3

Given = ParamSpec("Given")


def undisturbed(test: Callable[Given, None]) -> Callable[Given, None]:
    """For a test that has a core to itself: others on this machine, or its host, may take it just then. It is tried again."""

    @functools.wraps(test)
    def run(*args: Given.args, **keywords: Given.kwargs) -> None:
        for _ in range(TRIES - 1):
            with suppress(AssertionError):
                test(*args, **keywords)
                return
        test(*args, **keywords)

    return run


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
