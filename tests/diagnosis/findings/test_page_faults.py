"""page-fault-storm: what is read was in memory a moment ago and is waited for, or faults are what the cores do."""

import pytest

from exhume.diagnosis.findings import page_fault_storm
from exhume.diagnosis.findings.major_faults import ORIGINS, Origin
from exhume.diagnosis.findings.subjects import Process
from exhume.recording.recording import Recording, labels
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND
from tests.diagnosis.findings.shown import FAULT, LIMIT, PSI_MEMORY, T, burst, lasted, one, sampled, ten_minutes


def test_major_faults_name_the_process_that_has_them() -> None:
    recording = ten_minutes("vmstat")
    burst(recording, "vmstat_pgmajfault", 4_000)
    for pid, faults in ((41, 30_000), (42, 30_000), (50, 900)):
        at = labels(pid=pid, comm="mapper" if pid < 50 else "other", cgroup="/web/index" if pid < 50 else "/x")
        recording.count(290 * SECOND, "process_major_faults", 5, at)
        recording.count(320 * SECOND, "process_major_faults", 5 + faults, at)
    finding = one(page_fault_storm.detect(recording, T))
    assert (lasted(finding), finding.facts.major_faults_per_s) == ((300, 320), 4_000)
    offender = finding.facts.offender
    assert (offender.process, offender.cgroup) == (Process("mapper", 41, more=1), "/web/index")
    assert finding.facts.offender_ratio > 0.9


PSI_IO = labels(cgroup="", kind="some", resource="io")


def faults(recording: Recording, pages: dict[str, float], waited: float | None = 0.4, cached: int = 0) -> Recording:
    """Major faults, 4,000 a second, with what else /proc/vmstat counts, and how the page cache grows (bytes a second)."""
    for second in range(0, 11, 2):
        for name, rate in {"pgmajfault": 4_000, "pgsteal_direct": 0, "pgsteal_kswapd": 0, **pages}.items():
            recording.count(second * SECOND, f"vmstat_{name}", round(second * rate))
        recording.count(second * SECOND, "meminfo_bytes", 10**9 + second * cached, labels(field="Cached"))
        recording.count(second * SECOND, "meminfo_bytes", second, labels(field="Dirty"))
        if waited is not None:
            recording.count(second * SECOND, "pressure_us", 0, PSI_MEMORY)
            recording.count(second * SECOND, "pressure_us", round(second * waited * 1e6), PSI_IO)
    return recording


READS = ("filemap_fault", "__do_fault", "handle_mm_fault", "exc_page_fault")
GROWS = 4_000 * 4096


@pytest.mark.parametrize(
    ("pages", "cached", "severity", "origin"),
    [
        ({"workingset_refault_file": 0, "pswpin": 0}, GROWS, "info", Origin.NEW),
        ({"workingset_refault_file": 3_000, "pswpin": 0}, 0, "warning", Origin.DISK_AGAIN),
        ({"workingset_refault": 3_000}, 0, "warning", Origin.DISK_AGAIN),
        ({"workingset_refault_file": 0, "workingset_refault_anon": 2_500, "pswpin": 2_500}, 0, "warning", Origin.SWAP_AGAIN),
        ({"workingset_refault_file": 0, "pswpin": 0, "zswpin": 3_000}, 0, "warning", Origin.ZSWAP_AGAIN),
        ({"workingset_refault_file": 0, "pswpin": 0}, 0, "warning", Origin.DROPPED),
        ({"workingset_refault_file": 0, "pswpin": 0, "pgsteal_kswapd": 4_000}, 0, "info", Origin.NEW),
        ({"workingset_refault_file": 0, "pswpin": 0, "drop_pagecache": 1}, 0, "info", Origin.NEW),
    ],
)
def test_major_faults_are_a_storm_if_what_they_read_was_there_a_moment_ago(
    pages: dict[str, float], cached: int, severity: str, origin: Origin
) -> None:
    recording = faults(sampled({0: (0.0, 3.0, READS, "mapper")}), pages, cached=cached)
    finding = one(page_fault_storm.detect(recording, T))
    assert (finding.severity, finding.facts.origin, finding.facts.major_faults_per_s) == (severity, origin, 4_000)
    assert ORIGINS[origin] in finding.summary


def test_pages_that_a_limit_takes_away_are_not_let_go() -> None:
    kinds = {0: (0.0, 3.0, READS, "mapper"), 1: (0.0, 3.0, LIMIT, "mapper")}
    recording = faults(sampled(kinds), {"workingset_refault_file": 0, "pswpin": 0})
    assert one(page_fault_storm.detect(recording, T)).severity == "info"


@pytest.mark.parametrize(("waited", "severity"), [(0.4, "warning"), (None, "warning"), (0.05, "info")])
def test_major_faults_that_nobody_waits_for_are_information(waited: float | None, severity: str) -> None:
    finding = one(page_fault_storm.detect(faults(made.recording(), {"workingset_refault_file": 4_000}, waited), T))
    assert (finding.severity, finding.facts.waited_ratio) == (severity, pytest.approx(waited))
    assert ("hardly anybody waits" in finding.summary) is (severity == "info")


@pytest.mark.parametrize(("cores", "severity"), [((0, 1), "warning"), ((0,), "info"), ((), "")])
def test_minor_faults_are_a_storm_by_their_share_of_the_cores(cores: tuple[int, ...], severity: str) -> None:
    recording = sampled(dict.fromkeys(cores, (2.0, 8.0, FAULT, "python3")))
    recording.count(0, "vmstat_pgmajfault", 0)
    recording.count(10 * SECOND, "vmstat_pgmajfault", 3)
    examined = page_fault_storm.detect(recording, T)
    assert [finding.severity for finding in examined.findings] == ([severity] if severity else [])
    if severity:
        offender = one(examined).facts.offender
        assert (offender.process.comm, offender.cgroup) == ("python3", "/kubepods/python3")
    else:
        assert examined.ruled_out == "0 major faults a second, 0% of all cores' time in page faults"


def test_many_faults_without_stacks_need_kernel_time_to_be_a_storm() -> None:
    for state, found in (("system", True), ("user", False)):
        recording = made.recording(cpus=2)
        made.cores(recording, 4.0, {0: [(0.0, 4.0, state)]})
        for second, faults in ((0, 0), (2, 800_000), (4, 1_600_000)):
            recording.count(second * SECOND, "vmstat_pgfault", faults)
            recording.count(second * SECOND, "vmstat_pgmajfault", 0)
        assert bool(page_fault_storm.detect(recording, T).findings) is found
