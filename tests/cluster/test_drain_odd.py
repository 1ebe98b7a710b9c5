"""A drain of what is not as it should be, on a real API server: budgets that are wrong, pods that do not go, an API server
that is killed, nodes that are deleted or changed meanwhile."""

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from exhume.cluster.client import Client
from exhume.cluster.cordon import GONE, cordon, mark_of, read_node, taint, taint_value, tainted, uncordon, untaint
from exhume.cluster.document import Document
from exhume.cluster.drain import Drained, Pace, _evict, drain, pods_of
from exhume.cluster.pods import Allowed, Pod
from exhume.errors import Refused
from tests.cluster import servers
from tests.cluster.objects import await_ready, await_running, make_node, make_pod, pod, until
from tests.cluster.servers import Cluster
from tests.cluster.test_drain import QUICK, allow, budget

pytestmark = pytest.mark.ci
PODS = "/api/v1/namespaces/default/pods"


def test_two_budgets_over_one_pod_are_named_and_the_others_go(kubelets: Cluster) -> None:
    """Misconfigured: the eviction API answers 500 for as long as both are there."""
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        budget(client, "twice", 1)
        body = {"metadata": {"name": "twice-too"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "twice"}}}}
        client.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)
        make_pod(client, pod("twice-1", node, labels={"app": "twice"}))
        make_pod(client, pod("twice-other", node))
        await_running(client, "twice-1")
        with pytest.raises(Refused, match=r"1 pod left: default/twice-1: .*more than one PodDisruptionBudget"):
            drain(client, node, Allowed(), Pace(2.0, 0.2, 0.1))


def test_a_budget_is_named_with_what_it_needs_and_the_server_says_when_to_ask_again(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        budget(client, "slow", 1)
        make_pod(client, pod("slow-1", node, labels={"app": "slow"}))
        await_running(client, "slow-1")
        said: list[str] = []
        allow(client, "slow", 0)
        with pytest.raises(
            Refused, match=r"disruption budget allows none to go now \(The disruption budget slow does not allow evicting"
        ):
            drain(client, node, Allowed(), Pace(0.5, 0.2, 0.1, tell=lambda what, _: said.append(what)))
        assert any(one.startswith(f"1 pod still on {node}: default/slow-1: its disruption budget") for one in said)
        # The disruption controller has not seen the budget's last change yet: Retry-After is 10 s.
        client.patch("/apis/policy/v1/namespaces/default/poddisruptionbudgets/slow", {"spec": {"minAvailable": 2}})
        [here] = pods_of(client, node, Allowed())
        after_s, why = _evict(client, here, "policy/v1")
        assert after_s == 10.0
        assert "still being processed by the server" in why


def test_a_pod_that_a_finalizer_holds_is_named_and_gone_when_it_is_taken_away(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        make_pod(client, pod("held", node, finalizers=["example.test/backup"]))
        await_running(client, "held")
        with pytest.raises(
            Refused, match=r"default/held: it is being deleted \(due 20.*held by the finalizer example.test/backup"
        ):
            drain(client, node, Allowed(), Pace(2.0, 0.2, 0.1))
        client.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})
        drain(client, node, Allowed(), QUICK)
        assert pods_of(client, node, Allowed()) == ()


def test_while_idle_is_waited_for_a_pod_that_somebody_deletes_holds_up_no_other(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client, {"amd.com/gpu": "8"})
        await_ready(client, node)
        make_pod(client, pod("stuck", node, finalizers=["example.test/stuck"]))
        make_pod(client, pod("free", node))
        client.request("DELETE", f"{PODS}/stuck")
        with pytest.raises(Refused, match="1 pod left: default/stuck"):
            drain(client, node, Allowed(when_idle=True), Pace(2.0, 0.2, 0.1))
        client.patch(f"{PODS}/stuck", {"metadata": {"finalizers": None}})


def test_a_pod_without_grace_and_one_that_has_ended(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        hasty = pod("hasty", node)
        hasty["spec"]["terminationGracePeriodSeconds"] = 0
        make_pod(client, hasty)
        make_pod(client, pod("over", node, None))
        await_running(client, "over")
        client.patch(f"{PODS}/over/status", {"status": {"phase": "Succeeded"}})
        done = drain(client, node, Allowed(), QUICK)
        assert [one.name for one in done.evicted] == ["hasty"]
        assert [(one.name, one.why) for one in done.left] == [("over", "it has ended")]


def test_a_namesake_that_took_a_pods_place_is_not_evicted_in_its_stead(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        old = make_pod(client, pod("web-0", node))
        client.request("DELETE", f"{PODS}/web-0", query={"gracePeriodSeconds": "0"})
        new = make_pod(client, pod("web-0", node))
        uid = str(old["metadata"]["uid"])
        assert _evict(client, Pod("default", "web-0", uid, "evict"), "policy/v1") == (0.0, "it was changed meanwhile")
        assert client.get(f"{PODS}/web-0")["metadata"]["uid"] == new["metadata"]["uid"]
        assert "deletionTimestamp" not in client.get(f"{PODS}/web-0")["metadata"]


def test_more_pods_than_a_page_holds(kubelets: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.cluster.client.PAGE", 7)
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        names = {f"many-{number}" for number in range(30)}
        for name in names:
            make_pod(client, pod(name, node))
        done = drain(client, node, Allowed(), QUICK)
        assert {one.name for one in done.evicted} == names


class Disturbed(Client):
    """Somebody else changes the node between our look at it and our change, so many times."""

    def disturb(self, other: Client, times: int) -> "Disturbed":
        self.other, self.times = other, times
        return self

    def get(self, path: str, **query: str) -> Document:
        found = super().get(path, **query)
        if self.times:
            self.times -= 1
            self.other.patch(path, {"metadata": {"annotations": {"example.test/count": str(self.times)}}})
        return found


def test_a_node_that_others_change_meanwhile_is_looked_at_anew(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.cluster.cordon.time.sleep", lambda _: None)
    with cluster.client() as other, contextlib.closing(Disturbed(cluster.client()._access)) as client:
        node = make_node(other)
        assert cordon(client.disturb(other, 3), node, "plan-1") == ""
        assert mark_of(read_node(other, node)) is not None
        taint(client.disturb(other, 3), node, "study")
        assert tainted(read_node(other, node))
        with pytest.raises(Refused, match="is as it was: it is changed by others faster than it can be written; try again"):
            untaint(client.disturb(other, 100), node)
        untaint(other, node)
        assert uncordon(other, node, "plan-1") == ""


def test_a_taint_of_our_key_and_the_taints_of_others_beside_it(cluster: Cluster) -> None:
    """Whatever effect somebody gave our key, it is one taint afterwards, and none after the release; the others stay."""
    with cluster.client() as client:
        node = make_node(client)
        others = [
            {"key": "example.test/x", "effect": "NoExecute"},
            {"key": "example.test/x", "effect": "NoSchedule", "value": "1"},
        ]
        ours = {"key": "exhume/quarantine", "effect": "PreferNoSchedule"}
        client.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [others[0], ours, others[1]]}})
        taint(client, node, "study")
        found = read_node(client, node)
        assert taint_value(found) == "study"
        assert [one["effect"] for one in found["spec"]["taints"] if one["key"] == ours["key"]] == ["NoSchedule"]
        untaint(client, node)
        assert read_node(client, node)["spec"]["taints"] == others


def test_a_node_that_was_deleted_meanwhile_needs_nothing_more(cluster: Cluster) -> None:
    with cluster.client() as client:
        node = make_node(client)
        assert cordon(client, node, "plan-1") == ""
        client.request("DELETE", f"/api/v1/nodes/{node}")
        assert uncordon(client, node, "plan-1") == GONE
        untaint(client, node)
        assert drain(client, node, Allowed(), QUICK) == Drained((), (), ())


def test_quarantine_is_kept_when_the_node_boots_anew(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        taint(client, node, "study")
        assert cordon(client, node, "plan-1") == ""
        down = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        client.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": {"bootID": "second"}, "conditions": [down]}})
        await_ready(client, node)
        found = read_node(client, node)
        assert tainted(found)
        assert mark_of(found) is not None
        untaint(client, node)
        assert uncordon(client, node, "plan-1") == ""


def _serving(cluster: Cluster) -> tuple[int, list[str]]:
    """The API server's process, a child of ours, and its command."""
    port = cluster.address.rpartition(":")[2]
    children = [word for task in Path("/proc/self/task").iterdir() for word in (task / "children").read_text().split()]
    for child in children:
        words = Path("/proc", child, "cmdline").read_text().split("\0")[:-1]
        if words[:1] == [os.fspath(servers.program("kube-apiserver"))] and port in words:
            return int(child), words
    raise AssertionError("the API server is not running")


def test_an_api_server_that_is_killed_and_started_again_in_the_middle(tmp_path: Path) -> None:
    with servers.running(tmp_path) as cluster, servers.kubelets(cluster), cluster.client() as client, cluster.client() as other:
        node = make_node(client)
        await_ready(client, node)
        budget(client, "guarded", 0)
        make_pod(client, pod("guarded-1", node, labels={"app": "guarded"}))
        await_running(client, "guarded-1")
        told: list[str] = []
        ended: list[Any] = []
        pace = Pace(120.0, 0.2, 0.1, tell=lambda what, _: told.append(what))
        draining = threading.Thread(target=lambda: ended.append(drain(client, node, Allowed(), pace)), daemon=True)
        draining.start()
        until(lambda: any("guarded-1" in one for one in told))
        process, command = _serving(cluster)
        os.kill(process, signal.SIGKILL)
        until(lambda: any("cannot be reached" in one for one in told))
        with servers._started(command, tmp_path / "again.log"):
            until(lambda: told[-1].startswith("1 pod still on"), 60.0)
            allow(other, "guarded", 1)
            draining.join(60.0)
        assert [one.name for one in ended[0].evicted] == ["guarded-1"]
