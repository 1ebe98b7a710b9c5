"""Who waits, where BPF is not to be had: the same looks from /proc, which any user may read. They say less.

/proc/TID/schedstat has how long a thread ran, how long it waited for a core, and how often it got one; a wait shows there
when it is over. That one is under way is concluded: the thread is runnable (state R) and did not run since the last look.
Not to be seen are when it began (only between which looks), who holds the core, and softirqs that no thread serves.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import numpy as np

from exhume.errors import Unreadable
from exhume.host.root import Root, read_at
from exhume.sources.latency.discover import Found, Thread, chosen, device_of
from exhume.sources.latency.look import CORE, THREAD, Look
from exhume.sources.processes import parse_stat
from exhume.text import decode

MOST_TASKS: Final = 50_000
_KTHREADD: Final = 2


class WeakDiscover:
    """Threads by name from /proc. Kernel threads are the children of kthreadd."""

    def __init__(self, root: Root, names: re.Pattern[str] | None = None) -> None:
        self._root, self._names = root, names
        self.left_out = 0

    def find(self) -> Found:
        threads = {thread.tid: thread for thread in (self._others() if self._names else ())}
        threads |= {thread.tid: thread for thread in self._kernel_threads()}
        found, self.left_out = chosen([*threads.values()], self._names)
        return found

    def close(self) -> None:
        pass

    def _kernel_threads(self) -> Iterator[Thread]:
        try:
            words = self._root.read(f"proc/{_KTHREADD}/task/{_KTHREADD}/children").split()  # CONFIG_PROC_CHILDREN
        except Unreadable:
            words = [name.encode() for name in self._root.names("proc") if name.isdecimal()]
        for word in words[:MOST_TASKS]:
            stat = parse_stat(self._read(f"proc/{decode(word)}/stat")) if word.isdigit() else None
            if stat is not None and stat.ppid == _KTHREADD:
                device = device_of(stat.comm) if stat.comm.startswith("napi/") else ""
                yield Thread(1, 0, int(word), int(word), stat.comm, device, 0)

    def _others(self) -> Iterator[Thread]:
        left = MOST_TASKS
        for name in self._root.names("proc"):
            if not name.isdecimal():
                continue
            with suppress(OSError):
                for tid in os.listdir(self._root.at(f"proc/{name}/task")):
                    left -= 1
                    if left < 0:
                        return
                    comm = decode(self._read(f"proc/{name}/task/{tid}/comm").rstrip(b"\n"))
                    if tid.isdecimal():
                        yield Thread(1, 0, int(tid), int(name), comm, "", 0, kernel=False)

    def _read(self, name: str) -> bytes:
        try:
            return self._root.read(name, 4096)
        except Unreadable:
            return b""


class WeakLooker:
    """As Looker."""

    sees_softirqs = False

    def __init__(self, root: Root) -> None:
        self._root = root
        if parse_schedstat(root.read("proc/self/schedstat" if root.own else "proc/1/schedstat", 256)) is None:
            raise Unreadable("/proc/PID/schedstat is empty: the kernel was built without CONFIG_SCHED_INFO")
        self._threads: list[Thread] = []
        self._last: dict[int, tuple[int, int, int, int]] = {}
        """How long each had run, on which core it was, how long it had waited, how often it got a core."""
        self._since: dict[int, int] = {}
        """The last look at which each that waits now had run since the one before."""
        self._time = 0

    def watch(self, threads: list[Thread], ksoftirqd: list[Thread]) -> None:
        """ksoftirqd is watched as the other threads are: what it is to serve cannot be seen from here."""
        known = {thread.tid: thread for thread in (*threads, *ksoftirqd)}
        self._threads = [*known.values()]
        self._last = {tid: last for tid, last in self._last.items() if tid in known}
        self._since = {tid: since for tid, since in self._since.items() if tid in known}

    @property
    def threads(self) -> list[Thread]:
        return self._threads

    @property
    def cores(self) -> list[Thread]:
        return []

    def glance(self) -> bool:
        return True

    def seen(self, time: int) -> Look:
        rows = np.zeros(len(self._threads), THREAD)
        for row, thread in zip(rows, self._threads, strict=True):
            self._fill(row, thread, time)
        self._time = time
        return Look(time, rows, np.zeros(0, CORE))

    def close(self) -> None:
        pass

    def _fill(self, row: np.void, thread: Thread, time: int) -> None:
        place = self._root.at(f"proc/{thread.tid}")
        before, core, waited, times = self._last.get(thread.tid, (-1, -1, 0, 0))
        state = ""
        try:
            account = parse_schedstat(read_at(f"{place}/schedstat", 256))
            if account is None:
                return
            if before == account[0] or core < 0:  # it did not run: whether it wants to is asked only then
                stat = parse_stat(read_at(f"{place}/stat", 4096))
                if stat is None:
                    return
                state, core = stat.state, stat.core
        except OSError:
            return
        self._last[thread.tid] = (account[0], core, account[1], account[2])
        row["there"], row["tid"], row["cpu"], row["run_delay"], row["pcount"] = 1, thread.tid, core, account[1], account[2]
        row["run_delay_before"], row["pcount_before"] = waited, times
        if state == "R" and before == account[0]:
            row["last_queued"] = self._since.setdefault(thread.tid, self._time)
        else:
            self._since.pop(thread.tid, None)


def parse_schedstat(raw: bytes) -> tuple[int, int, int] | None:
    """Nanoseconds on a core, nanoseconds runnable without one, and times that it got one (proc_pid_schedstat)."""
    words = raw.split()
    if len(words) != 3 or not all(word.isdigit() and len(word) < 20 for word in words):
        return None
    return int(words[0]), int(words[1]), int(words[2])
