"""Leaks by place: every notable one, with its rate, its age, who makes the groups, and what it will come to."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.diagnosis.findings import cgroup_dirs_leak, memcg_leak, zombie_memcgs
from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak
from exhume.diagnosis.findings.forecast import days_to_pain
from exhume.diagnosis.findings.leak_places import EVENTS, NAMED
from exhume.diagnosis.findings.leak_restarts import RESTARTS
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Finding, of
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.recording.recording import Recording, Table
from tests.diagnosis.findings import made
from tests.diagnosis.findings.lives import container, count, incident, life, unit, walk, window
from tests.diagnosis.findings.made import SECOND
from tests.examples import examples

T = Thresholds()


def started(seconds: float, live: int = 100, on: tuple[str, ...] = ("cpu", "memcg", "units", "cgroup-events")) -> Recording:
    recording = made.recording(on=on)
    window(recording, seconds)
    recording.count(round(seconds * SECOND), "memcg_walk_live", live)
    return recording


def leaks(recording: Recording) -> list[Finding[MemcgLeak]]:
    return of(memcg_leak.detect(recording, T).findings, MemcgLeak)


def shuffled(recording: Recording, seed: int) -> Recording:
    """The same rows in another order. Counters and anchors stay: their order is that of time."""
    mixed = Recording(recording.node)
    for name, table in recording.tables.items():
        rows = [tuple(row.values()) for row in table.rows()]
        if name not in ("counters", "anchors", "sources"):
            random.Random(seed).shuffle(rows)
        mixed.tables[name] = Table(table.schema)
        mixed[name].add_rows(rows)
    return mixed


def test_the_incident_as_told_is_named_with_its_rate_and_its_age() -> None:
    (finding,) = leaks(incident())
    assert (finding.subject, finding.severity) == ("ecs.service", "warning")
    facts = finding.facts
    assert facts.known_by == NAMED
    assert (facts.home, facts.path) == ("/docker", "/docker/<id>")
    assert facts.share_ratio > 0.99
    assert facts.growth == 60
    assert facts.growth_per_hour == 360
    assert facts.age_s is not None
    assert 7.8 < facts.age_s / 86_400 < 8.0  # one each 10 s, about a week after a reboot
    assert facts.days_to_pain == 0
    assert facts.maker is not None
    assert (facts.maker.process, facts.maker.hand, facts.maker.unit) == (Process("runc"), True, "")


def test_every_notable_place_is_told_the_largest_first() -> None:
    recording = started(10)
    walk(recording, 10, "/docker/<id>", "/docker", 50_000, unit="a.service")
    walk(recording, 10, "/kubepods/pod1/<id>", "/kubepods/pod1", 5_000, pod="default/web")
    walk(recording, 10, "/user.slice/x-*", "/user.slice", 200)
    findings = leaks(recording)
    assert [(one.subject, one.severity, round(one.facts.share_ratio, 3)) for one in findings] == [
        ("a.service", "warning", 0.906),
        ("/kubepods/pod1/<id>", "warning", 0.091),
    ]
    assert findings[1].facts.owner.pod == "default/web"


@pytest.mark.parametrize(("caught", "severity"), [(9, "warning"), (0, "info")])
def test_a_lesser_leak_is_a_warning_if_it_was_caught_in_the_act(caught: int, severity: str) -> None:
    recording = started(60)
    walk(recording, 60, "/docker/<id>", "/docker", 9_100)
    walk(recording, 60, "/shipper/<id>", "/shipper", 900)
    for i in range(caught):
        life(recording, f"/shipper/{container(i)}", 6.0 * i, 6.0 * i + 1, i)
    larger, lesser = leaks(recording)
    assert (larger.severity, lesser.severity) == ("warning", severity)
    assert lesser.subject == "/shipper/<id>"


def test_the_kubelet_is_not_the_owner_of_what_pods_leave_behind() -> None:
    recording = started(10)
    walk(recording, 10, "/kubepods/burstable/pod<uid>/<id>", "/kubepods/burstable", 9_000, "kubelet.service", "default/one")
    (finding,) = leaks(recording)
    assert finding.subject == "/kubepods/burstable/pod<uid>/<id>"
    owner = finding.facts.owner
    assert (owner.unit, owner.pod) == ("", "")  # of many pods the row names one
    assert (owner.example_pod, owner.started_by) == ("default/one", "kubelet.service")


def test_places_of_one_unit_are_one_leak() -> None:
    recording = started(10)
    for i in range(40):
        walk(recording, 10, f"/system.slice/agent.service/w{i}", "/system.slice/agent.service", 100, unit="agent.service")
    (finding,) = leaks(recording)
    assert (finding.subject, finding.facts.zombies, finding.facts.share_ratio) == ("agent.service", 4_000, 1.0)
    assert "and 39 other places of its" in finding.summary


def test_two_walks_give_the_growth_of_each_place() -> None:
    recording = started(600)
    for at, larger, lesser in ((0, 3_000, 900), (600, 3_600, 900)):
        walk(recording, at, "/a/x-*", "/a", larger)
        walk(recording, at, "/b/x-*", "/b", lesser)
    first, second = (finding.facts for finding in leaks(recording))
    assert (first.growth, first.growth_per_hour) == (600, 3600.0)
    assert first.days_to_pain == pytest.approx((20_000 - 4_500) / 3600 / 24)
    assert (second.growth, second.growth_per_hour, second.age_s) == (0, None, None)


def test_an_age_is_not_longer_than_the_machine_is_up() -> None:
    recording = started(600)
    recording["anchors"].add(600 * SECOND, 0, 3_600 * SECOND, 0, 1)
    for at, zombies in ((0, 3_000), (600, 3_010)):
        walk(recording, at, "/a/x-*", "/a", zombies)
    (finding,) = leaks(recording)
    assert (finding.facts.age_s, finding.facts.age_since_boot) == (3_600, True)


def leaking(recording: Recording, places: int, period: float, by: tuple[str, int], parent: str = "/work") -> None:
    for i in range(places):
        life(recording, f"{parent}/{container(i)}", i * period, i * period + period / 2, 10_000 + i, by=by)


@pytest.mark.parametrize(("period", "severity"), [(20.0, "info"), (1.0, "warning")])
def test_a_leak_that_is_small_yet_is_told_with_what_it_will_come_to(period: float, severity: str) -> None:
    seconds = 600.0
    recording = started(seconds)
    count(recording, seconds, 40, 100)
    leaking(recording, int(seconds / period) - 1, period, ("spawner", 812))
    (finding,) = leaks(recording)
    assert (finding.severity, finding.subject, finding.facts.known_by) == (severity, "/work/<id>", EVENTS)
    assert finding.facts.maker is not None
    assert finding.facts.maker.process == Process("spawner", 812)
    assert finding.facts.days_to_pain is not None
    assert (finding.facts.days_to_pain < 1) is (severity == "warning")


def test_the_unit_of_the_one_program_that_makes_the_groups_is_the_owner_and_a_hand_s_is_not() -> None:
    for comm, subject in (("spawner", "spawner.service"), ("dockerd", "/work/<id>")):
        recording = started(60)
        leaking(recording, 59, 1.0, (comm, 812))
        recording["processes"].add(SECOND, 812, 0, 5, 1, comm, "S", 0, 1, 1, "/system.slice/spawner.service")
        (finding,) = leaks(recording)
        assert finding.subject == subject
        maker = finding.facts.maker
        assert maker is not None
        assert maker.cgroup == "/system.slice/spawner.service"
        assert maker.hand is (comm == "dockerd")
        assert maker.unit == ("" if comm == "dockerd" else "spawner.service")


@pytest.mark.parametrize(
    "cgroup",
    [
        f"/docker/{'0123456789abcdef' * 4}/system.slice/spawner.service",
        "/user.slice/user-7.slice/user@7.service/app.slice/spawner.service",
        "/machine.slice/systemd-nspawn@box.service/payload/system.slice/spawner.service",
    ],
)
def test_a_container_s_or_user_s_unit_is_not_taken_for_the_node_s_of_that_name(cgroup: str) -> None:
    recording = started(60)
    leaking(recording, 59, 1.0, ("spawner", 812))
    recording["processes"].add(SECOND, 812, 0, 5, 1, "spawner", "S", 0, 1, 1, cgroup)
    (finding,) = leaks(recording)
    assert finding.subject == "/work/<id>"
    assert finding.facts.maker is not None
    assert (finding.facts.maker.cgroup, finding.facts.maker_unit) == (cgroup, "")


def test_a_pid_that_was_another_s_before_names_nobody() -> None:
    recording = started(60)
    leaking(recording, 59, 1.0, ("spawner", 812))
    for comm, cgroup in (("innocent", "/system.slice/innocent.service"), ("other", "/system.slice/other.service")):
        recording["processes"].add(SECOND, 812, 0, 5, 1, comm, "S", 0, 1, 1, cgroup)
    (finding,) = leaks(recording)
    assert finding.subject == "/work/<id>"
    assert finding.facts.maker_unit == ""


def test_what_is_released_after_all_or_came_at_once_is_no_leak() -> None:
    released, burst = started(600), started(600)
    for i in range(100):
        life(released, f"/work/{container(i)}", i * 5.0, i * 5 + 1.0, i, released=i * 5 + 1.1)
        life(burst, f"/work/{container(i)}", i * 0.1, i * 0.1 + 0.05, i)
    for recording in (released, burst):
        count(recording, 600, 40, 100)
        assert memcg_leak.detect(recording, T).ruled_out == "40 zombies in all"


def test_lost_events_may_have_been_releases() -> None:
    recording = started(600)
    count(recording, 600, 40, 100)
    leaking(recording, 599, 1.0, ("spawner", 812))
    assert memcg_leak.detect(recording, T).findings
    recording.count(600 * SECOND, "cgroup_events_lost", 12)
    assert memcg_leak.detect(recording, T).ruled_out


def test_where_the_many_have_no_names_who_adds_to_them_is_told() -> None:
    recording = started(600)
    walk(recording, 600, "/*", "/", 50_000, method="count")
    leaking(recording, 100, 6.0, ("runc", 0), "/docker")
    (finding,) = leaks(recording)
    assert (finding.subject, finding.severity, finding.facts.of_recent_ratio) == ("/docker/<id>", "warning", 1.0)
    assert finding.facts.known_by == EVENTS


def test_restarts_that_match_in_number_name_the_unit_where_nothing_else_does() -> None:
    recording = started(600)
    walk(recording, 600, "/*", "/", 50_000, method="count")
    for at, zombies in ((0, 49_940), (600, 50_000)):
        count(recording, at, zombies, 100)
        unit(recording, at, "agent.service", zombies + 3)
        unit(recording, at, "quiet.service", 7)
    (finding,) = leaks(recording)
    assert (finding.subject, finding.facts.known_by) == ("agent.service", RESTARTS)
    assert finding.facts.growth_per_hour == 360
    for at in (0, 600):
        unit(recording, at, "another.service", 50_001)  # now it may be either
    assert memcg_leak.detect(recording, T).unseen.startswith("where they lived is not visible")


def test_a_count_over_a_minute_has_a_rate_and_a_forecast_and_one_of_seconds_has_none() -> None:
    for seconds, rate in ((600, 360.0), (3, None)):
        recording = made.recording()
        count(recording, 0, 5_000, 100)
        count(recording, seconds, 5_060, 100)
        (finding,) = of(zombie_memcgs.detect(recording, T).findings, ZombieMemcgs)
        assert finding.facts.growth == 60
        assert finding.facts.growth_per_hour == rate
        assert finding.facts.days_to_pain == (None if rate is None else pytest.approx((20_000 - 5_060) / 360 / 24))


@given(st.integers(0, 10**6), st.floats(-1e6, 1e6))
def test_pain_is_reached_or_ahead_or_never(zombies: int, rate: float) -> None:
    days = days_to_pain(zombies, rate)
    assert (days is None) is (zombies < 20_000 and rate <= 0)
    assert days is None or days >= 0


def test_leaked_directories_tell_how_many_more_there_are_and_who_makes_them() -> None:
    recording = made.recording(on=("cgroup-dirs", "cgroup-events"))
    window(recording, 120)
    for at, children in ((0, 59_880), (120, 60_000)):
        recording["cgroup_dirs"].add(at * SECOND, "/kubepods", "/sys/fs/cgroup", children, children, 64, 64, "/kubepods/x")
    for i in range(120):
        life(recording, f"/kubepods/run-{container(i)}", float(i), None, i, by=("plugin", 77))
        life(recording, f"/other/{container(i)}", float(i), i + 0.5, 1000 + i, by=("runc", 0))
    (finding,) = of(cgroup_dirs_leak.detect(recording, T).findings, CgroupDirsLeak)
    assert (finding.facts.growth, finding.facts.growth_per_hour) == (120, 3600.0)
    assert finding.facts.made_and_left == 120
    assert finding.facts.maker is not None
    assert (finding.facts.maker.process, finding.facts.maker.hand) == (Process("plugin", 77), False)


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32))
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    recording = incident(seconds=120)
    leaking(recording, 60, 2.0, ("spawner", 812))
    walk(recording, 0, "/docker/<id>", "/docker", 68_000, unit="ecs.service")
    mixed = shuffled(recording, seed)
    detectors: tuple[Any, ...] = (memcg_leak.detect, zombie_memcgs.detect)
    for detect in detectors:
        assert detect(mixed, T) == detect(recording, T)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=16), st.integers(0, 60), st.integers(0, 60)), max_size=30))
def test_hostile_names_are_carried_and_never_shown_raw(rows: list[tuple[str, str, int, int]]) -> None:
    recording = started(60)
    for i, (name, comm, start, length) in enumerate(rows * 3):
        life(recording, f"/{name}", start, start + length, i, by=(comm, 3))
    walk(recording, 60, "/" + "".join(name for name, *_ in rows), "/", 5_000)
    for finding in leaks(recording):
        assert finding.summary.isprintable()
