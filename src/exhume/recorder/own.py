"""What we cost ourselves."""

import os
import time

from exhume.errors import Unreadable
from exhume.host.root import Root


def cpu_ns() -> int:
    """Of all threads of this process."""
    return time.process_time_ns()


def memory_bytes() -> int:
    """What is resident of this process; 0 where the kernel does not say."""
    try:
        words = Root().read("proc/self/statm", 256).split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    except (Unreadable, IndexError, ValueError):
        return 0
