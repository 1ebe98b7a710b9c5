"""The verdict on measured stalls: the link between a saturated core and a reset, joined by core and by time; and its rivals."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exhume.diagnosis.findings.kind import Link
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import Report, as_json
from exhume.recording.recording import Recording, labels
from exhume.sources.latency.stalls import Holder
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND
from tests.diagnosis.test_judge import zombies
from tests.examples import examples

FULL = {1: [(1.0, 3.0, "system")]}
SOURCES = ("cpu", "memcg", "kernel-log", "latency", "nic")


def node(shares: Any = None, seconds: float = 30.0, dying: int = 68_440) -> Recording:
    recording = made.recording(cpus=8, on=SOURCES)
    made.cores(recording, seconds, shares or {})
    zombies(recording, dying)
    return recording


def verdict(recording: Recording) -> Report:
    return judge(recording, Thresholds())


def kinds(report: Report) -> list[str]:
    return [link.finding.kind for link in report.verdict.chain]


def link(report: Report, kind: str) -> Link:
    (found,) = [link for link in report.verdict.chain if link.finding.kind == kind]
    return found


def reset(recording: Recording, seconds: float, device: str = "eth0") -> None:
    at = labels(device=device, pci="0000:20:03.0", driver="ena")
    recording["events"].add(round(seconds * SECOND), "nic-reset-done", device, "warning", "Device reset completed", at)


def test_stalls_are_told_before_any_reset_and_accuse_the_zombies_that_were_walked() -> None:
    recording = node()
    for i in range(12):
        made.stall(recording, 2.0 * (i + 1), 690 if i == 7 else 100)
    report = verdict(recording)
    assert (report.health, report.verdict.cause) == ("warning", "zombie-memcgs")
    assert kinds(report) == ["zombie-memcgs", "memcg-walk", "napi-starved"]  # no core was full for long enough to be told
    assert report.verdict.confidence > 0.85
    assert "kubelet [11] walked memory cgroups on that core in 100%" in link(report, "napi-starved").because
    assert report.verdict.summary == "68,440 zombie memory cgroups keep eth0 from being polled"
    assert as_json(report)["verdict"]["cause"] == "zombie-memcgs"


def test_the_whole_chain_is_joined_by_core_and_by_overlap() -> None:
    recording = node(FULL)
    made.stall(recording, 2.9, 1_800)
    reset(recording, 2.95)
    report = verdict(recording)
    assert kinds(report) == ["zombie-memcgs", "memcg-walk", "core-saturated", "napi-starved", "nic-reset"]
    assert link(report, "core-saturated").confidence > 0.9
    assert "no stack was taken" not in " ".join(link.because for link in report.verdict.chain)
    assert "1,800 ms of the 1,800 ms in which the poll was late on core 1" in link(report, "napi-starved").because
    assert "50 ms after a stall of 1,800 ms" in link(report, "nic-reset").because
    assert report.health == "critical"
    assert math.isclose(report.verdict.confidence, 0.99 * 0.99 * 0.99 * 0.9)


def test_samples_of_all_cores_are_as_good_as_those_of_the_stall() -> None:
    recording = node(FULL)
    made.stall(recording, 2.9, 1_800, holder=None, stack=(), samples=(0, 0))
    made.sample(recording, 1.0, 3.0, 1, "kubelet", 12, made.WALK)
    report = verdict(recording)
    assert kinds(report) == ["zombie-memcgs", "memcg-walk", "core-saturated", "napi-starved"]
    assert link(report, "core-saturated").confidence > 0.9
    assert "kubelet [12] walked them there" in link(report, "core-saturated").because


def test_a_core_that_was_full_at_another_time_is_not_what_starved_the_device() -> None:
    recording = node(FULL)
    made.stall(recording, 20.0, 900, holder=Holder(44, 45, "trainer"), stack=("crypto_shash_update",))
    report = verdict(recording)
    assert report.verdict.cause is None
    assert report.verdict.confidence == 0.0
    assert link(report, "napi-starved").because in ("", "on core 1, too, but not at the same time")


def test_a_core_that_was_full_for_a_small_part_of_it_is_less_sure() -> None:
    recording = node({1: [(1.0, 1.5, "system")]})
    made.stall(recording, 3.0, 2_000)
    report = verdict(recording)
    (found,) = [found for found in report.findings if found.kind == "core-saturated"]
    assert found.spans[0].core == 1
    assert link(report, "napi-starved").confidence in (0.6, 0.93, 0.97)
    assert report.verdict.cause == "zombie-memcgs"


def test_another_core_that_was_full_at_the_same_time_did_not_do_it() -> None:
    recording = node({5: [(1.0, 3.0, "system")]}, dying=0)
    made.stall(recording, 2.9, 900, core=1)
    assert kinds(verdict(recording)) == ["memcg-walk", "napi-starved"]


@pytest.mark.parametrize(
    ("holder", "stack", "samples"),
    [
        (Holder(0, 0, "swapper/1"), (), (0, 0)),  # idle, or not running
        (None, (), (0, 0)),  # unknown
        (Holder(16, 16, "ksoftirqd/1"), (), (0, 0)),  # the network itself
        (Holder(44, 45, "trainer"), ("zap_pte_range", "exit_mmap"), (30, 30)),
        (Holder(44, 45, "trainer"), (), (30, 30)),  # its own code, or no symbols
        (Holder(11, 12, "kubelet"), made.WALK, (9, 30)),  # in turns with others
    ],
)
def test_zombies_are_not_accused_of_what_they_were_not_seen_to_do(
    holder: Holder | None, stack: tuple[str, ...], samples: tuple[int, int]
) -> None:
    recording = node()
    for i in range(5):
        made.stall(recording, 3.0 * (i + 1), 400, holder=holder, stack=stack, samples=samples, cgroup="/")
    report = verdict(recording)
    assert kinds(report) == ["napi-starved"]
    # Who held the core and in what was seen: then that is what is wrong, whatever made it do so.
    seen = holder is not None and bool(stack) and samples[0] == samples[1]
    assert (report.health, report.verdict.cause) == ("warning", "napi-starved" if seen else None)


def test_a_saturated_core_that_was_seen_to_do_something_else_does_not_accuse_zombies() -> None:
    recording = node(FULL)
    made.sample(recording, 1.0, 3.0, 1, "kubelet", 12, ("zap_pte_range", "exit_mmap", "do_exit"))
    report = verdict(recording)
    assert kinds(report) == ["core-saturated"]
    assert (report.verdict.cause, report.verdict.subject) == ("core-saturated", "kubelet [12]")
    assert "kubelet [12] gave back the memory of a process there" in report.verdict.summary
    assert "not visible" not in report.verdict.summary


def test_flushing_statistics_is_weaker_evidence_than_walking() -> None:
    recording = node(FULL)
    made.sample(recording, 1.0, 3.0, 1, "kubelet", 12, ("cgroup_rstat_flush_locked", "mem_cgroup_flush_stats"))
    assert link(verdict(recording), "memcg-walk").confidence == 0.6


def test_a_walk_without_zombies_accuses_nobody() -> None:
    recording = node(dying=0)
    made.stall(recording, 5.0, 900)
    report = verdict(recording)
    assert report.verdict.cause not in ("memcg-leak", "zombie-memcgs")
    assert report.verdict.summary == "walks of memory cgroups by kubelet [11] keep eth0 from being polled"
    assert [culprit.subject for culprit in report.verdict.culprits] == ["kubelet.service"]


def test_time_that_the_hypervisor_took_is_a_rival_of_the_zombies() -> None:
    recording = node({core: [(1.0, 9.0, "steal")] for core in range(8)})
    made.stall(recording, 5.0, 900)
    report = verdict(recording)
    assert (report.verdict.cause, kinds(report)) == ("steal", ["steal", "napi-starved"])
    assert "the hypervisor took" in report.verdict.chain[-1].because


@pytest.mark.parametrize(("ms", "after", "sure"), [(6_000, 0.5, 0.9), (300, 0.5, 0.4), (6_000, 90.0, None)])
def test_a_reset_follows_from_a_stall_as_surely_as_that_was_long(ms: int, after: float, sure: float | None) -> None:
    recording = node(seconds=120.0, dying=0)
    made.stall(recording, 10.0, ms)
    reset(recording, 10.0 + after)
    report = verdict(recording)
    assert kinds(report) == ["memcg-walk", "napi-starved", *(["nic-reset"] if sure is not None else [])]
    if sure is not None:
        assert report.verdict.chain[-1].confidence == sure


@pytest.mark.parametrize(("core", "chained"), [(1, True), (2, False)])
def test_a_stall_of_a_device_nobody_named_is_joined_by_the_core_that_serves_it(core: int, chained: bool) -> None:
    recording = node(dying=0)
    made.stall(recording, 10.0, 6_000, core, device="", netns=0)
    recording.count(1, "interrupts", 10**6, labels(irq=61, cpu=1, device="eth0-Tx-Rx-5"))
    reset(recording, 10.5)
    report = verdict(recording)
    assert kinds(report) == ["memcg-walk", "napi-starved", *(["nic-reset"] if chained else [])]
    assert not chained or "its core serves eth0" in report.verdict.chain[-1].because


def test_stalls_after_a_reset_do_not_hide_the_one_before_it() -> None:
    recording = node(dying=0)
    made.stall(recording, 10.0, 6_000)
    reset(recording, 10.5)
    made.stall(recording, 25.0, 100)
    report = verdict(recording)
    assert kinds(report) == ["memcg-walk", "napi-starved", "nic-reset"]
    assert "500 ms after a stall of 6,000 ms" in report.verdict.chain[-1].because


def test_one_short_stall_in_a_long_time_leaves_the_node_healthy() -> None:
    recording = node(seconds=600.0, dying=0)
    made.stall(recording, 5.0, 60)
    assert verdict(recording).health == "healthy"


# Any rows at all

_TIMES = st.one_of(st.integers(0, 30 * SECOND), st.integers(-(10**15), 10**15))
_NUMBERS = st.one_of(
    st.sampled_from(["0", "1", "2", "-1", "60000", "700000", "5000000", "", "x", "²", "9" * 18]), st.text(max_size=4)
)
_TEXTS = st.one_of(st.sampled_from(["eth0", "eth1", "", "kubelet", "ksoftirqd/1", "/"]), st.text(max_size=6))
_STACKS = st.sampled_from(["", ";", "mem_cgroup_iter;shrink_node", "net_rx_action", "[unknown]", "zap_pte_range;;"])
_OPTIONAL = {
    "what": st.sampled_from(["napi", "softirq", "runqueue", ""]),
    **dict.fromkeys(("cpu", "us", "tid", "netns", "queue", "napi_age_ms", "napi_scheduled", "threshold_ms"), _NUMBERS),
    **dict.fromkeys(("offender_pid", "offender_tid", "offender_samples", "samples"), _NUMBERS),
    **dict.fromkeys(("device", "thread", "offender_comm", "offender_cgroup", "pci"), _TEXTS),
    "start_ns": st.integers(0, 30 * SECOND).map(str),
    "stack": _STACKS,
}
_ANY = st.fixed_dictionaries({}, optional=_OPTIONAL)
# Such as a recorder may write: a number in its place, the rest as it comes.
_COUNT = st.integers(0, 3).map(str)
_LIKELY = st.fixed_dictionaries(
    {
        "what": st.sampled_from(["napi", "napi", "softirq"]),
        "cpu": _COUNT,
        "us": st.integers(40_000, 8_000_000).map(str),
        "device": st.sampled_from(["eth0", "eth0", "eth1", ""]),
        "napi_age_ms": st.integers(900, 7_000).map(str),
    },
    optional={
        **{
            name: _OPTIONAL[name] for name in ("netns", "tid", "start_ns", "stack", "offender_comm", "offender_cgroup", "queue")
        },
        **dict.fromkeys(("offender_pid", "offender_tid", "offender_samples", "samples"), _COUNT),
    },
)
_KINDS = st.sampled_from(["stall", "stall", "stall", "stall-begins", "nic-queue-paused", "nic-reset-done", "nic-napi-late"])


def _event(times: Any, subjects: Any, fields: Any) -> Any:
    told = fields.map(lambda some: labels(**some))
    return st.tuples(times, _KINDS, subjects, st.just("warning"), st.text(max_size=4), told)


_EVENTS = st.lists(
    st.one_of(_event(_TIMES, _TEXTS, _ANY), _event(st.integers(0, 10 * SECOND), st.sampled_from(["eth0", "eth1"]), _LIKELY)),
    max_size=8,
)
_IDS = st.integers(0, 3)
_SAMPLES = st.lists(st.tuples(st.integers(0, 30 * SECOND), st.integers(0, 2), _IDS, _IDS), max_size=20)
_DICTIONARIES = st.fixed_dictionaries(
    {
        "stacks": st.lists(
            st.tuples(_IDS, st.sampled_from(["idle", "user", "system", "softirq"]), st.lists(_IDS, max_size=3)),
            max_size=4,
            unique_by=lambda row: row[0],
        ),
        "frames": st.lists(
            st.tuples(_IDS, st.sampled_from(["", "mem_cgroup_iter", "net_rx_action"]), st.just(""), st.just("kernel"), _IDS),
            max_size=4,
            unique_by=lambda row: row[0],
        ),
        "threads": st.lists(
            st.tuples(_IDS, _IDS, _IDS, _IDS, _TEXTS, _TEXTS, _TEXTS, st.just(""), st.just(""), st.just("")),
            max_size=4,
            unique_by=lambda row: row[0],
        ),
    }
)


def of_rows(on: tuple[str, ...], **rows: Any) -> Recording:
    recording = made.recording(cpus=3, on=on)
    made.cores(recording, 10.0, {1: [(1.0, 6.0, "system")], 2: [(2.0, 3.0, "steal")]}, step=0.25)
    zombies(recording)
    for table, some in rows.items():
        for row in some:
            recording[table].add(*row)
    return recording


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(_EVENTS, _SAMPLES, _DICTIONARIES, st.sampled_from([SOURCES, ("cpu",), ()]), st.randoms(use_true_random=False))
def test_no_rows_raise_and_their_order_does_not_matter(
    events: list[Any], samples: list[Any], dictionaries: dict[str, list[Any]], on: tuple[str, ...], random: Any
) -> None:
    first = verdict(of_rows(on, events=events, samples=samples, **dictionaries))
    tables = {name: random.sample(rows, len(rows)) for name, rows in dictionaries.items()}
    shuffled = random.sample(events, len(events)), random.sample(samples, len(samples))
    other = verdict(of_rows(on, events=shuffled[0], samples=shuffled[1], **tables))
    assert as_json(first) == as_json(other)
    for finding in first.findings:
        assert finding.start <= finding.end
        assert finding.summary
    assert 0.0 <= first.verdict.confidence <= 1.0
