"""reclaim: judged in its worst stretch, with its share of the cores, and a group named only if it is at its own limit."""

import pytest

from exhume.diagnosis.findings import reclaim
from exhume.recording.recording import Recording, labels
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND
from tests.diagnosis.findings.shown import ASKED, DIRECT, KSWAPD, LIMIT, PSI_MEMORY, T, burst, lasted, one, sampled, ten_minutes


def test_a_burst_of_direct_reclaim_does_not_drown_in_ten_minutes() -> None:
    recording = ten_minutes("vmstat")
    burst(recording, "vmstat_pgscan_direct", 50_000)
    burst(recording, "vmstat_pgscan_kswapd", 0)
    finding = one(reclaim.detect(recording, T))
    assert lasted(finding) == (300, 320)
    assert finding.facts.direct_scans_per_s == 50_000
    assert [(span.core, span.start, span.end) for span in finding.spans] == [(-1, 300 * SECOND, 320 * SECOND)]


def test_two_bursts_are_two_however_heavy_they_are() -> None:
    recording = ten_minutes("vmstat")
    burst(recording, "vmstat_pgscan_direct", 5_000_000, 100, 110, 110)
    for second in (402, 404, 406):
        recording.count(second * SECOND, "vmstat_pgscan_direct", 2 * 10**9 + second * 10**7)
    finding = one(reclaim.detect(recording, T))
    assert len(finding.spans) == 2
    assert lasted(finding) == (100, 406)


def test_a_window_that_begins_between_two_readings_invents_no_burst() -> None:
    """The value of before is carried to its begin: all that was counted since is not of the first tenth of a second."""
    recording = made.recording()
    made.cores(recording, 20.0, {}, step=1.0)
    for time, value in ((0.0, 0), (0.1, 3_000), *((0.1 + 2 * i, 3_000 + 3_000 * i) for i in range(1, 10))):
        recording.count(round(time * SECOND), "vmstat_pgscan_direct", value)
    assert reclaim.detect(recording, T).ruled_out.startswith("1,500 direct scans a second")


def test_the_share_of_direct_reclaim_is_of_all_cores_and_names_whose_it_is() -> None:
    recording = sampled({0: (2.0, 8.0, DIRECT, "trainer"), 1: (2.0, 8.0, KSWAPD, "kswapd0")})
    recording["memcg"].add(1, "/", 10, 5_000, 5_010, "proc-cgroups", "node", 1)
    finding = one(reclaim.detect(recording, T))
    assert finding.severity == "warning"
    assert finding.facts.direct_ratio == pytest.approx(0.25, abs=0.02)
    assert finding.facts.kswapd_ratio == pytest.approx(0.25, abs=0.02)
    assert (finding.facts.limit_cgroup, finding.facts.waiting_cgroup) == ("", "/kubepods/trainer")
    assert (finding.facts.walk_ratio, finding.facts.zombies) == (0, 5_000)
    assert finding.start / SECOND == pytest.approx(2.0, abs=1.01)
    assert "direct reclaim takes 25% of all cores' time" in finding.summary


def test_without_idle_samples_the_share_is_still_of_all_cores() -> None:
    recording = made.recording(cpus=8)
    made.sample(recording, 0.0, 10.0, 3, "trainer", 7, DIRECT)
    assert "12.5% of all cores' time in direct reclaim" in reclaim.detect(recording, T).ruled_out
    recording = made.recording(cpus=4)
    made.sample(recording, 0.0, 10.0, 3, "trainer", 7, DIRECT)
    assert one(reclaim.detect(recording, T)).facts.direct_ratio == pytest.approx(0.25, abs=0.01)


def test_where_cores_that_sleep_are_not_sampled_a_few_samples_are_a_small_share() -> None:
    recording = made.recording(cpus=4)
    made.sample(recording, 0.0, 2.0, 0, "busy", 6, ("work",), "user")
    made.sample(recording, 0.0, 10.0, 3, "trainer", 7, DIRECT, hz=10)
    assert "2.5% of all cores' time in direct reclaim" in reclaim.detect(recording, T).ruled_out


def test_reclaim_that_only_walks_groups_says_so() -> None:
    recording = sampled({0: (0.0, 10.0, made.WALK, "trainer")})
    finding = one(reclaim.detect(recording, T))
    assert finding.facts.walk_ratio == 1
    assert "100% of it only goes from one memory cgroup to the next" in finding.summary


def test_reclaim_that_a_program_asked_for_is_no_shortage() -> None:
    recording = sampled({0: (0.0, 10.0, ASKED, "tool")})
    for second, waited in ((0, 0), (10, 9_000_000)):
        recording.count(second * SECOND, "pressure_us", waited, PSI_MEMORY)
    finding = one(reclaim.detect(recording, T))
    assert finding.severity == "info"
    assert finding.facts.asked_ratio == pytest.approx(0.25, abs=0.01)
    assert finding.facts.direct_ratio == 0
    assert "nothing was reclaimed" not in finding.summary


def waits(recording: Recording, *groups: tuple[str, float], scans: float = 0.0, until: int = 10) -> Recording:
    """Groups of v2 that wait for memory for a share of the time, and how much the node scans meanwhile."""
    for second in range(0, until + 1, 2):
        for cgroup, share in groups:
            at = labels(cgroup=cgroup, kind="some", resource="memory")
            recording.count(second * SECOND, "pressure_us", round(second * share * 1e6), at)
        for name in ("direct", "kswapd"):
            recording.count(second * SECOND, f"vmstat_pgscan_{name}", round(second * scans))
    return recording


def test_who_waits_for_memory_while_the_node_reclaims_is_not_the_one_who_took_it() -> None:
    recording = waits(sampled({}), ("", 0.3), ("/db", 0.29), ("/hog", 0.04), scans=40_000)
    finding = one(reclaim.detect(recording, T))
    assert (finding.severity, finding.facts.limit_cgroup, finding.facts.waiting_cgroup) == ("warning", "", "/db")
    assert finding.facts.cgroup_waited_ratio == pytest.approx(0.29)
    assert "/db waits most (29%), which does not say who took the memory" in finding.summary


def test_who_waits_while_the_node_reclaims_nothing_is_at_its_own_limit() -> None:
    recording = waits(sampled({0: (0.0, 9.9, LIMIT, "db")}), ("", 0.3), ("/db", 0.29))
    finding = one(reclaim.detect(recording, T))
    assert (finding.facts.limit_cgroup, finding.facts.waiting_cgroup) == ("/db", "")
    assert "most in /db (29%), at its own limit" in finding.summary


@pytest.mark.parametrize(("stack", "own"), [(LIMIT, True), (DIRECT, False), ((*DIRECT, "try_charge_memcg"), False)])
def test_a_group_whose_stacks_reclaim_for_a_limit_is_at_it_whatever_the_node_does(stack: tuple[str, ...], own: bool) -> None:
    recording = waits(sampled({0: (0.0, 9.9, stack, "db")}), ("", 0.3), ("/kubepods/db", 0.29), scans=40_000)
    finding = one(reclaim.detect(recording, T))
    found = finding.facts.limit_cgroup, finding.facts.waiting_cgroup
    assert found == (("/kubepods/db", "") if own else ("", "/kubepods/db"))


def test_without_counters_and_stacks_nobody_is_seen_to_be_at_a_limit() -> None:
    recording = made.recording()
    made.cores(recording, 10.0, {}, step=1.0)
    for second in (0, 5, 10):
        for cgroup in ("", "/db"):
            at = labels(cgroup=cgroup, kind="some", resource="memory")
            recording.count(second * SECOND, "pressure_us", second * 300_000, at)
    assert one(reclaim.detect(recording, T)).facts.waiting_cgroup == "/db"


COMPACTS = ("isolate_migratepages_block", "compact_zone", "try_to_compact_pages", "__alloc_pages_direct_compact")


def test_tasks_that_wait_for_compaction_do_not_wait_for_pages_to_be_read() -> None:
    recording = waits(sampled({0: (0.0, 9.9, COMPACTS, "java")}), ("", 0.8), ("/web", 0.8))
    finding = one(reclaim.detect(recording, T))
    assert (finding.severity, finding.facts.compaction_ratio) == ("warning", pytest.approx(0.25, abs=0.01))
    assert "went into compaction" in finding.summary
    assert "read again" not in finding.summary
    assert (finding.facts.limit_cgroup, finding.facts.waiting_cgroup) == ("", "/web")
    quiet = one(reclaim.detect(waits(sampled({}), ("", 0.8)), T))
    assert (quiet.severity, quiet.facts.compaction_ratio) == ("info", 0)
    assert "they waited for pages to be read again" in quiet.summary


@pytest.mark.parametrize(("stalls", "severity"), [(50, "warning"), (0, "info")])
def test_without_stacks_the_kernel_counts_compactions(stalls: int, severity: str) -> None:
    recording = probes(waited=0.5)
    for second in range(0, 11, 2):
        recording.count(second * SECOND, "vmstat_compact_stall", second * stalls)
    finding = one(reclaim.detect(recording, T))
    assert (finding.severity, finding.facts.compaction_stalls_per_s) == (severity, stalls)


def probes(seconds: int = 10, ms_each: int = 0, cgroup: str = "/small", waited: float = 0.0) -> Recording:
    recording = made.recording(cpus=2, on=("cpu", "latency-reclaim"))
    made.cores(recording, float(seconds), {}, step=1.0)
    for second in range(1, seconds + 1):
        if ms_each:
            recording["latency"].add(
                second * SECOND, "reclaim", "memcg", -1, "", 0, cgroup, 10, ms_each * 10**6, 10**6, [1], 0, 0, "", 1000
            )
            recording["latency"].add(
                second * SECOND, "reclaim", "memcg", -1, "", 0, "/other", 1, 10**6, 10**6, [1], 0, 0, "", 1000
            )
    for second in range(0, seconds + 1, 2):
        recording.count(second * SECOND, "pressure_us", round(second * waited * 1e6), PSI_MEMORY)
    return recording


def test_without_samples_the_probes_tell_the_share_and_the_cgroup() -> None:
    finding = one(reclaim.detect(probes(ms_each=800, waited=0.5), T))
    assert finding.facts.direct_ratio == pytest.approx(0.4, abs=0.01)
    assert finding.facts.limit_cgroup == "/small"
    assert "most in /small (100%)" in finding.summary


def test_waiting_for_memory_while_nobody_reclaims_is_not_reclaim() -> None:
    finding = one(reclaim.detect(probes(waited=0.5), T))
    assert finding.severity == "info"
    assert "nothing was reclaimed meanwhile" in finding.summary
    assert one(reclaim.detect(probes(ms_each=100, waited=0.5), T)).severity == "warning"


def test_scanning_that_nobody_waits_for_is_information() -> None:
    recording = ten_minutes("vmstat", "pressure")
    burst(recording, "vmstat_pgscan_direct", 50_000)
    burst(recording, "pressure_us", 10_000, at=PSI_MEMORY)
    assert one(reclaim.detect(recording, T)).severity == "info"
    recording = ten_minutes("vmstat", "pressure")
    burst(recording, "vmstat_pgscan_direct", 50_000)
    burst(recording, "pressure_us", 400_000, at=PSI_MEMORY)
    finding = one(reclaim.detect(recording, T))
    assert (finding.severity, finding.facts.waited_ratio) == ("warning", pytest.approx(0.4))
