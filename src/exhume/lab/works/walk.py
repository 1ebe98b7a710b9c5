"""Work that makes the kernel walk every memory cgroup below one, dead ones included: what reading statistics did before 5.8.

On today's kernels it is reclaim that still does: memory.force_empty on v1, memory.reclaim on v2.
"""

import os
import time

from exhume.lab.work import call, on_core, say


def main(group: str, core: str, priority: str, every_s: str, least_s: str, name: str) -> None:
    """A round is as many passes, one after the other, as take `least_s`: a read of memory.numa_stat was a walk for each line
    (dd8657b6c1cb), so that fewer zombies than on the nodes of the incident do, too. Then a rest of `every_s`."""
    call(name)
    on_core(int(core), int(priority))
    file, text = f"{group}/memory.force_empty", b"0"
    if not os.path.exists(file):
        file, text = f"{group}/memory.reclaim", b"1G"
    while True:
        begin = time.monotonic()
        passes = 0
        while not passes or time.monotonic() - begin < float(least_s):
            _walk(file, text)
            passes += 1
        took = time.monotonic() - begin
        say(walk_ms=round(took * 1000 / passes, 1), round_ms=round(took * 1000, 1))
        time.sleep(float(every_s))


def _walk(file: str, text: bytes) -> None:
    fd = os.open(file, os.O_WRONLY)
    try:
        os.write(fd, text)
    except OSError:  # less than asked was there to be had, or it was busy
        pass
    finally:
        os.close(fd)
