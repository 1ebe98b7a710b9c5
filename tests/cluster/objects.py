"""Nodes, pods and budgets for the tests, as the API server takes them."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from exhume.cluster.client import Client
from exhume.cluster.cordon import read_node, ready

_NUMBERS = itertools.count(1)
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}


def make_node(client: Client, capacity: dict[str, str] | None = None, name: str = "") -> str:
    name = name or f"node-{next(_NUMBERS)}"
    # With a label, as the kubelet makes them: an object without any field is not tracked in managedFields.
    client.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    if capacity:
        client.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": capacity}})
    return name


def pod(name: str, node: str, owner: dict[str, Any] | None = REPLICA_SET, **meta: Any) -> dict[str, Any]:
    owners = {"ownerReferences": [owner]} if owner else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **owners, **meta},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none.test/none"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }


def make_pod(client: Client, made: dict[str, Any]) -> dict[str, Any]:
    return client.create("/api/v1/namespaces/default/pods", made)


def until(true: Callable[[], bool], patience_s: float = 30.0) -> None:
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)


def await_ready(client: Client, *names: str) -> None:
    until(lambda: all(ready(read_node(client, name)) for name in names))


def await_running(client: Client, name: str) -> None:
    """A pod that does not run yet is evicted whatever its budget says (eviction.go, canIgnorePDB)."""
    until(lambda: client.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase") == "Running")


def grant(client: Client, user: str, rules: list[dict[str, Any]]) -> None:
    """That user may do exactly this, cluster-wide, from now on."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    for kind, document in (("clusterroles", role), ("clusterrolebindings", binding)):
        place = f"/apis/rbac.authorization.k8s.io/v1/{kind}"
        client.request(
            "PATCH", f"{place}/{user}", document, "application/apply-patch+yaml", {"fieldManager": "tests", "force": "true"}
        )
