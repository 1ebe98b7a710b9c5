"""`kubectl debug node/N --image=... -- exhume check --host /host`: the pod that kubectl itself makes, run by runc as it stands.

A real API server is asked for the pod by the real kubectl; what it has made is carried over to the runtime word by word.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exhume.agent.privileges import HOST, Mount
from tests.cluster import servers
from tests.cluster.objects import make_node
from tests.deploy import image, oci
from tests.deploy.test_container import TOP

pytestmark = [
    pytest.mark.ci,
    pytest.mark.usefixtures("many_zombies"),
    pytest.mark.skipif(bool(oci.unavailable()), reason=oci.unavailable() or "-"),
]

# containerd, oci.defaultUnixCaps.
DEFAULT = tuple(
    """CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL
    AUDIT_WRITE""".split()
)
# include/uapi/linux/capability.h, by number.
EVERY = """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT
SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE""".split()


def _all_that_there_are() -> tuple[str, ...]:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        bits = next(int(line.split()[1], 16) for line in status if line.startswith("CapBnd:"))
    return tuple(name for number, name in enumerate(EVERY) if bits >> number & 1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    with servers.running(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def debugged(cluster: servers.Cluster, profile: str) -> dict[str, Any]:
    """The pod that kubectl makes for it, by the line of the documentation."""
    with cluster.client() as client:
        node = make_node(client, name=f"worker-{profile}")
        command = ["kubectl", "debug", f"node/{node}", "--image=exhume", f"--profile={profile}"]
        done = subprocess.run(
            [*command, "--", "exhume", "check", "--host", "/host", "--json", "--for", "500ms"],
            env={**os.environ, "KUBECONFIG": os.fspath(cluster.kubeconfig())},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        [found] = [one for one in client.list("/api/v1/namespaces/default/pods") if one["spec"].get("nodeName") == node]
        return found


def carried_over(pod: dict[str, Any], root: str) -> tuple[oci.Pod, list[str]]:
    spec: dict[str, Any] = pod["spec"]
    [container] = spec["containers"]
    security = container.get("securityContext") or {}
    privileged = security.get("privileged") is True
    kept = _all_that_there_are() if privileged else (*DEFAULT, *(security.get("capabilities") or {}).get("add", ()))
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec.get("volumes", []) if "hostPath" in volume}
    mounts = tuple(
        Mount(paths[one["name"]], one["mountPath"]) for one in container.get("volumeMounts", []) if one["name"] in paths
    )
    made = oci.Pod(
        root,
        kept,
        mounts,
        host_network=spec.get("hostNetwork") is True,
        host_pid=spec.get("hostPID") is True,
        privileged=privileged,
        seccomp=None if privileged or not oci.PROFILE.exists() else oci.profile(kept),
    )
    return made, [*container.get("command", []), *container.get("args", [])]


def checked(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    """Its sources; and it is this node that it speaks of."""
    assert done.returncode in (0, 1, 2), done.stderr
    report = json.loads(done.stdout)
    assert report["node"]["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert report["node"]["kernel"] == os.uname().release
    return {one["name"]: one for one in report["sources"]}


NEVER = {"units", "journal"}
"""Whether there is a systemd depends on the machine."""


@pytest.mark.parametrize("profile", ["legacy", "general", "sysadmin"])
def test_the_pod_that_kubectl_makes_sees_the_node(cluster: servers.Cluster, profile: str, tmp_path: Path) -> None:
    made, command = carried_over(debugged(cluster, profile), os.fspath(tmp_path))
    assert made.host_pid
    assert made.host_network
    assert Mount("/", HOST) in made.mounts
    assert command[:4] == ["exhume", "check", "--host", HOST]
    ours = replace(made, mounts=(*oci.programs(TOP), *made.mounts), environment=(f"PYTHONPATH={TOP}/src",))
    sources = checked(oci.run(ours, [sys.executable, "-m", *command]))
    off = {name for name, one in sources.items() if one["state"] == "off"} - NEVER
    if profile == "sysadmin":
        assert off == set()
        assert "named by walking" in sources["zombies"]["reason"]
    else:
        assert off == {"clock", "kernel-log", "latency-stacks"}
        assert "counted" in sources["memcg"]["reason"] or sources["memcg"]["reason"] == ""
    # Without the host's process ids, as in a pod that only mounts /, it is still the host that is read.
    alone = checked(oci.run(replace(ours, host_pid=False, host_network=False), [sys.executable, "-m", *command]))
    closed = {name for name, one in alone.items() if one["state"] == "off"} - NEVER
    assert closed - {"cgroup-dirs"} == off
    if "cgroup-dirs" in closed:
        assert "our own PID namespace" in alone["cgroup-dirs"]["reason"]


@pytest.mark.long
def test_the_image_does_the_same(cluster: servers.Cluster) -> None:
    if why := image.unavailable():
        pytest.skip(why)
    with image.root() as root:
        for profile in ("baseline", "legacy", "sysadmin"):
            made, command = carried_over(debugged(cluster, profile), root)
            if profile == "baseline":  # it has nothing of the host
                assert oci.run(made, command).returncode == 64
                continue
            sources = checked(oci.run(made, command))
            assert sources["memcg"]["state"] != "off"
            assert (sources["kernel-log"]["state"] != "off") is (profile == "sysadmin")
