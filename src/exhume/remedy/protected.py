"""Units that no remedy ever touches, by name or by what they run: without them a node is lost, or out of reach. Nothing lifts
this list.

By which routes one of them can be met (aliases, links, what stops with what) is in `protected_units`.
"""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import lru_cache

from exhume.host.catalogue import Catalogue
from exhume.host.service import Service
from exhume.host.systemd import names
from exhume.remedy.protected_commands import last
from exhume.text import printable

# Of the unit without its type and its instance; compared without regard to case.
PROTECTED = (
    # what runs the workload, and what it runs in
    *(
        "kubelet",
        "kubelet-*",
        "snap.kubelet*",
        "snap.k8s.*",
        "snap.kube-proxy.*",
        "k0s*",
        "containerd",
        "host-containerd",
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
    *("ssh", "sshd", "sshd-*", "dropbear", "getty", "serial-getty", "console-getty", "container-getty", "autovt"),
    *("amazon-ssm-agent", "snap.amazon-ssm-agent.*", "google-guest-agent", "google-guest-agent-manager", "walinuxagent"),
    *("waagent", "cloud-init", "cloud-init-*", "cloud-config", "cloud-final", "tailscaled", "wg-quick", "teleport"),
    *("host-containers@admin", "host-containers@control", "openssh-server", "openssh", "ssh-*", "cockpit", "cockpit-*"),
    *("qemu-guest-agent", "qemu-ga", "open-vm-tools", "vmtoolsd", "vgauth", "hv-*", "hypervkvpd", "hypervvssd", "xe-daemon"),
    *("zerotier-one", "nebula", "nebula@*", "cloudflared", "cloudflared-*", "netbird", "headscale", "twingate", "openvpn"),
    *("openvpn-*", "wireguard", "wireguard-*", "oslogin*", "ec2-instance-connect*", "nodeadm-*", "boundary", "xrdp"),
    # the network
    *("networkmanager", "networkmanager-*", "networking", "network", "netplan-*", "ifup", "wicked", "wickedd*", "dhcpcd"),
    *("dhclient", "connman", "wpa_supplicant", "flanneld", "calico-*", "cilium*", "nftables", "iptables", "ip6tables"),
    *("netfilter-persistent", "ufw", "firewalld", "openibd", "efa", "rdma", "rdma-*", "iwd", "strongswan", "strongswan-*"),
    *("openvswitch", "openvswitch-*", "ovs-vswitchd", "ovsdb-server", "ovn-*", "keepalived", "hostapd", "pppd", "ppp"),
    *("ipsec", "libreswan", "openswan", "pluto", "charon*", "racoon", "frr", "bird", "bird6", "bird-*", "quagga", "zebra"),
    *("bgpd", "ospfd", "dnsmasq", "named", "bind9", "unbound", "resolvconf", "nscd", "nslcd", "winbind", "ifupdown-*"),
    *("shorewall*", "conntrackd", "haproxy", "corosync", "pacemaker", "ibacm", "srp_daemon*"),
    # machines and their disks
    *("lxd", "lxd-*", "snap.lxd.*", "incus", "incus-*", "lxc", "lxc-*", "lxcfs", "libvirtd", "libvirt-*", "virt*d"),
    *("virtlockd-*", "qemu-*", "pve*", "vz", "nfs", "nfs-*", "nfsd", "nfsdcld", "rpcbind", "rpc-*", "autofs", "gssproxy"),
    *("zfs-*", "zed", "zpool-*", "ceph", "ceph-*", "glusterd", "drbd", "drbd-*", "stratisd", "bcache*", "cryptsetup*"),
    *("blk-availability", "target", "tgt", "nvmf-*", "nvmefc-*", "beegfs-*", "lnet", "lustre*", "gpfs", "wekafs*"),
    # the manager, its own parts, and what they hang on
    *("dbus", "dbus-broker", "systemd-*", "init", "user", "user-runtime-dir", "session-*", "polkit"),
    *("emergency", "rescue", "initrd-*", "chronyd", "chrony", "ntp", "ntpd", "ntpsec", "apparmor", "sssd", "sssd-*"),
    *("lvm2-*", "dm-event", "mdmonitor", "mdmon", "multipathd", "iscsid", "open-iscsi", "iscsi", "modprobe", "kmod*"),
    # ourselves
    *("exhume", "exhume-*"),
)
RUNS = frozenset(
    (
        # the workload
        *("kubelet", "kubelite", "hyperkube", "containerd", "dockerd", "cri-dockerd", "crio", "k3s", "rke2", "k0s"),
        *("kube-proxy", "kube-apiserver", "etcd", "slurmd", "munged", "nvidia-fabricmanager", "nv-fabricmanager"),
        *("nvidia-persistenced", "rancher-system-agent", "nodeadm", "lxd", "incusd", "libvirtd", "virtqemud", "lxcfs"),
        # the ways in
        *("sshd", "dropbear", "teleport", "tailscaled", "amazon-ssm-agent", "ssm-agent-worker", "zerotier-one", "nebula"),
        *("cloudflared", "netbird", "openvpn", "qemu-ga", "vmtoolsd", "google_guest_agent", "cockpit-ws", "cockpit-tls"),
        *("agetty", "systemd-logind", "systemd-networkd", "systemd-resolved", "systemd-udevd", "systemd-journald"),
        # the network
        *("networkmanager", "wickedd", "dhcpcd", "dhclient", "flanneld", "calico-node", "cilium-agent", "wpa_supplicant"),
        *("iwd", "hostapd", "keepalived", "ovs-vswitchd", "ovsdb-server", "ovn-controller", "charon", "charon-systemd"),
        *("pluto", "wireguard-go", "bird", "zebra", "bgpd", "pppd", "connmand", "firewalld"),
        # what they hang on
        *("dbus-daemon", "dbus-broker-launch", "dbus-broker", "sssd", "rpcbind", "automount", "zed", "multipathd", "iscsid"),
    )
)
"""Programs that make a unit one of them, whatever it is called and wherever they lie."""
ACTED_ON = ("service", "socket", "timer", "path")
"""A target gathers others, a slice holds them, a mount or swap carries them, a scope is somebody's session or container."""

_VERSION = re.compile(r"[-_.]v?\d.*\Z")
_AROUND = re.compile(
    r"\A(?:start|run|launch|exec)[-_]|(?:[-_](?:wrapper|launcher|start|run|bin|real)|\.(?:sh|bash|bin|real|orig))+\Z"
)
"""What is added to a program's name for what only starts it: kubelet-wrapper, start-kubelet.sh."""
_COMM = 15
"""Of a process's name so many bytes are kept (TASK_COMM_LEN of include/linux/sched.h)."""
_CUT = frozenset(name[:_COMM] for name in RUNS if len(name) > _COMM)
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


def built_in(unit: str, catalogue: Catalogue | None = None, run: Collection[str] = ()) -> str:
    """Why a unit is never acted on, as the end of a sentence; empty for one that may be. `run` are the programs it runs."""
    if protected(unit):
        return "without it the node, its network or the way to it is lost"
    kind = names.kind(unit).casefold()
    if kind not in ACTED_ON:
        whose = "; a scope is a session or a container, and is ended by whoever made it" if kind == "scope" else ""
        return f"a {kind} is not acted on: only services, sockets, timers and paths are{whose}"
    if known := [each for each in run if runs(each)]:
        return f"it runs {printable(known[0])}, without which the node, its network or the way to it is lost"
    # By its name and by what it runs apart: the catalogue goes by the name where it knows one.
    for name, ran in ((unit, ()), *(("", (each,)) for each in run)):
        agent = catalogue.recognise(Service(name, "unit", "", starts=False, command=ran)) if catalogue is not None else None
        if agent is not None and agent.protected:
            return f"it belongs to {agent.name}, without which the node, its network or the way to it is lost"
    return ""


def runs(path: str) -> bool:
    """Whether a program is one of those without which a node is lost; by its name, with or without a version after it, or by
    that of a script that only starts it."""
    name = last(path)
    return bool({name, _VERSION.sub("", name), _AROUND.sub("", _AROUND.sub("", name))} & RUNS)


def called(comm: str) -> bool:
    """The same by the name of a process, which the kernel cuts."""
    return runs(comm) or comm.casefold() in _CUT
