"""Templates for people who do it by hand, and what is told of units that no plan touches. The plan's own texts, printed.

Only settings that exist: each is in the reference of what reads it. Names that some articles give and that nothing reads
(`cgroupVersion` in a KubeletConfiguration) are not here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.errors import UsageError
from exhume.host.programs import services
from exhume.host.systemd.manager import Defaults
from exhume.host.systemd.unit_file import Sections
from exhume.remedy.plan_model import Relief
from exhume.remedy.templates_systemd import do_nothing, no_restart, start_limit
from exhume.text import printable

# KubeletConfiguration, kubelet.config.k8s.io/v1beta1: each of these is a field of it.
_KUBELET = """\
# Of /var/lib/kubelet/config.yaml (or what --config names), to be merged by whoever manages it; the kubelet reads it when it
# is restarted: drain the node first. What is reserved keeps pods from starving the kubelet, the runtime and the network.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# Only if it is the container runtime's, too (containerd: SystemdCgroup = true): where they differ no pod starts. From 1.31 on
# the kubelet asks a runtime that can tell (KubeletCgroupDriverFromCRI), and this need not be said.
# cgroupDriver: systemd
reservedSystemCPUs: "0,1"
systemReserved:
  cpu: 500m
  memory: 1Gi
kubeReserved:
  cpu: 500m
  memory: 1Gi
enforceNodeAllocatable:
  - pods
# One that is set makes zero of those that are not: all are here, as the kubelet has them, but for memory (100Mi).
evictionHard:
  memory.available: 500Mi
  nodefs.available: 10%
  nodefs.inodesFree: 5%
  imagefs.available: 15%
  imagefs.inodesFree: 5%
evictionSoft:
  memory.available: 1Gi
evictionSoftGracePeriod:
  memory.available: 2m
"""

# Documentation/admin-guide/sysctl/vm.rst and kernel.rst; sysctl.d(5).
_SYSCTL = """\
# /etc/sysctl.d/90-node.conf; sysctl --system reads it. Nothing here lets zombies go or keeps them from coming.
# The kernel starts to reclaim earlier, so that fewer allocations have to do it themselves (direct reclaim).
vm.watermark_scale_factor = 50
# Dentries and inodes, which pin cgroups too, are given up as readily as pages; 100 is the kernel's own.
vm.vfs_cache_pressure = 100
# Only serious messages go to a serial console, which holds a core while it prints.
kernel.printk = 4 4 1 7
"""

_PRESET = """\
# /etc/systemd/system-preset/00-image.preset, in the image before the packages are installed (systemd.preset(5)).
disable NAME.service
"""


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    what: str
    text: Callable[[], str]


def _limited() -> str:
    """For systemd's own defaults and RestartSec=10s, as the agent of the incident has it."""
    ten = Sections({"Service": {"Restart": ("always",), "RestartSec": ("10s",)}}, "", (("Service", "RestartSec", "10s"),))
    return start_limit(ten, Defaults()).decode()


def _at(path: str, text: str) -> str:
    return f"# {path}; then systemctl daemon-reload\n{text}"


_DROP_IN = "/etc/systemd/system/NAME.service.d/zz-exhume.conf"
TEMPLATES: dict[str, Template] = {
    one.name: one
    for one in (
        Template("do-nothing", "a unit that is started and runs nothing", lambda: _at(_DROP_IN, do_nothing().decode())),
        Template("no-restart", "a unit that fails once and stays down", lambda: _at(_DROP_IN, no_restart().decode())),
        Template("start-limit", "a start limit that bites, for RestartSec=10s", lambda: _at(_DROP_IN, _limited())),
        Template("preset", "a unit that is not enabled when it is installed", lambda: _PRESET),
        Template("kubelet", "what the kubelet reserves and when it evicts", lambda: _KUBELET),
        Template("sysctl", "earlier reclaim, a quiet console", lambda: _SYSCTL),
    )
}


def template(name: str) -> str:
    if name not in TEMPLATES:
        told = ", ".join(TEMPLATES)
        raise UsageError(f"there is no template {printable(name)}; there are {told}")
    return TEMPLATES[name].text()


def relief_of(unit: str) -> tuple[Relief, ...]:
    """What helps a protected unit and is for people to do."""
    if unit in services("kubelet"):
        text = (
            "fewer groups to walk help it most: purge the zombies; then reserve what it needs: "
            "exhume fix --print-template kubelet, to be merged into its configuration by whoever manages it"
        )
        return (Relief(unit, "it reads the statistics of every cgroup again and again", text),)
    return ()
