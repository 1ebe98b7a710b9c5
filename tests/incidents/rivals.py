"""Incidents with the same symptom and another cause: floods, disks, memory, locks, interrupts, the hypervisor, a driver."""

from tests.incidents.recorded import POD
from tests.incidents.scene import Scene
from tests.incidents.truth import Told, Truth

KUBELET = "/system.slice/kubelet.service"
LEAKS = ("zombie-memcgs", "memcg-leak", "cgroup-dirs-leak")
READERS = ("kubelet", "cadvisor", "node_exporter", "otelcol", "containerd", "systemd-oomd")
READ = ("vfs_read", "ksys_read", "do_syscall_64", "entry_SYSCALL_64_after_hwframe")


def console_flood() -> Told:
    """amzn-drivers#336: a firewall rule logs every packet to the serial console, and printing holds the core of the queue."""
    scene = Scene(cpus=16, seconds=60.0, kernel="5.10.0-28-cloud-amd64")
    printing = (
        "wait_for_xmitr", "serial8250_console_putchar", "uart_console_write", "serial8250_console_write",
        "univ8250_console_write", "console_unlock", "vprintk_emit", "printk", "nf_log_packet", "nft_log_eval", "nft_do_chain",
    )  # fmt: skip
    for start, end in ((12.0, 18.7), (30.0, 36.4)):
        scene.hold(
            4,
            start,
            end,
            "nginx",
            6001,
            (*printing, "nf_hook_slow", "ip_output", "tcp_sendmsg", "do_syscall_64"),
            "/system.slice/nginx.service",
        )
    for i in range(400):
        scene.line(
            12 + i / 20,
            f"FW-DROP: IN=eth0 OUT= MAC=0a:1b:2c:3d:4e:5f SRC=10.0.{i % 250}.7 DST=10.0.0.9 PROTO=TCP SPT={40_000 + i} DPT=23",
        )
    scene.counter("printk_records", [(0, 60, 0.2), (11, 37, 2_400)])
    prefix, example = "FW-DROP: IN=eth# OUT= MAC=", "FW-DROP: IN=eth0 OUT= MAC=0a:1b:2c:3d:4e:5f SRC=10.0.1.7 DST=10.0.0.9"
    scene.counter("printk_records", [(11, 37, 2_300)], base=0, prefix=prefix, example=example)
    scene.counter("printk_bytes", [(0, 60, 30), (11, 37, 410_000)])
    scene.memcgs(260, 310)
    scene.interrupts({queue: 4 if queue == 2 else (queue * 3 + 1) % 16 for queue in range(4)})
    scene.ena_reset(18.6, queue=2, age_ms=6620)
    scene.ena_reset(36.3, queue=2, age_ms=6310)
    return Told(scene.whole(), Truth(("printk-flood",), innocent=("nginx", "kubelet", "containerd", "python3"), never=LEAKS))


def writeback_lockup() -> Told:
    """amzn-drivers#129, #220: writers in D state in balance_dirty_pages, a disk that does not keep up, keep-alives lost."""
    scene = Scene(cpus=16, seconds=120.0, kernel="5.4.0-1060-aws", hz=19)
    for i in range(10):
        pid = 7100 + i
        scene.thread("mysqld", pid, "/system.slice/mysqld.service")
        for second in range(20, 112, 4):
            scene.row(
                "processes",
                time=scene.at(second + 0.5),
                pid=pid,
                tid=pid,
                start=70_000,
                ppid=1,
                comm="mysqld",
                state="D",
                core=i,
                user=100,
                system=300,
                cgroup="/system.slice/mysqld.service",
            )
    flush = (
        "write_cache_pages",
        "do_writepages",
        "__writeback_single_inode",
        "writeback_sb_inodes",
        "wb_writeback",
        "wb_workfn",
        "process_one_work",
        "worker_thread",
        "kthread",
    )
    scene.hold(9, 20.0, 110.0, "kworker/u32:2", 311, flush, share=0.7)
    throttled = (
        "balance_dirty_pages",
        "balance_dirty_pages_ratelimited",
        "generic_perform_write",
        "ext4_buffered_write_iter",
        "vfs_write",
        "do_syscall_64",
    )
    for core in (1, 2, 5):
        scene.hold(core, 20.0, 110.0, "mysqld", 7100 + core, throttled, "/system.slice/mysqld.service", share=0.05)
        scene.hold(core, 20.0, 110.0, "mysqld", 7100 + core, (), "/system.slice/mysqld.service", state="iowait", share=0.9)
    scene.line(70.0, "INFO: task mysqld:7103 blocked for more than 120 seconds.")
    scene.line(74.0, "INFO: task jbd2/nvme1n1-8:402 blocked for more than 120 seconds.")
    scene.line(88.0, "ena 0000:00:05.0 eth0: Keep alive watchdog timeout.")
    scene.line(
        88.5, "ena 0000:00:05.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.4.0g"
    )
    for name, before, during in (("nr_writeback", 400, 190_000), ("nr_dirty", 9_000, 780_000)):
        scene.gauge(
            f"vmstat_{name}", *((float(second), during if 20 <= second <= 110 else before) for second in range(0, 121, 2))
        )
    scene.gauge("vmstat_nr_dirty_threshold", *((float(second), 1_000_000) for second in range(0, 121, 2)))
    for resource, kind, rate in (
        ("io", "some", 990_000),
        ("io", "full", 910_000),
        ("cpu", "some", 12_000),
        ("memory", "some", 0),
    ):
        scene.counter("pressure_us", [(20, 110, rate)], every=2.0, cgroup="", kind=kind, resource=resource)
    scene.memcgs(180, 90)
    return Told(scene.whole(), Truth(("writeback-stall", None), innocent=("kubelet", "containerd", "python3"), never=LEAKS))


def unmap_storm() -> Told:
    """amzn-drivers#27, #147: a job of hundreds of GB is killed for memory, and giving its pages back holds the cores."""
    scene = Scene(cpus=32, seconds=60.0, kernel="4.14.193-149.317.amzn2.x86_64")
    job = POD.replace("5f3c", "77aa")
    unmap = (
        "free_pages_and_swap_cache",
        "zap_pte_range",
        "unmap_page_range",
        "unmap_vmas",
        "exit_mmap",
        "mmput",
        "do_exit",
        "do_group_exit",
        "do_syscall_64",
    )
    for core, start, end in ((14, 20.0, 28.2), (15, 20.5, 26.0), (3, 21.0, 25.5)):
        scene.hold(core, start, end, "trainer", 52_000 + core, unmap, job)
    for i in range(6):
        pid, pod = 52_014 + i, job.rsplit("/", 1)[0]
        constraint = f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg={pod},task_memcg={job}"
        victim = f",task=trainer,pid={pid},uid=0"
        killed = f"Memory cgroup out of memory: Killed process {pid} (trainer) total-vm:812345678kB, anon-rss:402345678kB"
        scene.line(19.5 + i, constraint + victim, killed + ", file-rss:0kB, shmem-rss:1024kB")
    scene.memcgs(220, 140)
    scene.interrupts({queue: 14 if queue == 5 else (queue * 3 + 1) % 32 for queue in range(8)})
    scene.ena_reset(27.5, age_ms=7100)
    return Told(
        scene.whole(),
        Truth(
            ("oom",),
            culprits=("trainer", job.rsplit("/", 1)[0].rsplit("pod", 1)[1]),
            innocent=("kubelet", "containerd", "python3", "raylet"),
            never=LEAKS,
        ),
    )


def statistics_contention() -> Told:
    """6.x: dozens of readers of cgroup statistics wait for one lock of rstat. There are few zombies."""
    scene = Scene(cpus=32, seconds=60.0, kernel="6.1.0-18-amd64", cgroups="v2", busy=0.2)
    flush = (
        "cgroup_rstat_flush_locked",
        "cgroup_rstat_flush",
        "do_flush_stats",
        "mem_cgroup_flush_stats",
        "memory_stat_format",
        "memory_stat_show",
        "seq_read_iter",
        *READ,
    )
    spin = ("native_queued_spin_lock_slowpath", "_raw_spin_lock_irq", *flush)
    for i, core in enumerate((2, 7, 8, 13, 19, 24)):
        comm = READERS[i]
        for start, end in ((8.0, 14.0), (22.0, 27.5), (40.0, 47.0)):
            scene.hold(
                core,
                start,
                end,
                comm,
                3021 if comm == "kubelet" else 8000 + i,
                flush if i == 0 else spin,
                f"/system.slice/{comm}.service",
            )
    scene.memcgs(2_900, 480)
    return Told(
        scene.whole(),
        Truth(("memcg-walk",), ("warning", "critical"), innocent=("python3", "raylet", "ecs"), together=READERS, never=LEAKS),
    )


def stolen_time() -> Told:
    """The hypervisor gives 40 % of the machine to others; what runs waits for it."""
    scene = Scene(cpus=8, seconds=30.0, kernel="5.15.0-1051-kvm", busy=0.5)
    for core in range(8):
        scene.hold(core, 3.0, 28.0, "python3", 41_001, (), POD, state="steal", share=0.42)
    for kind, rate in (("some", 620_000), ("full", 0)):
        scene.counter("pressure_us", [(3, 28, rate)], every=2.0, cgroup="", kind=kind, resource="cpu")
    scene.memcgs(190, 40)
    return Told(
        scene.whole(), Truth(("steal",), ("warning", "critical"), innocent=("kubelet", "containerd", "python3"), never=LEAKS)
    )


def interrupts_on_one_core() -> Told:
    """All queues' interrupts go to core 0, which does nothing else any more; the others idle."""
    scene = Scene(cpus=16, seconds=30.0, kernel="5.14.0-362.el9.x86_64", cgroups="v2")
    polls = (
        "mlx5e_poll_rx_cq",
        "mlx5e_napi_poll",
        "__napi_poll",
        "net_rx_action",
        "__do_softirq",
        "run_ksoftirqd",
        "smpboot_thread_fn",
        "kthread",
    )
    scene.hold(0, 2.0, 29.0, "ksoftirqd/0", 14, polls, state="softirq", share=0.99)
    for queue in range(8):
        scene.counter("interrupts", [(0, 30, 7_500)], every=2.0, irq=90 + queue, cpu=0, device=f"eth0-TxRx-{queue}")
    for cpu, dropped in ((0, 3_100), (1, 0)):
        scene.counter("softnet_dropped", [(2, 29, dropped)], base=0, cpu=cpu)
    scene.memcgs(240, 120)
    return Told(
        scene.whole(),
        Truth(("irq-imbalance",), ("warning", "critical"), innocent=("kubelet", "containerd", "python3"), never=LEAKS),
    )


def kswapd_without_zombies() -> Told:
    """A tenant uses up the memory: kswapd and the tenants' own allocations scan pages all the time. No zombies to speak of."""
    scene = Scene(cpus=16, seconds=60.0, kernel="5.15.0-91-generic", cgroups="v2")
    pages = ("page_referenced", "shrink_page_list", "shrink_inactive_list", "shrink_lruvec", "shrink_node")
    scene.hold(5, 8.0, 55.0, "kswapd0", 221, (*pages, "balance_pgdat", "kswapd", "kthread"))
    for core in (1, 2, 3, 4):
        direct = (*pages, "do_try_to_free_pages", "try_to_free_pages", "__alloc_pages", "handle_mm_fault", "exc_page_fault")
        scene.hold(core, 8.0, 55.0, "spark-executor", 61_000 + core, direct, POD, share=0.6)
    for name, rate in (
        ("pgscan_kswapd", 610_000),
        ("pgsteal_kswapd", 120_000),
        ("pgscan_direct", 240_000),
        ("pgsteal_direct", 41_000),
    ):
        scene.counter(f"vmstat_{name}", [(8, 55, rate)])
    for kind, rate in (("some", 480_000), ("full", 150_000)):
        scene.counter("pressure_us", [(8, 55, rate)], every=2.0, cgroup="", kind=kind, resource="memory")
    scene.gauge("meminfo_bytes", (0, 900 << 20), (60, 400 << 20), field="MemAvailable")
    scene.memcgs(310, 150)
    return Told(
        scene.whole(), Truth(("reclaim",), ("warning", "critical"), innocent=("kubelet", "containerd", "kswapd"), never=LEAKS)
    )


INCIDENTS = (
    console_flood,
    writeback_lockup,
    unmap_storm,
    statistics_contention,
    stolen_time,
    interrupts_on_one_core,
    kswapd_without_zombies,
)
