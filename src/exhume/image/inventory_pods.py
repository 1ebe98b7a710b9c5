"""What Kubernetes puts on a live node by itself: DaemonSets' pods and their sidecars, by what the kubelet and containerd keep.

The API server is not asked: a node must be judged when it cannot be reached. Who owns a pod is not written down on the node, so
a DaemonSet is known by the form of its pods' names, which a Job's have too; workloads of other kinds are not listed.
"""

import re
from collections import defaultdict

from exhume.host.service import Service
from exhume.host.tree import Tree
from exhume.text import from_json, from_path

LOGS = "/var/log/pods"
# Task directories of containerd's CRI plug-in; k3s brings its own.
_TASKS = tuple(f"{place}/io.containerd.runtime.v2.task/k8s.io" for place in ("/run/containerd", "/run/k3s/containerd"))
_MOST_PODS = 2000

# Random ends of names have no vowels and no 0, 1 and 3 (k8s.io/apimachinery, util/rand). A ReplicaSet's pods have two of them.
_END = "[bcdfghjklmnpqrstvwxz2456789]"
_POD = re.compile(rf"(?P<namespace>[a-z0-9-]+)_(?P<owner>[a-z0-9.-]+)-{_END}{{5}}_(?P<uid>[0-9a-f-]{{36}})")
_REPLICAS = re.compile(rf".+-{_END}{{6,10}}")


def read(tree: Tree) -> list[Service]:
    """One for each DaemonSet that has a pod here. The kubelet keeps logs in namespace_pod_uid/container/restarts.log."""
    images = _images(tree)
    found: dict[str, list[str]] = defaultdict(list)
    for name in tree.names(LOGS)[:_MOST_PODS]:
        match = _POD.fullmatch(name)
        if match is not None and not _REPLICAS.fullmatch(match["owner"]):
            found[f"{match['namespace']}/{match['owner']}"].append(name)
    return [_service(tree, name, pods, images) for name, pods in sorted(found.items())]


def _service(tree: Tree, name: str, pods: list[str], images: dict[str, set[str]]) -> Service:
    notes, used = [], set()
    for pod in pods:
        place = f"{LOGS}/{pod}"
        for container in tree.names(place)[:64]:
            numbers = [int(file[:-4]) for file in tree.names(f"{place}/{container}") if re.fullmatch(r"\d{1,9}\.log", file)]
            if numbers and max(numbers) > 0:
                notes.append(f"its container {from_path(container)} has been restarted {max(numbers):,} times")
            notes += [f"has the container {from_path(container)}"] if numbers and not max(numbers) else []
        namespace, full, _ = pod.split("_")
        used |= images.get(f"{namespace}/{full}", set())
    return Service(
        name=name,
        kind="daemonset",
        state="enabled",
        starts=True,
        path=f"{LOGS}/{pods[0]}",
        description=" ".join(sorted(used)),
        pulled_by=("kubelet.service",),
        notes=("a DaemonSet's or a Job's, by its pod's name", *notes),
    )


def _images(tree: Tree) -> dict[str, set[str]]:
    """Images by namespace/pod, from the annotations that containerd's CRI plug-in makes (internal/cri/annotations)."""
    found: dict[str, set[str]] = defaultdict(set)
    for place in _TASKS:
        for container in tree.names(place)[:_MOST_PODS]:
            try:
                document = from_json(tree.read(f"{place}/{container}/config.json") or b"null")
            except ValueError:
                continue
            said = document.get("annotations") if isinstance(document, dict) else None
            if isinstance(said, dict):
                pod, namespace, image = (
                    said.get(f"io.kubernetes.cri.{key}") for key in ("sandbox-name", "sandbox-namespace", "image-name")
                )
                if isinstance(pod, str) and isinstance(namespace, str) and isinstance(image, str):
                    found[f"{namespace}/{pod}"].add(image)
    return found
