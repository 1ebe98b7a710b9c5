"""What both children that work on symbols begin with: they end with the recorder, and in time."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from exhume.host.children import die_with_parent

TIME_S: Final = 2.0
"""How long work on one file may take."""


def begin(parent: int) -> None:
    """The kernel ends this process with the one that started it, however that ends; a request to stop is the recorder's alone.

    When a unit is stopped, systemd asks every process in its cgroup, and the recorder still has names to ask for then.
    """
    die_with_parent(parent)
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


@contextmanager
def timed() -> Iterator[None]:
    """Work that depends on a tenant's file. When it takes too long the alarm ends the process, in C code and Python alike."""
    signal.setitimer(signal.ITIMER_REAL, TIME_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
