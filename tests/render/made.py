"""Samples made by hand, for pictures: who ran what on which core, in words."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Failed, Note, Reason, SourceState
from exhume.recording.tally import Tally
from exhume.recording.writer import Writer

NODE = Node("node-7", "boot-1", "6.18.0", "v1", 4)
IDLE = "k:cpu_startup_entry k:do_idle k:default_idle"


class Ran(NamedTuple):
    """`stack` is words, the outermost caller first: `k:name` in the kernel, `j:name` made at run time, else `module:name`."""

    core: int
    process: str
    stack: str
    samples: int = 1
    kind: str = "system"
    pid: int = 100
    cgroup: str = "/"


class Dictionaries:
    """Gives out ids, as the recorder does."""

    def __init__(self, into: Recording) -> None:
        self.into = into
        self._frames: dict[str, int] = {}
        self._stacks: dict[tuple[str, str], int] = {}
        self._threads: dict[tuple[str, int, str], int] = {}

    def frame(self, word: str) -> int:
        if word not in self._frames:
            self._frames[word] = number = len(self._frames) + 1
            module, _, name = word.partition(":")
            if module == "k":
                self.into["frames"].add(number, name, "[kernel]", "kernel", -1)
            elif module == "j":
                self.into["frames"].add(number, name, "[jit]", "user", -1)
            else:
                self.into["frames"].add(number, name, f"/usr/bin/{module}", "user", -1)
        return self._frames[word]

    def stack(self, words: str, kind: str) -> int:
        key = (words, kind)
        if key not in self._stacks:
            self._stacks[key] = number = len(self._stacks) + 1
            self.into["stacks"].add(number, kind, [self.frame(word) for word in words.split()])
        return self._stacks[key]

    def thread(self, process: str, pid: int, cgroup: str) -> int:
        key = (process, pid, cgroup)
        if key not in self._threads:
            self._threads[key] = number = len(self._threads) + 1
            self.into["threads"].add(number, pid, pid, 0, process, process, cgroup, "", "", "")
        return self._threads[key]


def recorded(*rows: Ran) -> tuple[Tally, Recording]:
    made = Recording(NODE)
    ids = Dictionaries(made)
    counts: Counter[tuple[int, int, int]] = Counter()
    for ran in rows:
        counts[ran.core, ids.thread(ran.process, ran.pid, ran.cgroup), ids.stack(ran.stack, ran.kind)] += ran.samples
    columns = np.array([(*key, count) for key, count in sorted(counts.items())], dtype=np.int64).reshape(-1, 4).T
    return Tally(*columns), made


def idle(core: int, count: int) -> Ran:
    return Ran(core, "swapper", IDLE, count, "idle", 0)


SECOND = 1_000_000_000
BEGIN = 12_345 * SECOND
"""On the recording's clock."""
REAL = 1_760_000_000 * SECOND + 250_000_000
"""The wall clock at BEGIN: 2025-10-09 08:53:20.250 UTC."""
HZ = 100


def node_at(second: int, core: int, tick: int) -> Ran:
    """Four cores: sshd now and then, core 3 held by kubelet in the kernel from the 5th to the 7th second, idle otherwise."""
    if core == 3 and 5 <= second < 8:
        return Ran(
            core, "kubelet", "kubelet:main k:read k:mem_cgroup_nr_lru_pages", 1, "system", 4242, "/system.slice/kubelet.service"
        )
    if core == 1 and tick < 20:
        return Ran(core, "sshd", "sshd:main", 1, "user", 77, "/system.slice/ssh.service")
    return idle(core, 1)


_CLOCK = Note("cpu-clock")


def write(
    path: Path,
    seconds: int = 12,
    does: Callable[[int, int, int], Ran] = node_at,
    samples: Reason = _CLOCK,
    **about: str | int | bool,
) -> str:
    """A recording on disk, as the recorder would have written it."""
    told = {"hz": HZ, "event": "cpu-clock", "kernel_only": False, **about}
    writer = Writer(str(path), NODE, told, budget_bytes=1 << 30, segment_ns=5 * SECOND)
    rows = Recording(NODE)
    ids = Dictionaries(rows)
    rows.add_source(BEGIN, "samples", SourceState.read((samples,)))
    rows.add_source(BEGIN, "units", SourceState.off(Failed("PID 1 is not systemd")))
    for second in range(seconds):
        begin = BEGIN + second * SECOND
        rows["anchors"].add(begin, begin, begin, REAL + second * SECOND, 1000)
        rows.count(begin, "own_cpu_ns", second * 4_000_000)
        rows.count(begin, "own_rss_bytes", 50 << 20)
        rows.count(begin, "samples_lost", 7)
        for tick in range(HZ):
            for core in range(NODE.cpus):
                ran = does(second, core, tick)
                thread, stack = ids.thread(ran.process, ran.pid, ran.cgroup), ids.stack(ran.stack, ran.kind)
                rows["samples"].add(begin + tick * SECOND // HZ, core, thread, stack)
        writer.append(rows)
        rows = Recording(NODE)
        ids.into = rows
    writer.close()
    return str(path)
