"""What the agent and its children use: CPU time that only grows, and resident memory."""

import os
from contextlib import suppress

from exhume.errors import Unreadable
from exhume.host.root import Root

_PAGE = os.sysconf("SC_PAGE_SIZE")


def ended_children_s() -> float:
    """CPU time of children that have ended and were waited for."""
    times = os.times()
    return times.children_user + times.children_system


def children_bytes() -> int:
    """Resident memory of the children that run now: verdicts, audits. Of every thread, for each may have some."""
    total, root = 0, Root()
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with suppress(Unreadable):  # a thread that has just ended, a kernel without CONFIG_PROC_CHILDREN
                for child in root.read(f"proc/self/task/{thread}/children", 1 << 16).split():
                    total += _resident(root, child.decode("ascii", "replace"))
    return total


def _resident(root: Root, pid: str) -> int:
    with suppress(Unreadable, IndexError, ValueError):
        return int(root.read(f"proc/{pid}/statm", 256).split()[1]) * _PAGE
    return 0
