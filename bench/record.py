"""exhume record: what it costs beside `perf record`, what it does to a program, what a 96-core machine would cost it."""

import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import ENVIRONMENT, Row

RECORD = [sys.executable, "-m", "exhume", "record"]
SETTLE_S = 15
_TICK = os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    """A process and what it started, as far as it still runs."""
    found = [pid]
    try:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += _family(int(child))
    except OSError:
        pass
    return found


def _cpu_s(pid: int) -> float:
    """User and system time of a process, its children that ended, and those that run."""
    total = 0
    for each in _family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / _TICK


def _memory_mb(*pids: int) -> float:
    """What processes have in memory, what they share counted once (Pss)."""
    total = 0
    for each in pids:
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


@contextmanager
def _load(seconds: float, rate: int = 300) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "bench.load", str(seconds), str(rate)], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=ENVIRONMENT)


def _end(process: subprocess.Popen[bytes]) -> float:
    """Asks it to end; the CPU time of all its life, children included."""
    process.send_signal(signal.SIGINT)
    before = os.times()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:  # who was started in the background of a shell ignores the first
        process.terminate()
        process.wait()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _perf_samples(file: str) -> int:
    from exhume.kernel.perf import Record

    data = Path(file).read_bytes()
    offset, size = (int.from_bytes(data[at : at + 8], "little") for at in (40, 48))  # data section of struct perf_file_header
    count, at = 0, offset
    while at + 8 <= offset + size:
        count += int.from_bytes(data[at : at + 4], "little") == Record.SAMPLE
        length = int.from_bytes(data[at + 6 : at + 8], "little")
        if not length:
            break
        at += length
    return count


def record_cost(seconds: int = 600) -> Iterator[Row]:
    """Ten minutes of mixed load, `perf record` and `exhume record` on it at the same time, start-up apart."""
    if shutil.which("perf") is None:
        raise RuntimeError("there is no perf (Debian: linux-perf)")
    from exhume.recording.folder import Folder

    with tempfile.TemporaryDirectory() as place, _load(seconds + 60):
        perf = _start(["perf", "record", "-F", "99", "-a", "-g", "-o", f"{place}/perf.data"])
        ours = _start([*RECORD, f"{place}/rec", "--hz", "99", "--quiet"])
        time.sleep(SETTLE_S)
        begun = {perf: _cpu_s(perf.pid), ours: _cpu_s(ours.pid)}
        time.sleep(seconds)
        memory = _memory_mb(*_family(ours.pid))
        # The end counts for both: perf looks through its file for build ids, we seal the last segment.
        cost = {process: _end(process) - begun[process] for process in (perf, ours)}
        folder = Folder(f"{place}/rec")
        samples = folder.count("samples")
        size = sum(segment.size for segment in folder.segments if segment.sealed) + _dictionaries(f"{place}/rec")
        theirs = _perf_samples(f"{place}/perf.data")
        file = os.path.getsize(f"{place}/perf.data")
    yield Row(f"CPU of {seconds} s at 99 Hz, all sources, against perf record -F 99 -a -g", cost[ours], cost[perf], "s", 1.0)
    yield Row("  share of one core", 100 * cost[ours] / seconds, 100 * cost[perf] / seconds, "%")
    yield Row("  samples", samples, theirs, "")
    yield Row("  memory at its end (Pss, children included)", memory, None, "MB", 150.0)
    yield Row("  bytes a sample in sealed segments, everything included", size / samples, file / theirs, "B")


def _dictionaries(path: str) -> int:
    return sum(file.stat().st_size for file in Path(path).glob("*/*.parquet"))


def record_idle(seconds: int = 120) -> Iterator[Row]:
    """The same on an idle machine."""
    from exhume.recording.folder import Folder

    with tempfile.TemporaryDirectory() as place:
        ours = _start([*RECORD, f"{place}/rec", "--quiet"])
        time.sleep(SETTLE_S)
        begun = _cpu_s(ours.pid)
        time.sleep(seconds)
        cost = _cpu_s(ours.pid) - begun
        _end(ours)
        folder = Folder(f"{place}/rec")
        size = sum(segment.size for segment in folder.segments if segment.sealed) + _dictionaries(f"{place}/rec")
        samples = folder.count("samples")
    yield Row(f"share of one core on an idle machine, {seconds} s at 97 Hz", 100 * cost / seconds, None, "%", 1.0)
    yield Row(f"  bytes a sample, quiet ({samples / (seconds + SETTLE_S):.0f} samples/s)", size / samples, None, "B", 12.0)


def record_size(seconds: int = 185) -> Iterator[Row]:
    """Bytes a sample on a busy node: two cores at 999 Hz under the mixed load."""
    from exhume.recording.folder import Folder

    with tempfile.TemporaryDirectory() as place, _load(seconds + 10):
        _start([*RECORD, f"{place}/rec", "--hz", "999", "--quiet", "--for", f"{seconds}s"]).wait()
        folder = Folder(f"{place}/rec")
        size = sum(segment.size for segment in folder.segments if segment.sealed) + _dictionaries(f"{place}/rec")
        samples = folder.count("samples")
    yield Row(f"bytes a sample, busy ({samples / seconds:,.0f} samples/s), everything included", size / samples, None, "B", 6.0)


PROGRAM = "t=0\nfor i in range(22_000_000): t += i * i\n"


def record_slowdown(pairs: int = 20) -> Iterator[Row]:
    """A fixed CPU-bound program with the recorder and without, in pairs, in turns."""
    ratios = []
    with tempfile.TemporaryDirectory() as place:
        for turn in range(pairs):
            seen = {}
            for recorded in (turn % 2 == 0, turn % 2 != 0):
                ours = _start([*RECORD, f"{place}/rec", "--hz", "99", "--quiet"]) if recorded else None
                time.sleep(4)
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", PROGRAM], check=True)
                seen[recorded] = time.perf_counter() - start
                if ours is not None:
                    _end(ours)
            ratios.append(seen[True] / seen[False])
    logs = [math.log(ratio) for ratio in ratios]
    mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(pairs)
    student = 2.093  # t of 0.975 with 19 degrees of freedom
    low, high = (100 * (math.exp(mean + sign * student * error) - 1) for sign in (-1, 1))
    yield Row(f"slowdown of a CPU-bound program, {pairs} pairs, mean", 100 * (math.exp(mean) - 1), None, "%")
    yield Row("  95 % confidence, from", low, None, "%")
    yield Row("  95 % confidence, to (0 between them: not to be told from none)", high, None, "%")


def record_replay(seconds: int = 150, cores: int = 96, hz: int = 97) -> Iterator[Row]:
    """Real stacks of a mixed load, replayed as 96 busy CPUs at 97 Hz through the decoder and the writer."""
    command = [sys.executable, "-m", "bench.replay", str(seconds), str(cores), str(hz)]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True)
    said = dict(line.split(None, 1) for line in done.stdout.splitlines())
    per_second = f"{float(said['rate']):,.0f} samples/s, {int(said['stacks']):,} different stacks"
    yield Row(f"replay of {cores} busy CPUs ({per_second})", 100 * float(said["share"]), None, "%", 10.0)
    yield Row("  memory at its height (Pss, children included)", float(said["memory"]), None, "MB", 250.0)
    yield Row("  bytes a sample in sealed segments", float(said["bytes"]), None, "B", 6.0)


def record_hour(minutes: int = 60) -> Iterator[Row]:
    """Memory over an hour of mixed load."""
    seen = []
    with tempfile.TemporaryDirectory() as place, _load(60 * minutes + 10, rate=50):
        ours = _start([*RECORD, f"{place}/rec", "--quiet"])
        for _ in range(minutes):
            time.sleep(60)
            seen.append(_memory_mb(*_family(ours.pid)))
        _end(ours)
    quarter = max(1, minutes // 4)
    yield Row(f"memory after {minutes} minutes (Pss, children included)", seen[-1], None, "MB", 150.0)
    last, second = statistics.median(seen[-quarter:]), statistics.median(seen[quarter : 2 * quarter])
    yield Row("  its last quarter against its second, median", last, second, "MB", 1.1)
