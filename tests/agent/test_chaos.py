"""Half an hour of everything at once, on demand; EXHUME_CHAOS_S makes it shorter. The agent neither ends nor grows, no counter
goes back, and what it counted is right afterwards.

A log flood of 50,000 lines a second comes through a FIFO in place of /dev/kmsg, so that this machine's own log is left alone;
the wall clock is stepped by what the agent reads of it; units flap in a systemd of their own; the disk is a small tmpfs that
fills up; the cluster's API server, a real one, and the receiver of profiles hang, talk nonsense, hang up and go away, and the
server loses its etcd; the agent is stopped and continued, and told to read its settings again; clients hold connections open.
"""

import os
import random
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
from exhume.agent.spool import Parcel, Spool
from exhume.cluster.conditions import KINDS
from tests import systemd
from tests.agent.agents import Agent, Samples, agent
from tests.agent.flood import Flood
from tests.agent.push_receiver import Receiver, parcel
from tests.agent.relay import STATES, Relay
from tests.agent.shaky_cluster import shaky
from tests.recorders import exhume

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent with everything on needs root"),
    pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable()),
]

SECONDS = int(os.environ.get("EXHUME_CHAOS_S", "1800"))
LARGEST_BYTES = 250 << 20
BUDGET_BYTES = 20 << 20
HEARTBEAT_S = 20

# What the agent reads of the wall clock jumps by an hour, forward and back, every 20 s. To its cluster it speaks often.
STEPS = f"""
import time
import exhume.cluster.reporter as reporter
from exhume.kernel.clock import Clock
from dataclasses import replace
reporter.HEARTBEAT_S = {HEARTBEAT_S}
real = Clock.anchor
def anchor(self):
    seen, step = real(self), (int(time.monotonic()) // 20 % 3 - 1) * 3600 * 10**9
    return replace(seen, real_ns=seen.real_ns + step)
Clock.anchor = anchor
"""
FLAPS = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sh -c 'exit 3'\nRestart=always\nRestartSec=100ms\n"


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


def up(scraped: Samples) -> dict[frozenset[tuple[str, str]], float]:
    """Sources, and whether they are on."""
    return {labels: value for (name, labels), value in scraped.items() if name == "exhume_source_up"}


def test_half_an_hour_of_chaos(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(7)
    flood = Flood(tmp_path / "log" / "dev" / "kmsg")
    with ExitStack() as stack:
        stack.callback(flood.close)
        cluster = stack.enter_context(shaky(tmp_path_factory.mktemp("cluster")))
        receiver = Receiver()
        stack.callback(receiver.close)
        to_receiver = Relay(receiver.port)
        stack.callback(to_receiver.close)
        disk = stack.enter_context(small_disk(tmp_path / "disk"))
        machine = stack.enter_context(systemd.boot({"flap.service": FLAPS}))
        machine.run(["systemctl", "start", "--no-block", "flap.service"])
        settings = {"BUDGET_MIB": str(BUDGET_BYTES >> 20), "KEEP_S": "120", "LATENCY": "1", "CPU_LIMIT_RATIO": "1.0"}
        settings |= {"HOST": f"/proc/{machine.leader}/root", "PUSH_URL": f"http://127.0.0.1:{to_receiver.port}"}
        settings |= {"PUSH_FORM": "pprof", "PUSH_EVERY_S": "30", "PUSH_SPOOL_MIB": "1"}
        environment = {f"EXHUME_AGENT_{key}": value for key, value in settings.items()}
        environment |= {"EXHUME_SEGMENT_S": "10", **cluster.settings}
        it = stack.enter_context(agent(disk / "r", "--log-root", str(tmp_path / "log"), prelude=STEPS, environment=environment))
        it.ready()
        it.until(lambda: it.value("exhume_source_up", source="units") == 1.0)
        it.until(lambda: len(cluster.told_s()) == len(KINDS), 120)
        at_first = up(it.scrape())
        spool, made = Spool(f"{disk / 'r'}.spool", 1 << 20), list[Parcel]()
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

        def counted() -> bool:
            return it.value("exhume_nic_resets_total", device="eth0", reason="keep-alive") == flood.resets

        def one_more_profile() -> None:
            """Into the spool, as the agent's children do it; they make none themselves where there are no samples."""
            made.append(parcel(len(made), os.urandom(20_000)))
            with suppress(OSError):
                spool.add(made[-1])

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
            lambda: cluster.relay.become(rng.choice(STATES)),
            lambda: cluster.without_etcd(rng.choice((True, False))),
            lambda: to_receiver.become(rng.choice(STATES)),
            one_more_profile,
        ]
        begun = time.monotonic()
        settled_files = 0
        while time.monotonic() - begun < SECONDS:
            for deed in rng.sample(deeds, len(deeds)):
                deed()
                assert it.process.poll() is None, it.text
                time.sleep(2)
            settled_files = settled_files or open_files(it)
        print(f"{watch.scrapes} scrapes, {flood.lines:,} lines at {flood.lines / flood.took_s:,.0f} a second, of which ")
        print(
            f"{flood.forgotten:,} were overwritten unread, {flood.resets} resets, {cluster.relay.came} connections to the API "
        )
        print(f"server, {len(receiver.came)} profiles, memory {watch.memory[::30]}")
        print(it.text)
        for connection in idle:
            connection.close()
        machine.run(["systemctl", "stop", "flap.service"])
        cluster.well()
        to_receiver.become("through")
        well_s = time.time()
        one_more_profile()
        it.process.send_signal(signal.SIGHUP)
        it.until(counted, 180)
        flood.reset()
        it.until(counted, 180)
        it.until(lambda: min(cluster.told_s().values()) >= well_s - 1, 180)
        it.until(lambda: made[-1].body in {one.body for one in receiver.came} and not spool.waiting(), 180)
        it.until(lambda: up(it.scrape()) == at_first, 180)
        watch.end.set()
        watch.join()
        assert watch.failure == ""
        assert flood.resets > 0
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
