"""A fleet out of a real API server, as kubectl's configuration leads to it."""

from collections.abc import Iterator

import pytest

from exhume.errors import ExhumeError
from exhume.fleet import sources
from tests.cluster import servers
from tests.cluster.objects import make_node

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    with servers.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_nodes_of_a_cluster_by_the_context_that_is_set(cluster: servers.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster.client() as client:
        for name, zone in (("n-1", "zone-a"), ("n-2", "zone-b")):
            make_node(client, name=name)
            client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})
        status = {
            "nodeInfo": {"kernelVersion": "5.4.0-1103-aws", "bootID": "b-2", "osImage": "Ubuntu 20.04"},
            "conditions": [{"type": "KernelDeadlock", "status": "True", "reason": "Hung"}],
        }
        client.patch("/api/v1/nodes/n-2/status", {"status": status})
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))
    fleet = sources.open("k8s:")
    assert {node.name: node.facts["zone"] for node in fleet.nodes} == {"n-1": "zone-a", "n-2": "zone-b"}
    second = next(node for node in fleet.nodes if node.name == "n-2")
    assert (second.sick, second.why) == (True, "KernelDeadlock is True (Hung)")
    assert (second.facts["kernel"], second.facts["boot-id"]) == ("5.4.0-1103-aws", "b-2")
    some = sources.open("k8s:test?topology.kubernetes.io/zone=zone-a")
    assert [node.name for node in some.nodes] == ["n-1"]
    with pytest.raises(ExhumeError, match="the cluster has no nodes"):
        sources.open("k8s:?topology.kubernetes.io/zone=zone-x")
