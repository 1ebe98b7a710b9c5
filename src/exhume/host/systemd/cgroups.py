"""Why a unit makes cgroups of its own, below or beside the one that systemd gives it."""

import posixpath
import re

from exhume.host.systemd.unit_file import Sections, boolean, split

RUNTIMES = {
    **{name: f"runs {name}, which makes a cgroup for each container" for name in ("docker", "dockerd", "podman", "containerd")},
    **{name: f"runs {name}, which makes a cgroup for each container" for name in ("crio", "runc", "crun", "nerdctl", "balena")},
    **{name: f"runs {name}, which makes a cgroup for each machine" for name in ("systemd-nspawn", "lxc-start", "lxcfs", "lxd")},
    **{name: f"runs {name}, which makes cgroups for its guests" for name in ("libvirtd", "virtqemud", "incusd")},
    "kubelet": "runs the kubelet, which makes cgroups for pods",
    "k3s": "runs k3s, which makes cgroups for pods",
    "slurmd": "runs slurmd, which makes a cgroup for each job",
    "nomad": "runs nomad, which makes a cgroup for each task",
    "amazon-ecs-init": "runs amazon-ecs-init, which starts the ECS agent in a container and starts it again when it ends",
    "ecs-agent": "runs the ECS agent, which makes a cgroup for each task",
}
_WORD = re.compile(r"[^\s\"'=;|&()`$]+")


def own_cgroups(sections: Sections) -> str:
    """One reason, the first of them; empty if nothing says so."""
    said = next((value for value in reversed(sections.all("Service", "Delegate"))), "")
    for line in sections.lines("Service", "ExecStart"):
        for word in split(line)[:1] + tuple(_WORD.findall(line)[:200]):
            reason = RUNTIMES.get(posixpath.basename(word.lstrip("-@:+!")))
            if reason and (word.lstrip("-@:+!").startswith("/") or word == split(line)[0]):
                return reason + (f" (Delegate={said})" if said and boolean(said) is not False else "")
    if said and boolean(said) is not False:
        return f"Delegate={said}: it may make cgroups below its own"
    return ""
