"""Cordon and uncordon on a real API server: what others closed stays closed."""

import pytest

from exhume.cluster import cordon
from exhume.cluster.client import Client
from exhume.errors import UsageError
from tests.cluster.objects import make_node
from tests.cluster.servers import Cluster

pytestmark = pytest.mark.ci


def by_hand(client: Client, name: str, closed: bool) -> None:
    body = {"spec": {"unschedulable": closed or None}}
    path = f"/api/v1/nodes/{name}"
    client.request("PATCH", path, body, "application/merge-patch+json", {"fieldManager": "kubectl-cordon"})


def test_a_node_is_closed_with_a_mark_and_opened_again(cluster: Cluster) -> None:
    with cluster.client() as client:
        name = make_node(client)
        assert cordon.cordon(client, name, "20260101-000000-0") == ""
        node = cordon.read_node(client, name)
        mark = cordon.mark_of(node)
        assert cordon.closed(node)
        assert mark is not None
        assert mark.token == "20260101-000000-0"
        assert cordon.uncordon(client, name, "another") == "it was cordoned by 20260101-000000-0, so it stays cordoned"
        assert cordon.closed(cordon.read_node(client, name))
        assert cordon.uncordon(client, name, "20260101-000000-0") == ""
        node = cordon.read_node(client, name)
        assert not cordon.closed(node)
        assert cordon.left_mark(node) is None


def test_a_node_that_was_cordoned_by_hand_stays_cordoned(cluster: Cluster) -> None:
    with cluster.client() as client:
        name = make_node(client)
        by_hand(client, name, True)
        assert cordon.cordon(client, name, "ours") == "it was cordoned by others, and will stay so"
        assert cordon.uncordon(client, name, "ours") == "it was not cordoned by exhume, so it stays cordoned"
        assert cordon.closed(cordon.read_node(client, name))


def test_a_node_that_was_opened_and_closed_by_hand_meanwhile_stays_cordoned(cluster: Cluster) -> None:
    """The mark is still on it, but the field is no longer ours: the API server keeps account of that."""
    with cluster.client() as client:
        name = make_node(client)
        cordon.cordon(client, name, "ours")
        by_hand(client, name, False)
        by_hand(client, name, True)
        assert cordon.mark_of(cordon.read_node(client, name)) is None
        assert cordon.uncordon(client, name, "ours") == "somebody else has cordoned it since, so it stays cordoned"
        node = cordon.read_node(client, name)
        assert cordon.closed(node)
        assert cordon.left_mark(node) is None


def test_quarantine_leaves_the_other_taints_alone(cluster: Cluster) -> None:
    with cluster.client() as client:
        name = make_node(client)
        client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}})
        cordon.taint(client, name, "memcg-leak")
        node = cordon.read_node(client, name)
        assert cordon.tainted(node)
        assert {one["key"] for one in node["spec"]["taints"]} >= {"theirs", cordon.TAINT}
        cordon.untaint(client, name)
        node = cordon.read_node(client, name)
        assert not cordon.tainted(node)
        assert "theirs" in {one["key"] for one in node["spec"]["taints"]}


@pytest.mark.parametrize("name", ["", "../nodes", "Node", "a/b", "n?x=1", "-n", "n" * 254, "n\n"])
def test_a_name_that_is_none_never_reaches_an_address(name: str) -> None:
    with pytest.raises(UsageError):
        cordon._path(name)
