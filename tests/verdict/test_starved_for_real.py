"""A NAPI thread that is starved for real by a process that walks real zombies: what a check says of it."""

import subprocess
import sys

import pytest

from exhume.findings.thresholds import Thresholds
from exhume.node.root import Root
from exhume.recorder.loop import record
from exhume.verdict.judge import judge
from exhume.verdict.report import Report
from tests.starved import CORE, FAR, link, needs_starvation
from tests.zombies import unavailable, zombies

SECONDS = 3

# A pass over the zombies takes some 100 ms, and the kernel checks for nothing of a lower class meanwhile.
_WALK = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[2])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    with open(sys.argv[1] + "/memory.force_empty", "w") as file:
        file.write("0")
    time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def report() -> Report:
    needs_starvation()
    if reason := unavailable():
        pytest.skip(reason)
    with zombies(3000, "starved", tmpfs=True) as parent, link(real_time=True):
        walker = subprocess.Popen((sys.executable, "-c", _WALK, str(parent), str(CORE), str(SECONDS)))
        try:
            recording = record(Root(), SECONDS * 1_000_000_000, strict=True)
        finally:
            walker.kill()
            walker.wait()
    if not recording.on("latency") or "weaker" in recording.why_off("latency"):
        pytest.skip(f"latency probes: {recording.why_off('latency')}")
    return judge(recording, Thresholds())


def test_the_device_the_core_and_the_walk_are_named(report: Report) -> None:
    (finding,) = [finding for finding in report.findings if finding.kind == "napi-starved" and finding.subject == FAR]
    assert finding.severity in ("warning", "critical")
    assert finding.value("core") == CORE
    assert finding.number("walked memory cgroups") >= 0.5
    assert "walked memory cgroups there" in finding.summary
    assert "shrink_node" in str(finding.value("stack"))
    assert str(finding.value("process")).startswith("python")


def test_the_zombies_that_are_walked_begin_the_chain(report: Report) -> None:
    kinds = [link.finding.kind for link in report.verdict.chain]
    assert "zombie-memcgs" in kinds
    assert kinds[-1] == "napi-starved"
    assert "no stack was taken" not in " ".join(link.because for link in report.verdict.chain)
