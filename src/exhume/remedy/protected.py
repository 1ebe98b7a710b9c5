"""Units that a remedy leaves alone unless it is told otherwise: without them a node is lost, or out of reach."""

import re

# By name of the unit, instances and aliases included.
PROTECTED = (
    "kubelet",
    "containerd",
    "docker",
    "crio",
    "cri-o",
    "podman",
    "k3s",
    "k3s-agent",
    "rke2-server",
    "rke2-agent",
    "ssh",
    "sshd",
    "dbus",
    "dbus-broker",
    "systemd-journald",
    "systemd-logind",
    "systemd-networkd",
    "systemd-resolved",
    "systemd-udevd",
    "NetworkManager",
    "amazon-ssm-agent",
    "google-guest-agent",
    "walinuxagent",
    "cloud-init",
    "chronyd",
)
_UNIT = re.compile(r"^(?P<name>[^/@]+?)(?:@[^/]*)?\.(?:service|socket|scope)$")


def protected(unit: str) -> bool:
    match = _UNIT.match(unit)
    return match is not None and match["name"] in PROTECTED
