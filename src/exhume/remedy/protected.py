"""Units that no remedy ever touches, by name: without them a node is lost, or out of reach. Nothing lifts this list.

By which routes one of them can be met (aliases, links, what stops with what) is in `protected_units`.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache

from exhume.image.catalogue import Catalogue
from exhume.image.model import Service
from exhume.image.systemd import names

# Of the unit without its type and its instance; compared without regard to case.
PROTECTED = (
    # what runs the workload, and what it runs in
    *(
        "kubelet",
        "kubelet-*",
        "snap.kubelet*",
        "containerd",
        "docker",
        "cri-docker",
        "snap.docker.*",
        "crio",
        "crio-*",
        "cri-o",
    ),
    *("podman", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "rancher-system-agent", "snap.microk8s.*", "kube-*", "etcd"),
    *("*device-plugin*", "nvidia-persistenced", "nvidia-fabricmanager", "slurmd", "munge"),
    # the ways in
    *("ssh", "sshd", "sshd-keygen", "dropbear", "getty", "serial-getty", "console-getty", "container-getty", "autovt"),
    *("amazon-ssm-agent", "snap.amazon-ssm-agent.*", "google-guest-agent", "google-guest-agent-manager", "walinuxagent"),
    *("waagent", "cloud-init", "cloud-init-*", "cloud-config", "cloud-final", "tailscaled", "wg-quick"),
    # the network
    *("networkmanager", "networkmanager-*", "networking", "network", "netplan-*", "ifup", "wicked", "wickedd*", "dhcpcd"),
    *("dhclient", "connman", "wpa_supplicant", "flanneld", "calico-*", "cilium*", "nftables", "iptables", "ip6tables"),
    *("netfilter-persistent", "ufw", "firewalld", "openibd", "efa", "rdma-*"),
    # the manager, its own parts, and what they hang on
    *("dbus", "dbus-broker", "systemd-*", "init", "user", "user-runtime-dir", "session-*", "polkit"),
    *("emergency", "rescue", "initrd-*", "chronyd", "chrony", "ntp", "ntpd", "ntpsec", "apparmor", "sssd", "sssd-*"),
    *("lvm2-*", "dm-event", "mdmonitor", "mdmon", "multipathd", "iscsid", "open-iscsi", "iscsi", "modprobe", "kmod*"),
    # ourselves
    *("exhume", "exhume-*"),
)
ACTED_ON = ("service", "socket", "timer", "path")
"""A target gathers others, a slice holds them, a mount or swap carries them, a scope is somebody's session or container."""

_TYPE = re.compile(rf"\.(?:{'|'.join(names.TYPES)})\Z", re.IGNORECASE)


@lru_cache(maxsize=1 << 14)
def protected(unit: str) -> bool:
    """Whether the list has it: by its name, whatever its type, its instance and its case; escapes undone."""
    stem = _TYPE.sub("", unit).casefold()
    if stem == unit.casefold() or "/" in unit:
        return False
    forms = {stem, names.unescape(stem.replace("-", "\\x2d")).casefold()}
    forms |= {_TYPE.sub("", form) for form in forms}
    forms |= {form.partition("@")[0] for form in forms}
    return any(fnmatchcase(form, pattern) for form in forms if form for pattern in PROTECTED)


def built_in(unit: str, catalogue: Catalogue | None = None) -> str:
    """Why a unit is never acted on, as the end of a sentence; empty for one that may be."""
    if protected(unit):
        return "without it the node, its network or the way to it is lost"
    kind = names.kind(unit).casefold()
    if kind not in ACTED_ON:
        whose = "; a scope is a session or a container, and is ended by whoever made it" if kind == "scope" else ""
        return f"a {kind} is not acted on: only services, sockets, timers and paths are{whose}"
    agent = catalogue.recognise(Service(unit, "unit", "", starts=False)) if catalogue is not None else None
    if agent is not None and agent.protected:
        return f"it belongs to {agent.name}, without which the node, its network or the way to it is lost"
    return ""
