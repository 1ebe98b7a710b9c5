"""The agent's word to its cluster while a real API server hangs, talks nonsense, hangs up or is away: it is said afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.agent.cluster_report import ClusterReport, Kubernetes
from exhume.cluster.client import Client
from exhume.cluster.rights import AGENT, missing, rules
from exhume.diagnosis.findings.nic_reset import NicReset
from tests.agent.relay import STATES, Relay, State
from tests.cluster import servers
from tests.cluster.objects import grant, make_node, until
from tests.cluster.test_reporter import conditions, events
from tests.diagnosis.findings.facts import finding

pytestmark = pytest.mark.ci

RESET = finding(NicReset, "critical", "eth0", resets=1)
CONDITION = "NetworkPollStarvation"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    with servers.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def relay(cluster: servers.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """What an agent takes for the API server; it has a second's patience with it."""
    it = Relay(int(cluster.address.rpartition(":")[2]))
    access = replace(cluster.client("agent")._access, server=f"https://127.0.0.1:{it.port}")
    monkeypatch.setattr("exhume.cluster.client.connect", lambda: Client(access, timeout_s=1.0))
    try:
        yield it
    finally:
        it.close()


@contextmanager
def reporting(node: str) -> Iterator[tuple[ClusterReport, list[str]]]:
    said: list[str] = []
    report = ClusterReport(Kubernetes(True, node), said.append, 0.1)
    try:
        yield report, said
    finally:
        report.close()


def statuses(admin: Client, node: str) -> dict[str, str]:
    return {name: one["status"] for name, one in conditions(admin, node).items()}


@pytest.mark.parametrize("state", STATES[1:])
@pytest.mark.parametrize("from_the_first", [False, True])
def test_what_was_found_while_it_could_not_be_told_is_told_afterwards(
    cluster: servers.Cluster, relay: Relay, state: State, from_the_first: bool
) -> None:
    with cluster.client() as admin, cluster.client("agent") as client:
        grant(admin, "agent", rules(AGENT))
        until(lambda: not missing(client, AGENT))
        node = make_node(admin)
        if from_the_first:
            relay.become(state)
        with reporting(node) as (report, said):
            if not from_the_first:
                report.observe([])
                until(lambda: statuses(admin, node).get(CONDITION) == "False")
                relay.become(state)
            report.observe([RESET])
            until(lambda: bool(said))
            assert statuses(admin, node).get(CONDITION) != "True"
            relay.become("through")
            until(lambda: statuses(admin, node).get(CONDITION) == "True")
            until(lambda: [one["reason"] for one in events(admin, node)] == ["NetworkDeviceReset"])
        assert all(one.startswith("cluster: the API server at https://127.0.0.1:") for one in said), said
