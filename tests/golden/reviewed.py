"""Incidents from two reviews of exhume, most of them with a public reference.

Many verdicts on them are wrong or missing today; `known_wrong.json` has the truth.
"""

from collections.abc import Callable

from exhume.recording.recording import Recording
from exhume.recording.source_state import SourceState
from tests.incidents.recorded import POD
from tests.incidents.scene import Scene
from tests.incidents.zombies import ZOMBIE_READ

Make = Callable[[], Recording]

KUBELET = "/system.slice/kubelet.service"
READ = ("vfs_read", "ksys_read", "do_syscall_64", "entry_SYSCALL_64_after_hwframe")
FAULT = (
    "__mod_memcg_lruvec_state", "__lruvec_stat_mod_folio", "folio_add_new_anon_rmap", "do_anonymous_page", "__handle_mm_fault",
    "handle_mm_fault", "do_user_addr_fault", "exc_page_fault", "asm_exc_page_fault",
)  # fmt: skip
FLUSH = (
    "mem_cgroup_css_rstat_flush", "cgroup_rstat_flush_locked", "cgroup_rstat_flush", "do_flush_stats", "mem_cgroup_flush_stats",
    "memory_stat_format", "memory_stat_show", "seq_read_iter", *READ,
)  # fmt: skip
WORKER = ("process_one_work", "worker_thread", "kthread", "ret_from_fork")
KSWAPD = ("shrink_node", "balance_pgdat", "kswapd", "kthread", "ret_from_fork")


def _waiting(scene: Scene, count: int, comm: str, cgroup: str = POD) -> None:
    """Tasks in uninterruptible sleep, all the time."""
    for i in range(count):
        for second in range(0, int(scene.seconds), 4):
            scene.row(
                "processes", time=scene.at(second + 0.5), pid=9000 + i, start=70_000, ppid=1, comm=comm, state="D",
                core=i % scene.cpus, user=1, system=1, cgroup=cgroup,
            )  # fmt: skip


def _io_pressure(scene: Scene, start: float, end: float, some: float, full: float) -> None:
    for kind, share in (("some", some), ("full", full)):
        scene.counter("pressure_us", [(start, end, round(share * 1_000_000))], every=2.0, cgroup="", kind=kind, resource="io")


def charges_by_network_beside_zombies() -> Recording:
    scene = Scene(cpus=32, seconds=30, kernel="6.8.0-1021-aws", cgroups="v2")
    send = (
        "cgroup_rstat_updated", "__mod_memcg_state", "mem_cgroup_charge_skmem", "__sk_mem_raise_allocated",
        "tcp_sendmsg_locked", "tcp_sendmsg", "sock_sendmsg", "__sys_sendto", "do_syscall_64",
    )  # fmt: skip
    for core in range(8, 24):
        scene.hold(core, 2, 28, "envoy", 52_000 + core, send, POD, share=0.06)
    scene.memcgs(600, 9000)
    return scene.whole()


def _faults(innermost: tuple[str, ...], zombies: int) -> Recording:
    scene = Scene(cpus=32, seconds=30, kernel="6.8.0-1021-aws", cgroups="v2")
    for core in range(8, 24):
        scene.hold(core, 2, 28, "trainer", 52_000 + core, (*innermost, *FAULT), POD, share=0.6)
    scene.memcgs(600, zombies)
    return scene.whole()


def page_faults() -> Recording:
    return _faults((), 300)


def page_faults_that_update_statistics() -> Recording:
    return _faults(("cgroup_rstat_updated",), 300)


def page_faults_that_update_statistics_beside_zombies() -> Recording:
    return _faults(("cgroup_rstat_updated",), 9000)


def conntrack_table_full() -> Recording:
    scene = Scene(cpus=16, seconds=30, kernel="5.15.0-1051-aws", cgroups="v2")
    for i in range(60):
        scene.line(2 + i * 0.4, "nf_conntrack: nf_conntrack: table full, dropping packet")
    for i in range(5):
        scene.line(3 + i * 5, "net_ratelimit: 4312 callbacks suppressed")
    scene.memcgs(300, 20)
    return scene.whole()


def workqueue_lockup() -> Recording:
    scene = Scene(cpus=16, seconds=60, kernel="5.15.0", cgroups="v2")
    scene.line(
        20,
        "BUG: workqueue lockup - pool cpus=5 node=0 flags=0x0 nice=0 stuck for 61s!",
        "Showing busy workqueues and worker pools:",
        "workqueue events: flags=0x0",
        "  pwq 10: cpus=5 node=0 flags=0x0 nice=0 active=14/256 refcnt=15",
        "    in-flight: 1234:cgroup_bpf_release_fn",
    )
    scene.line(20.1, "BUG: workqueue lockup - pool cpus=5 node=0 flags=0x0 nice=-20 stuck for 61s!")
    scene.memcgs(300, 20)
    return scene.whole()


def tcp_out_of_memory() -> Recording:
    scene = Scene(cpus=16, seconds=30, kernel="5.15.0", cgroups="v2")
    for i in range(10):
        scene.line(2 + i, "TCP: out of memory -- consider tuning tcp_mem")
    scene.memcgs(220, 30)
    return scene.whole()


def memcg_ids_exhausted() -> Recording:
    scene = Scene(cpus=64, seconds=30, kernel="4.14.355-276.639.amzn2.x86_64")
    scene.memcgs(310, 65_100, growth=2)
    return scene.whole()


def slab_limit_failures() -> Recording:
    scene = Scene(cpus=32, seconds=30, kernel="3.10.0-1160.el7.x86_64")
    for i in range(20):
        scene.line(
            2 + i,
            "SLUB: Unable to allocate memory on node -1 (gfp=0x8020)",
            "  cache: ip_dst_cache(1453:93a1b), object size: 192, buffer size: 192, default order: 1, min order: 0",
            "  node 0: slabs: 0, objs: 0, free: 0",
        )
    scene.line(5, "runc:[2:INIT]: page allocation failure: order:6, mode:0x40d0")
    scene.memcgs(220, 5200, growth=3)
    return scene.whole()


def negative_dentries() -> Recording:
    scene = Scene(cpus=48, seconds=60, kernel="4.18.0-553.el8_10.x86_64", hz=19)
    lookup = (
        "__d_lookup_rcu", "lookup_fast", "walk_component", "link_path_walk", "path_lookupat", "filename_lookup", "vfs_statx",
        "__do_sys_newstat", "do_syscall_64",
    )  # fmt: skip
    prune = (
        "dentry_lru_isolate", "__list_lru_walk_one", "list_lru_walk_one", "prune_dcache_sb", "super_cache_scan",
        "do_shrink_slab", "shrink_slab", *KSWAPD,
    )  # fmt: skip
    scene.hold(7, 10, 28, "kswapd0", 221, prune)
    for core in range(12, 30):
        scene.hold(core, 2, 58, "java", 6000 + core, lookup, POD, share=0.5)
    for field, size in (("SReclaimable", 190 << 30), ("MemTotal", 384 << 30)):
        scene.gauge("meminfo_bytes", *((float(second), size) for second in range(60)), field=field)
    scene.counter("vmstat_pgscan_kswapd", [(10, 28, 20_000)])
    scene.counter("vmstat_pgsteal_kswapd", [(10, 28, 15_000)])
    scene.memcgs(350, 400)
    return scene.whole()


def nfs_server_gone() -> Recording:
    scene = Scene(cpus=32, seconds=60, kernel="5.15.0", cgroups="v2")
    _waiting(scene, 140, "df")
    scene.line(5, "nfs: server 10.0.0.7 not responding, still trying")
    scene.line(6, "nfs: server 10.0.0.7 not responding, timed out")
    _io_pressure(scene, 0, 60, 0.99, 0.98)
    scene.memcgs(200, 30)
    return scene.whole()


def volume_stalls_for_readers() -> Recording:
    scene = Scene(cpus=16, seconds=60, kernel="5.15.0-1051-aws", cgroups="v2")
    unit = "/system.slice/postgresql.service"
    for core in range(16):
        scene.hold(core, 3, 58, "postgres", 7000 + core, (), unit, state="iowait", share=0.8)
    _waiting(scene, 60, "postgres", unit)
    _io_pressure(scene, 3, 58, 0.98, 0.93)
    scene.line(20, "nvme nvme1: I/O 12 QID 4 timeout, completion polled")
    scene.memcgs(220, 30)
    return scene.whole()


def pid_1_reads_mounts() -> Recording:
    scene = Scene(cpus=32, seconds=60, kernel="5.4.0-1103-aws")
    scene.hold(3, 1, 59, "systemd", 1, (), "/init.scope", state="user", share=0.75)
    show = ("show_mountinfo", "m_show", "seq_read", "vfs_read", "ksys_read")
    scene.hold(3, 1, 59, "systemd", 1, show, "/init.scope", share=0.25)
    scene.memcgs(400, 300)
    return scene.whole()


def dying_groups_are_reparented() -> Recording:
    scene = Scene(cpus=64, seconds=60, kernel="5.15.0-1051-aws", hz=19)
    offline = (
        "memcg_reparent_list_lru_node", "memcg_reparent_list_lru", "memcg_offline_kmem", "mem_cgroup_css_offline",
        "offline_css", "css_killed_work_fn", *WORKER,
    )  # fmt: skip
    for start, end in ((5, 19), (24, 40)):
        scene.hold(11, start, end, "kworker/11:2", 733, offline)
    wait = (
        "osq_lock", "__mutex_lock", "mutex_lock", "cgroup_kn_lock_live", "cgroup_mkdir", "kernfs_iop_mkdir", "vfs_mkdir",
        "do_mkdirat",
    )  # fmt: skip
    for i, core in enumerate((3, 4, 9)):
        scene.hold(core, 6, 18, "runc", 8800 + i, wait, "/system.slice/containerd.service")
    scene.memcgs(800, 2600, growth=120)
    return scene.whole()


def slabinfo_over_zombies() -> Recording:
    scene = Scene(cpus=64, seconds=60, kernel="5.4.0-1103-aws", hz=19)
    show = (
        "get_slabinfo", "cache_show", "memcg_accumulate_slabinfo", "slab_show", "seq_read", "proc_reg_read", "vfs_read",
        "ksys_read",
    )  # fmt: skip
    for start, end in ((5, 9), (20, 24.5), (35, 39)):
        scene.hold(11, start, end, "node_exporter", 2333, show, "/system.slice/node_exporter.service")
    scene.memcgs(300, 24_000, growth=6)
    scene.interrupts({queue: 11 if queue == 5 else (queue * 11 + 2) % 64 for queue in range(8)})
    return scene.whole()


def thousands_of_cpu_groups() -> Recording:
    scene = Scene(cpus=64, seconds=60, kernel="4.19.0", hz=19)
    timer = ("smp_apic_timer_interrupt", "apic_timer_interrupt")
    balance = ("__update_blocked_fair", "update_blocked_averages", "run_rebalance_domains", "__do_softirq", "irq_exit", *timer)
    unthrottle = (
        "tg_unthrottle_up", "walk_tg_tree_from", "unthrottle_cfs_rq", "distribute_cfs_runtime", "sched_cfs_period_timer",
        "__hrtimer_run_queues", "hrtimer_interrupt", *timer,
    )  # fmt: skip
    for core in range(0, 64, 2):
        scene.hold(core, 2, 58, "python3", 41_001, balance, POD, state="softirq", share=0.4)
    scene.hold(21, 10, 16, "python3", 41_001, unthrottle, POD, state="irq")
    scene.memcgs(4200, 300)
    return scene.whole()


def _kswapd_loop(kernel: str, cgroups: str, live: int, dying: int, *stack: str) -> Recording:
    scene = Scene(cpus=16, seconds=60, kernel=kernel, cgroups=cgroups)
    scene.hold(3, 2, 58, "kswapd0", 90, stack)
    scene.counter("vmstat_pgscan_kswapd", [(2, 58, 1200)])
    scene.counter("vmstat_pgsteal_kswapd", [(2, 58, 3)])
    scene.memcgs(live, dying)
    return scene.whole()


def kswapd_loop_of_mglru() -> Recording:
    return _kswapd_loop("6.1.0-21-cloud-amd64", "v2", 250, 1500, "shrink_one", "shrink_many", "lru_gen_shrink_node", *KSWAPD)


def kswapd_loop_beside_zombies() -> Recording:
    return _kswapd_loop("4.9.45", "v1", 150, 1200, "shrink_node_memcg", "shrink_node", "kswapd", "kthread", "ret_from_fork")


def kswapd_loop_without_zombies() -> Recording:
    return _kswapd_loop("4.9.45", "v1", 250, 80, "shrink_node_memcg", "shrink_node", "kswapd", "kthread", "ret_from_fork")


def virtual_function_lost() -> Recording:
    scene = Scene(cpus=16, seconds=60, kernel="5.15.0-1063-azure", cgroups="v2")
    host, nic = "hv_netvsc 000d3a1b-2c3d-000d-3a1b-2c3d000d3a1b eth0", "mlx5_core a23b:00:02.0"
    compromised = f"{nic}: poll_health:800:(pid 0): device's health compromised - reached miss count"
    scene.line(10, f"{host}: VF slot 1 removed", compromised)
    scene.line(11, f"{host}: Data path switched from VF: eth1")
    scene.line(12, f"{nic}: mlx5_cmd_fw_tracer... timeout. Will cause a leak of a command resource")
    scene.line(14, f"{nic} eth1: EQ 0x9: Cons = 0x1f21, irqn = 0x27", f"{nic} eth1: Recovered 14 EQEs on EQ 0x9")
    scene.memcgs(220, 30)
    return scene.whole()


def opens_wait_for_a_scanner() -> Recording:
    scene = Scene(cpus=32, seconds=60, kernel="5.14.0-427.el9", cgroups="v2")
    _waiting(scene, 80, "runc")
    scene.hold(9, 1, 59, "falcon-sensor", 1200, (), "/system.slice/falcon-sensor.service", state="user", share=0.98)
    scene.memcgs(220, 30)
    return scene.whole()


def kswapds_spin_on_the_rstat_lock() -> Recording:
    scene = Scene(cpus=96, seconds=60, kernel="6.6.30", cgroups="v2", hz=19)
    spin = (
        "native_queued_spin_lock_slowpath", "_raw_spin_lock_irq", "cgroup_rstat_flush", "do_flush_stats",
        "mem_cgroup_flush_stats", "prepare_scan_count", "shrink_node", "balance_pgdat", "kswapd",
    )  # fmt: skip
    for node in range(12):
        scene.hold(8 * node, 5, 50, f"kswapd{node}", 200 + node, spin)
    scene.memcgs(2900, 18_000)
    return scene.whole()


def three_readers_of_statistics() -> Recording:
    scene = Scene(cpus=128, seconds=30, kernel="5.15.0-1051-gke", cgroups="v2")
    for i, (core, comm) in enumerate(((5, "kubelet"), (9, "cadvisor"), (44, "node_exporter"))):
        for start in range(1, 28, 4):
            pid = 3021 if comm == "kubelet" else 8800 + i
            scene.hold(core, start, start + 0.28, comm, pid, FLUSH, f"/system.slice/{comm}.service")
    scene.interrupts({queue: 5 if queue == 5 else (queue * 11 + 2) % 128 for queue in range(8)})
    scene.memcgs(3000, 900)
    return scene.whole()


def ordinary_kubelet() -> Recording:
    scene = Scene(cpus=128, seconds=30, kernel="6.1.0", cgroups="v2")
    for start in range(1, 28, 10):
        scene.hold(5 + start % 3, start, start + 0.22, "kubelet", 3021, FLUSH, KUBELET)
    scene.memcgs(1600, 300)
    return scene.whole()


def periodic_flush_of_the_kernel() -> Recording:
    scene = Scene(cpus=128, seconds=30, kernel="5.15.0-1051-gke", cgroups="v2")
    flush = (*FLUSH[:2], "cgroup_rstat_flush_irqsafe", "__mem_cgroup_flush_stats", "flush_memcg_stats_dwork", *WORKER)
    for start in range(1, 28, 2):
        scene.hold(9, start, start + 0.03, "kworker/u256:1", 777, flush)
    scene.memcgs(1600, 300)
    return scene.whole()


def inodes_leave_a_dying_group() -> Recording:
    scene = Scene(cpus=96, seconds=60, kernel="6.6.141.1-1.azl3", cgroups="v2", hz=19)
    switch = ("inode_switch_wbs_work_fn", *WORKER)
    scene.hold(7, 4, 56, "kworker/7:1", 900, switch)
    for core in range(8, 13):
        spin = ("native_queued_spin_lock_slowpath", "_raw_spin_lock", *switch)
        scene.hold(core, 4, 56, f"kworker/{core}:1", 901 + core, spin)
    scene.line(
        30,
        "watchdog: BUG: soft lockup - CPU#7 stuck for 26s! [kworker/7:1:900]",
        "CPU: 7 PID: 900 Comm: kworker/7:1 Not tainted 6.6.141 #1",
        "Workqueue: inode_switch_wbs inode_switch_wbs_work_fn",
        "RIP: 0010:inode_switch_wbs_work_fn+0x2c1/0x9a0",
        "Call Trace:",
        " <TASK>",
        " process_one_work+0x1d2/0x3d0",
        " worker_thread+0x4d/0x3e0",
        " kthread+0xe8/0x120",
        " </TASK>",
    )
    scene.memcgs(900, 5200)
    return scene.whole()


def node_exporter_without_samples() -> Recording:
    scene = Scene(cpus=64, seconds=30, kernel="5.4.0-1103-aws", off=("samples",))
    scene.hold(11, 5, 9.5, "node_exporter", 2333, (), "/system.slice/node_exporter.service")
    scene.memcgs(300, 24_000)
    return scene.whole()


def defunct_processes_by_number() -> Recording:
    scene = Scene(cpus=16, seconds=60, kernel="5.15.0", cgroups="v2", off=("processes",))
    scene.recording.add_source(scene.at(0), "processes", SourceState("on"))
    scene.memcgs(220, 6000, growth=6)
    place = "/kubepods/burstable"
    scene.row(
        "memcg_walk", time=scene.at(59), path=f"{place}/pod<uid>/<id>", example=f"{place}/podx/y", home=place, zombies=6000,
        siblings=3, empty=6000, method="bpf-walk",
    )  # fmt: skip
    scene.gauge("memcg_walk_zombies", (59, 6006))
    scene.gauge("memcg_walk_live", (59, 220))
    scene.gauge("processes_defunct", *((second, 5900) for second in range(60)))
    return scene.whole()


def gve_timeout() -> Recording:
    scene = Scene(cpus=16, seconds=30, kernel="5.15.0-1051-gke", cgroups="v2")
    scene.line(10, "gve 0000:00:04.0 eth0: Timeout on tx queue, 3", "gve 0000:00:04.0 eth0: Kicking queue 3")
    scene.memcgs(220, 30)
    return scene.whole()


def ena_reset_by_the_device() -> Recording:
    scene = Scene(cpus=16, seconds=30, kernel="6.1", cgroups="v2")
    scene.line(
        10,
        "ena 0000:00:05.0 eth0: The device has detected an unhealthy state, reset is requested",
        "ena 0000:00:05.0 eth0: Trigger reset is on",
        "ena 0000:00:05.0: Device reset completed, status: 0, Driver info: Elastic Network Adapter (ENA) v2.13.1g",
    )
    scene.memcgs(220, 30)
    return scene.whole()


def network_allowance_exceeded() -> Recording:
    scene = Scene(cpus=16, seconds=60, kernel="6.1", cgroups="v2")
    for stat in ("conntrack_allowance_exceeded", "pps_allowance_exceeded", "bw_in_allowance_exceeded"):
        scene.counter("nic_stat", [(0, 60, 4000)], every=10.0, device="eth0", stat=stat)
    scene.memcgs(220, 30)
    return scene.whole()


def tasks_wait_for_cgroup_mutex() -> Recording:
    scene = Scene(cpus=64, seconds=60, kernel="5.10.0-28-cloud-amd64", hz=19)
    _waiting(scene, 40, "runc", "/system.slice/containerd.service")
    scene.line(
        40,
        "INFO: task runc:9003 blocked for more than 120 seconds.",
        "      Not tainted 5.10.0 #1",
        "task:runc state:D stack:0 pid:9003 ppid:1 flags:0x0",
        "Call Trace:",
        " __schedule+0x21/0xb0",
        " schedule+0x46/0xb0",
        " schedule_preempt_disabled+0xa/0x10",
        " __mutex_lock.constprop.0+0x133/0x460",
        " cgroup_kn_lock_live+0x3a/0xd0",
        " cgroup_mkdir+0x2c/0x440",
        " kernfs_iop_mkdir+0x5b/0xa0",
        " vfs_mkdir+0x115/0x200",
    )
    scene.memcgs(800, 4500, growth=60)
    return scene.whole()


def real_time_task_in_user_space() -> Recording:
    scene = Scene(cpus=16, seconds=60, kernel="5.15.0-1051-aws", cgroups="v2")
    scene.hold(5, 3, 58, "dpdk-fwd", 777, (), "/system.slice/dpdk.service", state="user")
    scene.line(6, "sched: RT throttling activated")
    scene.interrupts({queue: 5 if queue == 2 else (queue * 3 + 1) % 16 for queue in range(4)})
    scene.ena_reset(20, queue=2, age_ms=6500)
    scene.memcgs(220, 30)
    return scene.whole()


def _incident_then(seconds: float, zombies_from: tuple[float, int]) -> Recording:
    """The incident as published in its first half minute; from some second on there is another number of zombies."""
    scene = Scene(cpus=32, seconds=seconds, hz=19)
    for start, end in ((4.0, 6.1), (11.2, 17.8), (24.0, 26.5)):
        scene.hold(21, start, end, "kubelet", 3021, ZOMBIE_READ, KUBELET)
    for second in range(int(seconds) + 1):
        dying = 68_440 if second < zombies_from[0] else zombies_from[1]
        scene.row(
            "memcg", time=scene.at(second), path="/", live=240, dying=dying, total=240 + dying, method="proc-cgroups",
            scope="node", complete=1,
        )  # fmt: skip
    scene.interrupts({queue: 21 if queue == 5 else (queue * 11 + 2) % 32 for queue in range(8)})
    scene.ena_reset(17.9)
    return scene.whole()


def idle_after_the_incident() -> Recording:
    return _incident_then(150, (150, 68_440))


def zombies_gone_after_the_incident() -> Recording:
    return _incident_then(90, (45, 140))


SCENES: tuple[Make, ...] = (
    idle_after_the_incident, zombies_gone_after_the_incident,
    charges_by_network_beside_zombies, page_faults, page_faults_that_update_statistics,
    page_faults_that_update_statistics_beside_zombies, conntrack_table_full, workqueue_lockup, tcp_out_of_memory,
    memcg_ids_exhausted, slab_limit_failures, negative_dentries, nfs_server_gone, volume_stalls_for_readers, pid_1_reads_mounts,
    dying_groups_are_reparented, slabinfo_over_zombies, thousands_of_cpu_groups, kswapd_loop_of_mglru,
    kswapd_loop_beside_zombies, kswapd_loop_without_zombies, virtual_function_lost, opens_wait_for_a_scanner,
    kswapds_spin_on_the_rstat_lock, three_readers_of_statistics, ordinary_kubelet, periodic_flush_of_the_kernel,
    inodes_leave_a_dying_group, node_exporter_without_samples, defunct_processes_by_number, gve_timeout,
    ena_reset_by_the_device, network_allowance_exceeded, tasks_wait_for_cgroup_mutex, real_time_task_in_user_space,
)  # fmt: skip
