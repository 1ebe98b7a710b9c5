"""A drain on a real API server, with kwok for the kubelets: budgets are asked, and what must stay stays."""

import threading
from typing import Any

import pytest

from exhume.cluster.client import Client
from exhume.cluster.drain import Pace, drain, eviction_version, pods_of, wait_ready
from exhume.cluster.pods import Allowed
from exhume.errors import Refused
from tests.cluster.objects import await_ready, await_running, make_node, make_pod, pod
from tests.cluster.servers import Cluster

pytestmark = pytest.mark.ci

QUICK = Pace(deadline_s=30.0, again_s=0.2, look_s=0.1)


def budget(client: Client, name: str, allowed: int) -> None:
    """What the disruption controller of kube-controller-manager would write."""
    place = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}}
    made = client.create(place, body)
    allow(client, name, allowed, made["metadata"]["generation"])


def allow(client: Client, name: str, allowed: int, generation: int = 1) -> None:
    status = {
        "disruptionsAllowed": allowed,
        "observedGeneration": generation,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    client.patch(f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}/status", {"status": status})


def test_a_budget_that_first_refuses_and_then_allows(kubelets: Cluster) -> None:
    with kubelets.client() as client, kubelets.client() as other:
        node = make_node(client)
        await_ready(client, node)
        budget(client, "guarded", 0)
        make_pod(client, pod("guarded-1", node, labels={"app": "guarded"}))
        await_running(client, "guarded-1")
        said: list[str] = []

        def tell(what: str, ratio: float) -> None:
            said.append(what)
            if len(said) == 5:
                allow(other, "guarded", 1)

        done = drain(client, node, Allowed(), Pace(30.0, 0.2, 0.1, tell=tell))
        assert [one.name for one in done.evicted] == ["guarded-1"]
        assert len(said) >= 5
        assert pods_of(client, node, Allowed()) == ()


def test_a_budget_that_never_allows_is_named_when_the_time_is_up(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        budget(client, "kept", 0)
        make_pod(client, pod("kept-1", node, labels={"app": "kept"}))
        await_running(client, "kept-1")
        with pytest.raises(Refused, match=r"1 pod left: default/kept-1: its disruption budget allows none to go now"):
            drain(client, node, Allowed(), Pace(1.0, 0.2, 0.1))
        assert [one.name for one in pods_of(client, node, Allowed())] == ["kept-1"]


def test_daemon_sets_and_static_pods_are_left(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "2", "controller": True}
        make_pod(client, pod("daemon", node, daemon))
        make_pod(client, pod("static", node, None, annotations={"kubernetes.io/config.mirror": "x"}))
        make_pod(client, pod("plain", node))
        done = drain(client, node, Allowed(), QUICK)
        assert [one.name for one in done.evicted] == ["plain"]
        assert sorted(one.name for one in done.left) == ["daemon", "static"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"owner": None}, "nothing would make it again"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "karpenter.sh/do-not-disrupt: true"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, 'safe-to-evict: "false"'),
    ],
)
def test_what_must_not_go_stops_the_drain_before_anything_went(kubelets: Cluster, change: dict[str, Any], why: str) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        make_pod(client, pod(f"{node}-plain", node))
        make_pod(client, pod(f"{node}-stays", node, **change))
        with pytest.raises(Refused) as refused:
            drain(client, node, Allowed(), QUICK)
        assert why in str(refused.value)
        assert {one.name for one in pods_of(client, node, Allowed())} == {f"{node}-plain", f"{node}-stays"}


def test_empty_dir_and_unmanaged_pods_go_when_it_was_agreed_to(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        made = pod(f"{node}-scratch", node, None)
        made["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        make_pod(client, made)
        with pytest.raises(Refused, match="emptyDir volumes would be lost"):
            drain(client, node, Allowed(unmanaged=True), QUICK)
        done = drain(client, node, Allowed(unmanaged=True, empty_dir=True), QUICK)
        assert [one.name for one in done.evicted] == [f"{node}-scratch"]


def test_when_idle_waits_for_a_job_and_evicts_nothing_before_it_ended(kubelets: Cluster) -> None:
    with kubelets.client() as client, kubelets.client() as other:
        node = make_node(client, {"nvidia.com/gpu": "8"})
        await_ready(client, node)
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "3", "controller": True}
        make_pod(client, pod(f"{node}-train", node, job))
        make_pod(client, pod(f"{node}-web", node))
        with pytest.raises(Refused, match=f"default/{node}-train: a run of Job that ends by itself"):
            drain(client, node, Allowed(when_idle=True), Pace(0.5, 0.2, 0.1))
        assert {one.name for one in pods_of(client, node, Allowed())} == {f"{node}-train", f"{node}-web"}
        ends = threading.Timer(
            0.5,
            lambda: other.patch(f"/api/v1/namespaces/default/pods/{node}-train/status", {"status": {"phase": "Succeeded"}}),
        )
        ends.start()
        done = drain(client, node, Allowed(when_idle=True), QUICK)
        ends.join()
        assert [one.name for one in done.evicted] == [f"{node}-web"]
        assert [one.name for one in done.ended] == [f"{node}-train"]


def test_the_version_of_the_eviction_api_is_the_servers(cluster: Cluster) -> None:
    with cluster.client() as client:
        assert eviction_version(client) == "policy/v1"


def test_a_node_that_boots_anew_is_waited_for(kubelets: Cluster) -> None:
    with kubelets.client() as client:
        node = make_node(client)
        await_ready(client, node)
        with pytest.raises(Refused, match="it has not booted anew"):
            wait_ready(client, node, "first", Pace(0.3, look_s=0.1))
        client.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": {"bootID": "second"}}})
        wait_ready(client, node, "first", QUICK)
