"""A fleet as the API server of a Kubernetes cluster knows it: labels, conditions, images, what the kubelet says of the node."""

import time
from collections.abc import Iterable

from exhume.cluster.client import connect
from exhume.cluster.cordon import find_nodes
from exhume.cluster.document import Document, list_in, names_in, seconds, text_in, within
from exhume.fleet.model import Fact, Fleet, Node
from exhume.text import printable

SCHEME = "k8s:"
# Labels that everybody has under long names (k8s.io/api/core/v1/well_known_labels.go); others stay as they are.
_SHORT = {
    "topology.kubernetes.io/zone": "zone",
    "failure-domain.beta.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "region",
    "node.kubernetes.io/instance-type": "instance-type",
    "beta.kubernetes.io/instance-type": "instance-type",
    "kubernetes.io/arch": "arch",
    "cloud.google.com/gke-nodepool": "pool",
    "eks.amazonaws.com/nodegroup": "pool",
    "kubernetes.azure.com/agentpool": "pool",
    "karpenter.sh/nodepool": "pool",
}
_LEFT_OUT = ("beta.kubernetes.io/arch", "beta.kubernetes.io/os", "kubernetes.io/os", "kubernetes.io/hostname")
# status.nodeInfo (k8s.io/api/core/v1: NodeSystemInfo).
_INFO = {
    "kernelVersion": "kernel",
    "osImage": "os",
    "containerRuntimeVersion": "container-runtime",
    "kubeletVersion": "kubelet",
    "bootID": "boot-id",
    "systemUUID": "system-uuid",
}


def load(text: str) -> Fleet:
    """`k8s:`, the context that is set; `k8s:CONTEXT`; `k8s:CONTEXT?LABEL=VALUE` for some of the nodes."""
    selector = text.partition("?")[2]
    with connect(context_of(text)) as client:
        return fleet(find_nodes(client, selector), f"the cluster {printable(client.described)}", time.time())


def context_of(text: str) -> str:
    return text.removeprefix(SCHEME).removeprefix("//").partition("?")[0]


def fleet(documents: Iterable[Document], source: str, now_s: float) -> Fleet:
    nodes, nameless = [], 0
    for document in documents:
        if text_in(document, "metadata", "name"):
            nodes.append(_node(document, now_s))
        else:
            nameless += 1
    troubles = (f"{source}: {nameless:,} objects without a name passed over",) if nameless else ()
    return Fleet(source, tuple(nodes), troubles)


def _node(document: Document, now_s: float) -> Node:
    facts: dict[str, Fact] = {}
    for label, value in sorted(names_in(document, "metadata", "labels").items()):
        if label not in _LEFT_OUT:
            facts.setdefault(_SHORT.get(label, f"label:{label}"), value or True)
    for key, name in _INFO.items():
        if value := text_in(document, "status", "nodeInfo", key):
            facts[name] = value
    if provider := text_in(document, "spec", "providerID"):
        facts["provider-id"] = provider
    for address in list_in(document, "status", "addresses"):
        if text_in(address, "type") == "InternalIP":
            facts.setdefault("internal-ip", text_in(address, "address"))
    for taint in list_in(document, "spec", "taints"):
        facts[f"taint:{text_in(taint, 'key')}"] = True
    facts["cordoned"] = within(document, "spec", "unschedulable") is True
    images = list_in(document, "status", "images")
    if images:
        facts["images"] = float(len(images))
    made_s = seconds(text_in(document, "metadata", "creationTimestamp"))
    if made_s is not None:
        facts["age-days"] = round(max(0.0, now_s - made_s) / 86_400, 2)
    bad = []
    for condition in list_in(document, "status", "conditions"):
        kind, status = text_in(condition, "type"), text_in(condition, "status")
        if not kind:
            continue
        facts[f"condition:{kind}"] = status
        # Pressures, and whatever node-problem-detector or exhume adds, are bad when True; what ends in Ready is good then.
        if status in (("False", "Unknown") if kind.endswith("Ready") else ("True",)):
            reason = text_in(condition, "reason")
            bad.append(f"{printable(kind, 60)} is {status}{' (' + printable(reason, 60) + ')' if reason else ''}")
    return Node(
        text_in(document, "metadata", "name"),
        facts,
        # A node that is ready may starve all the same: the incident's were. So nothing here says that one is healthy.
        sick=True if bad else None,
        badness=float(len(bad)),
        why="; ".join(bad),
    )
