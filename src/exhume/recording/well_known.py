"""Names that are nobody's secret and that a verdict depends on: they stay when a bundle's names become pseudonyms.

docs/bundle.md tells people what is here. Which programs stay is in the catalogue of programs (the role common).
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

from exhume.host.programs import as_processes

# With a version; the idle tasks of cores.
_PROGRAM: Final = re.compile(r"python[23]\.[0-9]{1,2}|\(sd-pam\)|swapper/[0-9]{1,5}")
# kernel/kthread.c gives them their names. What follows `begin` may be a device or a workqueue.
KERNEL_THREAD: Final = re.compile(
    r"(?P<begin>(?:kswapd|kcompactd)[0-9]+|(?:ksoftirqd|migration|cpuhp|watchdog|rcuc|rcub|rcuop|rcuos|rcuog|idle_inject|"
    r"posixcputmr|ktimers|irq_work|backlog_napi)/[0-9]+|kthreadd|khugepaged|ksmd|kauditd|khungtaskd|oom_reaper|kdevtmpfs|"
    r"khubd|kblockd|kintegrityd|writeback|rcu_sched|rcu_preempt|rcu_bh|rcu_gp|rcu_par_gp|rcu_tasks_kthre|rcu_tasks_rude_|"
    r"rcu_tasks_trace|mm_percpu_wq|netns|bioset|ena|edac-poller|devfreq_wq|watchdogd|pool_workqueue_release|"
    r"kworker/(?:u?[0-9]+:[0-9]+[HIR]?|R)|napi/|irq/[0-9]+|jbd2/|xfsaild/|xfs-[a-z]+/|ext4-rsv-conver|scsi_eh_[0-9]+|"
    r"nvme[0-9]*|nv_queue|nvidia-modeset|UVM [a-zA-Z ]+|dmcrypt_write|kcryptd|md[0-9]+_[a-z0-9]+|loop[0-9]+|usb-storage)"
    r"(?P<rest>(?:[-+:/].*|(?<=/).*)?)",
    re.DOTALL,
)
# Directories and files of the kernel's and of those who run containers, whole parts of a path or what precedes an id in one.
COMPONENTS: Final = frozenset(
    "system.slice user.slice machine.slice init.scope -.slice app.slice background.slice session.slice runtime.slice "
    "kubepods kubepods.slice besteffort burstable guaranteed kubepods-besteffort.slice kubepods-burstable.slice "
    "kubepods-pod kubepods-besteffort-pod kubepods-burstable-pod pod docker ecs libpod_parent garden cri-containerd crio "
    "crio-conmon libpod libpod-conmon nerdctl podman kubelet.slice podruntime.slice podruntime kube.slice "
    "run session user lxc lxc.payload lxc.monitor machine machine-qemu system actions_job buildkit "
    "proc sys fs cgroup memory cpu cpu,cpuacct cpuacct cpuset pids blkio io devices freezer hugetlb net_cls net_prio "
    "net_cls,net_prio perf_event rdma misc unified systemd kernel debug tracing bpf devices class net block dev kmsg shm "
    "memory.stat memory.numa_stat memory.reclaim memory.force_empty memory.pressure cgroup.procs cgroup.stat cgroup.events "
    "cpu.stat cpu.max self stat status cgroups meminfo vmstat interrupts softirqs pressure mountinfo kallsyms root etc usr "
    "lib lib64 bin sbin var opt home tmp mnt srv hostname".split()
)
SLICES: Final = re.compile(r"user-[0-9]+\.slice|user@[0-9]+\.service|session-c?[0-9]+\.scope|user-runtime-dir@[0-9]+\.service")
SUFFIXES: Final = ("service", "scope", "slice", "socket", "mount", "swap", "timer", "target", "path", "device", "automount")
# Names that the kernel and udev give by themselves (systemd.net-naming-scheme(7)); enx has a MAC address in it.
DEVICE: Final = re.compile(
    r"lo|eth[0-9]+|en[os][0-9]+(f[0-9]+)?(np?[0-9]+)?(d[0-9]+)?|en[pP][0-9]+[psP][0-9psfnd]*|ib[a-z]?[0-9]+|bond[0-9]+|"
    r"(docker|cni|br|virbr|wlan|wwan|tun|tap|dummy|tunl|ifb|team|nodelocaldns|kube-ipvs|lxdbr)[0-9]*|flannel\.[0-9]+|"
    r"vxlan(\.calico|[0-9]+)?|cilium_(host|net|vxlan)|veth[0-9a-f]{7,8}|cali[0-9a-f]{11}|lxc[0-9a-f]{11,13}|eni[0-9a-f]{11}|"
    r"nvme[0-9]+(n[0-9]+(p[0-9]+)?|q[0-9]+)?|([svh]|xv)d[a-z]{1,2}[0-9]*|md[0-9]+|dm-[0-9]+|loop[0-9]+|zram[0-9]+|"
    r"mlx[45]_[0-9]+|virtio[0-9]+|cpu[0-9]+|CPU#?[0-9]+"
)
# What drivers call the interrupt of a queue (sources/interrupts.py has them in full).
INTERRUPT: Final = re.compile(
    r"(?P<driver>(?:(?:i40e|i40evf|iavf|ice|idpf|hns3)-)?)(?P<device>\S+?)"
    r"(?P<queue>-(?:[Tt]x-?[Rr]x|[Rr]x-?[Tt]x|[TtRr]x)-[0-9]{1,5}|-q[0-9]{1,5}-[rt]x)"
    r"|(?P<known>(?:mlx5_(?:comp|async|pages_eq|cmd_eq|ctrl)\w*|mana_q[0-9]+|mana_hwc|ena-mgmnt)@pci:[0-9a-fA-F:.]+|"
    r"virtio[0-9]+-(?:input|output|req|config)\.?[0-9]*|nvme[0-9]+q[0-9]+|[A-Z]{3})"
)
# Of numbers, longest first where one begins another.
MEASURES: Final = (
    "msecs",
    "usecs",
    "usec",
    "msec",
    "KiB",
    "MiB",
    "GiB",
    "kB",
    "KB",
    "MB",
    "GB",
    "Hz",
    "ms",
    "us",
    "ns",
    "th",
    "[sBkKMGx%]",
)


def is_program(name: str) -> bool:
    """Whether every fleet has a program of this name: what runs containers, reads their statistics, ships logs, comes with a
    base image, or with the distribution."""
    return name in as_processes("common") or _PROGRAM.fullmatch(name) is not None


@cache
def vocabulary() -> frozenset[str]:
    """Words of our own sentences and of the kernel's: in running text they give nothing away."""
    return frozenset((files("exhume.recording") / "words.txt").read_text(encoding="ascii").split())
