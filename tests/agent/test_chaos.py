"""Half an hour of everything at once, on demand; EXHUME_CHAOS_S makes it shorter. The agent neither ends nor grows, no counter
goes back, and what it counted is right afterwards.

A log flood of 50,000 lines a second comes through a FIFO in place of /dev/kmsg, so that this machine's own log is left alone;
the wall clock is stepped by what the agent reads of it; units flap in a systemd of their own; the disk is a small tmpfs that
fills up; the agent is stopped and continued, and told to read its settings again; clients hold connections open.
"""

import fcntl
import os
import random
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from exhume.agent.metrics import METRICS
from exhume.kernel.clock import Clock
from tests import systemd
from tests.agent.agents import Agent, Samples, agent
from tests.recorders import exhume

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent with everything on needs root"),
    pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable()),
]

SECONDS = int(os.environ.get("EXHUME_CHAOS_S", "1800"))
LINES_A_SECOND = 50_000
LARGEST_BYTES = 250 << 20
ENA = "ena 0000:20:03.0 eth0: Keep alive watchdog timeout."
DONE = "ena 0000:20:03.0: Device reset completed successfully"
# PIPE_BUF of limits.h: what is written at once up to this comes out whole.
_WHOLE = 4096

# What the agent reads of the wall clock jumps by an hour, forward and back, every 20 s.
STEPS = """
import time
from exhume.kernel.clock import Clock
from dataclasses import replace
real = Clock.anchor
def anchor(self):
    seen, step = real(self), (int(time.monotonic()) // 20 % 3 - 1) * 3600 * 10**9
    return replace(seen, real_ns=seen.real_ns + step)
Clock.anchor = anchor
"""
FLAPS = "[Service]\nExecStart=/bin/sh -c 'exit 3'\nRestart=always\nRestartSec=100ms\nStartLimitIntervalSec=0\n"


class Flood:
    """Lines of a kernel that does not stop talking, and now and then a reset, of which every one counts."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
        self._path, self._fd, self._clock = path, os.open(path, os.O_RDWR | os.O_NONBLOCK), Clock()
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, 1 << 20)  # as large as a ring buffer usually is
        self._number = 0
        self.lines = self.resets = 0

    def _records(self, lines: list[str]) -> bytes:
        now = self._clock.now() // 1000
        self._number += len(lines)
        return "".join(f"6,{self._number + i},{now + i},-;{line}\n" for i, line in enumerate(lines)).encode()

    def seconds(self, count: int) -> None:
        """So many seconds of it, in tenths; what finds no room is dropped, as a ring buffer does."""
        for _ in range(10 * count):
            begun = time.monotonic()
            left = LINES_A_SECOND // 10
            while left > 0:
                lines = [f"eth{self._number % 7}: link {i}" for i in range(min(left, 60))]
                data = self._records(lines)[:_WHOLE].rpartition(b"\n")[0] + b"\n"
                _, writable, _ = select.select([], [self._fd], [], max(0.0, begun + 0.1 - time.monotonic()))
                with suppress(BlockingIOError):
                    os.write(self._fd, data)
                    self.lines += data.count(b"\n")
                left = left - data.count(b"\n") if writable else 0
            time.sleep(max(0.0, begun + 0.1 - time.monotonic()))

    def reset(self) -> None:
        """Waits for room: a recorder that is flooded reads the log less often, to keep to its share of a core."""
        data = self._records([ENA, DONE])
        while True:
            try:
                os.write(self._fd, data)
                break
            except BlockingIOError:
                time.sleep(0.01)
        self.resets += 1

    def close(self) -> None:
        os.close(self._fd)
        self._clock.close()


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "exhume-test", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(place: Path) -> None:
    with open(place / "filler", "wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 65536)


class Watch(threading.Thread):
    """Scrapes all the while. No counter may go back, and no scrape may fail while the agent runs."""

    def __init__(self, it: Agent) -> None:
        super().__init__(daemon=True)
        self.scrapes = 0
        self.failure = ""
        self.memory: list[int] = []
        self.end = threading.Event()
        self._it = it
        self._before: Samples = {}

    def run(self) -> None:
        counters = tuple(name for name, metric in METRICS.items() if metric.kind == "counter")
        counters += tuple(f"{name}_{part}" for name in ("exhume_latency_seconds",) for part in ("bucket", "count", "sum"))
        while not self.end.wait(1):
            try:
                now = self._it.scrape()
            except Exception as error:
                self.failure = self.failure or f"a scrape failed: {error!r}"
                continue
            self.scrapes += 1
            for key, value in self._before.items():
                if key[0] in counters and now.get(key, -1.0) < value:
                    self.failure = self.failure or f"{key} went from {value} to {now.get(key)}"
            self._before = now
            self.memory.append(self._it.memory_bytes())


def open_files(it: Agent) -> int:
    return len(os.listdir(f"/proc/{it.process.pid}/fd"))


def test_half_an_hour_of_chaos(tmp_path: Path) -> None:
    rng = random.Random(7)
    flood = Flood(tmp_path / "log" / "dev" / "kmsg")
    with ExitStack() as stack:
        stack.callback(flood.close)
        disk = stack.enter_context(small_disk(tmp_path / "disk"))
        machine = stack.enter_context(systemd.boot({"flap.service": FLAPS}))
        machine.run(["systemctl", "start", "--no-block", "flap.service"])
        settings = {"EXHUME_AGENT_BUDGET_MIB": "20", "EXHUME_AGENT_KEEP_S": "120", "EXHUME_AGENT_LATENCY": "1"}
        settings |= {"EXHUME_AGENT_CPU_LIMIT_RATIO": "1.0", "EXHUME_AGENT_HOST": f"/proc/{machine.leader}/root"}
        it = stack.enter_context(
            agent(
                disk / "r",
                "--log-root",
                str(tmp_path / "log"),
                prelude=STEPS,
                environment={**settings, "EXHUME_SEGMENT_S": "10"},
            )
        )
        it.ready()
        it.until(lambda: it.value("exhume_source_up", source="units") == 1.0)
        watch = Watch(it)
        watch.start()
        idle: list[socket.socket] = []
        host, port = it.url.removeprefix("http://").split(":")

        def hold() -> None:
            while idle:
                idle.pop().close()
            idle.extend(socket.create_connection((host, int(port)), 20) for _ in range(60))

        def stop_for_a_while() -> None:
            it.process.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(1, 6))
            it.process.send_signal(signal.SIGCONT)

        def full_for_a_while() -> None:
            fill(disk)
            flood.seconds(5)
            (disk / "filler").unlink()

        deeds: list[Callable[[], object]] = [
            lambda: flood.seconds(10),
            flood.reset,
            stop_for_a_while,
            full_for_a_while,
            hold,
            lambda: it.process.send_signal(signal.SIGHUP),
        ]
        begun = time.monotonic()
        settled_files = 0
        while time.monotonic() - begun < SECONDS:
            for deed in rng.sample(deeds, len(deeds)):
                deed()
                assert it.process.poll() is None, it.text
                time.sleep(2)
            settled_files = settled_files or open_files(it)
        for connection in idle:
            connection.close()
        machine.run(["systemctl", "stop", "flap.service"])
        flood.reset()
        it.until(lambda: it.value("exhume_nic_resets_total", device="eth0", reason="keep-alive") == flood.resets, 180)
        watch.end.set()
        watch.join()
        print(f"{watch.scrapes} scrapes, {flood.lines:,} lines, {flood.resets} resets, memory {watch.memory[::30]}")
        assert watch.failure == ""
        assert max(watch.memory) < LARGEST_BYTES
        third = len(watch.memory) // 3
        assert max(watch.memory[-third:]) < 1.2 * max(watch.memory[:third])
        it.until(lambda: open_files(it) <= settled_files + 4)
        assert it.get("/-/healthy")[0] == 200
        assert "Traceback" not in it.text
        assert "could not judge" not in it.text
        assert "a bug in exhume" not in it.get("/metrics")[1] + it.text
        assert it.end(signal.SIGTERM) == 0
        assert exhume("info", disk / "r").returncode == 0
