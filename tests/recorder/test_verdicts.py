"""Verdicts while the recorder runs: which incident is worked on when, what is told, and that nothing waits for a child."""

import json
import os
import sys
import threading
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.report import Health, Report, as_json, from_json
from exhume.recorder.policy import DEFAULT, Policy
from exhume.recorder.trigger import Incident
from exhume.recorder.verdicts import NICE, Agenda, Case, Verdicts
from tests.diagnosis import made

RETRY_S, APART_S, RENEW_S = DEFAULT.verdict_retry_s, DEFAULT.verdict_apart_s, DEFAULT.verdict_renew_s
SAME_S, TRIES = DEFAULT.verdict_same_s, DEFAULT.verdict_tries


def incident(kind: str = "napi-starved", subject: str = "eth0", severity: str = "warning") -> Incident:
    return Incident(kind, subject, 1, 2, "late", severity)


def report(cause: str | None = "memcg-leak", subject: str = "/docker", health: Health = "critical", end: str = "") -> Report:
    return made.report(cause=cause, subject=subject, health=health, summary="s", end=end)


def printed(found: Report) -> str:
    return json.dumps(as_json(found))


def test_a_new_incident_is_worked_on_at_once_and_the_same_again_after_a_minute() -> None:
    agenda = Agenda()
    assert agenda.take(100.0) is None
    agenda.ask([incident()], 100.0)
    assert agenda.take(100.0) == Case(incident())
    agenda.ask([incident()], 130.0)
    assert agenda.take(130.0) is None
    agenda.ask([incident()], 100.0 + SAME_S)
    assert agenda.take(100.0 + SAME_S) == Case(incident())


def test_all_that_wait_are_answered_by_one_for_the_worst_of_them() -> None:
    agenda = Agenda()
    worst = incident("nic-reset", severity="critical")
    agenda.ask([incident(), worst, incident("core-saturated", "core 1")], 10.0)
    assert agenda.take(10.0) == Case(worst)
    assert agenda.due() is None


def test_two_are_some_seconds_apart() -> None:
    agenda = Agenda()
    agenda.ask([incident()], 10.0)
    agenda.take(10.0)
    agenda.ask([incident(subject="eth1")], 10.5)
    assert agenda.take(10.5) is None
    assert agenda.due() == 10.0 + APART_S
    assert agenda.take(10.0 + APART_S) == Case(incident(subject="eth1"))


def test_one_without_a_cause_is_tried_again_until_it_has_one() -> None:
    agenda = Agenda()
    agenda.ask([incident()], 0.0)
    case, now, attempts = agenda.take(0.0), 0.0, []
    while case is not None:
        attempts.append((case.attempt, now))
        told = agenda.done(case, report(None, "eth0"), now + 1)
        assert told is (case.attempt == 1)
        assert agenda.take(now + 1) is None
        now += 1 + RETRY_S
        case = agenda.take(now)
    assert attempts == [(1, 0.0), (2, 1 + RETRY_S), (3, 2 * (1 + RETRY_S))]
    assert len(attempts) == TRIES


def test_a_cause_that_is_found_later_is_told_and_ends_it() -> None:
    agenda = Agenda()
    agenda.ask([incident()], 0.0)
    first = agenda.take(0.0)
    assert first is not None
    assert agenda.done(first, report(None, "eth0"), 1.0)
    again = agenda.take(1.0 + RETRY_S)
    assert again == Case(incident(), 2)
    assert agenda.done(again, report(), 8.0)
    assert agenda.due() is None


def test_the_same_verdict_is_told_once_a_minute_and_no_verdict_not_at_all() -> None:
    agenda = Agenda()
    case = Case(incident())
    assert [agenda.done(case, report(), at) for at in (0.0, 30.0, SAME_S, SAME_S + 1)] == [
        True,
        False,
        True,
        False,
    ]
    assert agenda.done(case, report("reclaim"), 31.0)
    assert not agenda.done(case, report(None, "", "healthy"), 32.0)
    assert not agenda.done(case, report(None, "", "unknown"), 33.0)


def test_one_that_does_not_come_is_tried_again_as_one_without_a_cause_is() -> None:
    agenda = Agenda()
    agenda.ask([incident()], 0.0)
    now, attempts = 0.0, []
    while (case := agenda.take(now)) is not None:
        attempts.append(case.attempt)
        agenda.failed(case, now + 60.0)
        assert agenda.due() in (None, now + 60.0 + RETRY_S)
        now += 60.0 + RETRY_S
    assert attempts == [1, 2, 3]


def test_what_goes_on_is_judged_anew_every_ten_minutes_once_and_told_when_it_has_changed() -> None:
    agenda = Agenda()
    taken: list[tuple[int, Case]] = []
    told: list[int] = []
    for now in range(0, 3600, 10):
        agenda.ask([incident()] if not now else [], now)
        agenda.renew([incident(), incident("nic-reset", severity="critical")], now)
        if (case := agenda.take(now)) is not None:
            taken.append((now, case))
            cause = None if now == 1200 else "memcg-leak"
            if agenda.done(case, report(cause), now + 1):
                told.append(now)
    worst = Case(incident("nic-reset", severity="critical"), renewed=True)
    assert taken == [(0, Case(incident())), *((round(RENEW_S) * turn, worst) for turn in range(1, 6))]
    assert told == [0, 1200, 1800]
    agenda.renew([], 10_000.0)
    assert agenda.due() is None


def test_where_something_new_was_judged_what_goes_on_need_not_be() -> None:
    agenda = Agenda()
    agenda.ask([incident()], 0.0)
    agenda.take(0.0)
    agenda.ask([incident(subject="eth1")], 500.0)
    assert agenda.take(500.0) is not None
    agenda.renew([incident()], 700.0)
    assert agenda.due() is None
    agenda.renew([incident()], 500.0 + RENEW_S)
    assert agenda.take(500.0 + RENEW_S) == Case(incident(), renewed=True)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 20)), max_size=60))
def test_however_they_come_no_two_are_closer_and_none_is_repeated_within_a_minute(asked: list[tuple[str, float]]) -> None:
    agenda, now = Agenda(), 0.0
    taken: list[tuple[float, str]] = []
    for subject, wait in asked:
        now += wait
        agenda.ask([incident(subject=subject)], now)
        if (case := agenda.take(now)) is not None:
            taken.append((now, case.incident.subject))
    assert all(later - earlier >= APART_S for (earlier, _), (later, _) in pairwise(taken))
    for number, (at, subject) in enumerate(taken):
        assert not any(other == subject and later - at < SAME_S - APART_S * 7 for later, other in taken[number + 1 :])


class Listener:
    def __init__(self) -> None:
        self.told: list[tuple[Case, Report]] = []
        self.troubles: list[str] = []
        self.heard = threading.Event()

    def tell(self, case: Case, found: Report) -> None:
        self.told.append((case, found))
        self.heard.set()

    def trouble(self, what: str) -> None:
        self.troubles.append(what)
        self.heard.set()


def started(script: str, listener: Listener, policy: Policy = DEFAULT) -> Verdicts[Report]:
    return Verdicts([sys.executable, "-S", "-c", script], from_json, listener.tell, listener.trouble, policy=policy)


def test_a_child_at_low_priority_tells_its_verdict() -> None:
    listener = Listener()
    wait = "import os, sys, time\nfor _ in range(500):\n if os.nice(0) >= 10: break\n time.sleep(.01)\n"
    found = printed(report(subject="nice %d")).replace('"summary": "s"', '"summary": "%s"')
    watching = started(f"{wait}print({found!r} % (os.nice(0), 'x' * 500_000))", listener)
    watching.ask([incident()])
    assert listener.heard.wait(30)
    watching.finish()
    ((case, told),) = listener.told
    assert case == Case(incident())
    assert told.verdict.subject == f"nice {os.nice(0) + NICE}"
    assert len(told.verdict.summary) == 500_000
    assert listener.troubles == []


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import sys; sys.exit('exhume: that is no recording')", "no verdict: exhume: that is no recording"),
        ("print('{}')", "no verdict: exit code 0"),
        ("print('[1, 2]')", "no verdict: exit code 0"),
        ("import sys; sys.stderr.buffer.write(b'\\x1b[31m\\xff'); sys.exit(3)", "no verdict: \\x1b[31m\\xff"),
    ],
)
def test_a_child_that_fails_is_a_sentence(script: str, says: str) -> None:
    listener = Listener()
    watching = started(script, listener)
    watching.ask([incident()])
    assert listener.heard.wait(30)
    watching.finish()
    assert (listener.troubles, listener.told) == ([says], [])


def test_a_child_that_fails_is_run_again_and_each_verdict_is_given_where_only_the_first_is_told(
    tmp_path: Path,
) -> None:
    policy = Policy(verdict_retry_s=0.01, verdict_apart_s=0.01, verdict_renew_s=0.5)
    mark, found = tmp_path / "tried", printed(report())
    first = f"import os, sys\nif not os.path.exists({str(mark)!r}):\n open({str(mark)!r}, 'w').close(); sys.exit('not now')\n"
    listener, given = Listener(), threading.Semaphore(0)
    command = [sys.executable, "-S", "-c", f"{first}print({found!r})"]
    watching = Verdicts(command, from_json, listener.tell, listener.trouble, lambda *_: given.release(), policy)
    watching.ask([incident()])
    assert given.acquire(timeout=300)
    for _ in range(600):
        watching.ask([], [incident()])
        if given.acquire(timeout=0.05):
            break
    else:
        pytest.fail("it was not renewed")
    watching.finish()
    assert listener.troubles == ["no verdict: not now"]
    assert [case.attempt for case, _ in listener.told] == [2]


@pytest.mark.parametrize(("late_s", "tells"), [(-1.0, True), (2.0, True), (3600.0, False)])
def test_a_report_of_what_was_written_before_the_incident_is_no_verdict_on_it(late_s: float, tells: bool) -> None:
    end = "2026-11-17T06:00:00.250Z"
    began = datetime.fromisoformat(end).timestamp() + late_s
    listener = Listener()
    watching = started(f"print({printed(report(end=end))!r})", listener)
    watching.ask([incident()._replace(real_ns=round(began * 1e9))])
    assert listener.heard.wait(30)
    watching.finish()
    assert bool(listener.told) is tells
    assert listener.troubles == ([] if tells else [f"no verdict: the recording ends at {end}, before what was found now"])


def test_a_program_that_is_not_there_is_a_sentence() -> None:
    listener = Listener()
    watching = Verdicts(["/nowhere/python"], from_json, listener.tell, listener.trouble)
    watching.ask([incident()])
    assert listener.heard.wait(30)
    watching.finish()
    assert listener.troubles[0].startswith("no verdict: /nowhere/python cannot be run: No such file or directory")


def test_asking_returns_while_a_child_works_and_the_end_does_not_wait_for_one_that_hangs(tmp_path: Path) -> None:
    listener = Listener()
    mark = tmp_path / "begun"
    watching = started(f"import time; open({str(mark)!r}, 'w').close(); time.sleep(600)", listener)
    watching.ask([incident()])
    for _ in range(600):
        if mark.exists():
            break
        threading.Event().wait(0.05)
    assert mark.exists()
    watching.ask([incident(subject="eth1")])
    watching.finish(patience_s=0.2)
    assert not watching._thread.is_alive()
    assert (listener.told, listener.troubles) == ([], [])


def test_a_child_that_takes_too_long_is_ended() -> None:
    listener = Listener()
    watching = started("import time; time.sleep(600)", listener, Policy(verdict_timeout_s=0.3))
    watching.ask([incident()])
    assert listener.heard.wait(30)
    watching.finish()
    assert listener.troubles == ["no verdict: it took more than 300 ms"]
