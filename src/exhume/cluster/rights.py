"""What exhume asks of an API server, verb by verb, and what is off without it. The chart's roles are held equal to this."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.cluster.document import Document, within

if TYPE_CHECKING:
    from exhume.cluster.client import Client


@dataclass(frozen=True, slots=True)
class Right:
    verb: str
    resource: str
    without: str
    """What does not work where it is missing."""
    group: str = ""


# The agent's, of its own node. RBAC cannot say "of its own node" by itself; docs/kubernetes.md says how to have that, too.
AGENT = (
    Right("get", "nodes", "after a restart, conditions that are true begin as false"),
    Right("patch", "nodes/status", "node conditions are not set"),
    Right("create", "events", "events are not written"),
)
# Whoever takes nodes out of service.
DRAIN = (
    Right("get", "nodes", "nothing can be done to a node"),
    Right("list", "nodes", "the limit of nodes that are out at once cannot be kept, so no node is taken out"),
    Right("patch", "nodes", "nodes are not cordoned, tainted or uncordoned"),
    Right("list", "pods", "a drain cannot see what runs on the node"),
    Right("create", "pods/eviction", "pods are not evicted"),
)


def rules(rights: Sequence[Right]) -> list[Document]:
    """As the rules of a ClusterRole, one for each right."""
    return [{"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]} for one in rights]


def missing(client: "Client", rights: Sequence[Right], namespace: str = "") -> tuple[Right, ...]:
    """Those that the API server says we do not have (SelfSubjectAccessReview, which everybody may ask), in one namespace or,
    for what is in none, cluster-wide."""
    return tuple(one for one in rights if not _may(client, one, namespace))


def _may(client: "Client", right: Right, namespace: str) -> bool:
    resource, _, inner = right.resource.partition("/")
    asked: Document = {"verb": right.verb, "group": right.group, "resource": resource}
    if inner:
        asked["subresource"] = inner
    if namespace:
        asked["namespace"] = namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return within(answer, "status", "allowed") is True
