"""exhume verify on real leaks: does it fail while one goes on, and pass once it is stopped, on a machine that is busy?

A turn makes a leak for real, records it as it is (before), verifies while it goes on, stops it as who disables the agent does,
and verifies again. Every second turn lets the zombies go as well, as a purge does. Beside it programs compute and write files.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import ENVIRONMENT, Row

TURNS = int(os.environ.get("EXHUME_VERIFY_TURNS", "20"))
BEFORE_S, AFTER_S = 20, 70
ZOMBIES = 400
PAUSES = (0.2, 0.5, 0.1, 0.3)
"""Between two crashes, s, by turns."""


def verify_lab() -> Iterator[Row]:
    """Real leaks, on a busy machine: how many that go on do not fail, how many that are stopped do not pass. Takes root and
    EXHUME_LAB=1; EXHUME_VERIFY_TURNS turns of about two minutes each (20)."""
    if os.geteuid() or os.environ.get("EXHUME_LAB") != "1":
        raise RuntimeError("it takes root and EXHUME_LAB=1: real leaks are made")
    wrong = {"fixed": 0, "unfixed": 0}
    first = []
    for turn in range(TURNS):
        for what, code, seconds in _turn(turn):
            wrong[what] += code != (0 if what == "fixed" else 2)
            if what == "unfixed":
                first.append(seconds)
    yield Row(f"leaks that are stopped and do not pass, of {TURNS}", wrong["fixed"], None, "", 0)
    yield Row(f"leaks that go on and do not fail, of {TURNS}", wrong["unfixed"], None, "", 0)
    yield Row("  slowest failure, from start to exit", max(first), None, "s")


def _turn(turn: int) -> Iterator[tuple[str, int, float]]:
    from exhume.lab.scenarios.leaks import Leaker
    from exhume.lab.workshop import Lab

    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="exhume-bench-") as scratch, Lab() as lab:
        for number, share in enumerate((0.5, 0.4, 0.3)):
            lab.work("burn", f"tenant-{number}", share)
        lab.work("files", lab.file("tenant", memory=False), 8, 0.5)
        groups, home = lab.cgroup("memory", "docker"), lab.cgroup("memory", "system", "ecs.service")
        pages = lab.file("pages", memory=True)
        leaker = Leaker(lab, groups, home, (pages,), ZOMBIES, PAUSES[turn % len(PAUSES)], "amazon-ecs-init")
        before = str(Path(scratch) / "before")
        _exhume("record", before, "--for", f"{BEFORE_S}s", "--log-root", str(lab.home), "--quiet")
        yield "unfixed", *_verified(turn, "unfixed", before, lab.home)
        leaker.stop()
        if turn % 2:
            pages.unlink()
            time.sleep(2)  # until they are gone
        yield "fixed", *_verified(turn, "fixed", before, lab.home)


def _verified(turn: int, what: str, before: str, log: Path) -> tuple[int, float]:
    begin = time.monotonic()
    done = _exhume("verify", "--before", before, "--for", f"{AFTER_S}s", "--json", "--log-root", str(log))
    seconds = time.monotonic() - begin
    try:
        proof = json.loads(done.stdout)
        told = "; ".join(f"{one['label']} {one['status']}: {one['because']}" for one in proof["criteria"] if _told(one))
        summary = f"{proof['summary']} ({told})" if told and done.returncode else proof["summary"]
    except ValueError:
        summary = done.stderr.strip()
    print(f"  turn {turn + 1}, {what}: exit {done.returncode} after {seconds:.0f} s, {summary}", file=sys.stderr, flush=True)
    return done.returncode, seconds


def _told(one: dict[str, object]) -> bool:
    return one["role"] == "cause" and one["status"] != "passed"


def _exhume(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "exhume", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
