"""A driver holds the core that polls the network: whoever called it is the culprit, however many zombies are about."""

from tests.incidents.rivals import KUBELET, LEAKS, READ
from tests.incidents.scene import Scene
from tests.incidents.truth import Told, Truth


def _driver_call(scene: Scene) -> Truth:
    """An ioctl of a GPU's driver does not come back for seconds, on the core that polls queue 5."""
    call = (
        "os_delay_us",
        "_nv041255rm",
        "rm_ioctl",
        "nvidia_ioctl",
        "nvidia_unlocked_ioctl",
        "__x64_sys_ioctl",
        "do_syscall_64",
    )
    uid = "7d0c1f8e-52aa-4b7e-9d0c-8a4f1f6f2b12"
    job = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"
    scene.hold(21, 9.0, 15.8, "megatron", 71_500, call, job, pod=uid)
    scene.interrupts({queue: 21 if queue == 5 else (queue * 11 + 2) % 96 for queue in range(8)})
    scene.ena_reset(15.6, age_ms=6480)
    others = ("kubelet", "containerd", "python3", "raylet")
    return Truth(("core-saturated", None), culprits=("megatron", job, uid), innocent=others, never=LEAKS)


def driver_call() -> Told:
    """A GPU's driver holds the core; 500 zombies are about."""
    scene = Scene(kernel="5.15.0-1051-aws", cgroups="v2")
    truth = _driver_call(scene)
    scene.memcgs(410, 500, growth=1)
    return Told(scene.whole(), truth)


def driver_call_beside_a_leak() -> Told:
    """The same on a node that has 60,000 zombies, and whose kubelet walks them on another core meanwhile. Bad, but not this."""
    scene = Scene(kernel="5.4.0-1103-aws")
    truth = _driver_call(scene)
    scene.memcgs(410, 60_000, growth=3)
    scene.hold(50, 8.0, 16.0, "kubelet", 3021, ("mem_cgroup_nr_lru_pages", "memcg_numa_stat_show", "seq_read", *READ), KUBELET)
    return Told(scene.whole(), truth)


INCIDENTS = (driver_call, driver_call_beside_a_leak)
