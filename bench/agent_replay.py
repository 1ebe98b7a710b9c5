"""`python -m bench.agent_replay SECONDS CORES HZ`: what a large node would give the agent, replayed through its own parts.

Kernel stacks are real, sampled here from a mixed load (bench/replay.py). The rows of the readers are made, with every series
that such a node has and all of them changing. What the readers themselves cost is not in it: they read less than one part in a
hundred of a core each, or read less often (recorder/profiles.py). That of the cores' counters, ten times a second, is: it reads
a file as such a node has it.
"""

import gc
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict

from bench import replay
from bench.record import _cpu_s, _family, _memory_mb
from exhume.agent.exposition import Exposition
from exhume.agent.gathering import Gathered
from exhume.agent.standing import Standing
from exhume.cli.record_trigger import kinds_of
from exhume.diagnosis.findings.registry import examine
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.root import Root
from exhume.kernel.clock import Clock
from exhume.recorder.policy import Policy
from exhume.recorder.profiles import FLIGHT
from exhume.recorder.trigger import Incident, Trigger
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import SourceState
from exhume.recording.writer import Writer
from exhume.sources.cpu import Cpu
from exhume.sources.sampling.memory import give_back, in_one_place
from exhume.sources.sampling.profiler import Profiler
from exhume.sources.sampling.sampler import Taken

SECOND = 10**9
QUEUES, CGROUPS = 32, 240
_KERNEL = 1 << 63
_CONTEXT_USER = (1 << 64) - 512  # PERF_CONTEXT_USER of include/uapi/linux/perf_event.h


def kernel_only(chain: bytes) -> bytes:
    """The part of a stack that the agent takes: perf leaves the user's out (exclude_callchain_user)."""
    at = chain.find(_CONTEXT_USER.to_bytes(8, "little"))
    return chain if at < 0 or at % 8 else chain[:at]


class Made:
    """Rows of all readers for a batch, each in the rhythm of the flight recorder (recorder/profiles.py)."""

    def __init__(self, node: Node, rng: random.Random) -> None:
        self._node, self._rng = node, rng
        self._values: dict[tuple[str, object], int] = defaultdict(int)
        self._told = 0
        self._ticks = [[0] * 10 for _ in range(node.cpus)]

    def rows(self, start: int) -> Recording:
        rows = Recording(self._node)
        rows["anchors"].add(start, start, start, start, 0)
        for tick in range(14):
            for core in range(self._node.cpus):
                ticks = self._ticks[core]
                ticks[0] += 60_000_000
                ticks[2] += 30_000_000
                ticks[3] += 10_000_000
                rows["cpu"].add(start + tick * SECOND // 10, core, *ticks)
        rows["memcg"].add(start, "/", CGROUPS, 1000, CGROUPS + 1000, "proc-cgroups", "node", 1)
        for core in range(self._node.cpus):
            for name in ("softnet_processed", "softnet_dropped", "softnet_squeezed"):
                self._count(rows, start, name, cpu=core)
            for vector in ("NET_RX", "NET_TX", "TIMER", "RCU", "SCHED"):
                self._count(rows, start, "softirqs", cpu=core, vector=vector)
        for name in ("pgscan_kswapd", "pgsteal_kswapd", "pgscan_direct", "pgsteal_direct", "pgfault", "pgmajfault"):
            self._count(rows, start, f"vmstat_{name}")
        for resource in ("cpu", "memory", "io"):
            self._count(rows, start, "pressure_us", resource=resource, kind="some")
        for queue in range(QUEUES):
            histogram = tuple(self._rng.randrange(100) for _ in range(28))
            device = f"eth{queue % 2}"
            rows["latency"].add(
                start, "napi", "wait", queue, device, 1, "", sum(histogram), 10**6, 10**5, histogram, 0, 0, "", 17
            )
        if start - self._told > 10 * SECOND:
            self._told = start
            self._seldom(rows, start)
        return rows

    def _seldom(self, rows: Recording, start: int) -> None:
        for group in range(CGROUPS):
            path = f"/kubepods/burstable/pod{group:04x}"
            for name in ("cpu_throttled_ns", "cpu_throttled_periods", "cpu_periods"):
                self._count(rows, start, name, cgroup=path)
        for queue in range(QUEUES):
            self._count(rows, start, "interrupts", irq=queue + 30, cpu=queue, name=f"eth0-Tx-Rx-{queue}")
            for name in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "tx_timeout"):
                self._count(rows, start, "nic", device="eth0", stat=f"queue_{queue}_{name}")
        for source in (
            "cpu",
            "memcg",
            "vmstat",
            "softnet",
            "softirqs",
            "pressure",
            "throttling",
            "nic",
            "kernel-log",
            "samples",
        ):
            rows.add_source(start, source, SourceState("on"), 1000)

    def _count(self, rows: Recording, start: int, name: str, /, **at: str | int) -> None:
        key = name, labels(**at)
        self._values[key] += self._rng.randrange(1, 1000)
        rows.count(start, name, self._values[key], key[1])


def _cores(place: str, cores: int, rng: random.Random) -> Cpu:
    """The reader of /proc/stat on a node with so many."""
    os.makedirs(f"{place}/proc")
    lines = [" ".join(str(rng.randrange(10**9)) for _ in range(10)) for _ in range(cores + 1)]
    with open(f"{place}/proc/stat", "w") as file:
        file.writelines(f"cpu{i - 1 if i else ''} {line}\n" for i, line in enumerate(lines))
        file.write("intr " + "0 " * 600 + "\nctxt 1\nbtime 1\nprocesses 1\n")
    return Cpu(Root(place))


def main() -> None:
    seconds, cores, hz = (int(word) for word in sys.argv[1:4])
    gc.disable()
    in_one_place()
    by_process, loads = replay.capture()
    try:
        _replay(seconds, cores, hz, by_process, {pid for load in loads for pid in _family(load.pid)})
    finally:
        for load in loads:
            os.killpg(load.pid, signal.SIGKILL)
            load.wait()


def _read_cores(reader: Cpu, clock: Clock) -> None:
    for _ in range(FLIGHT.batch_ns * 10 // SECOND):
        reader.take(clock.now())
    reader.give(Recording(Node("", "", "", "", 1)))


def _replay(seconds: int, cores: int, hz: int, by_process: dict[int, list[replay.Chain]], others: set[int]) -> None:
    rng = random.Random(1)
    processes = [[(task, group, kernel_only(chain)) for task, group, chain in chains] for chains in by_process.values()]
    node = Node("large", "boot", os.uname().release, "v1", cores)
    profiler = Profiler(Root(), True, False, None)
    gathered, made = Gathered(cores), Made(node, rng)
    standing, kinds = Standing(gathered), kinds_of("any")

    def judge(recording: Recording) -> list[Incident]:
        found = [one for examined in examine(recording, Thresholds()) for one in examined.findings]
        gathered.judged(found)
        standing.found(found, kinds, time.monotonic())
        return []

    trigger = Trigger(node, judge, Policy(judge_quiet_s=10.0, judge_same_s=10.0))
    spent: dict[str, float] = defaultdict(float)
    memory, samples, series = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as tree, Clock() as clock:
        reader = _cores(tree, cores, rng)
        reader.read(Recording(node), clock.now())
        writer = Writer(f"{place}/rec", node, {"hz": hz, "event": "replay"}, budget_bytes=1 << 30, keep_ns=900 * SECOND)
        begin, warm, making = clock.now(), 0.0, 0.0
        batches = seconds * SECOND // FLIGHT.batch_ns
        settled = 10
        for batch in range(batches):
            mark = time.thread_time()
            start = begin + batch * FLIGHT.batch_ns
            count = hz * FLIGHT.batch_ns // SECOND
            taken = [
                Taken(replay.ring(rng.choice(processes), cpu, start, SECOND // hz, count, rng), b"") for cpu in range(cores)
            ]
            rows = made.rows(start)
            marks = [time.thread_time()]
            making += marks[0] - mark
            for part in (
                lambda: _read_cores(reader, clock),
                lambda: profiler.add(taken, rows),  # noqa: B023
                lambda: writer.append(rows),  # noqa: B023
                lambda: gathered.add(rows),  # noqa: B023
                lambda: trigger.add(rows),  # noqa: B023
                lambda: Exposition(gathered).text() if batch % 10 == 0 else None,  # noqa: B023
            ):
                part()
                marks.append(time.thread_time())
            for name, i in zip(("cores", "samples", "store", "gathering", "judging", "scrapes"), range(6), strict=True):
                spent[name] += marks[i + 1] - marks[i]
            samples += len(rows["samples"])
            if batch % 10 == 0:
                memory = max(memory, _memory_mb(*set(_family(os.getpid())) - others))
                series = sum(not line.startswith(b"#") for line in Exposition(gathered).text()[0].splitlines())
            if batch % 50 == 49:
                gc.collect()
                give_back()
            if batch == settled - 1:  # start-up apart: symbols of all that runs are asked for in the first seconds
                warm, making, samples = _cpu_s(os.getpid()), 0.0, 0
                spent.clear()
            time.sleep(0.02)
        writer.close()
        profiler.close()
        cost = _cpu_s(os.getpid()) - warm - making
    lasted = (batches - settled) * FLIGHT.batch_ns / SECOND
    print("share", 100 * cost / lasted)
    for name, used in spent.items():
        print(name, 100 * used / lasted)
    print("rate", samples / lasted)
    print("memory", memory)
    print("series", series)


if __name__ == "__main__":
    main()
