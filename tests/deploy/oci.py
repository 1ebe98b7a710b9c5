"""Containers as a Kubernetes node would run them: runc, with the capabilities, mounts and seccomp profile that a pod asks for.

runc is the program that containerd and CRI-O start, so what is refused here is refused there: capabilities, the list of
devices, system calls. The profile is CRI-O's and podman's own, from the Debian package that they share
(golang-github-containers-common); it is resolved for a set of capabilities as its field `includes` says.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exhume.agent.privileges import Mount

PROFILE = Path("/usr/share/containers/seccomp.json")
CGROUP = "exhume-test-oci"
NEW_CALLS = ("bpf", "perf_event_open")
"""What containerd's profile of 2.4 lets through for CAP_BPF and CAP_PERFMON, and that of Debian 12 for CAP_SYS_ADMIN alone."""
_SYS_RESOURCE = 24  # include/uapi/linux/capability.h
# What runc allows by itself is what every runtime allows: null, zero, full, random, urandom, tty, ptmx, pts.
_DENIED = [{"allow": False, "access": "rwm"}]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_PATH = "PATH=/opt/exhume/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def unavailable() -> str:
    """Why no container can be run here; "" when one can."""
    if os.geteuid() != 0:
        return "containers need root"
    if shutil.which("runc") is None:
        return "containers need runc (Debian: runc)"
    return ""


@dataclass(frozen=True, slots=True)
class Pod:
    """What of a pod's specification matters to the runtime."""

    root: str
    capabilities: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    scratch: tuple[str, ...] = ("/tmp",)
    """Directories in memory."""
    host_network: bool = False
    host_pid: bool = True
    seccomp: dict[str, object] | None = None
    environment: tuple[str, ...] = ()
    writable: dict[str, str] = field(default_factory=dict)
    """Directories of the host that may be written, by where they are inside."""
    privileged: bool = False


def run(pod: Pod, command: Sequence[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
    name = f"exhume-test-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory(prefix="exhume-test-oci-") as bundle:
        Path(bundle, "config.json").write_text(json.dumps(config(pod, command, name)))
        runc = ["runc", "--root", f"{bundle}/state"]
        try:
            return subprocess.run(
                [*runc, "run", "--bundle", bundle, name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="backslashreplace",
                timeout=timeout,
            )
        finally:
            subprocess.run([*runc, "delete", "--force", name], capture_output=True)
            _sweep(name)


def config(pod: Pod, command: Sequence[str], name: str) -> dict[str, object]:
    """The runtime's own form of it (OCI runtime specification)."""
    capabilities = [f"CAP_{one}" for one in pod.capabilities]
    kinds = ["mount", "ipc", "uts", "cgroup"]
    kinds += [] if pod.host_network else ["network"]
    kinds += [] if pod.host_pid else ["pid"]
    masked = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]
    linux: dict[str, object] = {
        "namespaces": [{"type": kind} for kind in kinds],
        "cgroupsPath": f"/{CGROUP}/{name}",
        "resources": {"devices": [{"allow": True, "access": "rwm"}] if pod.privileged else _DENIED},
    }
    if not pod.privileged:
        linux |= {"maskedPaths": masked, "readonlyPaths": _READ_ONLY}
    if pod.seccomp is not None:
        linux["seccomp"] = pod.seccomp
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(command),
            "env": [_PATH, "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1", *pod.environment],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "noNewPrivileges": True,
        },
        "root": {"path": pod.root, "readonly": True},
        "hostname": "pod",
        "mounts": [*_own(pod), *map(_bound, pod.mounts)],
        "linux": linux,
    }


def held(capabilities: Sequence[str]) -> tuple[str, ...]:
    """Those that this machine can give: some keep CAP_SYS_RESOURCE for themselves."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        bits = next(int(line.split()[1], 16) for line in status if line.startswith("CapBnd:"))
    return tuple(one for one in capabilities if one != "SYS_RESOURCE" or bits >> _SYS_RESOURCE & 1)


def _own(pod: Pod) -> list[dict[str, object]]:
    """What every container has, and what it may write to."""
    hard = ["nosuid", "noexec", "nodev"]
    sysfs: dict[str, object] = {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*hard, "ro"]}
    if pod.host_network:  # a sysfs can be mounted only by whoever made the network namespace
        sysfs = {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["bind", *hard, "ro"]}
    own: list[dict[str, object]] = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": hard},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance"]},
        sysfs,
    ]
    own += [{"destination": at, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]} for at in pod.scratch]
    own += [{"destination": at, "type": "bind", "source": path, "options": ["bind"]} for at, path in pod.writable.items()]
    return own


def _bound(mount: Mount) -> dict[str, object]:
    """As the kubelet's hostPath volumes with recursiveReadOnly: with everything mounted below it, all of it read-only."""
    return {"destination": mount.at, "type": "bind", "source": mount.path, "options": ["rbind", "rprivate", "ro", "rro"]}


def profile(capabilities: Sequence[str], path: Path = PROFILE) -> dict[str, object]:
    """The runtime's default seccomp profile for a container with these capabilities."""
    told = json.loads(path.read_text())
    have = {f"CAP_{one}" for one in capabilities}
    rules = []
    for rule in told["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        if not set(includes.get("caps") or ()) <= have or set(excludes.get("caps") or ()) & have:
            continue
        if (arches := includes.get("arches")) and "amd64" not in arches:
            continue
        if "amd64" in (excludes.get("arches") or ()):
            continue
        kept = {key: rule[key] for key in ("names", "action", "args", "errnoRet") if rule.get(key) is not None}
        rules.append(kept)
    return {
        "defaultAction": told["defaultAction"],
        "defaultErrnoRet": told.get("defaultErrnoRet", 1),
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules,
    }


def with_calls(profile: dict[str, object], names: Sequence[str]) -> dict[str, object]:
    """The profile with a few system calls more."""
    rules = profile["syscalls"]
    assert isinstance(rules, list)
    kept = [{**rule, "names": [name for name in rule["names"] if name not in names]} for rule in rules]
    return {**profile, "syscalls": [*(rule for rule in kept if rule["names"]), {"names": [*names], "action": "SCMP_ACT_ALLOW"}]}


def programs(top: Path) -> tuple[Mount, ...]:
    """This machine's Python and the repository, in place of an image."""
    places = {"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", str(top), sys.prefix, sys.base_prefix}
    kept = sorted(place for place in places if os.path.exists(place))
    # What is below another is there already.
    outer = [one for one in kept if not any(one != other and one.startswith(f"{other}/") for other in kept)]
    return tuple(Mount(place, place) for place in outer)


def _sweep(name: str) -> None:
    """The cgroups of ours that are left, and their parent where it is empty."""
    for hierarchy in ("", *os.listdir("/sys/fs/cgroup")):
        for path in (f"/sys/fs/cgroup/{hierarchy}/{CGROUP}/{name}", f"/sys/fs/cgroup/{hierarchy}/{CGROUP}"):
            try:
                os.rmdir(path)
            except OSError:
                continue
