"""Incidents of the overview: those that could not be judged are no good news, and the end of a recording is judged, too."""

import threading
from pathlib import Path
from typing import Any

import pytest

from exhume.diagnosis.report import Report
from exhume.recording.folder import Folder
from exhume.web import judging
from exhume.web import store as store_module
from exhume.web.incidents import Incidents
from exhume.web.judging import Judges
from exhume.web.store import Store
from exhume.web.view import View
from tests.recording.made import second, writer
from tests.web.serving import browser

ONE = {"start": 1, "end": 2, "health": "critical", "cause": None, "subject": "", "summary": "", "judged": True}


def _told(incidents: Incidents, store: Store) -> tuple[bool, bool, list[dict[str, Any]]]:
    overview = browser(View(store, None, incidents)).api("overview", columns=2)
    return overview["incidents_ready"], overview["incidents_failed"], overview["incidents"]


def test_what_could_not_be_judged_is_told_and_tried_again(recorded: str) -> None:
    store = Store(Folder(recorded), "x")
    answers: list[list[dict[str, Any]] | None] = [None, None, [ONE]]
    incidents = Incidents(store, lambda *_: answers.pop(0))
    assert _told(incidents, store) == (False, False, [])
    for _ in range(2):
        incidents.look()
        assert _told(incidents, store) == (False, True, [])
    incidents.look()
    assert _told(incidents, store) == (True, False, [ONE])
    incidents.look()
    assert not answers  # nothing is new


def test_a_process_that_fails_is_no_verdict(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was killed for its memory, or one whose answer is cut off."""
    store = Store(Folder(recorded), "x")
    monkeypatch.setattr("exhume.web.children.begin", lambda *_: pytest.fail("it was not to be tried"))
    monkeypatch.setattr(Judges, "verdict", lambda *_: None)
    incidents = Incidents(store)
    incidents.look()
    assert (incidents.ready, incidents.failed) == (False, True)


def test_the_last_stretch_of_a_recording_is_judged_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_LOOK_AGAIN_S", 0.0)
    writing = writer(tmp_path / "r")
    writing.append(second(0, names=True))
    store = Store(Folder(str(tmp_path / "r")), "x")
    ends: list[int] = []
    incidents = Incidents(store, lambda _store, _start, end: ends.append(end) or [])  # type: ignore[func-returns-value]
    incidents.look()
    writing.append(second(5))
    writing.settle()
    incidents.look()  # five seconds are not enough to look again
    assert len(ends) == 1
    writing.close()
    incidents.look()
    incidents.look()
    assert len(ends) == 2
    assert ends[1] == store.window(store.folder)[1]


def test_a_verdict_on_all_of_it_and_its_incidents_are_one_work(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(Folder(recorded), "x")
    incidents = Incidents(store)
    incidents.look()
    assert incidents.ready
    monkeypatch.setattr(judging, "verdict", lambda *_: pytest.fail("it is known"))
    someone = browser(View(store, None, incidents))
    about = someone.api("about")
    start = int(about["start_ns"])
    whole = someone.api("verdict", from_=start, to=start + about["duration_us"] * 1000)
    assert whole["schema"] == "exhume.report/2"
    assert someone.api("verdict") == whole


def test_incidents_that_were_not_judged_are_marked_as_such(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import exhume.diagnosis.diagnose as diagnosing

    folder = Folder(recorded)
    start, end = folder.window
    real = diagnosing.diagnose_folder

    def with_further(*given: Any) -> Report:
        from dataclasses import replace

        report = real(*given)
        return replace(report, further=((start, end),), more=3, times=report.times | {start: "", end: ""})

    monkeypatch.setattr(diagnosing, "diagnose_folder", with_further)
    store = Store(folder, "x")
    document = judging.verdict(folder, store.thresholds, start, start, end)
    assert document["incidents_not_judged"][0]["start_us"] == 0
    monkeypatch.setattr(Judges, "verdict", lambda *_: document)
    incidents = Incidents(store)
    incidents.look()
    told = browser(View(store, None, incidents)).api("overview")
    (further,) = [one for one in told["incidents"] if not one["judged"]]
    assert (further["start"], further["health"], further["cause"]) == (0, "warning", None)
    assert further["summary"].startswith("not judged by itself")
    assert told["incidents_more"] == 3


def test_a_process_that_nobody_waits_for_is_ended(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    began = threading.Event()

    def sleeping(*_: object) -> "subprocess.Popen[bytes]":
        began.set()
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=pipe, stdout=pipe)

    monkeypatch.setattr("exhume.web.children.begin", sleeping)
    store, judges, unwanted = Store(Folder(recorded), "x"), Judges(), threading.Event()
    found: list[object] = []

    def ask() -> None:
        found.append(judges.verdict(store.whole, store.thresholds, 0, 0, 1, unwanted))

    asking = threading.Thread(target=ask)
    asking.start()
    assert began.wait(120)
    judges.end_unwanted()  # it is wanted yet
    asking.join(0.2)
    assert asking.is_alive()
    unwanted.set()
    judges.end_unwanted()
    asking.join(120)
    assert found == [None]
    assert judges.verdict(store.whole, store.thresholds, 0, 0, 1, unwanted) is None
