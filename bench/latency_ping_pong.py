"""What exhume latency costs two processes that do nothing but wake each other: every wake-up and every switch is probed."""

import mmap
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.measure import ENVIRONMENT, Row
from exhume.recorder.latency import Options

ROUNDS, ROUND_S = 30, 1.0

# Counts its round trips in a file that it shares with us. Before other sessions it comes first, as bench/beside.py does, with
# which it shares the machine as two of equal rank do.
_PING_PONG = """
import mmap, os, sys
if os.path.exists("/proc/self/autogroup"):
    with open("/proc/self/autogroup", "w") as file:
        file.write("-20")
a, b = os.pipe(); c, d = os.pipe()
os.sched_setaffinity(0, {1})
if not os.fork():
    while True:
        os.write(d, os.read(a, 1))
with open(sys.argv[1], "r+b") as file:
    count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
while True:
    for _ in range(20):
        os.write(b, b"x"); os.read(c, 1)
    count[0] += 20
"""


@contextmanager
def _ping_pong() -> Iterator[Callable[[], int]]:
    """Two processes on one core that wake each other over pipes; how many round trips they have made."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(8))
        file.flush()
        process = subprocess.Popen([sys.executable, "-c", _PING_PONG, file.name], start_new_session=True)
        try:
            with mmap.mmap(file.fileno(), 8) as shared:
                yield lambda: int.from_bytes(shared[:8], sys.byteorder)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def latency_ping_pong() -> Iterator[Row]:
    """A ping-pong over a pipe without and with the watch, in turns of a second, each between two turns alone.

    One window of the probes with its opening and closing fits into a turn, and comes once in a period; the rest of the period
    is as a turn without one.
    """
    # How much longer a round trip takes than alone.
    longer: dict[str, list[float]] = {"looks": [], "window": [], "nothing": []}
    watch = [sys.executable, "-m", "bench.beside"]
    with (
        _ping_pong() as count,
        subprocess.Popen(
            watch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
        ) as beside,
    ):
        _trip(beside, "window", count)  # warms what is cold
        before = _trip(beside, "off", count)
        for _ in range(ROUNDS):
            for kind in random.sample(list(longer), len(longer)):
                taken = _trip(beside, kind, count)
                after = _trip(beside, "off", count)
                longer[kind].append(2 * taken / (before + after))
                before = after
        assert beside.stdin is not None
        beside.stdin.close()
    part = ROUND_S / (Options().every_ns / 1e9)
    whole = [(1 - part) * looks + part * window for looks, window in zip(longer["looks"], longer["window"], strict=True)]
    # The bar is for the rate without over the rate beside: 97 % is 1.031.
    yield _longer("the watch", whole, 1 / 0.97)
    yield _longer("what is always on of it", longer["looks"])
    yield _longer("it while a window opens and closes", longer["window"])
    yield _longer("something that only wakes as often", longer["nothing"])


def _trip(beside: "subprocess.Popen[str]", kind: str, count: Callable[[], int]) -> float:
    """How long a round trip takes beside that, in seconds."""
    assert beside.stdin is not None
    assert beside.stdout is not None
    print(kind, file=beside.stdin, flush=True)
    if beside.stdout.readline() != f"{kind}\n":
        raise RuntimeError(f"bench/beside.py does not do {kind}")
    before, begin = count(), time.perf_counter()
    time.sleep(ROUND_S)
    return (time.perf_counter() - begin) / max(1, count() - before)


def _longer(name: str, ratios: list[float], bar: float | None = None) -> Row:
    quarters = ", ".join(f"{ratio:.3f}" for ratio in statistics.quantiles(ratios, n=4))
    print(f"  a round trip beside {name}, alone 1: {quarters} (quartiles of {len(ratios)})", file=sys.stderr)
    return Row(f"round trip over a pipe, one core, beside {name}, alone 1", statistics.median(ratios), None, "", bar)
