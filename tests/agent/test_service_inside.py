"""The service in this process: what a signal between two recorders, an old log and a failing judge do to it."""

import contextlib
import os
import shutil
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exhume.agent import service as module
from exhume.agent.service import Service
from exhume.agent.settings import Audit, Settings
from exhume.cli import agent
from exhume.diagnosis import detect as detecting
from exhume.diagnosis.findings import core_saturated
from exhume.diagnosis.findings import oom as oom_kills
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Examined, Facts, Finding
from exhume.diagnosis.findings.oom import Oom
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import UsageError
from exhume.recorder.profiles import FLIGHT, Profile
from exhume.recorder.recorder import Options, Recorder, Status
from exhume.recorder.trigger import Incident
from exhume.recorder.verdicts import Case
from exhume.recording.recording import Recording
from exhume.recording.source_state import SourceState
from tests.agent.made import SECOND, batch
from tests.agent.test_http import certificate, credentials, make_certificate, scrape  # noqa: F401
from tests.diagnosis.findings.facts import finding
from tests.diagnosis.made import report
from tests.recorder.test_readers import reading


class Inside:
    """A service that reads nothing but the cores, what it said, and the options of each recorder that it began."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.said: list[str] = []
        self.options: list[Options] = []
        self.on_begin: Callable[[int], None] = lambda _: None
        """Called when a recorder was made, with how many there were before."""
        monkeypatch.setattr(module, "FLIGHT", reading(FLIGHT))
        inside = self

        class Noted(Recorder):
            def __init__(self, root: Any, profile: Profile, options: Options, *rest: Any) -> None:
                super().__init__(root, profile, options, *rest)
                inside.options.append(options)
                inside.on_begin(len(inside.options) - 1)

        monkeypatch.setattr(module, "Recorder", Noted)
        self.settings = Settings(dir=str(path / "r"), listen="127.0.0.1:0", hz=0, latency=False, audit=Audit(every_h=0))
        self.settings = replace(self.settings, **settings)
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


def judge(inside: Inside, recording: Recording) -> list[Incident]:
    """As the trigger does when it is time."""
    return inside.service._session._judge(recording)


def oom(end: int) -> Finding[Facts]:
    return finding(Oom, "critical", "/pod", end=end)


def found(monkeypatch: pytest.MonkeyPatch, *findings: Finding[Facts]) -> None:
    monkeypatch.setattr(detecting, "KINDS", (replace(oom_kills.KIND, detect=lambda *_: Examined(Oom.kind, findings)),))


def test_settings_that_come_while_the_recorder_begins_anew_are_not_lost(inside: Inside) -> None:
    def hup(before: int) -> None:
        if before == 1:  # the second one is made, by options from before
            inside.again(replace(inside.settings, hz=0))

    inside.again(replace(inside.settings, hz=11))
    inside.on_begin = hup
    inside.run(lambda: len(inside.options) > 2)
    assert [options.samples is None for options in inside.options] == [True, False, True]


def test_what_the_log_had_from_before_it_began_is_no_incident_and_no_condition(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed: list[Finding[Facts]] = []
    monkeypatch.setattr(inside.service._cluster, "observe", observed.extend)
    inside.service.gathered.add(batch(100))
    found(monkeypatch, oom(50 * SECOND), new := oom(101 * SECOND))
    inside.service._session._since = 100 * SECOND
    incidents = judge(inside, batch(102))
    assert [incident.end for incident in incidents] == [101 * SECOND]
    assert observed == [new]
    assert inside.value("exhume_findings", "oom", "critical") == 1.0
    found(monkeypatch, oom(50 * SECOND))
    seen = batch(103)
    assert judge(inside, seen) == []
    assert inside.value("exhume_node_health", "unknown") == 1.0  # nobody saw the cores
    seen.add_source(103 * SECOND, "cpu", SourceState("on"))
    assert judge(inside, seen) == []
    assert inside.value("exhume_node_health", "healthy") == 1.0


def test_a_leak_is_no_incident_of_these_kinds_and_the_node_is_not_healthy(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, finding(MemcgLeak, subject="/docker", end=102 * SECOND))
    assert judge(inside, batch(102)) == []
    assert inside.value("exhume_node_health", "warning") == 1.0


def test_an_incident_that_lasts_is_pinned_at_its_begin_and_when_the_agent_ends(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins: list[tuple[int, int]] = []
    monkeypatch.setattr(inside.service._writer, "pin", lambda start, end, _: pins.append((start // SECOND, end // SECOND)))
    for at in range(1000, 5000, 10):
        found(monkeypatch, oom(at * SECOND))
        judge(inside, batch(at))
    assert (min(pins)[0], max(end for _, end in pins)) == (879, 1239)
    inside.run(lambda: True)
    assert pins[-1] == (4870, 5110)
    assert inside.service._writer._retention._pins_go


def test_what_goes_on_is_asked_for_again_unless_verdicts_are_given_up(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(inside.service._session._verdicts, "ask", lambda new, going: asked.append((len(new), len(going))))
    incident = Incident("oom", "/pod", 1, 2, "killed")

    def seen(new: list[Incident]) -> None:
        monkeypatch.setattr(inside.service._session._trigger, "add", lambda _: (new, [incident]))
        inside.service._batch(Status(1, 0, 0, 0, batch(10), 0, 0, 0))

    seen([])
    seen([incident])
    monkeypatch.setattr(type(inside.service._limits), "given_up", ("verdicts",))
    seen([incident])
    assert asked == [(0, 1), (1, 1)]


def test_a_verdict_that_was_said_before_is_in_the_metrics_as_of_now(inside: Inside) -> None:
    case = Case(Incident("oom", "/pod", 1, 2, "killed"), renewed=True)
    inside.service._session._verdicts._given(case, report(cause="memcg-walk", subject="/ecs", summary="s"))
    assert (inside.value("exhume_verdict_timestamp_seconds") or 0.0) > 1_700_000_000.0
    assert inside.said == []


def test_verdicts_that_fail_are_counted_and_why_is_said_once(inside: Inside) -> None:
    assert inside.value("exhume_verdicts_failed_total") == 0.0
    for _ in range(2):
        inside.service._session._verdicts._trouble("no verdict: it took more than 60 s")
    assert inside.value("exhume_verdicts_failed_total") == 2.0
    assert inside.said == ["no verdict: it took more than 60 s"]


def test_a_disk_that_is_full_for_the_second_time_is_told_again(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(inside.service._tell, "_clock", lambda: now)
    for _ in range(5):
        inside.service._writer._tell("disk full")
        inside.service._batch(Status(1, 0, 0, 0, batch(10), 0, 0, 0))
    assert inside.said.count("disk full") == 1
    now = 10_000.0
    inside.service._batch(Status(1, 0, 0, 0, batch(10), 0, 0, 0))
    assert inside.said.count("disk full") == 1
    inside.service._writer._tell("disk full")
    inside.service._batch(Status(1, 0, 0, 0, batch(10), 0, 0, 0))
    assert inside.said.count("disk full") == 2


def test_a_detector_that_fails_is_told_and_the_others_go_on(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Examined:
        raise ZeroDivisionError("no cores")

    found(monkeypatch, oom(101 * SECOND))
    sees = vars(detecting)["KINDS"]
    monkeypatch.setattr(detecting, "KINDS", (replace(core_saturated.KIND, detect=fails), *sees))
    at = "exhume_agent_judged_timestamp_seconds"
    assert (inside.value(at) or 0.0) > 1_700_000_000.0  # it begins with the agent
    inside.service.gathered.set(at, 0.0)
    for _ in range(2):
        assert len(judge(inside, batch(102))) == 1
    assert inside.said == ["could not judge core-saturated (ZeroDivisionError: no cores); the others go on"]
    assert inside.value(at) == 0.0
    monkeypatch.setattr(detecting, "KINDS", sees)
    assert len(judge(inside, batch(103))) == 1
    assert (inside.value(at) or 0.0) > 1_700_000_000.0


def test_another_policy_or_no_audit_is_for_the_next_one(inside: Inside) -> None:
    def audits(**settings: Any) -> list[str]:
        inside.again(replace(inside.settings, audit=Audit(**settings)))
        return list(inside.service._recurring._command)

    assert audits(every_h=24) == ["audit"]
    began = inside.value("exhume_audit_timestamp_seconds")
    assert began is not None  # one that never comes is late from now on
    assert audits(every_h=24, policy="/etc/p.toml") == ["audit", "--policy", "/etc/p.toml"]
    assert inside.value("exhume_audit_timestamp_seconds") == began
    inside.service._audited({"units": [], "drift": [{"kind": "new"}]}, "")
    assert inside.value("exhume_audit_drift", "new") == 1.0
    same = inside.service._recurring
    assert audits(every_h=24, policy="/etc/p.toml")
    assert inside.service._recurring is same
    assert audits(every_h=0) == []
    for name in ("exhume_audit_units", "exhume_audit_drift", "exhume_audit_timestamp_seconds"):
        assert inside.service.gathered.values[name] == {}


def test_why_there_is_no_audit_is_said_each_time(inside: Inside) -> None:
    for _ in range(2):
        inside.service._audited(None, "the policy is gone")
    assert inside.said == ["no audit: the policy is gone"] * 2


def test_a_password_and_a_certificate_that_were_replaced_are_taken_and_wrong_ones_change_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    certificate: tuple[str, str],  # noqa: F811
) -> None:
    auth, cert, key = (tmp_path / name for name in ("auth", "tls.crt", "tls.key"))
    auth.touch(0o600)
    auth.write_text("a:first\n")
    for of in (cert, key):
        shutil.copy(certificate[of == key], of)
    trusts = ssl.create_default_context(cafile=certificate[0])
    inside = Inside(tmp_path, monkeypatch, auth_file=str(auth), tls_cert=str(cert), tls_key=str(key))
    try:
        assert scrape(inside.service.door.address, trusts, credentials(b"a:first"))[0] == 200
        make_certificate(cert, key)
        auth.write_text("a:second\n")
        inside.again(inside.settings)
        with pytest.raises(ssl.SSLCertVerificationError):
            scrape(inside.service.door.address, trusts)
        trusts = ssl.create_default_context(cafile=str(cert))
        for word, status in ((b"a:first", 401), (b"a:second", 200)):
            assert scrape(inside.service.door.address, trusts, credentials(word))[0] == status
        shutil.copy(certificate[1], key)  # of the other certificate
        with pytest.raises(UsageError, match="cannot be used"):
            inside.again(replace(inside.settings, hz=23))
        assert inside.service.settings.hz == 0
        assert scrape(inside.service.door.address, trusts, credentials(b"a:second"))[0] == 200
    finally:
        inside.run(lambda: True)


def test_a_recorder_that_never_brings_anything_is_not_healthy(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inside.service._healthy("")[0] == 200
    monkeypatch.setattr(module, "STUCK_S", -1.0)
    seen: list[int] = []

    def stop() -> bool:
        seen.append(inside.service._healthy("")[0])
        return True

    inside.run(stop)
    assert seen == [503]


def test_what_cannot_be_said_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", os.fdopen(full, "w", buffering=1, closefd=False))
            agent._say("nowhere to go")
    finally:
        os.close(full)
    read, write = os.pipe()
    os.close(read)
    gone = os.fdopen(write, "w", buffering=1)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", gone)
        agent._say("nobody listens")
        with contextlib.suppress(OSError):
            gone.close()
        agent._say("nor now")
