"""A real Prometheus scrapes the agent, keeps the time of the alerts and hands them to a real Alertmanager.

Everything runs a hundred times as fast: ranges, `for`, scrapes and evaluations by the same factor, so that an hour is 36 s.
Nothing is measured by this machine's clock; what came when is asked of Prometheus, in evaluations.
"""

import http.server
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exhume.agent.dashboards import DASHBOARDS
from exhume.agent.rules import SCRAPE_S, Making, printed
from exhume.agent.rules_agent import ALERTS
from exhume.agent.rules_fleet import RECORDS
from tests.agent.played import Played
from tests.agent.prometheus import Prometheus, alertmanager, get, prometheus, promtool, until
from tests.agent.test_dashboards import queries
from tests.incidents.zombies import as_published

pytestmark = pytest.mark.ci

SPEED = 100.0
# Twice the usual 15 s, which the rules are to bear as well.
INTERVAL_S = 0.3
FAST = Making(speed=SPEED)
FOR_S = {alert.name: alert.for_s for alert in ALERTS}
# What the published incident is to make of itself within ten minutes, and what takes an hour.
SOON = {
    "ExhumeZombieMemoryCgroups", "ExhumeCoreSaturated", "ExhumeNapiStarving", "ExhumeNicResetExplained", "ExhumeCrashLoopLeaks",
}  # fmt: skip
LATER = {"ExhumeMemoryCgroupLeak"}


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Where Alertmanager sends to: an address, and what has come."""
    came: list[dict[str, Any]] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            came.extend(body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/", came
        finally:
            server.shutdown()
            thread.join(120)


def evaluations(server: Prometheus, since: float = 0.0) -> list[float]:
    """When the rules were evaluated: one of them always gives a sample."""
    found = server.query("fleet:exhume_agents_up:ratio[10m]")
    return [at for at, _ in found[0]["values"] if at > since] if found else []


def pass_by(server: Prometheus, seconds: float) -> None:
    """So much of the rules' time, in evaluations."""
    count = math.ceil(seconds / SCRAPE_S)
    begun = (evaluations(server) or [0.0])[-1]
    until(lambda: len(evaluations(server, begun)) >= count, f"{count} evaluations")


def test_an_incident_makes_its_alerts_and_a_blip_makes_none(tmp_path: Path) -> None:
    node, blip = Played(step_s=INTERVAL_S * SPEED), Played(step_s=INTERVAL_S * SPEED)
    incident = as_published().recording
    with (
        node.served() as address,
        blip.served() as other,
        webhook() as (url, came),
        alertmanager(tmp_path, url) as manager,
        prometheus(
            tmp_path,
            printed("agent", FAST),
            {"n1": address, "n2": other},
            f"{INTERVAL_S * 1000:.0f}ms",
            "3s",
            manager.url.removeprefix("http://"),
        ) as server,
    ):
        pass_by(server, 60)
        assert {rule["health"] for rule in server.rules()} == {"ok"}
        assert len(server.rules()) == len(ALERTS) + len(RECORDS)
        assert not server.history("n1")

        # Half a minute of everything but a reset: the agent finds it for a minute and a half.
        blip.show(incident, 300, reset=False)
        pass_by(server, 90)
        blip.quieten()

        node.show(incident, 68_440, per_second=0.1)
        until(lambda: server.alerts("firing") >= SOON, "every alert of the incident fires")
        until(lambda: server.alerts("pending") >= LATER, "the leak waits for its hour")
        pass_by(server, 30)
        told = server.history("n1")
        assert {name for name, state in told if state == "firing"} == SOON
        short = server.history("n2")
        assert {"ExhumeCoreSaturated", "ExhumeNapiStarving", "ExhumeCrashLoopLeaks"} <= {name for name, _ in short}
        assert {state for _, state in short} == {"pending"}

        # When the first scrape brought it, what was evaluated between, and how long it was pending.
        begun = server.query('exhume_findings{kind="nic-reset"}[10m]')[0]["values"][0][0]
        for name in SOON:
            pending, firing = told[name, "pending"], told[name, "firing"]
            assert len([at for at in evaluations(server, begun) if at < pending[0]]) * SCRAPE_S <= 2 * INTERVAL_S * SPEED, name
            # Prometheus lets an alert fire at the first evaluation after `for`.
            assert firing[0] - pending[0] >= FOR_S[name] / SPEED - 0.001, name

        alerts = [alert for alert in get(f"{server.url}/api/v1/alerts")["data"]["alerts"] if alert["state"] == "firing"]
        assert not [alert for alert in alerts if "error" in json.dumps(alert["annotations"])]
        said = {alert["labels"]["alertname"]: alert["annotations"]["description"] for alert in alerts}
        assert "240 are alive" in said["ExhumeZombieMemoryCgroups"]
        assert "were of ecs.service" in said["ExhumeZombieMemoryCgroups"]
        assert "Core 39" in said["ExhumeCoreSaturated"]
        assert "ecs.service" in said["ExhumeNicResetExplained"]
        assert "suspected-poll-starvation" in said["ExhumeNicResetExplained"]

        until(lambda: {alert["labels"]["alertname"] for alert in came} >= SOON, "the receiver is told of all of them")
        assert {alert["labels"]["alertname"] for alert in came} == SOON
        assert {alert["labels"]["alertname"] for alert in get(f"{manager.url}/api/v2/alerts")} == SOON

        node.fill()
        pass_by(server, 90)
        for which in DASHBOARDS:
            for query in queries(which):
                quick = query.replace("[1m]", "[3s]").replace("[1h]", "[36s]").replace("offset 1h", "offset 36s")
                assert server.query_range(quick, 5, INTERVAL_S), f"{which} shows nothing for {quick}"


def test_what_is_scraped_is_clean() -> None:
    node = Played(step_s=15)
    node.show(as_published().recording, 68_440, per_second=0.1)
    _, body, _ = node.scraped("")
    checked = promtool("check", "metrics", given=body)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not checked.stdout + checked.stderr
