"""Those who look guilty and are not: who waits, spins, polls by design, reads a file for the first time, or was there."""

from exhume.recording.source_state import SourceState
from exhume.sources.latency.stalls import Holder
from tests.diagnosis.findings.made import stall
from tests.incidents.scene import Scene
from tests.incidents.truth import Told, Truth

KUBELET = "/system.slice/kubelet.service"
POD = "/kubepods/burstable/pod11112222-3333-4444-5555-666677778888/" + "ab12" * 16
LEAKS = ("zombie-memcgs", "memcg-leak", "cgroup-dirs-leak")
SICK = ("warning", "critical")
_READ = ("vfs_read", "ksys_read", "do_syscall_64")
_IPI = ("smp_call_function_many_cond", "flush_tlb_mm_range", "tlb_finish_mmu", "unmap_region", "__do_munmap")
_SPIN = ("native_queued_spin_lock_slowpath", "_raw_spin_lock", "d_alloc_parallel", "path_openat", "do_sys_openat2")
_COMPACT = ("isolate_migratepages_block", "compact_zone", "try_to_compact_pages", "__alloc_pages_direct_compact")
_DELAY = ("mdelay", "bad_ioctl", "__x64_sys_ioctl")


def _scene(kernel: str = "5.15.0", cgroups: str = "v2", cpus: int = 16, seconds: float = 30, dying: int = 50) -> Scene:
    scene = Scene(cpus=cpus, kernel=kernel, cgroups=cgroups, seconds=seconds)
    scene.memcgs(200, dying)
    return scene


def _keep_alive_lost(scene: Scene, second: float) -> None:
    nic = "ena 0000:00:05.0"
    scene.line(second, f"{nic} eth0: Keep alive watchdog timeout.", f"{nic} eth0: Trigger reset is on")
    scene.line(second + 0.6, f"{nic}: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.8.1g")


def _lockup(scene: Scene, second: float, core: int, comm: str, pid: int, *functions: str) -> None:
    scene.line(
        second,
        f"watchdog: BUG: soft lockup - CPU#{core} stuck for 22s! [{comm}:{pid}]",
        f"CPU: {core} PID: {pid} Comm: {comm} Not tainted 5.15.0 #1",
        f"RIP: 0010:{functions[0]}+0x11c/0x3a0",
        "Call Trace:",
        " <TASK>",
        *(f" {name}+0x24/0x40" for name in functions[1:]),
        " </TASK>",
    )


def a_task_that_hangs_beside_a_reset() -> Told:
    """It waits for an NFS server, on no core; the device was reset a second later, by chance."""
    scene = _scene()
    scene.thread("kubelet", 3021, KUBELET)
    trace = ("__schedule", "schedule", "rpc_wait_bit_killable", "__wait_on_bit", "nfs4_proc_getattr", "vfs_statx")
    scene.line(
        15.0,
        "INFO: task kubelet:3021 blocked for more than 120 seconds.",
        "      Not tainted 5.15.0 #1",
        "task:kubelet         state:D stack:    0 pid: 3021 ppid:     1 flags:0x00004000",
        "Call Trace:",
        " <TASK>",
        *(f" {name}+0x21/0xb0" for name in trace),
        " </TASK>",
    )
    _keep_alive_lost(scene, 16.0)
    return Told(scene.whole(), Truth((None,), SICK, innocent=("kubelet",)))


def one_waits_for_the_core_of_another() -> Told:
    scene = _scene()
    scene.hold(5, 9, 15, "kubelet", 3021, _IPI, KUBELET)
    scene.hold(9, 9, 15, "badmod", 777, _DELAY, POD)
    return Told(scene.whole(), Truth(("core-saturated",), SICK, culprits=("11112222", "badmod"), innocent=("kubelet",)))


def one_spins_on_a_lock() -> Told:
    scene = _scene()
    scene.hold(5, 9, 15, "kubelet", 3021, _SPIN, KUBELET)
    return Told(scene.whole(), Truth((None,), SICK, innocent=("kubelet",)))


def two_lockups_of_which_the_second_waits_for_the_first() -> Told:
    scene = _scene()
    scene.thread("kubelet", 3021, KUBELET)
    scene.thread("badjob", 777, POD)
    _lockup(scene, 10, 3, "badjob", 777, "os_delay_us", "rm_ioctl", "nvidia_ioctl", "__x64_sys_ioctl")
    _lockup(scene, 11, 7, "kubelet", 3021, "smp_call_function_many_cond", "on_each_cpu_cond_mask", "flush_tlb_mm_range")
    return Told(scene.whole(), Truth(("soft-lockup",), SICK, culprits=("11112222", "badjob"), innocent=("kubelet",)))


def a_lockup_of_a_machine_that_is_not_let_run() -> Told:
    scene = _scene()
    scene.thread("kubelet", 3021, KUBELET)
    for core in range(16):
        scene.hold(core, 0, 30, "x", 5000 + core, (), "/", state="steal", share=0.6)
    _lockup(scene, 15, 5, "kubelet", 3021, *_IPI)
    return Told(scene.whole(), Truth(("steal",), SICK, innocent=("kubelet",)))


def threads_of_the_kernel() -> Told:
    """Each has a core for itself for some seconds, for others."""
    scene = _scene("6.8.0", cpus=32)
    threads = {
        "irq/128-nvidia": ("rm_isr_bh", "irq_thread_fn", "irq_thread", "kthread", "ret_from_fork"),
        "kauditd": ("audit_log_end", "kauditd_thread", "kthread", "ret_from_fork"),
        "jbd2/nvme0n1p1-8": ("jbd2_journal_commit_transaction", "kjournald2", "kthread", "ret_from_fork"),
        "UVM GPU1 BH": ("uvm_service", "_main_loop", "kthread", "ret_from_fork"),
        "ksmd": ("ksm_scan_thread", "kthread", "ret_from_fork"),
        "pr/ttyS0": ("nbcon_kthread_func", "kthread", "ret_from_fork"),
    }
    for core, (comm, stack) in enumerate(threads.items(), 5):
        scene.hold(core, 9, 12, comm, 130 + core, stack)
    return Told(scene.whole(), Truth((None,), SICK, innocent=tuple(threads)))


def a_program_with_a_name_of_the_kernels() -> Told:
    scene = _scene("6.8.0")
    scene.hold(5, 9, 12, "rcu-exporter", 130, _DELAY, POD)
    return Told(scene.whole(), Truth(("core-saturated",), SICK, culprits=("11112222", "rcu-exporter")))


def a_reader_of_statistics_that_nobody_saw_walk() -> Told:
    scene = Scene(kernel="6.8.0", cgroups="v2", off=("samples",))
    scene.memcgs(500, 6000)
    scene.hold(39, 9, 15.8, "kubelet", 3021, (), KUBELET)
    return Told(scene.whole(), Truth((None,), SICK, innocent=("kubelet",)))


def a_shrinker_that_works_hard() -> Told:
    scene = _scene(dying=6000)
    stack = ("es_reclaim_extents", "ext4_es_scan", "do_shrink_slab", "shrink_slab", "shrink_node", "balance_pgdat", "kswapd")
    scene.hold(5, 9, 15, "kswapd0", 90, stack)
    return Told(scene.whole(), Truth((None, "core-saturated", "reclaim"), SICK, innocent=("kswapd",), never=LEAKS))


def one_waits_for_memory_that_another_took() -> Told:
    scene = _scene("6.8.0", cpus=32)
    database = "/system.slice/postgres.service"
    scene.counter("vmstat_pgscan_direct", [(5, 25, 40_000)])
    scene.counter("vmstat_pgscan_kswapd", [(5, 25, 400_000)])
    scene.counter("vmstat_pgsteal_kswapd", [(5, 25, 100_000)])
    for cgroup, waited in (("", 300_000), (database, 290_000), (POD, 40_000)):
        scene.counter("pressure_us", [(5, 25, waited)], cgroup=cgroup, kind="some", resource="memory")
    for core in (3, 4, 5):
        stack = ("clear_page_erms", "get_page_from_freelist", "__alloc_pages", "do_anonymous_page", "handle_mm_fault")
        scene.hold(core, 5, 25, "hog", 9000 + core, stack, POD, share=0.8)
    return Told(scene.whole(), Truth(("reclaim",), SICK, innocent=("postgres",)))


def a_kill_long_before_another_ends() -> Told:
    scene = _scene("5.10.0")
    limits = f"oom_memcg={POD},task_memcg={POD},task=serverd,pid=8123,uid=0"
    scene.line(
        2,
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,{limits}",
        "Memory cgroup out of memory: Killed process 8123 (serverd) total-vm:100kB, anon-rss:50kB, file-rss:0kB, "
        "shmem-rss:0kB, UID:0 pgtables:0kB oom_score_adj:0",
    )
    stack = ("zap_pte_range", "unmap_page_range", "unmap_vmas", "exit_mmap", "mmput", "do_exit")
    scene.hold(2, 20, 22, "ld.lld", 31_004, stack, "/user.slice/user-1000.slice/session-3.scope")
    return Told(scene.whole(), Truth(("core-saturated",), SICK, innocent=("serverd", "11112222")))


def a_model_is_loaded() -> Told:
    """Mapped, and read for the first time: every page is a major fault, and nobody waits for memory."""
    scene = _scene("6.8.0", cpus=96)
    scene.counter("vmstat_pgmajfault", [(0, 30, 3), (5, 25, 4000)])
    scene.counter("vmstat_workingset_refault_file", [(0, 30, 0)])
    scene.counter("process_major_faults", [(5, 25, 3990)], base=0, pid=41_001, comm="python3", cgroup=POD)
    return Told(scene.whole(), Truth((None,), ("healthy",)))


def a_log_that_is_long_and_costs_nothing() -> Told:
    scene = _scene("6.8.0")
    scene.counter("printk_records", [(0, 30, 0.2), (5, 25, 250)])
    example = 'audit: type=1400 audit(1.1:1): apparmor="ALLOWED"'
    scene.counter("printk_records", [(5, 25, 249)], base=0, prefix="audit: type=# audit(#", example=example)
    return Told(scene.whole(), Truth((None,), ("healthy",)))


def packets_from_outside_that_another_core_works_on() -> Told:
    scene = _scene("6.8.0")
    poll = ("__napi_poll", "net_rx_action", "handle_softirqs")
    scene.hold(3, 5, 25, "ksoftirqd/3", 33, ("mlx5e_poll_rx_cq", "mlx5e_napi_poll", *poll), state="softirq", share=0.2)
    received = ("nf_conntrack_in", "nf_hook_slow", "ip_rcv", "__netif_receive_skb", "process_backlog")
    scene.hold(7, 5, 25, "ksoftirqd/7", 77, (*received, *poll), state="softirq")
    web = "/system.slice/nginx.service"
    scene.hold(9, 5, 25, "nginx", 6001, ("tcp_sendmsg", "sock_write_iter", "vfs_writev"), web, share=0.05)
    return Told(scene.whole(), Truth(("core-saturated", None), SICK, innocent=("nginx",)))


def _beside_zombies(kernel: str, cgroups: str, comm: str, cgroup: str, *stack: str) -> Scene:
    scene = _scene(kernel, cgroups, cpus=32, dying=60_000)
    scene.hold(21, 9, 15.8, comm, 71_500, stack, cgroup)
    return scene


def a_group_at_its_own_limit() -> Told:
    stack = ("mem_cgroup_iter", "shrink_node", "do_try_to_free_pages", "try_to_free_mem_cgroup_pages", "try_charge_memcg")
    scene = _beside_zombies("5.15.0", "v2", "java", POD, *stack, "charge_memcg", "handle_mm_fault", "exc_page_fault")
    return Told(scene.whole(), Truth(("memcg-walk", "core-saturated", "reclaim", None), SICK, innocent=("/docker",)))


def statistics_are_read_where_that_is_no_walk() -> Told:
    stack = ("number", "vsnprintf", "seq_printf", "memcg_stat_show", "seq_read_iter", *_READ)
    scene = _beside_zombies("5.15.0", "v1", "scraper", POD, *stack)
    return Told(scene.whole(), Truth(("core-saturated",), SICK, never=("zombie-memcgs", "memcg-leak", "memcg-walk")))


def the_groups_of_another_controller() -> Told:
    stack = ("css_next_descendant_pre", "update_cpumasks_hier", "update_cpumask", "cpuset_write_resmask", "cgroup_file_write")
    scene = _beside_zombies("5.15.0", "v1", "tuner", POD, *stack)
    return Told(scene.whole(), Truth(("core-saturated",), SICK, never=("zombie-memcgs", "memcg-leak", "memcg-walk")))


def a_walk_on_a_core_from_which_some_is_stolen() -> Told:
    """92 % system and 8 % steal is a core that does nothing but kernel work in all the time that it has."""
    scene = _scene("5.4.0", "v1", dying=60_000)
    for core in range(16):
        scene.hold(core, 0, 30, "x", 5000 + core, (), "/", state="steal", share=0.08)
    stack = ("mem_cgroup_nr_lru_pages", "memcg_numa_stat_show", "seq_read", *_READ)
    scene.hold(5, 9, 16, "kubelet", 3021, stack, KUBELET, share=0.92)
    chain = ("zombie-memcgs", "memcg-walk", "core-saturated")
    return Told(scene.whole(), Truth(("zombie-memcgs",), SICK, innocent=("kubelet",), chain=chain))


def all_cores_at_once(stack: tuple[str, ...]) -> Told:
    scene = _scene("6.8.0", seconds=60)
    for core in range(16):
        scene.hold(core, 20, 40, "java", 6000 + core, stack, POD)
    return Told(scene.whole(), Truth((None, "core-saturated", "cpu-full"), SICK, never=LEAKS))


def all_cores_spin_on_one_lock() -> Told:
    return all_cores_at_once(_SPIN)


def all_cores_compact() -> Told:
    return all_cores_at_once((*_COMPACT, "do_huge_pmd_anonymous_page", "handle_mm_fault"))


def interrupts_of_another_core() -> Told:
    scene = _scene(cpus=8)
    scene.recording.add_source(scene.at(0), "latency", SourceState("on"))
    scene.interrupts(dict.fromkeys(range(4), 2), rate=9000)
    poll = ("__napi_poll", "net_rx_action", "__do_softirq", "run_ksoftirqd")
    scene.hold(2, 0, 30, "ksoftirqd/2", 22, ("ena_io_poll", *poll), state="softirq", share=0.6)
    holder = Holder(66, 66, "ksoftirqd/6")
    stall(scene.recording, scene.at(15) / 1e9, 400, 6, "eth1", holder=holder, stack=("process_backlog", *poll), cgroup="/")
    return Told(scene.whole(), Truth((None, "napi-starved"), SICK, never=("irq-imbalance",)))


def directories_that_nobody_walks() -> Told:
    scene = _scene(cgroups="v1")
    scene.row(
        "cgroup_dirs", time=scene.at(29), path="/user.slice", mount="/sys/fs/cgroup/systemd", children=3000, leaves=3000,
        looked=200, empty=200, example="/user.slice/session-c1.scope",
    )  # fmt: skip
    stack = ("mem_cgroup_iter", "shrink_node", "do_try_to_free_pages", "try_to_free_pages", "__alloc_pages_slowpath")
    scene.hold(5, 9, 12, "loader", 3921, stack, POD)
    return Told(scene.whole(), Truth(("memcg-walk", "core-saturated", "reclaim"), SICK, never=("cgroup-dirs-leak",)))


def a_disk_and_a_network_that_are_both_away() -> Told:
    """A machine that was paused loses both: neither is the other's doing."""
    scene = _scene(seconds=60)
    for kind, waited in (("full", 600_000), ("some", 700_000)):
        scene.counter("pressure_us", [(10, 40, waited)], cgroup="", kind=kind, resource="io")
    for name, pages in (("nr_dirty", 50_000), ("nr_writeback", 60_000), ("nr_dirty_threshold", 100_000)):
        scene.gauge(f"vmstat_{name}", *((second, pages) for second in range(60)))
    _keep_alive_lost(scene, 20)
    return Told(scene.whole(), Truth((None,), SICK))


INCIDENTS = (
    a_task_that_hangs_beside_a_reset,
    one_waits_for_the_core_of_another,
    one_spins_on_a_lock,
    two_lockups_of_which_the_second_waits_for_the_first,
    a_lockup_of_a_machine_that_is_not_let_run,
    threads_of_the_kernel,
    a_program_with_a_name_of_the_kernels,
    a_reader_of_statistics_that_nobody_saw_walk,
    a_shrinker_that_works_hard,
    one_waits_for_memory_that_another_took,
    a_kill_long_before_another_ends,
    a_model_is_loaded,
    a_log_that_is_long_and_costs_nothing,
    packets_from_outside_that_another_core_works_on,
    a_group_at_its_own_limit,
    statistics_are_read_where_that_is_no_walk,
    the_groups_of_another_controller,
    a_walk_on_a_core_from_which_some_is_stolen,
    all_cores_spin_on_one_lock,
    all_cores_compact,
    interrupts_of_another_core,
    directories_that_nobody_walks,
    a_disk_and_a_network_that_are_both_away,
)
