"""What comes from outside in any shape: kubeconfigs, plugins, answers, pods. A sentence or a value, never a traceback."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.node_text import render_nodes
from exhume.cluster import credentials, kubeconfig
from exhume.cluster.cleanup import left, still_out
from exhume.cluster.cordon import boot_id, closed, left_mark, mark_of, ready, tainted
from exhume.cluster.document import text_in
from exhume.cluster.fleet_limits import FleetLimits, ours, refuse_more
from exhume.cluster.pods import Allowed, has_gpu, one_pod
from exhume.cluster.replies import Forbidden, asked, refusal
from exhume.errors import ExhumeError, Refused, UsageError

KEYS = """clusters users contexts current-context name cluster user server context certificate-authority-data token exec command
args env value client-key client-certificate-data tokenFile as as-groups as-user-extra as-uid proxy-url
tls-server-name insecure-skip-tls-verify provideClusterInfo interactiveMode apiVersion extensions extension continue
finalizers metadata annotations ownerReferences controller kind spec containers resources limits volumes emptyDir
status phase conditions type capacity nvidia.com/gpu managedFields fieldsV1 f:spec f:unschedulable manager taints key
unschedulable exhume/cordoned-by exhume/quarantine nodeInfo bootID details causes reason message retryAfterSeconds
deletionTimestamp restartPolicy karpenter.sh/do-not-disrupt terminationGracePeriodSeconds""".split()
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from([*KEYS, "https://x", "e30="])
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5), max_leaves=25
)
documents = st.dictionaries(st.sampled_from(KEYS), anything, max_size=8)


@given(documents, st.text(max_size=8))
def test_a_kubeconfig_of_any_shape(document: dict[str, Any], context: str) -> None:
    with suppress(ExhumeError):
        assert kubeconfig.access(document, context).server.startswith("http")


@given(st.binary(max_size=300))
def test_a_kubeconfig_of_any_bytes(raw: bytes) -> None:
    with suppress(UsageError):
        assert isinstance(kubeconfig.parse(raw), dict)


@given(st.binary(max_size=200) | documents.map(lambda one: json.dumps({"kind": "ExecCredential", **one}).encode()))
def test_a_plugin_that_prints_anything(printed: bytes) -> None:
    with suppress(ExhumeError):
        found = credentials.read(printed, "plugin")
        assert found.token or found.certificate


@given(
    st.sampled_from(["GET", "POST", "PATCH", "BREW"]),
    st.text(max_size=60),
    st.integers(300, 599),
    documents,
    st.none() | st.floats(0, 3600),
)
def test_a_refusal_of_any_shape_is_one_printable_sentence(
    method: str, path: str, status: int, told: dict[str, Any], after: float | None
) -> None:
    made = refusal(method, "/" + path.replace("?", "").replace("#", ""), status, told, after)
    assert 0.0 <= made.retry_after_s <= 600.0
    assert str(made)


@given(documents, st.builds(Allowed, st.booleans(), st.booleans(), st.booleans()))
def test_a_pod_of_any_shape_has_a_fate(pod: dict[str, Any], allowed: Allowed) -> None:
    found = one_pod(pod, allowed)
    assert found.fate in ("evict", "wait", "leave", "blocks")
    assert str(found).isprintable()
    assert found.fate == "evict" or found.why


@given(st.lists(documents, max_size=4))
def test_nodes_of_any_shape(nodes: list[dict[str, Any]]) -> None:
    for node in nodes:
        assert (mark_of(node) is not None) <= (left_mark(node) is not None and closed(node))
        assert isinstance(ready(node), bool)
        assert isinstance(boot_id(node), str)
        assert tainted(node) in (True, False)
        assert has_gpu(node) in (True, False)
    assert {one.node for one in left(nodes)} <= {text_in(node, "metadata", "name") for node in nodes}
    assert len(still_out(nodes)) >= len(ours(nodes))
    held = len(ours(nodes))
    with suppress(Refused):
        refuse_more(nodes, "new", FleetLimits(max_at_once=1, pause_when_failed=0), 0.0)
        assert held == 0
    assert render_nodes(nodes).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/nodes", ("list", "", "nodes", "")),
        ("GET", "/api/v1/nodes/n1", ("get", "", "nodes", "n1")),
        ("PATCH", "/api/v1/nodes/n1/status", ("patch", "", "nodes/status", "n1")),
        ("POST", "/api/v1/namespaces/default/events", ("create", "", "events", "")),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", ("create", "", "pods/eviction", "p")),
        ("GET", "/api/v1/namespaces/a", ("get", "", "namespaces", "a")),
        ("GET", "/apis/policy/v1/poddisruptionbudgets", ("list", "policy", "poddisruptionbudgets", "")),
        ("GET", "/api/v1", ("get", "", "/api/v1", "")),
    ],
)
def test_what_a_request_asks_for_as_rbac_knows_it(method: str, path: str, expected: tuple[str, ...]) -> None:
    assert asked(method, path) == expected


@pytest.mark.parametrize(
    ("said", "resource"),
    [
        ('cannot impersonate resource "groups" in API group "" at the cluster scope', "groups"),
        ('cannot impersonate-on:user-info:list resource "nodes" in API group "" at the cluster scope', "users"),
    ],
)
def test_who_may_not_act_as_another_is_told_the_verb_that_is_missing(said: str, resource: str) -> None:
    made = refusal("GET", "/api/v1/nodes", 403, {"message": f'x is forbidden: User "me" {said}'}, None)
    assert isinstance(made, Forbidden)
    assert (made.verb, made.resource) == ("impersonate", resource)
    assert str(made).startswith(f"me may not impersonate {resource} in this cluster: ")


def test_a_hostile_user_name_cannot_write_to_the_terminal() -> None:
    message = 'nodes is forbidden: User "\x1b[31mx" cannot list resource "nodes" in API group "" at the cluster scope'
    made = refusal("GET", "/api/v1/nodes", 403, {"message": message}, None)
    assert isinstance(made, Forbidden)
    assert str(made) == "\\x1b[31mx may not list nodes in this cluster: a role must give it the verb list on nodes"
