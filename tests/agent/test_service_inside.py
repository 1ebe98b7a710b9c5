"""The service in this process: what a signal between two recorders, an old log and a failing judge do to it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exhume.agent import service as module
from exhume.agent.service import Service
from exhume.agent.settings import Audit, Settings
from exhume.findings.model import Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recorder import sources
from exhume.recorder.flight import Flight, Options
from tests.agent.made import SECOND, batch


class Inside:
    """A service that reads nothing but the cores, what it said, and the options of each recorder that it began."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.options: list[Options] = []
        self.on_begin: Callable[[int], None] = lambda _: None
        """Called when a recorder was made, with how many there were before."""
        monkeypatch.setattr(sources, "flight", lambda *_: [])
        inside = self

        class Noted(Flight):
            def __init__(self, root: Any, options: Options, *rest: Any) -> None:
                super().__init__(root, options, *rest)
                inside.options.append(options)
                inside.on_begin(len(inside.options) - 1)

        monkeypatch.setattr(module, "Flight", Noted)
        self.settings = Settings(dir=str(path / "r"), listen="127.0.0.1:0", hz=0, latency=False, audit=Audit(every_h=0))
        self.service = Service(self.settings, Thresholds(), ("oom",), self.said.append, ["false"], ["audit"])

    def again(self, settings: Settings) -> None:
        self.service.begin_again(settings, Thresholds(), ("oom",))

    def run(self, stop: Callable[[], bool]) -> None:
        self.service.run(stop)

    def value(self, name: str, *labels: str) -> float | None:
        return self.service.gathered.values[name].get(labels)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    made = Inside(tmp_path, monkeypatch)
    yield made
    made.run(lambda: True)


def oom(end: int) -> Finding:
    return Finding("oom", "/pod", "critical", end - 1, end, "a process was killed", ())


def found(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(module, "examine", lambda *_: [Examined("oom", findings)])


def test_settings_that_come_while_the_recorder_begins_anew_are_not_lost(inside: Inside) -> None:
    def hup(before: int) -> None:
        if before == 1:  # the second one is made, by options from before
            inside.again(replace(inside.settings, user_stacks="none"))

    inside.again(replace(inside.settings, user_stacks="all"))
    inside.on_begin = hup
    inside.run(lambda: len(inside.options) > 2)
    assert [options.kernel_only for options in inside.options] == [True, False, True]


def test_what_the_log_had_from_before_it_began_is_no_incident_and_no_condition(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed: list[Finding] = []
    monkeypatch.setattr(inside.service._cluster, "observe", observed.extend)
    inside.service.gathered.add(batch(100))
    found(monkeypatch, oom(50 * SECOND), new := oom(101 * SECOND))
    incidents = inside.service._judge(batch(102))
    assert [incident.end for incident in incidents] == [101 * SECOND]
    assert observed == [new]
    assert inside.value("exhume_findings", "oom", "critical") == 1.0
    found(monkeypatch, oom(50 * SECOND))
    assert inside.service._judge(batch(103)) == []
    assert inside.value("exhume_node_health", "healthy") == 1.0
