"""Conditions and events on a real API server, and the agent's rights: exactly enough, each of them one feature."""

import os
import time

import pytest

from exhume.agent.cluster_report import ClusterReport, Kubernetes
from exhume.cluster.client import Client
from exhume.cluster.conditions import HEARTBEAT_S, Seen
from exhume.cluster.document import Document
from exhume.cluster.reporter import Reporter
from exhume.cluster.rights import AGENT, DRAIN, missing, rules
from exhume.diagnosis.findings.napi_starved import NapiStarved
from tests.cluster.objects import grant, make_node, until
from tests.cluster.servers import Cluster
from tests.diagnosis.findings.facts import finding

pytestmark = pytest.mark.ci

LEAK = Seen("memcg-leak", "ecs.service leaks memory cgroups")
FOREIGN = {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure", "message": "theirs"}


def conditions(client: Client, node: str) -> dict[str, Document]:
    return {one["type"]: one for one in client.get(f"/api/v1/nodes/{node}")["status"].get("conditions", [])}


def events(client: Client, node: str) -> list[Document]:
    return list(client.list("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={node}"))


def test_conditions_and_events_appear_and_others_conditions_stay(cluster: Cluster) -> None:
    with cluster.client() as admin, cluster.client("agent") as client:
        grant(admin, "agent", rules(AGENT))
        until(lambda: not missing(client, AGENT))
        node = make_node(admin)
        admin.patch(
            f"/api/v1/nodes/{node}/status", {"status": {"conditions": [FOREIGN]}}, "application/strategic-merge-patch+json"
        )
        now = time.time()
        clock = [now]
        reporter = Reporter(client, node, lambda: clock[0])
        assert reporter.report([]) == []
        assert {name: one["status"] for name, one in conditions(admin, node).items() if name != "Ready"} == {
            "DiskPressure": "True",
            "MemoryCgroupLeak": "False",
            "KernelCPUStarvation": "False",
            "NetworkPollStarvation": "False",
        }
        clock[0] += 10
        assert reporter.report([LEAK]) == []
        told = conditions(admin, node)
        assert told["DiskPressure"]["message"] == "theirs"
        assert (told["MemoryCgroupLeak"]["status"], told["MemoryCgroupLeak"]["message"]) == ("True", LEAK.summary)
        clock[0] += 600
        assert reporter.report([]) == []
        assert conditions(admin, node)["MemoryCgroupLeak"]["status"] == "False"
        assert sorted((one["type"], one["reason"]) for one in events(admin, node)) == [
            ("Normal", "NoMemoryCgroupLeak"),
            ("Warning", "MemoryCgroupsLeak"),
        ]


def test_what_has_not_changed_is_written_every_five_minutes(cluster: Cluster) -> None:
    with cluster.client() as client:
        node = make_node(client)
        clock = [time.time()]
        reporter = Reporter(client, node, lambda: clock[0])
        reporter.report([])
        first = conditions(client, node)["MemoryCgroupLeak"]["lastHeartbeatTime"]
        clock[0] += HEARTBEAT_S - 1
        reporter.report([])
        assert conditions(client, node)["MemoryCgroupLeak"]["lastHeartbeatTime"] == first
        clock[0] += 1
        reporter.report([])
        assert conditions(client, node)["MemoryCgroupLeak"]["lastHeartbeatTime"] > first


@pytest.mark.parametrize("taken", AGENT, ids=lambda right: f"{right.verb}-{right.resource.replace('/', '-')}")
def test_each_right_that_is_taken_away_is_one_feature_off_and_said(cluster: Cluster, taken: object) -> None:
    """RBAC of the API server lags a moment behind the role; the question whether we may is answered by the same account."""
    with cluster.client() as admin, cluster.client("agent") as client:
        grant(admin, "agent", rules([right for right in AGENT if right is not taken]))
        until(lambda: missing(client, AGENT) == (taken,))
        node = make_node(admin)
        troubles = Reporter(client, node).report([LEAK])
        assert len(troubles) == 1
        right = missing(client, AGENT)[0]
        assert troubles[0] == (
            f"{right.without}: agent may not {right.verb} {right.resource} in this cluster: "
            f"a role must give it the verb {right.verb} on {right.resource}"
        )
        assert ("MemoryCgroupLeak" in conditions(admin, node)) == (right.resource != "nodes/status")
        assert bool(events(admin, node)) == (right.resource != "events")


def test_somebody_without_rights_is_told_all_that_a_drain_needs(cluster: Cluster) -> None:
    with cluster.client("nobody") as client:
        assert missing(client, DRAIN) == DRAIN


def test_the_agent_reports_what_it_is_handed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster.client() as client:
        node = make_node(client)
        monkeypatch.setenv("KUBECONFIG", os.fspath(cluster.kubeconfig()))
        said: list[str] = []
        report = ClusterReport(Kubernetes(True, node), said.append, 0.1)
        try:
            report.observe([finding(NapiStarved, "critical", "eth0")])
            until(lambda: conditions(client, node).get("NetworkPollStarvation", {}).get("status") == "True")
            assert conditions(client, node)["NetworkPollStarvation"]["reason"] == "NetworkPollLate"
            assert said == []
        finally:
            report.close()


def test_an_agent_outside_of_any_cluster_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    said: list[str] = []
    report = ClusterReport(Kubernetes(True, "n1"), said.append, 0.1)
    report.observe([])
    report.close()
    assert len(said) == 1
    assert said[0].startswith("no node conditions: no kubeconfig at ")
