"""A NAPI thread that is starved for real by a process that walks real zombies: what a check says of it."""

import subprocess
import sys

import pytest

from exhume.diagnosis.findings.model import of
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import Report
from exhume.host.root import Root
from exhume.recorder.profiles import CHECK
from exhume.recorder.recorder import record
from exhume.recording.source_state import Weaker
from tests.diagnosis.findings.found import known
from tests.starved import CORE, FAR, link, needs_starvation, off_the_core
from tests.zombies import unavailable, zombies

SECONDS = 3

# A pass over the zombies takes some 100 ms, and nothing of a lower class runs meanwhile. Four in a row are one stall of the
# device that is a warning by itself.
_WALK = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[2])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("ready", flush=True)
while True:
    for _ in range(4):
        with open(sys.argv[1] + "/memory.force_empty", "w") as file:
            file.write("0")
    time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def report() -> Report:
    needs_starvation()
    if reason := unavailable():
        pytest.skip(reason)
    with zombies(3000, "starved", tmpfs=True) as parent, link(real_time=True), off_the_core():
        walker = subprocess.Popen((sys.executable, "-c", _WALK, str(parent), str(CORE)), stdout=subprocess.PIPE, text=True)
        try:
            assert walker.stdout is not None
            assert walker.stdout.readline() == "ready\n"
            recording = record(Root(), CHECK, SECONDS * 1_000_000_000, strict=True)
        finally:
            walker.kill()
            walker.communicate()
    watch = recording.source("latency")
    if watch is None or not watch.up or watch.find(Weaker) is not None:
        pytest.skip(f"latency probes: {recording.why_off('latency')}")
    return judge(recording, Thresholds(cpu_full_ratio=2))  # how much else runs on this machine is no part of it


def test_the_device_the_core_and_the_walk_are_named(report: Report) -> None:
    (finding,) = [finding for finding in of(report.findings, NapiStarved) if finding.subject == FAR]
    measured = known(finding.facts.measured)
    assert finding.severity in ("warning", "critical")
    assert measured.longest_core == CORE
    assert measured.work.memcg_walk_ratio >= 0.5
    assert "walked memory cgroups there" in finding.summary
    assert any("shrink_node" in function for function in measured.stack)
    assert known(measured.offender).process.comm.startswith("python")


def test_the_zombies_that_are_walked_begin_the_chain(report: Report) -> None:
    kinds = [link.finding.kind for link in report.verdict.chain]
    assert "zombie-memcgs" in kinds
    assert kinds[-1] == "napi-starved"
    assert "no stack was taken" not in " ".join(link.because for link in report.verdict.chain)
