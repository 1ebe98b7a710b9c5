"""The verdict: the chain of the incident, its look-alikes, and the courage to say that the cause is not visible."""

import json
from dataclasses import fields

import pytest

from exhume.diagnosis.chain import confidence
from exhume.diagnosis.findings.registry import BY_NAME, KINDS
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import Report, as_json
from exhume.recording.recording import Recording, labels
from exhume.recording.source_state import SourceState, Timeout
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND


def verdict(recording: Recording) -> Report:
    return judge(recording, Thresholds())


def zombies(recording: Recording, dying: int = 68_440, live: int = 240) -> None:
    recording["memcg"].add(1, "/", live, dying, live + dying, "proc-cgroups", "node", 1)


def kubelet(recording: Recording, core: int, comm: str = "kubelet") -> None:
    for i, ticks in enumerate([0, 100, 290]):
        recording["processes"].add(i * SECOND, 11, 0, 5, 1, comm, "R", core, 0, ticks, f"/system.slice/{comm}.service")


def starved(recording: Recording, queue_core: int) -> None:
    pci = {"device": "eth0", "pci": "0000:20:03.0", "driver": "ena"}
    fields = labels(queue=5, napi_age_ms=6596, threshold_ms=5000, napi_scheduled=1, **pci)
    recording["events"].add(SECOND, "nic-queue-paused", "eth0", "critical", "TX q 5 is paused", fields)
    recording["events"].add(2 * SECOND, "nic-reset-done", "eth0", "warning", "Device reset completed", labels(**pci))
    recording.count(1, "interrupts", 10**6, labels(irq=61, cpu=queue_core, device="eth0-Tx-Rx-5"))


def incident(queue_core: int = 2) -> Recording:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "system")]})
    zombies(recording)
    kubelet(recording, 2)
    starved(recording, queue_core)
    return recording


def test_the_incident_is_one_chain_from_the_zombies_to_the_reset() -> None:
    report = verdict(incident())
    assert report.health == "critical"
    assert report.verdict.cause == "zombie-memcgs"
    assert [link.finding.kind for link in report.verdict.chain] == [
        "zombie-memcgs",
        "core-saturated",
        "napi-starved",
        "nic-reset",
    ]
    assert all(link.because for link in report.verdict.chain[1:])
    assert 0.5 <= report.verdict.confidence < 0.8  # no stack was taken: sure of it we are not


def test_a_core_that_does_not_serve_the_queue_is_not_blamed_for_it() -> None:
    report = verdict(incident(queue_core=6))
    assert report.health == "critical"
    assert report.verdict.cause is None
    assert [link.finding.kind for link in report.verdict.chain] == ["napi-starved", "nic-reset"]


def test_what_happened_an_hour_ago_is_not_the_work_of_a_core_that_is_busy_now() -> None:
    recording = incident()
    hour = 3_500 * SECOND
    later = made.recording(cpus=8)
    made.cores(later, 3.0, {2: [(0.0, 3.0, "system")]}, at=hour)
    zombies(later)
    later["events"].extend(recording["events"])
    later["counters"].extend(recording["counters"])
    report = verdict(later)
    assert report.verdict.cause is None
    assert "not" in report.verdict.summary


@pytest.mark.parametrize("kind", ["memcg-oom-kill", "throttled"])
def test_an_unrelated_finding_is_not_the_cause_of_a_saturated_core(kind: str) -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "system")]})
    if kind == "throttled":
        throttle(recording)
    else:
        recording["events"].add(1, kind, "python", "warning", "Memory cgroup out of memory", labels(comm="python"))
    report = verdict(recording)
    assert report.verdict.cause is None
    assert "core 2" in report.verdict.summary


def throttle(recording: Recording) -> None:
    at = labels(cgroup="/kubepods/pod1")
    for time, factor in ((0, 0), (3 * SECOND, 1)):
        for name, value in (
            ("cpu_quota_us", 50_000),
            ("cpu_period_us", 100_000),
            ("cpu_periods", 30),
            ("cpu_throttled_periods", 30),
        ):
            recording.count(time, name, value * (factor if "periods" in name else 1), at)


def test_a_throttled_tenant_on_an_idle_node_does_not_make_the_node_sick() -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {})
    throttle(recording)
    report = verdict(recording)
    assert report.health == "healthy"
    assert [finding.kind for finding in report.findings] == ["cpu-throttled"]


def crash_loop(recording: Recording, unit: str = "poller.service", restarts: tuple[int, int] = (40, 42)) -> None:
    for i, count in enumerate(restarts):
        recording["units"].add(
            i * SECOND, unit, "activating", "auto-restart", count, "exit-code", "enabled", 0, f"/system.slice/{unit}", "?"
        )


def test_a_crash_loop_is_not_blamed_for_zombies_that_are_not_there_or_not_its_own() -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {})
    crash_loop(recording)
    report = verdict(recording)
    assert report.verdict.cause == "crash-loop"
    assert "zombie" not in report.verdict.summary
    assert report.verdict.summary.startswith("poller.service")
    zombies(recording)
    recording["memcg"].add(1, "/system.slice", 5, 68_440, 68_445, "cgroup-stat", "node", 1)
    assert verdict(recording).verdict.cause == "zombie-memcgs"


def test_a_crash_loop_that_owns_the_leaked_cgroups_is_the_beginning_of_the_chain() -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {})
    crash_loop(recording, "ecs.service")
    zombies(recording)
    recording["memcg_walk"].add(
        1, "/system.slice/ecs.service", "/system.slice/ecs.service", "/system.slice", 68_000, 3, 4096 * 68_000, 0, 0, 0,
        "ecs.service", "", "", "", 95, "its path", "bpf-walk", 0, 0, 0, "", "",
    )  # fmt: skip
    recording.count(1, "memcg_walk_zombies", 68_440)
    recording.count(1, "memcg_walk_live", 240)
    report = verdict(recording)
    assert [link.finding.kind for link in report.verdict.chain] == ["crash-loop", "memcg-leak", "zombie-memcgs"]
    assert report.verdict.culprits[0].subject == "ecs.service"
    assert [(remedy.id, remedy.target) for remedy in report.verdict.remedies] == [
        ("fix", "ecs.service"),
        ("purge-zombies", "/system.slice"),
    ]


def test_a_machine_that_is_full_now_is_told_before_zombies_that_have_done_no_harm() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {0: [(0.0, 3.0, "user")], 1: [(0.0, 3.0, "user")]})
    zombies(recording)
    assert verdict(recording).verdict.cause == "cpu-full"


def test_a_reader_that_hangs_or_a_long_wait_for_a_core_is_never_healthy() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {})
    recording.add_source(0, "throttling", SourceState.off(Timeout(2500)))
    assert verdict(recording).health == "warning"
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {})
    recording.count(1, "own_wait_ns", 6_300_000_000)
    report = verdict(recording)
    assert report.health == "warning"
    assert "kept from running for 6.3 s" in report.verdict.summary


def test_a_saturated_core_without_zombies_has_no_known_cause() -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "system")]})
    zombies(recording, dying=0)
    report = verdict(recording)
    assert report.health == "warning"
    assert report.verdict.cause is None
    assert "why is not visible" in report.verdict.summary


def test_zombies_alone_are_a_warning_and_accuse_no_core() -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {})
    zombies(recording)
    report = verdict(recording)
    assert (report.health, report.verdict.cause) == ("warning", "zombie-memcgs")
    assert len(report.verdict.chain) == 1


def test_few_zombies_are_not_blamed_for_a_saturated_core() -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "system")]})
    zombies(recording, dying=900)
    assert verdict(recording).verdict.cause is None


def test_a_full_machine_is_called_full_even_with_zombies_in_it() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {0: [(0.0, 3.0, "user")], 1: [(0.0, 3.0, "user")]})
    zombies(recording, dying=10)
    report = verdict(recording)
    assert report.verdict.cause == "cpu-full"


def test_a_healthy_node_has_no_cause_and_says_what_was_ruled_out() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {})
    zombies(recording, dying=0)
    recording.count(0, "cpu_quota_groups", 3)
    report = verdict(recording)
    assert (report.health, report.verdict.cause) == ("healthy", None)
    assert {"cpu-full", "steal", "zombie-memcgs", "cpu-throttled"} <= {item.kind for item in report.verdict.ruled_out}


def test_who_has_seen_nothing_does_not_say_healthy() -> None:
    assert verdict(made.recording(on=())).health == "unknown"


def test_an_old_reset_with_no_trace_of_a_cause_is_history() -> None:
    recording = made.recording(cpus=1)
    end = 10**6 * SECOND
    for i in range(3):
        recording["cpu"].add(end + i * SECOND, 0, 0, 0, 0, 100 * i, 0, 0, 0, 0, 0, 0)
    recording["events"].add(end - 5 * 86_400 * SECOND, "nic-reset-done", "eth0", "warning", "reset", labels(device="eth0"))
    assert verdict(recording).health == "healthy"


def test_the_json_is_what_the_design_says_and_links_findings_by_id() -> None:
    document = json.loads(json.dumps(as_json(verdict(incident()))))
    assert document["schema"] == "exhume.report/2"
    assert set(document) == {"schema", "node", "window", "health", "verdict", "incidents", "findings", "sources"}
    assert set(document["node"]) == {"hostname", "boot_id", "kernel", "cgroups", "cpus"}
    ids = {finding["id"]: finding for finding in document["findings"]}
    assert ids[document["verdict"]["chain"][0]["finding"]]["kind"] == "zombie-memcgs"
    for finding in document["findings"]:
        assert set(finding) == {"id", "kind", "subject", "severity", "start", "end", "summary", "facts"}
        assert finding["start"].endswith("Z")
        assert set(finding["facts"]) == {field.name for field in fields(BY_NAME[finding["kind"]].facts)} - {"subject"}
    assert {"cause", "subject", "confidence", "summary", "chain", "ruled_out", "culprits", "remedies"} <= set(
        document["verdict"]
    )


def test_every_rule_links_kinds_that_exist_and_no_chain_is_certain() -> None:
    for kind in KINDS:
        for rule in kind.rules:
            assert rule.cause is kind.facts
            assert BY_NAME[rule.effect.kind].facts is rule.effect
            assert rule.disproof
    assert confidence(verdict(incident()).verdict.chain) < 1.0


@pytest.mark.parametrize("comm", ["kubelet", "kswapd0", "python3"])
def test_a_known_reader_of_cgroup_statistics_makes_the_link_stronger(comm: str) -> None:
    recording = made.recording(cpus=8)
    made.cores(recording, 3.0, {2: [(0.0, 3.0, "system")]})
    zombies(recording)
    kubelet(recording, 2, comm)
    (_, link) = verdict(recording).verdict.chain
    assert link.confidence == {"kubelet": 0.6, "kswapd0": 0.55, "python3": 0.3}[comm]
    assert verdict(recording).verdict.cause == (None if comm == "python3" else "zombie-memcgs")
