"""Loops, by whatever shows them; and what looks like one and is none."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.diagnosis.findings import crash_loop
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.loops import Pauses, UnitState
from exhume.diagnosis.findings.model import Examined, Finding, of
from exhume.diagnosis.findings.rhythm import rhythm
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels
from tests.diagnosis.findings import made
from tests.diagnosis.findings.lives import container, incident, life, unit, walk, window
from tests.diagnosis.findings.made import SECOND
from tests.diagnosis.findings.test_leaks import shuffled
from tests.examples import examples

T = Thresholds()
PATIENT = Thresholds(crash_hasty=1000)
POD = "/kubepods/burstable/pod7a3d3f5e-1111-4222-8333-444455556666"


def recording(seconds: float = 300, on: tuple[str, ...] = ("cpu", "units", "cgroup-events", "processes")) -> Recording:
    started = made.recording(on=on)
    window(started, seconds)
    return started


def one(examined: Examined) -> Finding[CrashLoop]:
    (finding,) = of(examined.findings, CrashLoop)
    return finding


def looping(
    into: Recording, parent: str = "/docker", period: float = 10.0, number: int = 20, leaks: bool = False, **more: Any
) -> None:
    for i in range(number):
        start = 1 + i * period
        released = None if leaks else start + period / 4 + 0.02
        life(into, f"{parent}/{container(i)}", start, start + period / 4, i, released, **more)


def test_the_incident_as_told_is_a_loop_that_systemd_does_not_count() -> None:
    finding = one(crash_loop.detect(incident(), T))
    assert (finding.subject, finding.severity) == ("ecs.service", "warning")
    assert finding.facts.ways == ("containers",)
    assert (finding.facts.restarts, finding.facts.restarts_in_window) == (None, 60)
    assert finding.facts.period_s == 10.0
    assert finding.facts.cgroup_paths == (finding.facts.cgroup,) == ("/docker/<id>",)
    assert (finding.facts.unreleased, finding.facts.removed, finding.facts.leaks) == (60, 60, True)


def test_a_loop_that_leaves_nothing_behind_is_one_if_it_goes_on_and_on() -> None:
    looked = recording()
    looping(looked)
    finding = one(crash_loop.detect(looked, T))
    assert (finding.subject, finding.severity, finding.facts.unreleased) == ("/docker/<id>", "warning", 0)
    assert not finding.facts.leaks
    assert one(crash_loop.detect(looked, PATIENT)).severity == "info"


def test_a_supervisor_that_makes_the_groups_itself_is_named_with_its_unit() -> None:
    looked = recording()
    looping(looked, "/work", leaks=True, by=("spawner", 812))
    looked["processes"].add(SECOND, 812, 0, 5, 1, "spawner", "S", 0, 1, 1, "/system.slice/spawner.service")
    looked["threads"].add(1, 901, 901, 0, "agent", "agent", f"/work/{container(3)}", "", "", "")
    finding = one(crash_loop.detect(looked, T))
    assert (finding.subject, finding.severity) == ("spawner.service", "warning")
    assert (finding.facts.supervisor, finding.facts.process) == (Process("spawner", 812), Process("agent"))
    assert finding.facts.unit == "spawner.service"


def test_two_supervisors_in_one_place_are_two_loops() -> None:
    looked = recording()
    for i in range(20):
        life(looked, f"/work/{container(100 + i)}", 2 + 7.3 * i, 6 + 7.3 * i, 100 + i, by=("second", 902))
        life(looked, f"/work/{container(200 + i)}", 3 + 9.1 * i, 8 + 9.1 * i, 200 + i, by=("third", 903))
    supervisors = {finding.facts.supervisor for finding in of(crash_loop.detect(looked, T).findings, CrashLoop)}
    assert supervisors == {Process("second", 902), Process("third", 903)}


def test_a_container_that_its_pod_starts_again_is_a_loop_of_the_pod() -> None:
    looked = recording(3_000)
    starts = [0, 10, 30, 70, 150, 310, 610, 910]  # the kubelet's back-off
    for i, start in enumerate(starts):
        life(looked, f"{POD}/{container(i)}", 5 + start, 7 + start, i)
    finding = one(crash_loop.detect(looked, T))
    assert (finding.facts.ways, finding.subject) == (("containers",), f"{POD}/<id>")
    assert finding.severity == "warning"


def test_pauses_that_double_and_kills_for_memory_are_bad_ends() -> None:
    doubling, killed = recording(), recording()
    for i, start in enumerate((0, 1, 3, 7, 15, 31, 61, 91)):
        life(doubling, f"/docker/{container(i)}", 5 + start, 5.2 + start, i, 5.3 + start)
    looping(killed)
    for i in range(15):
        fields = labels(cgroup=f"/docker/{container(i)}", comm="agent", pid=9)
        killed["events"].add((2 + 10 * i) * SECOND, "oom-summary", "agent", "info", "oom-kill: ...", fields)
        line = "Memory cgroup out of memory: Killed process 9 (agent) ..."
        killed["events"].add((2 + 10 * i) * SECOND, "memcg-oom-kill", "agent", "critical", line, labels(comm="agent", pid=9))
    finding = one(crash_loop.detect(doubling, T))
    assert (finding.severity, finding.facts.pauses, finding.facts.life_s) == ("warning", Pauses.DOUBLING, 0.2)
    finding = one(crash_loop.detect(killed, T))
    assert (finding.severity, finding.facts.bad_ends) == ("warning", 15)
    assert finding.facts.pauses is Pauses.STEADY


def test_what_several_sources_show_of_a_unit_is_one_finding() -> None:
    looked = recording()
    for at, count in ((0, 40), (300, 70)):
        unit(looked, at, "agent.service", count, "activating", "auto-restart")
    for i in range(30):
        life(looked, "/system.slice/agent.service", 1 + 10 * i, 4 + 10 * i, i, by=("systemd", 1))
    journal(looked, "agent.service", 30)
    finding = one(crash_loop.detect(looked, T))
    assert finding.facts.ways == ("systemd", "journal", "cgroup-churn")
    assert (finding.facts.restarts, finding.facts.restarts_in_window) == (70, 30)
    assert (finding.facts.unreleased, finding.facts.ended_with) == (30, "exit status 5")
    assert finding.facts.state == UnitState("activating", "auto-restart")
    sources = {each.what: each.source for each in finding.evidence}
    assert (sources["restarts"], sources["unreleased"]) == ("systemd NRestarts", "cgroup tracepoints")
    assert sources["bad ends"] == sources["ended with"] == "journal, MESSAGE_ID of systemd"


def journal(into: Recording, name: str, restarts: int, status: int = 5, period: float = 10.0) -> None:
    for i in range(restarts):
        at = round(i * period * SECOND)
        into["events"].add(at, "unit-exited", name, "warning", "x", labels(code="exited", status=status))
        into["events"].add(at + SECOND, "unit-restart", name, "info", "x", labels(restarts=100 + i))


@pytest.mark.parametrize(("status", "severity"), [(5, "warning"), (0, "info")])
def test_the_journal_alone_shows_a_loop_and_how_it_ends(status: int, severity: str) -> None:
    looked = recording(on=("cpu",))
    journal(looked, "agent.service", 20, status)
    finding = one(crash_loop.detect(looked, T))
    facts = finding.facts
    assert (finding.subject, finding.severity, facts.ways) == ("agent.service", severity, ("journal",))
    assert (facts.restarts, facts.restarts_in_window, facts.period_s) == (119, 20, 10.0)


def test_two_restarts_in_the_journal_are_no_loop_and_old_ones_are_history() -> None:
    looked = recording()
    looked["events"].add(SECOND, "unit-restart", "a.service", "info", "x", labels(restarts=1))
    looked["events"].add(9 * SECOND, "unit-restart", "a.service", "info", "x", labels(restarts=2))
    journal(looked, "b.service", 20)
    assert one(crash_loop.detect(looked, T)).subject == "b.service"
    window(looked, 10_000)
    assert crash_loop.detect(looked, T).ruled_out


def process(into: Recording, pid: int, start: float, seen: float, comm: str, ppid: int, cgroup: str) -> None:
    into["processes"].add(round(seen * SECOND), pid, 0, round(start * 100), ppid, comm, "R", 0, 1, 1, cgroup)


def test_processes_that_start_and_die_in_a_rhythm_are_told_and_nobody_is_accused() -> None:
    looked = recording()
    process(looked, 812, 0, 300, "supervisor", 1, "/system.slice/a.service")
    for i in range(20):
        process(looked, 5_000 + i, 2 + 5 * i, 3 + 5 * i, "worker", 812, "/system.slice/a.service")
    finding = one(crash_loop.detect(looked, T))
    assert (finding.subject, finding.severity, finding.facts.ways) == ("a.service", "info", ("processes",))
    assert (finding.facts.process, finding.facts.supervisor) == (Process("worker"), Process("supervisor", 812))
    assert finding.facts.period_s == 5.0


def test_a_supervisor_without_a_name_is_shown_by_its_pid() -> None:
    looked = recording()
    for i in range(20):
        process(looked, 5_000 + i, 2 + 5 * i, 3 + 5 * i, "worker", 812, "/system.slice/a.service")
    finding = one(crash_loop.detect(looked, T))
    assert finding.facts.supervisor is not None
    assert (finding.facts.supervisor.pid, str(finding.facts.supervisor)) == (812, "PID 812")


def test_sampled_threads_show_a_loop_too() -> None:
    looked = recording()
    for i in range(20):
        start = round((2 + 5 * i) * SECOND)
        looked["threads"].add(i + 1, 6_000 + i, 6_000 + i, start, "w", "worker", f"/docker/{container(i)}", "", "", "")
        looked["samples"].add(start + SECOND, 0, i + 1, 1)
    finding = one(crash_loop.detect(looked, T))
    assert (finding.subject, finding.facts.ways, finding.severity) == ("/docker/<id>", ("containers",), "info")


def test_a_build_and_probes_and_what_cron_starts_are_no_loops() -> None:
    looked = recording()
    chance = random.Random(7)
    process(looked, 700, 0, 300, "make", 1, "/user.slice")
    process(looked, 701, 0, 300, "containerd-shim", 1, "/system.slice")
    process(looked, 702, 0, 300, "cron", 1, "/system.slice/cron.service")
    for i in range(40):
        start = 2 + chance.random() * 290
        process(looked, 3_000 + i, start, start + 20, "cc1", 700, "/user.slice")
        process(looked, 4_000 + i, 2 + 5.0 * i, 3 + 5.0 * i, "probe", 701, POD)
        process(looked, 5_000 + i, 2 + 5.0 * i, 3 + 5.0 * i, "job", 702, "/system.slice/cron.service")
    assert crash_loop.detect(looked, T).ruled_out


def test_timers_sessions_and_pods_that_follow_each_other_are_not_accused_though_they_leave_zombies() -> None:
    timer, cron, pods, minutes = (recording(1_800) for _ in range(4))
    unit(timer, 0, "report.service", 0, "inactive", "dead")
    for i in range(29):
        life(timer, "/system.slice/report.service", 5 + 20 * i, 7 + 20 * i, i, by=("systemd", 1))
        life(cron, f"/user.slice/user-0.slice/session-{i}.scope", 5 + 17 * i, 7 + 17 * i, i, by=("systemd", 1))
        life(pods, f"/kubepods/besteffort/pod7a3d3f5e-1111-4222-8333-4444555566{i:02d}", 5 + 30 * i, 25 + 30 * i, i)
        life(minutes, f"/docker/{container(i)}", 5 + 60 * i, 7 + 60 * i, i)
    for looked in (timer, cron, pods, minutes):
        assert all(finding.severity == "info" for finding in crash_loop.detect(looked, T).findings)
    assert crash_loop.detect(cron, T).ruled_out


def test_the_unit_behind_containers_is_known_by_the_zombies_of_the_same_place() -> None:
    looked = recording()
    looping(looked, leaks=True)
    walk(looked, 300, "/docker/<id>", "/docker", 500, unit="agent.service")
    walk(looked, 300, "/elsewhere/<id>", "/elsewhere", 9_000, unit="innocent.service")
    assert one(crash_loop.detect(looked, T)).subject == "agent.service"


def test_lost_events_accuse_nobody() -> None:
    looked = recording()
    looked.count(300 * SECOND, "cgroup_events_lost", 5)
    looping(looked, leaks=True)
    assert one(crash_loop.detect(looked, PATIENT)).severity == "info"


def test_a_node_without_systemd_and_events_has_not_been_seen() -> None:
    assert crash_loop.detect(recording(on=("cpu",)), T).unseen
    assert crash_loop.detect(recording(on=("cpu", "cgroup-events")), T).ruled_out == "no cgroup comes and goes in a rhythm"


@pytest.mark.parametrize(
    ("pauses", "found"),
    [
        ([10.0] * 8, True),
        ([10.0, 10.8, 9.7, 10.4, 10.1, 25.0, 10.0, 10.2, 9.9, 10.0, 10.1], True),  # one was late
        ([0.5, 1.0, 2.1, 4.3, 8.5, 15.2, 15.9, 16.1], True),
        ([10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0], True),
        ([10.0, 10.0], False),
        ([1.0, 9.0, 2.0, 14.0, 0.5, 30.0], False),
        ([1.0, 2.0, 4.0, 1.0, 2.0, 4.0], False),
    ],
)
def test_a_rhythm_is_the_same_pause_each_time_or_twice_as_long(pauses: list[float], found: bool) -> None:
    starts = [sum(pauses[:i]) for i in range(len(pauses) + 1)]
    lives = [(round(start * SECOND), round((start + 0.2) * SECOND)) for start in starts]
    assert (rhythm(lives, 5) is not None) is found


def test_another_that_stays_does_not_hide_a_loop() -> None:
    lives = [(i * 10, i * 10 + 3) for i in range(20)]
    assert rhythm([*lives, (55, -1)], 5) is not None
    assert rhythm([*lives, *((10 * i + 5, -1) for i in range(10))], 5) is None


times = st.integers(0, 10**12)


@given(st.lists(st.tuples(times, times), max_size=60), st.randoms())
def test_a_rhythm_does_not_depend_on_the_order(lives: list[tuple[int, int]], chance: random.Random) -> None:
    mixed = lives.copy()
    chance.shuffle(mixed)
    assert rhythm(mixed, 5) == rhythm(lives, 5)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 3)), min_size=8, max_size=60), st.integers(2, 6))
def test_jobs_that_run_side_by_side_are_no_loop(jobs: list[tuple[int, int]], abreast: int) -> None:
    """Whatever their rhythm: each goes on while the next ones begin."""
    starts = [0]
    for pause, _ in jobs:
        starts.append(starts[-1] + pause)
    lives = []
    for i in range(len(jobs)):
        until = starts[min(len(starts) - 1, i + abreast)]
        lives.append((starts[i], until + jobs[i][1]))
    assert rhythm(lives, 5) is None


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(10, 60), st.floats(1.0, 60.0))
def test_random_churn_of_jobs_that_overlap_is_never_a_loop(seed: int, jobs: int, longest: float) -> None:
    looked = recording()
    chance = random.Random(seed)
    for i in range(jobs):
        start = 300 * chance.random()
        # Each has a companion that begins while it runs, so that two are there at once all the time.
        length = longest * (0.5 + chance.random())
        life(looked, f"/jobs/{container(2 * i)}", start, start + length, 2 * i)
        life(looked, f"/jobs/{container(2 * i + 1)}", start + length * 0.3, start + length * 1.3, 2 * i + 1)
    assert not crash_loop.detect(looked, T).findings


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32))
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    looked = incident(seconds=120)
    journal(looked, "ecs.service", 9)
    journal(looked, "other.service", 9)
    process(looked, 812, 0, 100, "supervisor", 1, "/system.slice/a.service")
    for i in range(12):
        process(looked, 5_000 + i, 2 + 5 * i, 3 + 5 * i, "worker", 812, "/system.slice/a.service")
        looked["threads"].add(
            i + 1, 6_000 + i, 6_000 + i, (5 * i + 1) * SECOND, "w", "worker", f"/x/{container(i)}", "", "", ""
        )
        looked["samples"].add((5 * i + 2) * SECOND, 0, i + 1, 1)
    told = crash_loop.detect(looked, T)
    assert len(told.findings) >= 3
    assert crash_loop.detect(shuffled(looked, seed), T) == told


@settings(max_examples=examples(50))
@given(st.text(max_size=20), st.text(max_size=16))
def test_hostile_names_are_never_shown_raw(path: str, comm: str) -> None:
    looked = recording()
    for i in range(9):
        life(looked, f"/{path}/{container(i)}", 1 + 10 * i, 4 + 10 * i, i, by=(comm, 9))
        process(looked, 5_000 + i, 2 + 5 * i, 3 + 5 * i, comm, 9, f"/{path}")
    journal(looked, path, 9)
    for finding in crash_loop.detect(looked, T).findings:
        assert finding.summary.isprintable()


def test_the_loop_that_leaks_is_among_the_few_that_are_told_and_all_are_known() -> None:
    looked = recording()
    for place in range(7):
        for i in range(40):
            start = 1 + i * 5.0
            life(looked, f"/place{place}/{container(i)}", start, start + 1, 100 * place + i, start + 1.02)
    for i in range(9):
        life(looked, f"/leaky/{container(i)}", 1 + i * 30.0, 8 + i * 30.0, 1000 + i)
    told = of(crash_loop.detect(looked, T).findings, CrashLoop)
    assert len(told) == crash_loop.MOST_TOLD
    assert told[0].facts.unreleased == 9
    assert len(crash_loop.every(looked, T).findings) == 8
