"""What each source needs of the host, as data: capabilities, host directories, and what is lost without them.

The Helm chart and the systemd unit ask for the sum of this and for nothing else: tests hold them equal to it, and take each
capability away on the running kernel to see that the source says so.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

HOST: Final = "/host"
"""Where the host's directories are in the container: agent.host is set to it."""

Kernel = Literal["current", "before-5.11", "before-5.8"]
KERNELS: Final[tuple[Kernel, ...]] = ("current", "before-5.11", "before-5.8")


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or device of the host, read-only, and where the container sees it."""

    path: str
    at: str
    kind: str = "Directory"
    """As a hostPath volume has it. What is missing must be an error: a runtime would make the directory on the host, and
    journald, for one, changes its ways when /var/log/journal is there (journald.conf(5), Storage=auto)."""


def _host(path: str) -> Mount:
    return Mount(path, HOST + path.rstrip("/"))


PROC: Final = _host("/proc")
SYS: Final = _host("/sys")
TRACING: Final = Mount("/sys/kernel/tracing", "/sys/kernel/tracing")
"""Below the container's own /sys, where nothing is mounted: tracepoints are of the running kernel, whatever root is read."""


@dataclass(frozen=True, slots=True)
class Need:
    """Of one source, or of a part of one. Capabilities are without CAP_, as Kubernetes writes them."""

    source: str
    mounts: tuple[Mount, ...]
    capabilities: tuple[str, ...] = ()
    group: str = "always"
    """Always, or what has to be switched on for it."""
    without: str = ""
    """What is lost without the capabilities."""


_UNNAMED: Final = "zombies are counted, and not named"
_NO_STALLS: Final = (
    "stalls are told from /proc/PID/schedstat, which is weaker; late polls, softirqs and reclaim are not measured"
)

NEEDS: Final = (
    *(Need(name, (PROC,)) for name in ("cpu", "vmstat", "softnet", "softirqs", "meminfo", "processes")),
    *(Need(name, (PROC, SYS)) for name in ("interrupts", "throttling", "pressure", "memcg", "cgroup-dirs", "nic")),
    Need("kernel-log", (PROC,), ("SYSLOG",), without="no NIC resets, lockups and OOM kills, unless dmesg_restrict is 0"),
    Need("zombies", (PROC, SYS), ("BPF", "PERFMON"), without=_UNNAMED),
    Need("cgroup-events", (PROC, TRACING), ("PERFMON",), without="who makes and removes cgroups is not seen"),
    Need("samples", (PROC, SYS), ("PERFMON",), without="no stacks"),
    Need("samples", (PROC, SYS), ("SYSLOG",), without="stacks without the kernel's names (/proc/kallsyms shows zeros)"),
    Need("latency", (PROC, SYS, TRACING), ("BPF", "PERFMON"), without=_NO_STALLS),
    # setpriority(2) below 0. A pod does without: it is weighed by its cgroup, and nice is within that.
    Need("latency", (PROC,), ("SYS_NICE",), "priority", "on a busy core it looks for stalls later, and tells them later"),
    Need("journal", (PROC, _host("/run/log"), _host("/run/systemd/system"), _host("/var/log")), group="journal"),
    # A read-only mount does not keep a socket from being connected to, and systemd does what root asks: root of the host.
    Need("units", (PROC, _host("/run/dbus"), _host("/run/systemd/system")), group="dbus"),
    Need("zombies", (_host("/run/containerd/io.containerd.runtime.v2.task"),), group="runtime=containerd"),
    Need("zombies", (_host("/run/k3s/containerd/io.containerd.runtime.v2.task"),), group="runtime=k3s"),
    Need("zombies", (_host("/var/lib/docker/containers"),), group="runtime=docker"),
    Need("zombies", (_host("/var/lib/containers/storage/overlay-containers"),), group="runtime=cri-o"),
    # namespaces(7): /proc/PID/ns is PTRACE_MODE_READ; setns(2) into a network namespace is CAP_SYS_ADMIN.
    Need("nic", (PROC, SYS), ("SYS_PTRACE", "SYS_ADMIN"), "ethtool", "no statistics of drivers"),
    # proc(5): /proc/PID/root and maps are PTRACE_MODE_READ. /proc/1/root is the host's root, writable: root of the host.
    Need("samples", (PROC, SYS), ("SYS_PTRACE",), "user-stacks", "no names in programs"),
    # All that root may read, password hashes and private keys among it. What only another user may read is not judged: that
    # would take DAC_READ_SEARCH, and open_by_handle_at(2) with it leads out of every mount namespace.
    Need("audit", (Mount("/", HOST),), group="audit"),
)

HOST_ROOT: Final = ("DAC_READ_SEARCH", "SYS_PTRACE", "SYS_ADMIN")
"""Capabilities with which a process of user 0 that sees the host's processes or one of its directories is root of the host."""

SYSTEMD_UNIT: Final = ("always", "journal", "priority")
"""What the plain unit is for. It is in the host's network namespace, and needs nothing for ethtool."""


def writable(recording: str) -> tuple[str, ...]:
    """The only directories of the host that the agent writes: the recording, and profiles that wait to be sent."""
    return recording, f"{recording.rstrip('/')}.spool"


def capabilities(groups: Collection[str], kernel: Kernel = "current") -> tuple[str, ...]:
    """The sum of what they need, in order of the alphabet."""
    found = {one for need in _of(groups) for one in need.capabilities}
    if kernel != "current" and "BPF" in found:
        found.add("SYS_RESOURCE")  # BPF's memory was locked memory, and its limit had to be raised (3ac1f01b43b6, 5.11)
    if kernel == "before-5.8":  # neither was known (a17b53c4a4b5, 980737282232)
        found = (found - {"BPF", "PERFMON"}) | {"SYS_ADMIN"}
    return tuple(sorted(found))


def mounts(groups: Collection[str]) -> tuple[Mount, ...]:
    """Each once, by path; with the whole root none of the directories that are in it."""
    found = {mount.path: mount for need in _of(groups) for mount in need.mounts}
    if "/" in found:
        found = {path: mount for path, mount in found.items() if path == "/" or not mount.at.startswith(HOST)}
    return tuple(found[path] for path in sorted(found))


def _of(groups: Collection[str]) -> tuple[Need, ...]:
    return tuple(need for need in NEEDS if need.group == "always" or need.group in groups)
