"""What a stack of the kernel was busy with: taken from stacks as they were seen on real kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings import kernel_functions
from exhume.diagnosis.findings.kernel_work import (
    AUDIT,
    BORROWED,
    BPF,
    CGROUPFS,
    CHARGE,
    COMPACTION,
    COMPLETION,
    CONSOLE,
    FAULT,
    FLUSH,
    FORK,
    FUTEX,
    INTERRUPTS,
    LOCK,
    MIGRATION,
    NETFILTER,
    NETWORK,
    NUMA,
    OFFLINE,
    OOM,
    POLLING,
    RCU,
    RECLAIM,
    SHOOTDOWN,
    SLAB,
    SOFTIRQS,
    STATISTICS,
    TRIM,
    UNKNOWN,
    UNMAP,
    WALK,
    WRITEBACK,
    Walks,
    Work,
    telling,
    walks,
    work,
)

_FORCED = "shrink_node do_try_to_free_pages try_to_free_mem_cgroup_pages mem_cgroup_force_empty_write kernfs_fop_write_iter"
_READ = "seq_read_iter vfs_read ksys_read do_syscall_64"
_KSOFTIRQD = "handle_softirqs run_ksoftirqd smpboot_thread_fn kthread"
_TIMER = "sysvec_apic_timer_interrupt asm_sysvec_apic_timer_interrupt"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        # A forced reclaim over zombies, Linux 6.18: the visits themselves are what takes the time.
        (f"mem_cgroup_iter {_FORCED}", WALK),
        (f"css_next_descendant_pre mem_cgroup_iter {_FORCED}", WALK),
        (f"__rcu_read_lock mem_cgroup_iter {_FORCED}", WALK),
        (f"shrink_lruvec {_FORCED}", WALK),
        (f"__blk_flush_plug blk_finish_plug shrink_lruvec {_FORCED}", WALK),
        (f"page_counter_calculate_protection {_FORCED}", WALK),
        (f"do_shrink_slab shrink_slab {_FORCED}", WALK),
        # The same, where there is something to free.
        (f"isolate_lru_folios shrink_lruvec {_FORCED}", RECLAIM),
        (f"___d_drop shrink_dentry_list prune_dcache_sb super_cache_scan do_shrink_slab shrink_slab {_FORCED}", RECLAIM),
        (f"native_queued_spin_lock_slowpath _raw_spin_lock_irq shrink_lruvec {_FORCED}", RECLAIM),
        ("queue_work_on do_try_to_free_pages try_to_free_pages", RECLAIM),
        ("balance_pgdat kswapd kthread", RECLAIM),
        # The incident's, and older ones.
        (f"mem_cgroup_nr_lru_pages memcg_numa_stat_show seq_read {_READ}", WALK),
        (f"mem_cgroup_node_nr_lru_pages.isra.0 memcg_stat_show {_READ}", WALK),
        (f"native_queued_spin_lock_slowpath cgroup_rstat_flush_locked mem_cgroup_flush_stats memory_stat_show {_READ}", FLUSH),
        ("css_rstat_flush flush_memcg_stats_dwork process_one_work", FLUSH),
        # Rivals.
        ("io_serial_in wait_for_lsr serial8250_console_write console_flush_all console_unlock vprintk_emit _printk", CONSOLE),
        ("wait_for_xmitr uart_console_write console_unlock dump_header oom_kill_process out_of_memory", CONSOLE),
        ("mem_cgroup_iter mem_cgroup_scan_tasks out_of_memory mem_cgroup_out_of_memory", OOM),
        ("copy_page migrate_folio move_to_new_folio migrate_pages_batch migrate_pages compact_zone_order", COMPACTION),
        ("page_remove_rmap zap_pte_range unmap_page_range unmap_vmas exit_mmap mmput do_exit", UNMAP),
        ("ext4_writepages do_writepages __writeback_single_inode writeback_sb_inodes wb_writeback", WRITEBACK),
        ("clear_page_erms do_anonymous_page handle_mm_fault exc_page_fault asm_exc_page_fault", FAULT),
        ("native_queued_spin_lock_slowpath _raw_spin_lock futex_wake do_futex", LOCK),
        # The network's own work, however it gets to run, and other softirqs and interrupts on top of somebody's work.
        (f"process_backlog __napi_poll net_rx_action {_KSOFTIRQD}", NETWORK),
        ("veth_poll __napi_poll napi_threaded_poll kthread", NETWORK),
        (f"ena_io_poll __napi_poll net_rx_action handle_softirqs common_interrupt mem_cgroup_iter {_FORCED}", NETWORK),
        (f"kmem_cache_free rcu_do_batch rcu_core {_KSOFTIRQD}", Work("softirq", "ran RCU callbacks in a softirq")),
        (f"sched_balance_domains handle_softirqs __irq_exit_rcu {_TIMER} mem_cgroup_iter {_FORCED}",
         Work("softirq", "balanced load between cores")),
        (f"call_timer_fn __run_timers run_timer_softirq {_KSOFTIRQD}", Work("softirq", "ran timers in a softirq")),
        (f"bio_endio blk_complete_reqs {_KSOFTIRQD}", Work("softirq", "completed block I/O in a softirq")),
        (f"tasklet_action {_KSOFTIRQD}", SOFTIRQS),
        (f"nvme_irq handle_irq_event common_interrupt mem_cgroup_iter {_FORCED}",
         Work("irq", "completed block I/O in interrupts")),
        ("flush_tlb_func __flush_smp_call_function_queue sysvec_call_function asm_sysvec_call_function",
         Work("irq", "did what other cores asked for (IPI)")),
        (f"mlx5_irq_int_handler handle_irq_event common_interrupt mem_cgroup_iter {_FORCED}", INTERRUPTS),
        # Other rivals.
        ("kernfs_name_hash kernfs_fop_readdir iterate_dir __x64_sys_getdents64 do_syscall_64", CGROUPFS),
        ("kernfs_dop_revalidate lookup_fast walk_component path_openat do_sys_openat2", CGROUPFS),
        ("css_task_iter_advance css_task_iter_next cgroup_procs_next kernfs_seq_next seq_read_iter", CGROUPFS),
        ("smp_call_function_many_cond native_flush_tlb_multi flush_tlb_mm_range zap_pte_range", SHOOTDOWN),
        ("flush_tlb_mm_range ptep_clear_flush wp_page_copy handle_mm_fault exc_page_fault", FAULT),
        ("copy_page_range dup_mmap dup_mm copy_process kernel_clone __do_sys_clone", FORK),
        ("exit_files do_exit do_group_exit __x64_sys_exit_group", FORK),
        ("futex_wake do_futex __x64_sys_futex", FUTEX),
        ("page_counter_try_charge try_charge_memcg obj_cgroup_charge_pages __alloc_skb", CHARGE),
        ("___slab_alloc kmem_cache_alloc some_driver_ioctl", SLAB),
        ("__nf_conntrack_find_get nf_conntrack_in nf_hook_slow __ip_local_out tcp_sendmsg", NETFILTER),
        ("gc_worker process_one_work worker_thread kthread", NETFILTER),
        ("rcu_do_batch nocb_cb_wait rcu_nocb_cb_kthread kthread", RCU),
        ("nvme_poll blk_mq_poll bio_poll io_do_iopoll io_sq_thread", POLLING),
        ("bio_endio blk_mq_end_request nvme_mpath_clear process_one_work", COMPLETION),
        ("audit_filter_rules audit_filter_syscall syscall_exit_to_user_mode", AUDIT),
        ("htab_map_lookup_elem bpf_prog_6deef7357e7b4530_trace bpf_trampoline_6442 vfs_read ksys_read", BPF),
        (f"css_rstat_flush mem_cgroup_flush_stats memcg_stat_show {_READ}", FLUSH),
        # On its way out of an interrupt a task is itself again.
        (f"mem_cgroup_iter shrink_node do_exit exit_to_user_mode_loop irqentry_exit_to_user_mode {_TIMER}", WALK),
        # A loop over cores, whatever led to it, is no walk over groups; nor is another controller's.
        ("drain_all_stock try_charge_memcg charge_memcg do_anonymous_page handle_mm_fault exc_page_fault", CHARGE),
        ("drain_all_stock.part.0 try_charge_memcg obj_cgroup_charge_pages", CHARGE),
        ("css_next_descendant_pre update_cpumasks_hier cpuset_write_resmask cgroup_file_write",
         Work("kernel", "was in update_cpumasks_hier")),
        ("css_next_child cgroup_freeze", Work("kernel", "was in cgroup_freeze")),
        ("css_next_descendant_pre", Work("kernel", "was in css_next_descendant_pre")),
        ("css_next_descendant_pre memcg_reparent_list_lrus mem_cgroup_css_offline", WALK),
        (f"css_next_descendant_post {_FORCED}", WALK),
        ("css_next_descendant_pre css_rstat_flush", FLUSH),
        # A shrinker that frees is not one that is asked how much it has.
        ("es_reclaim_extents ext4_es_scan do_shrink_slab shrink_slab shrink_node balance_pgdat kswapd kthread", RECLAIM),
        ("deferred_split_scan do_shrink_slab shrink_slab shrink_node balance_pgdat kswapd", RECLAIM),
        ("zs_shrinker_scan do_shrink_slab shrink_slab shrink_one shrink_node", RECLAIM),
        ("i915_gem_shrink do_shrink_slab shrink_slab drop_slab drop_caches_sysctl_handler", RECLAIM),
        (f"ext4_es_count do_shrink_slab shrink_slab {_FORCED}", WALK),
        (f"list_lru_count_one super_cache_count do_shrink_slab shrink_slab {_FORCED}", WALK),
        (f"__rcu_read_lock list_lru_count_one super_cache_count.llvm.7 do_shrink_slab shrink_slab {_FORCED}", WALK),
        (f"count_shadow_nodes do_shrink_slab shrink_slab {_FORCED}", WALK),
        (f"xchg_nr_deferred do_shrink_slab shrink_slab {_FORCED}", WALK),
        (f"__x86_indirect_thunk_rax do_shrink_slab shrink_slab {_FORCED}", WALK),
        (f"[unknown] do_shrink_slab shrink_slab {_FORCED}", WALK),
        # MGLRU visits every group with this one as well.
        ("try_to_shrink_lruvec shrink_one shrink_many shrink_node balance_pgdat kswapd", WALK),
        ("try_to_inc_max_seq try_to_shrink_lruvec shrink_one shrink_many shrink_node balance_pgdat kswapd", RECLAIM),
        ("evict_folios try_to_shrink_lruvec shrink_one shrink_many shrink_node balance_pgdat kswapd", RECLAIM),
        # Pages are moved for other reasons than compaction.
        ("copy_page migrate_pages_batch migrate_pages migrate_misplaced_folio do_numa_page handle_mm_fault", NUMA),
        ("migrate_pages do_migrate_range offline_pages memory_subsys_offline", OFFLINE),
        ("migrate_pages_batch migrate_pages do_mbind __x64_sys_mbind", MIGRATION),
        # An allocator that trims, and a process that goes.
        ("zap_pte_range unmap_page_range zap_page_range_single madvise_dontneed_free __x64_sys_madvise", TRIM),
        ("zap_pte_range unmap_page_range zap_page_range_single madvise_vma_behavior do_madvise", TRIM),
        ("zap_pte_range unmap_page_range unmap_vmas unmap_region do_vmi_munmap", UNMAP),
        ("crypto_shash_update some_driver", Work("kernel", "was in crypto_shash_update")),
        ("[unknown] some_driver", Work("kernel", "was in some_driver")),
        ("[unknown] [unknown]", UNKNOWN),
        ("", UNKNOWN),
    ],
)  # fmt: skip
def test_a_stack_says_what_the_kernel_did(stack: str, expected: Work) -> None:
    assert work(stack.split()) == expected


@pytest.mark.parametrize(
    ("stack", "function"),
    [
        (f"mem_cgroup_nr_lru_pages memcg_numa_stat_show {_READ}", "mem_cgroup_nr_lru_pages"),
        (f"__rcu_read_lock mem_cgroup_iter {_FORCED}", "mem_cgroup_iter"),
        (f"__blk_flush_plug blk_finish_plug shrink_lruvec {_FORCED}", "shrink_lruvec"),
        ("native_queued_spin_lock_slowpath _raw_spin_lock futex_wake do_futex", "futex_wake"),
        (f"kmem_cache_free rcu_do_batch rcu_core {_KSOFTIRQD}", "kmem_cache_free"),
        ("_raw_spin_lock some_driver", "some_driver"),
        ("es_reclaim_extents ext4_es_scan do_shrink_slab shrink_slab shrink_node balance_pgdat kswapd", "ext4_es_scan"),
        ("css_next_descendant_pre update_cpumasks_hier cpuset_write_resmask", "update_cpumasks_hier"),
        ("[unknown] native_halt", "native_halt"),
        ("[unknown]", ""),
        ("", ""),
    ],
)
def test_one_function_of_a_stack_tells_most(stack: str, function: str) -> None:
    assert telling(stack.split()) == function


_NUMA_STAT = f"mem_cgroup_nr_lru_pages memcg_numa_stat_show seq_read {_READ}".split()
_STAT = f"seq_printf memcg_stat_show seq_read {_READ}".split()


@pytest.mark.parametrize(
    ("release", "numa_stat", "stat"),
    [
        ("4.19.0-26-amd64", WALK, WALK),
        ("5.1.21", WALK, WALK),
        ("5.2.0", WALK, STATISTICS),
        ("5.4.0-1103-aws", WALK, STATISTICS),
        ("5.7.19", WALK, STATISTICS),
        ("5.8.0", STATISTICS, STATISTICS),
        ("5.15.0-91-generic", STATISTICS, STATISTICS),
        ("6.12.0+", STATISTICS, STATISTICS),
        ("", WALK, WALK),
        ("next-20260101", WALK, WALK),
    ],
)
def test_files_that_once_were_walks_are_that_on_kernels_of_then(release: str, numa_stat: Work, stat: Work) -> None:
    known = walks(release)
    assert (work(_NUMA_STAT, known), work(_STAT, known)) == (numa_stat, stat)
    assert work(["mem_cgroup_node_nr_lru_pages.isra.0"], known) == numa_stat


def test_a_walk_that_is_seen_below_a_file_counts_for_more_than_the_release() -> None:
    seen = ["mem_cgroup_iter", *_NUMA_STAT]
    assert walks("5.15.0", [_STAT, seen]) == Walks(numa_stat=True, stat=False)
    assert walks("5.15.0", [["css_next_descendant_pre", *_STAT]]) == Walks(numa_stat=False, stat=True)
    # What an interrupt did meanwhile, or an allocation, is not the file's doing.
    assert walks("5.15.0", [["mem_cgroup_iter", *_FORCED.split(), *_STAT]]) == Walks(numa_stat=False, stat=False)
    assert walks("5.15.0", [["mem_cgroup_iter", "handle_softirqs", *_NUMA_STAT]]) == Walks(numa_stat=False, stat=False)
    assert work(seen, walks("5.15.0")) == WALK


@given(st.text(max_size=20))
def test_any_release_has_an_answer(release: str) -> None:
    assert walks(release).numa_stat or not walks(release).stat


def test_what_comes_on_top_of_a_program_is_never_its_own_work() -> None:
    for inner in ("rcu_core", "blk_complete_reqs", "tasklet_action", "net_rx_action"):
        assert work([inner, "handle_softirqs", "common_interrupt", "do_syscall_64"]).key in BORROWED
    assert work(["rcu_do_batch", "rcu_nocb_cb_kthread"]).key not in BORROWED


_NAMES = sorted(name for value in vars(kernel_functions).values() if isinstance(value, frozenset) for name in value)


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(_NAMES)), max_size=8))
def test_any_stack_has_an_answer_in_words(stack: list[str]) -> None:
    assert work(stack).words
    assert work(stack) == work(tuple(stack))
