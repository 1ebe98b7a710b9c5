"""Which cores run tasks in time, and which one to work on.

lru_add_drain_all() waits for a worker on every CPU that has pages in a batch; memory.force_empty calls it, and so does
posix_fadvise() when a page is in use. If a core runs no tasks, that wait has no end in sight, and no signal ends it. So every
core is visited first, by a child that may get stuck in place of us.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from exhume.errors import Refused, Unreadable
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.remedy.child import Child
from exhume.sources.facts import online_cpus

STARVED_S = 0.25
"""A core that has not run our task for this long, twice, is starved. Not longer: from 6.12 on the fair server gives ordinary
tasks 50 ms of each second. On a machine with many times more work than cores a task may wait as long: refused as well."""
MOST_STARVED = 4
"""After so many no more cores are visited, to bound the time."""
_BEYOND = 1 << 40  # of any file: nothing is evicted


@dataclass(frozen=True, slots=True)
class Cores:
    starved: tuple[int, ...]
    """None of the cores that were visited if empty."""

    def refuse_if_starved(self) -> None:
        if self.starved:
            names = ", ".join(map(str, self.starved))
            one = len(self.starved) == 1
            raise Refused(
                f"not purged: core{'' if one else 's'} {names} {'has' if one else 'have'} not run our task for "
                f"{duration(STARVED_S * SECOND)}, twice. The kernel may have to wait for {'it' if one else 'them'} "
                "(lru_add_drain_all). exhume check shows what holds a core; purge again when it is free"
            )


def visit_cores() -> Cores:
    """Run for a moment on each core that the kernel lets us run on. Our own affinity does not matter, because the kernel does
    not ask for it when it drains: isolated cores (isolcpus) are waited for like all others. Those that our cpuset does not
    have cannot be visited.

    On the way every core puts the pages that it holds in a batch onto the LRU lists, so that what they pin can be seen:
    POSIX_FADV_DONTNEED begins with lru_add_drain(), which does so for the CPU it runs on (mm/fadvise.c). On a range that no
    file has it does nothing else.
    """
    slow = _visit(online_cpus(Root()) or sorted(os.sched_getaffinity(0)))
    # Twice, because a busy machine, or a hypervisor, may keep any task waiting once.
    return Cores(tuple(_visit(slow)) if slow else ())


def _visit(cores: list[int]) -> list[int]:
    """Those that did not run us in time."""

    def visit(send: Callable[[int], None]) -> None:
        fd = os.open("/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC)
        for core in cores:
            try:
                os.sched_setaffinity(0, {core})
                os.posix_fadvise(fd, _BEYOND, 4096, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass  # a core that went offline meanwhile
            send(core)

    slow: list[int] = []
    with Child(visit) as child:
        for core in cores:
            if child.receive(STARVED_S) is None:
                slow.append(core)
                child.rescue()
                if len(slow) >= MOST_STARVED or child.receive(STARVED_S) is None:
                    break
    return slow


def quiet_core(root: Root) -> int | None:
    """A core that we may run on and that serves no network queue; None if there is no choice."""
    from exhume.recording.recording import Node, Recording
    from exhume.sources.interrupts import Interrupts, queue_cores

    allowed = os.sched_getaffinity(0)
    seen = Recording(Node("", "", "", "", len(allowed)))
    try:
        Interrupts(root).read(seen, 0)
    except Unreadable:
        return None
    serving = {*queue_cores(seen, "tx").values(), *queue_cores(seen, "rx").values()}
    return max(allowed - serving, default=None)


class Pace:
    """Called often while at work; rests when a core was kept busy for WORK_S."""

    WORK_S = 0.01
    REST_S = 0.02

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._began >= self.WORK_S:
            self.rest()

    def rest(self) -> None:
        time.sleep(self.REST_S)
        self._began = time.monotonic()
