"""`python -m bench.replay SECONDS CORES HZ`: real stacks, sampled here from a mixed load, given to the decoder and the writer
as if so many busy CPUs had been sampled. The processes stand still meanwhile, so that names and symbols are found as usual.

A third of the samples get another innermost address nearby, because the more cores there are the more often a stack was not
seen before. Making the rings is not counted; everything from them to sealed segments is, symbols included.
"""

import gc
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

from bench.record import _cpu_s, _dictionaries, _family, _memory_mb
from exhume.host.root import Root
from exhume.kernel.clock import Clock
from exhume.recorder.recorder import node_of
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.recording.writer import Writer
from exhume.sources.sampling import records
from exhume.sources.sampling.profiler import Profiler
from exhume.sources.sampling.sampler import Sampler, Taken
from exhume.sources.sampling.user_symbols import UserSymbols

CAPTURE_S = 12
LOADS = 4
NOVEL = 0.33
Chain = tuple[int, int, bytes]


def capture() -> tuple[dict[int, list[Chain]], list[subprocess.Popen[bytes]]]:
    """Samples by process: task, cgroup, chain. The processes are stopped when it returns."""
    loads = [subprocess.Popen([sys.executable, "-m", "bench.load", "3600", "0"], start_new_session=True) for _ in range(LOADS)]
    found: dict[int, list[Chain]] = defaultdict(list)
    time.sleep(1)
    with Sampler(range(os.cpu_count() or 1), 999) as sampler:
        for _ in range(CAPTURE_S):
            time.sleep(1)
            for taken in sampler.take():
                each = records.samples(taken.samples, sampler.cgroups)
                rows = zip(each.task.tolist(), each.cgroup.tolist(), each.begin.tolist(), each.end.tolist(), strict=True)
                for task, cgroup, begin, end in rows:
                    found[task & 0xFFFFFFFF].append((task, cgroup, each.data[begin:end]))
    members = {pid for load in loads for pid in _family(load.pid)}
    for load in loads:
        os.killpg(load.pid, signal.SIGSTOP)
    return {pid: chains for pid, chains in found.items() if pid in members and len(chains) > 50}, loads


def ring(chains: list[Chain], cpu: int, start: int, period: int, count: int, rng: random.Random) -> bytes:
    """A second of one CPU that runs one process."""
    at = rng.randrange(len(chains))
    parts = []
    for i in range(count):
        task, cgroup, chain = chains[(at + i) % len(chains)]
        if len(chain) >= 16 and rng.random() < NOVEL:
            inner = int.from_bytes(chain[8:16], "little") + rng.randrange(64)
            chain = chain[:8] + inner.to_bytes(8, "little") + chain[16:]
        size = 48 + len(chain)
        moment = start + i * period + rng.randrange(12_000)
        parts.append(struct.pack("=IHHqqIIQ", 9, 2, size, task, moment, cpu, 0, len(chain) // 8) + chain)
        parts.append(struct.pack("=q", cgroup))
    return b"".join(parts)


def main() -> None:
    seconds, cores, hz = (int(word) for word in sys.argv[1:4])
    gc.disable()
    rng = random.Random(1)
    by_process, loads = capture()
    processes = list(by_process.values())
    symbols = UserSymbols(Root())
    profiler = Profiler(Root(), True, False, symbols)
    node = node_of(Root())
    others = {pid for load in loads for pid in _family(load.pid)}
    memory, samples, made = 0.0, 0, 0.0
    with tempfile.TemporaryDirectory() as place, Clock() as clock:
        path = f"{place}/rec"
        writer = Writer(path, node, {"hz": hz, "event": "replay"}, budget_bytes=1 << 30)
        begin = clock.now()
        warm = 0.0
        for second in range(seconds):
            making = time.thread_time()
            start = begin + second * 10**9
            taken = [Taken(ring(rng.choice(processes), cpu, start, 10**9 // hz, hz, rng), b"") for cpu in range(cores)]
            rows = Recording(node)
            rows["anchors"].add(start, start, start, start, 0)
            made += time.thread_time() - making
            profiler.add(taken, rows)
            samples += len(rows["samples"])
            writer.append(rows)
            if second % 5 == 0:
                memory = max(memory, _memory_mb(*set(_family(os.getpid())) - others))
            if second == 9:  # start-up apart: symbols of all that runs are asked for in the first seconds
                warm, made, samples = _cpu_s(os.getpid()), 0.0, 0
            time.sleep(0.02)
        writer.close()
        profiler.close()
        cost = _cpu_s(os.getpid()) - warm - made
        folder = Folder(path)
        size = sum(segment.size for segment in folder.segments if segment.sealed) + _dictionaries(path)
        count, stacks = folder.count("samples"), folder.count("stacks")
    for load in loads:
        os.killpg(load.pid, signal.SIGKILL)
        load.wait()
    print("share", cost / (seconds - 10))
    print("rate", samples / (seconds - 10))
    print("memory", memory)
    print("bytes", size / count)
    print("stacks", stacks)


if __name__ == "__main__":
    main()
