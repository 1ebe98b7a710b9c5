"""Static pods: manifests that the kubelet starts by itself, without any API server being asked.

Where they lie is the kubelet's to know: staticPodPath of its configuration file, or --pod-manifest-path (reference of
KubeletConfiguration, kubelet.config.k8s.io/v1beta1). What counts there is the rule of pkg/kubelet/config/file.go.
"""

import re
from typing import Any

from exhume.host.commands import shown
from exhume.host.programs import paths, with_role
from exhume.host.service import Restart, Service
from exhume.host.tree import Tree, complain
from exhume.image.document import LARGEST, Malformed, at, parse, string, words
from exhume.image.sysv import UNITS
from exhume.text import decode, from_path, printable

DEFAULT = "/etc/kubernetes/manifests"  # kubeadm's (constants.go, ManifestsSubDirName)
# Configuration files that distributions name without a flag that we could find: kubeadm; EKS on AL2, Ubuntu and AL2023.
_CONFIGS = (
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
    "/etc/kubernetes/kubelet/config.json",
)
_FLAG_FILES = ("/etc/default/kubelet", "/etc/sysconfig/kubelet", "/var/lib/kubelet/kubeadm-flags.env")
MOST_PODS = 1000
MOST_BYTES = 1 << 20
"""Of all manifests in one place: real ones have a few thousand each, and YAML is slow to read."""


def read(tree: Tree) -> list[Service]:
    kubelet = next((path for path in paths("kubelet") if tree.entry(path)), "")
    found: list[Service] = []
    seen: set[str | None] = set()
    for place, why in _places(tree, bool(kubelet)):
        real = tree.real(place)
        if real not in seen:
            seen.add(real)
            found += _pods(tree, place, why)
    return found[:MOST_PODS]


def _places(tree: Tree, kubelet: bool) -> list[tuple[str, str]]:
    """Directories (or a file) of manifests, each with what keeps the pods in it from starting, if anything does."""
    flags = flag_text(tree)
    places = _flag(flags, "pod-manifest-path")
    configs = [path for path in (_flag(flags, "config") or _CONFIGS) if tree.entry(path)]
    for path in configs:
        try:
            configuration = parse(tree.read(path) or b"")
        except Malformed as why:
            complain(tree.troubles, f"{printable(from_path(path))}, the kubelet's configuration, cannot be read: {why}.")
            continue
        places += [place for place in [string(at(configuration, "staticPodPath"))] if place.startswith("/")]
    absent = "" if kubelet else "no kubelet is installed on this image"
    found = [(place, absent) for place in dict.fromkeys(places)]
    if DEFAULT not in places:
        # With a configuration that names no place the kubelet reads none; without any, kubeadm would name this one.
        found.append((DEFAULT, absent or (f"{configs[0]} names no staticPodPath" if configs else "")))
    # The kubelet of k3s and rke2 is inside of them.
    bundled = [program for program in with_role("kubelet") if program.static_pods]
    found += [(one.static_pods, "") for one in bundled if any(tree.entry(path) for path in one.executables)]
    return found


def flag_text(tree: Tree) -> str:
    """Everything that the kubelet's flags may stand in: its unit, the drop-ins and the files of environment they name."""
    texts = []
    for place in UNITS:
        texts.append(tree.read(f"{place}/kubelet.service"))
        texts += [tree.read(f"{place}/kubelet.service.d/{name}") for name in tree.names(f"{place}/kubelet.service.d")[:100]]
    unit = b"\n".join(text for text in texts if text)
    named = [decode(path) for path in re.findall(rb"(?m)^EnvironmentFile=-?(/\S+)", unit)[:20]]
    for path in dict.fromkeys([*_FLAG_FILES, *named]):
        texts.append(tree.read(path, 64 << 10))
    # A line that is commented out sets nothing.
    lines = [line for text in texts if text for line in text.split(b"\n") if not line.lstrip().startswith((b"#", b";"))]
    return decode(b"\n".join(lines))


def _flag(text: str, name: str) -> list[str]:
    return [value for value in re.findall(rf"--{name}[= ][\"']?(/[^\s\"'\\]+)", text) if len(value) < 4096]


def _pods(tree: Tree, place: str, why: str) -> list[Service]:
    entry = tree.entry(place)
    if entry is not None and entry.kind == "file":
        paths = [place]
    else:
        paths = [f"{place.rstrip('/')}/{name}" for name in tree.names(place) if not name.startswith(".")]
    found = []
    left = MOST_BYTES
    for path in paths[:MOST_PODS]:
        entry = tree.entry(path)
        if entry is None or entry.kind != "file":
            continue
        text = tree.read(path, LARGEST) or b""
        left -= len(text)
        if left < 0:
            complain(tree.troubles, f"{printable(from_path(place))} has more manifests than are read.")
            break
        try:
            document = parse(text)
        except Malformed as error:
            complain(tree.troubles, f"The manifest {printable(from_path(path))} cannot be read: {error}.")
            continue
        if pod := service(document, path, why):
            found.append(pod)
    return found


def service(document: Any, path: str, why: str) -> Service | None:
    """One manifest; None if it is no pod, which the kubelet would refuse."""
    if string(at(document, "kind")) != "Pod" or not string(at(document, "metadata", "name")):
        return None
    containers = at(document, "spec", "containers")
    containers = [one for one in containers if isinstance(one, dict)] if isinstance(containers, list) else []
    images = [image for image in (string(at(one, "image")) for one in containers) if image]
    commands = [shown(" ".join(words(at(one, "command")) + words(at(one, "args")))) for one in containers]
    namespace = string(at(document, "metadata", "namespace")) or "default"
    return Service(
        name=f"{namespace}/{at(document, 'metadata', 'name')}"[:500],
        kind="static-pod",
        state="disabled" if why else "enabled",
        starts=not why,
        path=path,
        description=" ".join(images)[:1000],
        command=tuple(command for command in commands if command),
        pulled_by=() if why else ("kubelet",),
        restart=restart(string(at(document, "spec", "restartPolicy")) or "Always"),
        cgroups="each of its containers has a cgroup, and a new one with every restart",
        conditions=(why,) if why else (),
    )


def restart(policy: str) -> Restart:
    """The kubelet waits 10 s, then twice as long each time up to 5 min, and begins anew after 10 min without a crash.

    Kubernetes documentation, "Pod lifecycle", container restarts; MaxContainerBackOff of pkg/kubelet/kubelet.go.
    """
    if policy == "Never":
        return Restart(policy, 0.0, 0, 0.0, False, "The kubelet does not start its containers again.")
    why = "The kubelet's back-off doubles from 10 s to 5 min and never ends: at least 288 restarts a day."
    return Restart(policy, 10.0, 0, 0.0, True, why)
