"""exhume diagnose: how long a node that starves waits for its verdict, and what one over ten minutes costs."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import ENVIRONMENT, Row, cost
from bench.store import BEGIN, REAL, SECOND, MadeNode
from exhume.recording.recording import Recording
from exhume.recording.schema import CPU_STATES
from exhume.recording.source_state import SourceState
from exhume.recording.writer import Writer
from tests.diagnosis.findings import made as findings
from tests.starved import held, hold, link

RUNS = 3
STALL_MS = 700
CORES, MINUTES, HZ = 96, 10, 2
FULL_CORE = 39


def verdict_time() -> Iterator[Row]:
    """From the first NAPI stall to the verdict that exhume record --on prints; with EXHUME_LAB=1 of the whole incident, too."""
    if os.geteuid():
        raise RuntimeError("it takes root")
    waits = [_printed_after_a_stall() for _ in range(RUNS)]
    yield Row(f"a stall of {STALL_MS} ms to the printed verdict, median of {RUNS}", statistics.median(waits), None, "s")
    yield Row("  worst", max(waits), None, "s", 10.0)
    if os.environ.get("EXHUME_LAB") == "1":
        yield from _of_the_incident()


def _printed_after_a_stall() -> float:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, link(real_time=True):
        command = [sys.executable, "-m", "exhume", "record", f"{scratch}/r", "--on", "napi-starved", "--json", "--quiet"]
        recorder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
        try:
            time.sleep(6)
            begin, _ = held(hold(STALL_MS))
            assert recorder.stdout is not None
            told = json.loads(recorder.stdout.readline())
            now = time.monotonic_ns()
            if told["trigger"]["kind"] != "napi-starved":
                raise RuntimeError(f"another incident came first: {told['trigger']['summary']}")
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.communicate(timeout=60)
    return (now - begin) / 1e9


def _of_the_incident() -> Iterator[Row]:
    from exhume.lab.catalogue import scenario
    from exhume.lab.scenario import Settings
    from exhume.lab.score import score_run

    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        runs = [
            score_run(scenario("zombie-starvation"), Settings(20, 3000), Path(scratch, str(i)), lambda _: None, lambda: False)
            for i in range(RUNS)
        ]
    seconds = [run.seconds_to_verdict for run in runs if run is not None]
    right = [each for each in seconds if each is not None]
    yield Row(
        "the whole incident, late packet to right verdict: worst",
        max(right, default=float("nan")),
        None,
        "s",
        10.0,
    )
    yield Row("  runs without one", RUNS - len(right), None, "", 0)


class Starving(MadeNode):
    """One core is full of kernel time for 4 s of every minute, a poll waits for it, and there are 68,440 zombies."""

    def _others(self, rows: Recording, begin: int, at: int) -> None:
        super()._others(rows, begin, at)
        table = rows["cpu"]
        if full := min(at % 60, 4) + at // 60 * 4:
            columns = {name: table.ints(name).copy() for name in ("time", "core", *CPU_STATES)}
            there = columns["core"] == FULL_CORE
            columns["system"][there] += full * 100
            columns["idle"][there] -= full * 100
            del rows.tables["cpu"]
            rows["cpu"].add_columns(columns)
        rows["memcg"].add(begin, "/", 240, 68_440 + at // 10, 68_680 + at // 10, "proc-cgroups", "node", 1)
        if at % 60 == 4:
            findings.stall(rows, begin / SECOND, 3500, core=FULL_CORE)


def diagnose_cost() -> Iterator[Row]:
    """exhume diagnose of ten minutes of 96 cores with 100,000 samples and an incident every minute."""
    made = Starving(CORES, HZ, stacks=5_000, idle=0.5, new=0.001, jitter_ns=25_000)
    samples = 0
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        path = f"{scratch}/r"
        writer = Writer(path, made.node, {"hz": HZ, "event": "cpu-clock"}, budget_bytes=8 << 30, segment_ns=60 * SECOND)
        for at in range(MINUTES * 60):
            rows = made.second(at, writer.chapter)
            rows["anchors"].add(BEGIN + at * SECOND, BEGIN + at * SECOND, BEGIN + at * SECOND, REAL + at * SECOND, 1)
            for name in ("cpu", "memcg", "samples", "latency", "kernel-log"):
                rows.add_source(BEGIN + at * SECOND, name, SourceState("on"))
            samples += len(rows["samples"])
            writer.append(rows)
        writer.close()
        command = [sys.executable, "-m", "exhume", "diagnose", path, "--json"]
        report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=ENVIRONMENT, check=False).stdout)
        print(f"  {report['health']}: {report['verdict']['summary']}", file=sys.stderr)
        costs = [cost(command) for _ in range(5)]
    wall = statistics.median(each.wall_s for each in costs)
    yield Row(f"diagnose of {MINUTES} min, {CORES} cores, {samples:,} samples: wall", wall, None, "s", 2.0)
    yield Row("  CPU", statistics.median(each.cpu_s for each in costs), None, "s")
    yield Row("  peak memory", max(each.peak_mb for each in costs), None, "MB")
