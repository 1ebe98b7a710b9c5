"""Played inside a machine: watch how late its threads and softirqs are, while one thread is held off its core for a known
time. Prints what was seen, and beside it what /proc says, read in a few lines that share nothing with the code under test.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.kernel.bpf import Btf
from exhume.kernel.clock import Clock
from exhume.recorder.latency import Latency, Options
from exhume.recorder.latency_told import Told
from exhume.recorder.recorder import node_of
from exhume.recording.recording import Recording
from exhume.sources.latency.discover import Discover
from exhume.sources.latency.look import Looker

CORE = 1
HELD_MS = 300
WAITER = "exhume-waits"
_HOLD = f"""
import os, time
os.sched_setaffinity(0, {{{CORE}}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
begin = time.monotonic_ns()
while time.monotonic_ns() < begin + {HELD_MS} * 1_000_000:
    pass
print(time.monotonic_ns() - begin)
"""


def softirqs() -> dict[int, list[int]]:
    """The counts of each core, in the order of vectors."""
    first, *rows = Path("/proc/softirqs").read_text().splitlines()
    cores = [int(name.removeprefix("CPU")) for name in first.split()]
    table = [[int(word) for word in row.split()[1:]] for row in rows]
    return {core: [row[at] for row in table] for at, core in enumerate(cores)}


def schedstat(tid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{tid}/schedstat").read_text().split()]


@contextmanager
def waiter() -> Iterator[int]:
    """A process that always wants the core."""
    child = os.fork()
    if not child:
        Path("/proc/self/comm").write_text(WAITER)
        os.sched_setaffinity(0, {CORE})
        while True:
            pass
    try:
        time.sleep(0.5)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def hold() -> tuple[int, int]:
    """Who held the core, and for how long it says it did."""
    process = subprocess.Popen([sys.executable, "-S", "-c", _HOLD], stdout=subprocess.PIPE, text=True)
    return process.pid, int(process.communicate()[0])


def looks(tid: int) -> dict[str, Any]:
    """One look between two readings of /proc, of all cores and of that thread."""
    btf = Btf.vmlinux()
    finder = Discover(btf, re.compile(f"^{WAITER}$"))
    with Looker(btf, 50_000_000) as looker, Clock() as clock:
        found = finder.find()
        finder.close()
        looker.watch(found.threads, found.ksoftirqd)
        before = softirqs(), schedstat(tid)
        looker.glance()
        after = softirqs(), schedstat(tid)
        look = looker.seen(clock.now())
    row = next(row for row in look.threads if int(row["tid"]) == tid)
    return {
        "ksoftirqd": [[thread.comm, thread.tid] for thread in found.ksoftirqd],
        "threads": [[thread.comm, thread.tid] for thread in found.threads],
        "sees_softirqs": looker.sees_softirqs,
        "known": look.cores["known"].tolist(),
        "there": int(row["there"]),
        "cpu": int(row["cpu"]),
        "softirqs": [list(before[0].values()), look.cores["softirqs"].tolist(), list(after[0].values())],
        "schedstat": [before[1][1:], [int(row["run_delay"]), int(row["pcount"])], after[1][1:]],
        "curr": look.cores["curr_tid"].tolist(),
    }


def watch(tid: int, weak: bool) -> dict[str, Any]:
    told: list[Told] = []
    root = Root()
    latency = Latency(root, node_of(root), Options(names=f"^{WAITER}$", every_ns=2 * SECOND), told.append)
    with patch("exhume.recorder.latency.unavailable", lambda: "BPF is not to be used") if weak else nullcontext():
        latency.start()
        latency.ready.wait(60)
    for _ in range(300):  # to load programs takes long here
        if "latency-reclaim" in {row.name for row in latency.sources()}:
            break
        time.sleep(0.1)
    time.sleep(3)
    holder, held_ns = hold()
    time.sleep(3)
    latency.finish()
    rows = Recording(node_of(root))
    latency.collect(rows)
    return {
        "failure": repr(latency.failure) if latency.failure is not None else "",
        "sources": {row.name: [row.state.state, row.state.reason] for row in latency.sources()},
        "holder": holder,
        "held_ns": held_ns,
        "stalls": [
            {
                "what": one.stall.what,
                "core": one.stall.core,
                "tid": one.stall.thread.tid if one.stall.thread is not None else 0,
                "ns": one.length_ns,
                "over": one.over,
                "holder": one.holder.pid if one.holder is not None else -1,
                "samples": one.offender.samples if one.offender is not None else 0,
            }
            for one in told
        ],
        "rows": sorted({(row["what"], row["stage"]) for row in rows["latency"].rows()}),
        "tid": tid,
    }


def command() -> dict[str, Any]:
    argv = [sys.executable, "-m", "exhume", "latency", "--for", "8s", "--json"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return {"exit": done.returncode, "report": json.loads(done.stdout or "{}"), "stderr": done.stderr}


def main() -> None:
    with waiter() as tid:
        seen = {"tid": tid, "looks": looks(tid), "watch": watch(tid, weak=False), "weak": watch(tid, weak=True)}
    print(json.dumps({**seen, "command": command()}))


if __name__ == "__main__":
    main()
