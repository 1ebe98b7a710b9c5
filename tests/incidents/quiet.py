"""Nodes that are well, that have a little something, or whose trouble is not in the data; and two troubles in one recording."""

from tests.incidents.recorded import POD
from tests.incidents.rivals import KUBELET, LEAKS
from tests.incidents.scene import Scene
from tests.incidents.truth import Told, Truth
from tests.incidents.zombies import ZOMBIE_READ

EVERYBODY = ("kubelet", "containerd", "node_exporter", "python3", "raylet", "ssm-agent")


def healthy_and_busy() -> Told:
    """A training node as it should be: 96 cores, 70 % of them in user space, 300 zombies that come and go."""
    scene = Scene(busy=0.72)
    scene.memcgs(260, 300, growth=2)
    return Told(scene.whole(), Truth((None,), ("healthy",), innocent=EVERYBODY))


def one_tenant_throttled() -> Told:
    """A pod uses up its own quota of two CPUs, most of the time; the node has room."""
    scene = Scene(cpus=32, cgroups="v2", kernel="6.1.0-18-amd64")
    pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11112222_3333_4444_5555_666677778888.slice"
    for core in (3, 4):
        scene.hold(core, 0.0, 30.0, "api-gateway", 90_500, (), pod, state="user", share=0.9)
    for at, throttled in ((pod, 8.6), (POD.rsplit("/", 1)[0], 0.1)):
        scene.gauge("cpu_quota_us", (0, 200_000), (30, 200_000), cgroup=at)
        scene.gauge("cpu_period_us", (0, 100_000), (30, 100_000), cgroup=at)
        scene.counter("cpu_periods", [(0, 30, 10)], cgroup=at)
        scene.counter("cpu_throttled_periods", [(0, 30, throttled)], cgroup=at)
        scene.counter("cpu_throttled_ns", [(0, 30, throttled * 6e7)], cgroup=at)
    scene.memcgs(280, 60)
    return Told(
        scene.whole(),
        Truth((None, "cpu-throttled"), ("healthy", "warning"), innocent=EVERYBODY, never=LEAKS, says=("quota",)),
    )


def two_seconds_of_a_copy() -> Told:
    """An idle node; somebody copies a disk, and one core is in the kernel for two seconds. Nothing came to harm."""
    scene = Scene(cpus=16, busy=0.02, kernel="6.1.0-18-amd64", cgroups="v2")
    scene.hold(
        7,
        12.0,
        14.1,
        "dd",
        20_777,
        ("copy_user_enhanced_fast_string", "read_zero", "vfs_read", "ksys_read"),
        "/user.slice/user-1000.slice/session-3.scope",
    )
    scene.memcgs(120, 35)
    return Told(scene.whole(), Truth((None, "core-saturated"), ("healthy", "warning"), innocent=EVERYBODY, never=LEAKS))


def a_process_exits() -> Told:
    """The same with a build whose linker gives back its memory."""
    scene = Scene(cpus=16, busy=0.3, kernel="5.10.0-28-amd64", cgroups="v2")
    unmap = ("zap_pte_range", "unmap_page_range", "unmap_vmas", "exit_mmap", "mmput", "do_exit")
    scene.hold(2, 9.0, 10.9, "ld.lld", 31_004, unmap, "/user.slice/user-1000.slice/session-3.scope")
    scene.memcgs(140, 900, growth=3)
    return Told(scene.whole(), Truth((None, "core-saturated"), ("healthy", "warning"), innocent=EVERYBODY, never=LEAKS))


def reset_out_of_the_blue() -> Told:
    """The device was reset; no core was held, nothing else happened. Whoever did it is not in the data."""
    scene = Scene(cpus=32, kernel="5.10.0-28-cloud-amd64")
    scene.memcgs(200, 80)
    pci = "ena 0000:00:05.0"
    scene.line(14.0, f"{pci} eth0: Keep alive watchdog timeout.", f"{pci} eth0: Trigger reset is on")
    scene.line(14.6, f"{pci}: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.8.1g")
    return Told(scene.whole(), Truth((None,), innocent=EVERYBODY, never=(*LEAKS, "core-saturated"), says=("record",)))


def crash_loop_without_a_leak() -> Told:
    """A unit fails and is started again every few seconds. It leaves nothing behind."""
    scene = Scene(cpus=16, seconds=60.0, kernel="5.15.0-91-generic", cgroups="v2")
    for i in range(11):
        unit = {
            "unit": "metrics-relay.service",
            "active": "activating",
            "sub": "auto-restart",
            "restarts": 312 + i,
            "result": "exit-code",
        }
        scene.row(
            "units",
            time=scene.at(5.5 * i),
            enabled="enabled",
            main_pid=0,
            cgroup="/system.slice/metrics-relay.service",
            needed_by="",
            **unit,
        )
    scene.units()
    scene.memcgs(230, 44)
    return Told(
        scene.whole(),
        Truth(("crash-loop",), ("warning",), ("metrics-relay.service",), EVERYBODY, never=LEAKS),
    )


def two_troubles() -> Told:
    """Zombies are walked and the network card is reset; half an hour later a flood of messages does the same."""
    scene = Scene(cpus=8, seconds=2100.0, hz=11, step=0.5)
    scene.memcgs(230, 52_000)
    for start, end in ((60.0, 67.5), (80.0, 86.0)):
        scene.hold(5, start, end, "kubelet", 3021, ZOMBIE_READ, KUBELET)
    scene.interrupts({queue: 5 if queue == 1 else queue + 1 for queue in range(4)})
    scene.ena_reset(67.4, queue=1, age_ms=6700)
    printing = (
        "wait_for_xmitr",
        "serial8250_console_putchar",
        "serial8250_console_write",
        "console_unlock",
        "vprintk_emit",
        "printk",
        "nf_log_packet",
        "nft_do_chain",
    )
    for start, end in ((1900.0, 1907.0), (1915.0, 1922.5)):
        scene.hold(5, start, end, "haproxy", 6001, printing, "/system.slice/haproxy.service")
    scene.counter("printk_records", [(0, 2100, 0.2), (1899, 1923, 3_000)])
    scene.ena_reset(1906.9, queue=1, age_ms=6800)
    return Told(
        scene.whole(),
        Truth(
            ("zombie-memcgs", "memcg-leak", "printk-flood"),
            innocent=(*EVERYBODY, "haproxy"),
            incidents=((("zombie-memcgs", "memcg-leak"), "zombie"), (("printk-flood",), "messages")),
        ),
    )


INCIDENTS = (
    healthy_and_busy,
    one_tenant_throttled,
    two_seconds_of_a_copy,
    a_process_exits,
    reset_out_of_the_blue,
    crash_loop_without_a_leak,
    two_troubles,
)
