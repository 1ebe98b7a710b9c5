"""From a container's id to its name, image and labels by the runtime's own state on disk, and to the unit that asked for it.

No runtime is asked: a socket may hang on a starving node, and dockerd, containerd and CRI-O all keep what is needed in files.
The unit comes with a confidence, because most runtimes do not write down who asked them. The hand that made the cgroup (PID 1,
runc, dockerd) is never named.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from exhume.host.container_units import Asked, Units
from exhume.host.owners import Owner
from exhume.host.root import Root
from exhume.recording.recording import Labels
from exhume.text import decode, from_json

# An OCI configuration with its seccomp profile has some 30 KiB; podman's list of all containers has 1 KiB for each.
_LARGEST = 4 << 20
_MOST_LABELS, _LONGEST = 100, 4096
_MOST_NAMES = 20_000
_MOST_CONTAINERS = 500

_ID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_.-]{11,127}")
_UID = re.compile(r"[0-9a-f-]{32,36}")

_DOCKER = "var/lib/docker"
# Task directories of containerd's runtime plug-ins, one directory a namespace below them; k3s and microk8s bring their own.
_CONTAINERD = (
    "run/containerd/io.containerd.runtime.v2.task",
    "run/containerd/io.containerd.runtime.v1.linux",
    "run/k3s/containerd/io.containerd.runtime.v2.task",
    "var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task",
)
_STORAGE = ("run/containers/storage/overlay-containers", "var/lib/containers/storage/overlay-containers")
# Both index files of containers/storage; containers that are removed when they stop (`--rm`) are in the volatile one.
_INDEXES = ("containers.json", "volatile-containers.json")


@dataclass(frozen=True, slots=True)
class ContainerState:
    """What is known of a container, or of a pod; "" for what is not."""

    name: str = ""
    image: str = ""
    pod: str = ""
    namespace: str = ""
    labels: Labels = ()
    started_by_unit: str = ""
    """The unit that asked the runtime for it."""
    confidence: float = 0.0
    """How sure it is that this unit asked; of the name, where no unit is known."""
    how: str = ""
    """How all that is known, for people."""
    restarts: int = -1
    """How often docker's restart policy started it again; a supervisor that makes a new one each time does not count here."""


def describe(root: Root, owner: Owner) -> ContainerState:
    """What the disk says of whom a cgroup belongs to. For many at once keep a Containers."""
    return Containers(root).describe(owner)


class Containers:
    """Describes containers, and remembers what is costly to find out: lists of all of them, and what units start."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._units = Units(root)
        self._docker = docker_root(root)

    def describe(self, owner: Owner) -> ContainerState:
        state = self._on_disk(owner)
        if state is None:
            # Of a container that docker has removed nothing is left; of any other its path may still tell.
            gone = owner.runtime == "docker" and bool(owner.container) and not owner.pod and not owner.unit
            return self._heir if gone else self._with_unit(ContainerState(), owner)
        return self._with_unit(state, owner)

    def _with_unit(self, state: ContainerState, owner: Owner) -> ContainerState:
        asked = self._units.asked_for(owner, state.name, state.image, dict(state.labels), state.pod)
        return _asked(state, asked)

    def _on_disk(self, owner: Owner) -> ContainerState | None:
        if _ID.fullmatch(owner.container):
            for look in (self._of_docker, self._of_containerd, self._of_storage, self._of_index, self._of_log_links):
                if (found := look(owner.container)) is not None:
                    return found
        if _UID.fullmatch(owner.pod):
            return self._of_pod_logs(owner.pod)
        return None

    def _of_docker(self, container: str) -> ContainerState | None:
        """config.v2.json of moby's daemon (container.ToDisk)."""
        raw = _object(_json(self._root, f"{self._docker}/containers/{container}/config.v2.json"))
        config = _object(raw.get("Config"))
        labels = _labels(config.get("Labels"))
        name = _text(raw.get("Name")).lstrip("/")
        if not name and not config:
            return None
        restarts = raw.get("RestartCount")
        return _named(
            replace(
                ContainerState(restarts=restarts if type(restarts) is int and 0 <= restarts < 1 << 63 else -1),
                name=name,
                image=_text(config.get("Image")),
                labels=tuple(sorted(labels.items())),
                how="docker's state on disk",
            ),
            labels,
        )

    def _of_containerd(self, container: str) -> ContainerState | None:
        """The OCI configuration that containerd hands to the runtime; its CRI plug-in annotates whose it is
        (internal/cri/annotations). It goes when the task does."""
        for place in _CONTAINERD:
            for namespace in self._root.first_names(place, 64):
                annotations = _annotations(_json(self._root, f"{place}/{namespace}/{container}/config.json"))
                name = annotations.get("io.kubernetes.cri.container-name", "") or annotations.get("nerdctl/name", "")
                pod = annotations.get("io.kubernetes.cri.sandbox-name", "")
                if name or pod:
                    return ContainerState(
                        name=name or "POD",
                        image=annotations.get("io.kubernetes.cri.image-name", ""),
                        pod=pod,
                        namespace=annotations.get("io.kubernetes.cri.sandbox-namespace", ""),
                        labels=_few(annotations, "nerdctl/"),
                        how=f"containerd's state on disk, namespace {namespace}",
                    )
        return None

    def _of_storage(self, container: str) -> ContainerState | None:
        """The OCI configuration that CRI-O, and podman in part, keep with the container (pkg/annotations of CRI-O)."""
        for place in _STORAGE:
            annotations = _annotations(_json(self._root, f"{place}/{container}/userdata/config.json"))
            labels = _labels(_parsed(annotations.get("io.kubernetes.cri-o.Labels", "").encode("utf-8", "surrogatepass")))
            name = annotations.get("io.kubernetes.container.name", "")
            if name or annotations.get("io.kubernetes.pod.name"):
                state = ContainerState(
                    name=name or "POD",
                    image=annotations.get("io.kubernetes.cri-o.ImageName", "")
                    or annotations.get("io.kubernetes.cri-o.Image", ""),
                    labels=tuple(sorted(labels.items())),
                    how="CRI-O's state on disk",
                )
                return _named(state, annotations)
        return None

    def _of_index(self, container: str) -> ContainerState | None:
        entry = self._storage_index.get(container)
        if entry is None:
            return None
        listed = entry.get("names")
        said = _object(_parsed(_text(entry.get("metadata"), _LARGEST).encode()))
        return ContainerState(
            name=_text(said.get("name")) or (_text(listed[0]) if isinstance(listed, list) and listed else ""),
            image=_text(said.get("image-name")),
            how="the list of containers/storage, which podman and CRI-O share",
        )

    @cached_property
    def _storage_index(self) -> dict[str, dict[str, object]]:
        """containers/storage keeps a list of all containers, with podman's and CRI-O's word on each in `metadata`."""
        found = {}
        for place in _STORAGE:
            for index in _INDEXES:
                listed = _json(self._root, f"{place}/{index}")
                for entry in map(_object, listed if isinstance(listed, list) else ()):
                    found[_text(entry.get("id"))] = entry
        return found

    def _of_log_links(self, container: str) -> ContainerState | None:
        return self._log_links.get(container)

    @cached_property
    def _log_links(self) -> dict[str, ContainerState]:
        """The kubelet links pod_namespace_container-id.log (kuberuntime/legacy.go). A link stays until its container is
        collected, which for the last dead one of a pod is when the next dies."""
        found = {}
        for name in self._root.first_names("var/log/containers", _MOST_NAMES):
            parts = name.removesuffix(".log").split("_")
            container, dash, number = parts[-1].rpartition("-")
            if len(parts) == 3 and dash and container:
                found[number] = ContainerState(
                    name=container, pod=parts[0], namespace=parts[1], how="the kubelet's link in /var/log/containers"
                )
        return found

    def _of_pod_logs(self, uid: str) -> ContainerState | None:
        return self._pod_logs.get(uid)

    @cached_property
    def _pod_logs(self) -> dict[str, ContainerState]:
        """The kubelet keeps the logs of a pod in namespace_pod_uid, until the pod is deleted (BuildPodLogsDirectory)."""
        found = {}
        for name in self._root.first_names("var/log/pods", _MOST_NAMES):
            parts = name.split("_")
            if len(parts) == 3 and all(parts):
                found[parts[2]] = ContainerState(
                    pod=parts[1], namespace=parts[0], how="the kubelet's directory in /var/log/pods"
                )
        return found

    @cached_property
    def _heir(self) -> ContainerState:
        """A container that a unit makes anew after each crash has an heir: if a single unit asks for any of docker's
        containers today, that is a hint to whose the gone ones were, and the weaker the more others there are."""
        heirs: dict[str, ContainerState] = {}
        others = 0
        for container in self._root.first_names(f"{self._docker}/containers", _MOST_CONTAINERS):
            state = self._of_docker(container) if _ID.fullmatch(container) else None
            if state is None or state.pod:
                continue
            described = self._with_unit(state, Owner(container=container, runtime="docker"))
            if described.started_by_unit:
                heirs[described.started_by_unit] = described
            else:
                others += 1
        if len(heirs) != 1:
            return ContainerState(how="docker has nothing on it any more")
        heir = next(iter(heirs.values()))
        why = f"it is gone; of docker's containers today {heir.name} is the one that a unit asks for: {heir.how}"
        return replace(heir, labels=(), restarts=-1, confidence=0.4 * heir.confidence / (1 + others), how=why)


def docker_root(root: Root) -> str:
    """Where docker keeps its state: /var/lib/docker unless its configuration says otherwise (dockerd(8))."""
    config = _object(_json(root, "etc/docker/daemon.json"))
    return (_text(config.get("data-root")) or _text(config.get("graph")) or _DOCKER).strip("/") or _DOCKER


def _named(state: ContainerState, labels: Mapping[str, str]) -> ContainerState:
    """With the names that the kubelet gives to the containers it asks docker or CRI-O for (kubelet/types/labels.go)."""
    return replace(
        state,
        name=labels.get("io.kubernetes.container.name", "") or state.name,
        pod=labels.get("io.kubernetes.pod.name", ""),
        namespace=labels.get("io.kubernetes.pod.namespace", ""),
    )


def _asked(state: ContainerState, asked: Asked) -> ContainerState:
    if asked.how:
        how = f"{state.how}; {asked.how}" if state.how else asked.how
        return replace(state, started_by_unit=asked.unit, confidence=asked.confidence, how=how)
    return replace(state, confidence=0.9 if state.name or state.pod else 0.0, how=state.how or "no runtime has it on disk")


def _json(root: Root, name: str) -> object:
    """A JSON file of the root; None for one that is not there, is no regular file, is too large or is damaged."""
    raw = root.regular(name, _LARGEST)
    return None if raw is None else _parsed(raw)


def _parsed(raw: bytes) -> object:
    try:
        value: object = from_json(raw)
    except ValueError:
        return None
    return value


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object, longest: int = _LONGEST) -> str:
    """Text that may be kept: JSON can spell lone surrogates, which no file can hold."""
    if not isinstance(value, str):
        return ""
    value = value[:longest]
    return value if value.isascii() else decode(value.encode("utf-8", "surrogatepass"))


def _labels(value: object) -> dict[str, str]:
    pairs = ((_text(key), _text(text)) for key, text in islice(_object(value).items(), _MOST_LABELS))
    return {key: text for key, text in pairs if key}


def _annotations(config: object) -> dict[str, str]:
    return _labels(_object(config).get("annotations"))


def _few(annotations: Mapping[str, str], prefix: str) -> Labels:
    return tuple(sorted((key, text) for key, text in annotations.items() if key.startswith(prefix)))
