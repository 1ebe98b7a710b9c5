"""Pages that were read or written a moment ago wait in small batches, one a CPU, before they are put onto a list."""

import os
import sys

_BEYOND = 1 << 40  # of any file: nothing is evicted


def drain_batches() -> None:
    """Have every CPU that we may run on put its batch onto the lists, so that what is pinned by it can be seen and evicted.

    POSIX_FADV_DONTNEED begins with lru_add_drain(), which does this for the CPU it runs on (mm/fadvise.c); on a range that no
    file has it does nothing else. Best effort: a CPU that is closed to us keeps its batch of at most some tens of pages.
    """
    allowed = os.sched_getaffinity(0)
    try:
        fd = os.open(sys.executable, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for cpu in allowed:
            os.sched_setaffinity(0, {cpu})
            os.posix_fadvise(fd, _BEYOND, 4096, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass
    finally:
        os.sched_setaffinity(0, allowed)
        os.close(fd)
