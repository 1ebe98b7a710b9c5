"""The session of `record --on` and the agent: what is pinned, reported and asked for while a recorder runs."""

from typing import cast

import pytest

from exhume.diagnosis.report import Report
from exhume.recorder.policy import Policy
from exhume.recorder.session import Session
from exhume.recorder.trigger import Incident
from exhume.recorder.verdicts import Verdicts
from exhume.recording.recording import Node, Recording
from tests.recorder.test_trigger import second

SECOND = 1_000_000_000
NODE = Node("node-7", "boot", "6.1", "v1", 2)


class Store:
    def __init__(self) -> None:
        self.pins: list[tuple[int, int]] = []

    def pin(self, start: int, end: int, reason: str) -> None:
        self.pins.append((start // SECOND, end // SECOND))


class Asked:
    """Stands for the thread that waits for diagnoses."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def ask(self, new: list[Incident], going: list[Incident]) -> None:
        if new or going:
            self.asked.append((len(new), len(going)))


class Running:
    def __init__(self, found: list[Incident] | Exception) -> None:
        self.found, self.store, self.verdicts = found, Store(), Asked()
        self.reported: list[str] = []
        self.since: list[int] = []
        self.new: list[Incident] = []
        self.session = Session(
            NODE,
            self.store,
            self._detect,
            _verdicts(self.verdicts),
            self.reported.append,
            Policy(judge_every_s=5, judge_quiet_s=5, judge_same_s=5),
            60 * SECOND,
            self.new.append,
        )

    def _detect(self, recording: Recording, since: int) -> list[Incident]:
        self.since.append(since)
        if isinstance(self.found, Exception):
            raise self.found
        now = recording.window[1]
        return [one._replace(end=now) for one in self.found]

    def run(self, start: int, end: int) -> None:
        for at in range(start, end):
            self.session.see(second(at))


def _verdicts(asked: Asked) -> Verdicts[Report]:
    return cast(Verdicts[Report], asked)


def test_an_incident_that_goes_on_all_day_is_pinned_at_its_beginning_and_at_its_end() -> None:
    running = Running([Incident("core-saturated", "core 3", 1000 * SECOND, 0, "full")])
    running.run(1000, 5000)
    pinned = {second for start, end in running.store.pins for second in range(start, end)}
    assert (min(pinned), max(pinned)) == (940, 1119)
    running.session.end()
    pinned |= {second for start, end in running.store.pins for second in range(start, end)}
    assert max(pinned) == pytest.approx(4999 + 60, abs=6)
    assert 2000 not in pinned


def test_an_incident_is_new_once_and_is_shown_to_the_verdicts_while_it_goes_on() -> None:
    running = Running([Incident("core-saturated", "core 3", 100 * SECOND, 0, "full")])
    running.run(100, 200)
    assert [one.subject for one in running.new] == ["core 3"]
    assert running.session.incidents == 1
    assert running.verdicts.asked[0] == (1, 1)
    assert {*running.verdicts.asked[1:]} == {(0, 1)}  # so that its verdict is renewed


def test_without_diagnoses_incidents_are_pinned_all_the_same() -> None:
    running = Running([Incident("core-saturated", "core 3", 100 * SECOND, 0, "full")])
    running.session.diagnoses = False
    running.run(100, 200)
    assert running.verdicts.asked == []
    assert running.store.pins


def test_detection_that_fails_is_reported_and_the_recorder_goes_on() -> None:
    running = Running(ZeroDivisionError("by \x1b[31mzero"))
    running.run(100, 120)
    assert len(running.reported) > 1  # it is for whoever is told to say it once
    assert {*running.reported} == {"could not judge (ZeroDivisionError: by \\x1b[31mzero); the recording goes on"}


def test_what_was_before_the_first_batch_is_not_asked_for() -> None:
    running = Running([])
    running.run(100, 130)
    assert {*running.since} == {100 * SECOND}
