"""A real Prometheus scrapes a real agent: of this machine as it is, and while the lab makes the incident on it."""

from pathlib import Path

import pytest

from exhume.agent.dashboards import DASHBOARDS
from exhume.agent.rules import Making, printed
from exhume.agent.rules_agent import ALERTS
from exhume.lab import workshop
from exhume.lab.scenario import Settings
from exhume.lab.scenarios.starvation import SCENARIOS
from tests.agent.agents import agent
from tests.agent.prometheus import needs, prometheus, promtool, until
from tests.agent.test_dashboards import queries
from tests.lab.runs import needs_root

pytestmark = pytest.mark.ci

# Five minutes are 30 s then, in which the agent's own minute does not become shorter.
SPEED = 10.0
SCALE = 3000
FOR_S = {alert.name: alert.for_s for alert in ALERTS}
# What the lab's incident makes of itself on any kernel, and what depends on whether the source of the leak can be named.
ALWAYS = {"ExhumeZombieMemoryCgroups", "ExhumeCoreSaturated", "ExhumeNapiStarving"}
MAYBE = {"ExhumeNicResetExplained", "ExhumeNicResetUnexplained", "ExhumeCrashLoopLeaks", "ExhumeMemoryCgroupLeak"}


def test_every_rule_and_every_query_can_be_evaluated(tmp_path: Path) -> None:
    with (
        agent(tmp_path / "recording") as real,
        prometheus(tmp_path, printed("agent", Making(speed=15)), {"n1": real.url.removeprefix("http://")}) as server,
    ):
        until(lambda: server.query("exhume_agent_batches_total > 1"), "the agent's recorder has brought something")
        until(lambda: {rule["health"] for rule in server.rules()} == {"ok"}, "every rule was evaluated, and none failed")
        assert not [rule for rule in server.rules() if rule.get("lastError")]
        for which in DASHBOARDS:
            for query in queries(which):
                server.query_range(query, 10, 1)  # fails if Prometheus does
        # What any Linux has.
        for name in ("exhume_source_up", "exhume_node_health", "exhume_build_info", "exhume_core_saturated_seconds_total"):
            assert server.query(f'{name}{{instance="n1"}}'), name
        checked = promtool("check", "metrics", given=real.get("/metrics")[1].encode())
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert not checked.stdout + checked.stderr


@pytest.mark.ci
@needs_root
def test_the_labs_incident_makes_its_alerts_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("prometheus")
    (scenario,) = SCENARIOS
    if why := scenario.missing():
        pytest.skip(why)
    monkeypatch.setenv(workshop.SWITCH, "1")
    environment = {"EXHUME_AGENT_LATENCY": "1", workshop.SWITCH: "1"}
    with (
        workshop.Lab() as lab,
        scenario.make(lab, Settings(120, SCALE)),
        agent(tmp_path / "recording", "--log-root", str(lab.home), environment=environment) as real,
        prometheus(
            tmp_path, printed("agent", Making(speed=SPEED)), {"n1": real.url.removeprefix("http://")}, "1500ms", "30s"
        ) as server,
    ):
        until(lambda: server.query("exhume_agent_batches_total > 1"), "the agent's recorder has brought something")
        if off := server.query('exhume_source_up{source=~"latency|memcg|cpu"} == 0'):
            pytest.skip(f"what starves cannot be seen here: {off}, {real.text}")
        until(lambda: server.alerts("firing") >= ALWAYS, "what starves is told, and goes on")
        told = server.history("n1")
        fired = {name for name, state in told if state == "firing"}
        assert fired <= ALWAYS | MAYBE, told
        for name in fired:
            assert told[name, "firing"][0] - told[name, "pending"][0] >= FOR_S[name] / SPEED - 0.001, name
