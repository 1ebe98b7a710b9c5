"""The trigger: one incident is found once and pinned for as long as it goes on, with counters from before the window."""

from itertools import pairwise

import pytest

from exhume.diagnosis.findings.registry import examine
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recorder import trigger
from exhume.recorder.policy import Policy
from exhume.recorder.trigger import WINDOW_NS, Incident, Trigger, harms
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import SourceState
from tests.diagnosis.findings import made

SECOND = 1_000_000_000
NODE = Node("node-7", "boot", "5.4.0", "v1", 4)
EVERY_NS = 5 * SECOND
OFTEN = Policy(judge_every_s=5.0, judge_quiet_s=5.0, judge_same_s=5.0)


def saturated(recording: Recording) -> list[Incident]:
    found = [
        each for examined in examine(recording, Thresholds()) for each in examined.findings if each.kind == "core-saturated"
    ]
    return [Incident(each.kind, each.subject, each.start, each.end, each.summary) for each in found]


def by_the_second(whole: Recording) -> list[Recording]:
    """What a recorder would have handed over second by second."""
    _, end = whole.window
    seconds = []
    for at in range(0, end, SECOND):
        part = Recording(whole.node)
        for name in ("cpu", "anchors", "sources"):
            for row in whole[name].rows():
                if at <= row["time"] < at + SECOND:
                    part[name].add(*row.values())
        seconds.append(part)
    return seconds


def second(at: int, **counters: int) -> Recording:
    rows = Recording(NODE)
    for core in range(2):
        rows["cpu"].add(at * SECOND, core, *range(10))
        rows["cpu"].add(at * SECOND + SECOND - 1, core, *range(10))
    for name, value in counters.items():
        rows.count(at * SECOND + SECOND // 2, name, value)
    return rows


def idle_second(at: int) -> Recording:
    rows = Recording(NODE)
    for core in range(2):
        for moment in (at * SECOND, at * SECOND + SECOND - 1):
            rows["cpu"].add(moment, core, 0, 0, 0, -(-moment // 10_000_000), *[0] * 6)
    return rows


@pytest.mark.ci
def test_a_saturated_core_is_an_incident_once_and_pinned_for_as_long_as_it_shows() -> None:
    whole = made.recording()
    made.cores(whole, 100, {2: [(20, 27, "system")]})
    watching = Trigger(whole.node, saturated, OFTEN)
    new: list[tuple[int, Incident]] = []
    pinned: list[int] = []
    for at, rows in enumerate(by_the_second(whole)):
        first, found = watching.add(rows)
        new += [(at, each) for each in first]
        pinned += [at] * bool(found)
    ((when, incident),) = new
    assert incident.kind == "core-saturated"
    assert 20 <= when <= 27 + EVERY_NS // SECOND + 1
    assert 19 * SECOND <= incident.start < incident.end <= 28 * SECOND
    assert len(pinned) > 3
    assert max(pinned) <= 27 + WINDOW_NS // SECOND + EVERY_NS // SECOND


def test_the_same_core_much_later_is_another_incident() -> None:
    at = [Incident("k", "s", 5 * SECOND, 6 * SECOND, ""), Incident("k", "s", 200 * SECOND, 201 * SECOND, "")]

    def judge(recording: Recording) -> list[Incident]:
        _, now = recording.window
        return [each for each in at if each.start <= now <= each.end + WINDOW_NS]

    watching = Trigger(NODE, judge, OFTEN)
    new = [each for now in range(300) for each in watching.add(second(now))[0]]
    assert new == at


def test_two_subjects_are_two_incidents_and_one_that_goes_on_is_one() -> None:
    def judge(recording: Recording) -> list[Incident]:
        start, now = recording.window
        return [Incident("k", subject, start, now, "") for subject in ("a", "b")]

    watching = Trigger(NODE, judge, OFTEN)
    new = [each.subject for now in range(200) for each in watching.add(second(now))[0]]
    assert new == ["a", "b"]


def test_an_incident_in_the_first_minute_after_boot_is_one() -> None:
    watching = Trigger(NODE, lambda recording: [Incident("k", "s", SECOND, 2 * SECOND, "")], OFTEN)
    assert [len(watching.add(second(now))[0]) for now in range(7)].count(1) == 1


def test_it_judges_every_few_seconds_and_not_without_a_clock() -> None:
    judged: list[int] = []

    def judge(recording: Recording) -> list[Incident]:
        judged.append(recording.window[1])
        return []

    watching = Trigger(NODE, judge, OFTEN)
    assert watching.add(Recording(NODE)) == ([], [])
    for now in range(30):
        watching.add(second(now))
    assert 5 <= len(judged) <= 6


def asked(watching: Trigger, rows: list[Recording]) -> None:
    for one in rows:
        watching.add(one)


def test_a_quiet_node_is_judged_less_often_and_at_the_full_rate_from_the_first_sign_on() -> None:
    judged: list[int] = []
    found: list[Incident] = []

    def judge(recording: Recording) -> list[Incident]:
        judged.append(recording.window[1] // SECOND)
        return found

    watching = Trigger(NODE, judge, Policy(judge_quiet_s=30.0, judge_same_s=10.0))
    asked(watching, [idle_second(now) for now in range(95)])
    assert judged == [10, 40, 70]
    sign = idle_second(95)
    sign["cgroup_events"].add(95 * SECOND, "rmdir", 4, 77, 2, "/x", 1, "systemd")
    found.append(Incident("k", "s", 95 * SECOND, 96 * SECOND, ""))
    asked(watching, [sign, *(idle_second(now) for now in range(96, 120))])
    assert judged[3:] == [95, 105, 115]  # what was found goes on: no longer a quiet node
    found.clear()
    asked(watching, [idle_second(now) for now in range(120, 200)])
    assert judged[6:] == [125, 155, 185]


def unalarmed() -> tuple[Trigger, list[int]]:
    """One that finds nothing, every ten seconds or fifty, and when it looked."""
    judged: list[int] = []

    def judge(recording: Recording) -> list[Incident]:
        judged.append(recording.window[1] // SECOND)
        return []

    return Trigger(NODE, judge, Policy(judge_same_s=10.0)), judged


def leaking_second(at: int) -> Recording:
    rows = idle_second(at)
    rows["cgroup_events"].add(at * SECOND, "rmdir", 4, at, 2, f"/x{at}", 1, "systemd")
    rows["memcg"].add(at * SECOND, "/", 12, 60_000 + at, 60_012 + at, "proc-cgroups", "node", 1)
    return rows


def test_a_leak_that_goes_on_is_no_sign_of_anything_new_once_a_whole_window_of_it_was_judged() -> None:
    watching, judged = unalarmed()
    asked(watching, [leaking_second(now) for now in range(175)])
    assert judged == [10, 20, 30, 40, 50, 60, 70, 120, 170]
    sign = leaking_second(175)
    sign["events"].add(175 * SECOND, "oom", "memory", "critical", "", ())
    asked(watching, [sign, *(leaking_second(now) for now in range(176, 232))])
    assert judged[9:] == [180, 230]  # another sign is one, and this one went on meanwhile


def test_a_leak_that_begins_anew_is_one() -> None:
    watching, judged = unalarmed()
    leaking = [*range(75), *range(185, 210)]
    asked(watching, [leaking_second(now) if now in leaking else idle_second(now) for now in range(210)])
    assert judged == [10, 20, 30, 40, 50, 60, 70, 120, 170, 185, 195, 205]


def test_zombies_that_come_one_by_one_are_each_a_sign_beside_pods_that_come_and_go_all_day() -> None:
    """Five restarts within a minute are a loop: of one every 14 s a window has so many only at some moments."""
    watching, judged = unalarmed()

    def churn(at: int) -> Recording:
        rows = idle_second(at)
        rows["cgroup_events"].add(at * SECOND, "rmdir", 4, at, 2, f"/x{at}", 1, "systemd")
        rows["memcg"].add(at * SECOND, "/", 12, 60_000 + at // 14, 60_012, "proc-cgroups", "node", 1)
        return rows

    asked(watching, [churn(now) for now in range(300)])
    assert {at for at in range(70, 300) if at % 14 == 0} <= set(judged)


def test_a_service_that_restarts_all_the_time_is_usual_although_it_is_read_every_ten_seconds_only() -> None:
    watching, judged = unalarmed()

    def looping(at: int) -> Recording:
        rows = leaking_second(at)
        if at in reads:
            rows["units"].add(at * SECOND, "ecs.service", "active", "running", 5 * at, "", "", at, "/x", "?")
        return rows

    reads = [at + at // 10 % 2 for at in range(0, 300, 10)]  # the next batch is up to two seconds later
    asked(watching, [looping(now) for now in range(300)])
    assert len(judged) <= 12
    assert judged[-1] - judged[-2] == 50


def test_a_core_that_works_all_day_is_judged_at_the_full_rate() -> None:
    watching, judged = unalarmed()
    asked(watching, [second(now) for now in range(300)])
    assert judged == [*range(10, 300, 10)]


@pytest.mark.parametrize("kind", ["stall", "stall-begins", "nic-tx-timeout", "nic-reset-done"])
def test_it_judges_at_once_what_harms_but_not_twice_within_a_batch(kind: str) -> None:
    judged: list[int] = []

    def judge(recording: Recording) -> list[Incident]:
        judged.append(recording.window[1] // SECOND)
        return []

    watching = Trigger(NODE, judge, OFTEN)
    for now in range(9):
        rows = second(now)
        if now == 7:
            rows["events"].add(now * SECOND, kind, "eth0", "warning", "", ())
        watching.add(rows)
    assert judged[-1] == 7
    assert OFTEN.judge_soon_s * SECOND < EVERY_NS
    rows = second(8)
    rows["events"].add(8 * SECOND + SECOND // 2, kind, "eth0", "warning", "", ())
    watching.add(rows)
    assert judged[-1] == 7
    watching.add(second(9))
    assert judged[-1] == 9  # what had to wait was not forgotten


def test_where_judging_is_dear_a_node_that_stalls_all_the_time_is_judged_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = [0]
    monkeypatch.setattr("exhume.recorder.trigger.time.thread_time_ns", lambda: spent[0])
    judged: list[int] = []

    def judge(recording: Recording) -> list[Incident]:
        spent[0] += 60_000_000  # of 3 s that is 2 %
        judged.append(recording.window[1] // SECOND)
        return []

    watching = Trigger(NODE, judge, OFTEN)
    for now in range(20):
        rows = second(now)
        rows["events"].add(now * SECOND, "stall", "eth0", "warning", "", ())
        watching.add(rows)
    assert judged == [1, 4, 7, 10, 13, 16, 19]


def test_other_events_wait_for_their_turn() -> None:
    rows = second(0)
    for kind in ("clock-step", "oom", "stalled", "mechanic"):
        rows["events"].add(0, kind, "x", "critical", "", ())
    assert not harms(rows)


def test_the_window_holds_a_minute_and_counters_are_carried_from_before_it() -> None:
    seen: list[Recording] = []

    def judge(recording: Recording) -> list[Incident]:
        seen.append(recording)
        return []

    watching = Trigger(NODE, judge, OFTEN)
    watching.add(second(0, resets=7))
    for now in range(1, 150):
        watching.add(second(now, **({"resets": 8} if now == 140 else {})))
    start, end = seen[-1].window
    assert end - start <= WINDOW_NS + SECOND
    resets = seen[-1].counter("resets")
    assert resets is not None
    assert resets.values.tolist() == [7, 8]
    assert resets.times.tolist() == sorted(resets.times.tolist())
    assert resets.times[0] >= start


def test_what_a_source_said_before_the_window_still_holds() -> None:
    seen: list[Recording] = []

    def judge(recording: Recording) -> list[Incident]:
        seen.append(recording)
        return []

    watching = Trigger(NODE, judge, OFTEN)
    rows = second(0)
    rows.add_source(0, "memcg", SourceState("on"))
    watching.add(rows)
    for now in range(1, 150):
        watching.add(second(now))
    assert seen[-1].on("memcg")


def test_zombies_that_were_named_before_the_window_have_their_names_until_they_are_named_anew() -> None:
    seen: list[list[tuple[int, int]]] = []

    def judge(recording: Recording) -> list[Incident]:
        table = recording["memcg_walk"]
        seen.append(list(zip(table.ints("time").tolist(), table.ints("zombies").tolist(), strict=True)))
        return []

    watching = Trigger(NODE, judge, OFTEN)
    for now in range(400):
        rows = second(now)
        if now in (2, 200, 300):
            rows["memcg_walk"].add(
                now * SECOND, "/x/*", "", "/x", now, *[0] * 5, *[""] * 4, 95, "", "bpf-walk", 0, 0, 0, "", ""
            )
        watching.add(rows)
    assert seen[20] == seen[38] == [(2 * SECOND, 2)]
    assert seen[41] == [(2 * SECOND, 2), (200 * SECOND, 200)]
    assert seen[-1] == [(300 * SECOND, 300)]


def test_samples_are_not_held() -> None:
    seen: list[int] = []

    def judge(recording: Recording) -> list[Incident]:
        seen.append(len(recording["samples"]))
        return []

    watching = Trigger(NODE, judge, OFTEN)
    for now in range(10):
        rows = second(now)
        rows["samples"].add(now * SECOND, 0, 1, 1)
        watching.add(rows)
    assert set(seen) == {0}


def test_series_of_cgroups_that_are_gone_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger, "MOST_SERIES", 50)
    last: list[Recording] = []

    def judge(recording: Recording) -> list[Incident]:
        last[:] = [recording]
        return []

    watching = Trigger(NODE, judge, OFTEN)
    for now in range(300):
        rows = second(now, steady=now)
        rows.count(now * SECOND, "throttled", now, labels(cgroup=f"/short-{now}"))
        watching.add(rows)
    assert len(watching._base) <= 50
    assert last[0].counter("steady") is not None


def test_what_is_found_again_and_again_is_judged_less_often_until_it_changes() -> None:
    judged: list[int] = []
    subject = "leak"

    def judge(recording: Recording) -> list[Incident]:
        judged.append(recording.window[1] // SECOND)
        return [Incident("k", subject, *recording.window, "")]

    watching = Trigger(NODE, judge, Policy(judge_quiet_s=10.0))
    for now in range(100):
        watching.add(second(now))
    subject = "another"
    for now in range(100, 160):
        watching.add(second(now))
    apart = [after - before for before, after in pairwise(judged)]
    first = judged.index(next(at for at in judged if at >= 100))
    assert apart[:first] == [10] * 3 + [20] * (first - 3)
    assert first > 4
    assert apart[first:] == [10] * 3 + [20] * (len(apart) - first - 3)
    assert len(apart) > first + 3


def test_a_stall_is_judged_with_its_batch_whatever_was_found_before() -> None:
    judged: list[int] = []

    def judge(recording: Recording) -> list[Incident]:
        judged.append(recording.window[1] // SECOND)
        return [Incident("k", "leak", *recording.window, "")]

    watching = Trigger(NODE, judge, Policy(judge_quiet_s=10.0, judge_same_s=50.0))
    for now in range(60):
        watching.add(second(now))
    rows = second(60)
    rows["events"].add(60 * SECOND, "stall", "eth0", "warning", "", ())
    assert judged[-1] < 58
    watching.add(rows)
    assert judged[-1] == 60


def test_incidents_that_are_long_over_are_forgotten_and_an_old_one_that_is_still_told_is_not_new_again() -> None:
    at = 10**6

    def pods(recording: Recording) -> list[Incident]:
        """A pod of its own is killed each time; and a line that was in the log when we began."""
        now = recording.window[1]
        old = Incident("oom", "/before", SECOND, SECOND, "killed long ago")
        return [Incident("oom", f"/pod{now}", now, now, "killed"), old]

    watching = Trigger(NODE, pods, OFTEN)
    new = [each.subject for step in range(600) for each in watching.add(second(at + step))[0]]
    assert new.count("/before") == 1
    assert len(new) > 100
    assert len(watching._known) <= 2 * WINDOW_NS // EVERY_NS + 2


def test_no_policy_stops_the_judging_or_leaves_a_gap_between_two_windows() -> None:
    judged: list[int] = []

    def judge(recording: Recording) -> list[Incident]:
        judged.append(recording.window[1] // SECOND)
        return []

    watching = Trigger(NODE, judge, Policy(judge_every_s=600.0, judge_quiet_s=600.0, judge_same_s=600.0, judge_share=0.0))
    for now in range(300):
        rows = second(now)
        if now == 20:
            rows["events"].add(now * SECOND, "stall", "eth0", "warning", "", ())
        watching.add(rows)
    assert judged[-1] > 230
    assert max(after - before for before, after in pairwise(judged)) < WINDOW_NS // SECOND
