"""The agent itself: an incident of its own goes out, a reload changes where to, and what waits is in its metrics."""

import os
import signal
from pathlib import Path

import pytest

from exhume.agent.spool import Spool
from tests.agent.agents import agent
from tests.agent.push_reading import otlp, pprof
from tests.agent.push_receiver import Answer, receiving

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="stack samples of the whole node need root")

# One incident, in the third batch; and little patience.
INCIDENT = """
from exhume.agent import push_windows
push_windows.AFTER_NS = 3 * 10**9
from exhume.recorder import verdicts
verdicts.Verdicts.ask = lambda *_: None
from exhume.recorder.trigger import Incident, Trigger
batches = []
def add(self, rows):
    batches.append(rows.window)
    return ([Incident("oom", "somebody", *rows.window, "made")] if len(batches) == 3 else [], [])
Trigger.add = add
"""


@pytest.mark.ci
def test_an_incident_of_the_agent_is_pushed_and_a_reload_changes_where_to(tmp_path: Path) -> None:
    config = tmp_path / "exhume.toml"
    with receiving() as first, receiving() as second:
        config.write_text(f'[agent.push]\nurl = "{first.url}"\nform = "pprof"\n')
        with agent(tmp_path / "r", "--config", str(config), prelude=INCIDENT) as it:
            (came,) = first.wait(1, 60)
            it.until(lambda: it.value("exhume_profiles_pushed_total", outcome="sent") == 1.0)
            it.until(lambda: it.value("exhume_profiles_waiting") == 0.0)
            config.write_text(f'[agent.push]\nurl = "{second.url}"\nform = "otlp"\nevery_s = 2\n')
            it.process.send_signal(signal.SIGHUP)
            (continuous,) = second.wait(1, 60)[:1]
            assert it.end(signal.SIGTERM) == 0
        assert len(first.came) == 1
    assert pprof(came.body).stacks
    found = otlp(continuous.body)
    assert found.resource["service.name"] == "exhume"
    assert sum(found.read.rows.values()) > 0


def test_what_a_receiver_that_is_away_did_not_take_is_there_after_a_restart(tmp_path: Path) -> None:
    away = {"EXHUME_AGENT_PUSH_FORM": "pprof", "EXHUME_AGENT_PUSH_EVERY_S": "2"}
    with (
        receiving(lambda *_: Answer(503)) as receiver,
        agent(tmp_path / "r", environment={**away, "EXHUME_AGENT_PUSH_URL": receiver.url}) as it,
    ):
        it.until(lambda: (it.value("exhume_profiles_waiting") or 0.0) >= 1.0)
        it.until_said("profiles wait to be pushed: 503 Service Unavailable")
        it.end(signal.SIGKILL)
    waited = Spool(str(tmp_path / "r.spool"), 1).waiting()
    assert waited
    with receiving() as receiver:
        environment = {**away, "EXHUME_AGENT_PUSH_EVERY_S": "0", "EXHUME_AGENT_PUSH_URL": receiver.url}
        with agent(tmp_path / "r", environment=environment) as it:
            it.until(lambda: it.value("exhume_profiles_pushed_total", outcome="sent") == len(waited))
            assert it.end(signal.SIGTERM) == 0
        assert [f"{came.headers['idempotency-key']}.push" for came in receiver.came] == waited
