"""exhume agent: what it costs to leave it on, on an idle machine, on one with zombies, and on a large one."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

from bench.measure import ENVIRONMENT, Row
from bench.record import SETTLE_S, _cpu_s, _end, _family, _memory_mb, _start
from tests import zombies

LISTEN, PEER = "127.0.0.1:19464", "127.0.0.1:19100"
SCRAPE_S = 15
MINUTES = int(os.environ.get("EXHUME_BENCH_MINUTES", "5"))
SHARE, MEMORY_MB = 1.5, 180.0


def _agent(place: str) -> subprocess.Popen[bytes]:
    return _start([sys.executable, "-m", "exhume", "agent", "--dir", f"{place}/rec", "--listen", LISTEN])


def _scrape(*addresses: str) -> int:
    """As Prometheus does; the series of the first."""
    series = 0
    for i, address in enumerate(addresses):
        with suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            lines = answer.read().splitlines()
            series = sum(not line.startswith(b"#") for line in lines) if i == 0 else series
    return series


def _watched(seconds: int, processes: list[subprocess.Popen[bytes]], *scraped: str) -> tuple[list[float], float, int]:
    """Per cent of a core that each process takes, start-up apart; the most memory and the series of the first."""
    time.sleep(SETTLE_S)
    begun, begin = [_cpu_s(each.pid) for each in processes], time.monotonic()
    memory, series = 0.0, 0
    while time.monotonic() - begin < seconds:
        series = max(series, _scrape(*scraped))
        memory = max(memory, _memory_mb(*_family(processes[0].pid)))
        time.sleep(min(SCRAPE_S, max(0.0, seconds - (time.monotonic() - begin))))
    lasted = time.monotonic() - begin
    used = [100 * (_cpu_s(each.pid) - before) / lasted for each, before in zip(processes, begun, strict=True)]
    return used, memory, series


def _by_source(path: str, most: int = 8) -> list[tuple[str, float]]:
    """The dearest sources, in per cent of a core, as the recording tells them: what each reader and the sampler took in all."""
    from exhume.recording.folder import Folder

    folder = Folder(path)
    start, end = folder.window
    costs = {row["name"]: row["cost"] for row in folder.load(tables=("sources",))["sources"].rows()}
    dearest = sorted(costs.items(), key=lambda item: -item[1])[:most]
    return [(name, 100 * cost / max(1, end - start)) for name, cost in dearest if cost]


def agent_idle(minutes: int = MINUTES) -> Iterator[Row]:
    """The whole agent, scraped every 15 s, beside node_exporter (scraped as well) and `mpstat 1`."""
    peers = []
    if shutil.which("prometheus-node-exporter"):
        peers.append(("node_exporter", ["prometheus-node-exporter", f"--web.listen-address={PEER}", "--collector.cgroups"]))
    if shutil.which("mpstat"):
        peers.append(("mpstat 1", ["mpstat", "-P", "ALL", "1"]))
    with tempfile.TemporaryDirectory() as place:
        processes = [_agent(place), *(_start(command) for _, command in peers)]
        try:
            used, memory, series = _watched(60 * minutes, processes, LISTEN, PEER)
        finally:
            for process in processes:
                _end(process)
        split = _by_source(f"{place}/rec")
    yield Row(f"share of one core, {minutes} minutes, everything on", used[0], None, "%", SHARE)
    for source, share in split:
        yield Row(f"  of it {source}, its first reading included", share, None, "%")
    for (name, _), theirs in zip(peers, used[1:], strict=True):
        yield Row(f"  beside {name}", used[0], theirs, "%")
    yield Row("  memory at its height (Pss, children included)", memory, None, "MB", MEMORY_MB)
    yield Row("  series", series, None, "", 2000.0)


def agent_zombies(minutes: int = MINUTES, count: int = 60_000, rate: float = 5.0) -> Iterator[Row]:
    """The same without zombies, then with 60,000 and five more a second: what they add. They are held by tmpfs, because page
    cache may be reclaimed meanwhile (DAMON does), and zombies that go by the hundred a second are another load."""
    if why := zombies.unavailable():
        raise RuntimeError(why)
    seen = {}
    for made in (0, count):
        end = threading.Event()
        with tempfile.TemporaryDirectory() as place, zombies.zombies(made, "agent", tmpfs=True) as parent:
            leak = threading.Thread(target=_leak, args=(parent.name, rate, end), daemon=True)
            if made:
                leak.start()
            process = _agent(place)
            try:
                seen[made] = _watched(60 * minutes, [process], LISTEN)
            finally:
                _end(process)
                end.set()
                if made:
                    leak.join()
    (idle, idle_memory, _), (used, memory, _) = seen[0], seen[count]
    yield Row(f"share of one core with {count:,} zombies and {rate:g}/s more, to without", used[0], idle[0], "%", 1.2)
    yield Row("  memory (Pss)", memory, idle_memory, "MB", 1.2)


def _leak(below: str, rate: float, end: threading.Event) -> None:
    parent = zombies.PARENT / f"{below}-leak"
    parent.mkdir(parents=True, exist_ok=True)
    home = zombies.own_cgroup()
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="exhume-test-") as file:
        number = 0
        while not end.wait(1 / rate):
            zombies.one(parent, f"l{number}", file.fileno(), number)
            zombies._move(home)
            number += 1
        os.ftruncate(file.fileno(), 0)
    with suppress(OSError):
        parent.rmdir()


def agent_replay(seconds: int = 150, cores: int = 96, hz: int = 97) -> Iterator[Row]:
    """96 busy CPUs at 97 Hz, 32 NIC queues, 240 cgroups, replayed through everything between readers and metrics."""
    command = [sys.executable, "-m", "bench.agent_replay", str(seconds), str(cores), str(hz)]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True)
    said = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
    yield Row(f"replay of {cores} busy CPUs ({said['rate']:,.0f} samples/s), share of one core", said["share"], None, "%", 10.0)
    for part in ("cores", "samples", "store", "gathering", "judging", "scrapes"):
        yield Row(f"  {part}", said[part], None, "%")
    yield Row("  memory at its height (Pss)", said["memory"], None, "MB", 250.0)
    yield Row("  series", said["series"], None, "", 2000.0)
