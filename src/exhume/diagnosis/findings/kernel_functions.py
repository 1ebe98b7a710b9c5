"""Functions of the kernel by what they are for, each group with the file of the kernel's source it is from.

A compiler may have inlined any of them, so a group has callers as well as innermost functions. What a group means on a stack
is for kernel_work to say.
"""

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Each goes from one memory cgroup to the next, dead ones included, or is called for each of them.
WALK: Final = _names(
    # mm/memcontrol.c: the walk itself; called for each group while memory.stat was a walk, and gone since, see READS_STAT
    "mem_cgroup_iter memcg_sum_events tree_events tree_stat "
    # mm/workingset.c, a shrinker that is asked of every group
    "count_shadow_nodes"
)
# kernel/cgroup/cgroup.c: from one group to the next, for whichever controller asks. cpuset's update_cpumasks_hier does, too.
NEXT: Final = _names("css_next_descendant_pre css_next_descendant_post css_next_child css_rightmost_descendant")
# mm/memcontrol.c, memcontrol-v1.c since 6.11: memory.numa_stat of v1, of which each line was a walk of its own before
# dd8657b6c1cb (5.8) and is one counter since; the others were called for each group, and alone are of this file.
READS_NUMA_STAT: Final = _names("memcg_numa_stat_show mem_cgroup_nr_lru_pages mem_cgroup_node_nr_lru_pages")
# The same files: memory.stat of v1, one walk before 42a300353577 (5.2) and several before 8de7ecc6483b (4.17).
READS_STAT: Final = _names("memcg_stat_show")
# kernel/cgroup/rstat.c (css_rstat_* since 6.16), mm/memcontrol.c: statistics are summed up over the groups that changed.
# That is a walk, too, but one that passes by what does not change, as most of the dead do not.
FLUSH: Final = _names("mem_cgroup_flush_stats __mem_cgroup_flush_stats do_flush_stats flush_memcg_stats_dwork")
FLUSH_BEGINNINGS: Final = ("cgroup_rstat_", "css_rstat_", "mem_cgroup_css_rstat_flush", "__cgroup_rstat_", "__css_rstat_")
# mm/vmscan.c, mm/shrinker.c since 6.7: reclaim visits every memory cgroup (shrink_node_memcgs; before 5.5 shrink_node).
VISITS: Final = _names(
    "shrink_node shrink_node_memcgs shrink_node_memcg shrink_zone shrink_many shrink_one lru_gen_shrink_node shrink_lruvec "
    "lru_gen_shrink_lruvec try_to_shrink_lruvec get_scan_count lruvec_lru_size shrink_slab shrink_slab_memcg do_shrink_slab "
    "mem_cgroup_shrink_node"
)
# The same files, fs/super.c, fs/dcache.c, fs/inode.c, mm/rmap.c: a visit that finds something to do. A group that is visited
# and has nothing to give is what costs when there are many of them: then none of these is on the stack.
PAGES: Final = _names(
    "shrink_folio_list shrink_page_list shrink_inactive_list shrink_active_list isolate_lru_folios isolate_lru_pages "
    "move_folios_to_lru move_pages_to_lru evict_folios evict_pages scan_folios isolate_folios try_to_unmap rmap_walk "
    "try_to_inc_max_seq walk_mm folio_referenced page_referenced pageout super_cache_scan prune_dcache_sb prune_icache_sb "
    "shrink_dentry_list scan_shadow_nodes list_lru_walk_one"
)
# Every shrinker is asked by this one, first how much it has (its count_objects, named ..._count or count_...) and then to free
# some of it (scan_objects, which has any name). What else it calls is its own.
ASKS_SHRINKERS: Final = "do_shrink_slab"
SHRINKERS_OWN: Final = _names(
    "xchg_nr_deferred xchg_nr_deferred_memcg add_nr_deferred add_nr_deferred_memcg shrinker_unit_info"
)
RECLAIM: Final = _names(
    "kswapd balance_pgdat kswapd_shrink_node do_try_to_free_pages try_to_free_pages try_to_free_mem_cgroup_pages "
    "__alloc_pages_direct_reclaim mem_cgroup_force_empty_write reclaim_high drop_slab drop_slab_node"
)
# kernel/printk/printk.c, nbcon.c; drivers/tty/serial/8250/8250_port.c: a byte at a time, and waits for each
CONSOLE: Final = _names(
    "console_unlock console_flush_all console_emit_next_record nbcon_emit_next_record nbcon_kthread_func call_console_drivers "
    "serial8250_console_write serial8250_console_putchar univ8250_console_write uart_console_write wait_for_xmitr wait_for_lsr "
    "hvc_console_print vt_console_print"
)
# mm/oom_kill.c
OOM: Final = _names("out_of_memory mem_cgroup_out_of_memory oom_kill_process dump_tasks dump_header")
# kernel/smp.c, arch/x86/mm/tlb.c: one core waits until all others have answered, mostly to drop a mapping (TLB shootdown)
SHOOTDOWN: Final = _names(
    "smp_call_function_many_cond smp_call_function_many native_flush_tlb_multi native_flush_tlb_others hyperv_flush_tlb_multi"
)
# mm/memory.c, mm/huge_memory.c, mm/migrate.c, kernel/sched/fair.c: pages follow the programs that use them to another node
NUMA: Final = _names(
    "do_numa_page do_huge_pmd_numa_page migrate_misplaced_folio migrate_misplaced_page task_numa_work change_prot_numa"
)
# mm/memory_hotplug.c, drivers/base/memory.c: memory that is about to be taken away is emptied
OFFLINE: Final = _names("offline_pages do_migrate_range memory_subsys_offline memory_block_offline scan_movable_pages")
# mm/compaction.c, mm/khugepaged.c
COMPACTION: Final = _names(
    "compact_zone compact_zone_order try_to_compact_pages __alloc_pages_direct_compact compact_node kcompactd "
    "kcompactd_do_work isolate_migratepages_block isolate_freepages_block collapse_huge_page khugepaged"
)
# mm/migrate.c: compaction moves pages with it, but not it alone
MIGRATION: Final = _names("migrate_pages migrate_pages_batch migrate_pages_sync")
# mm/mmap.c, mm/vma.c since 6.12, mm/memory.c, mm/mmu_gather.c
UNMAP: Final = _names(
    "exit_mmap unmap_vmas unmap_page_range unmap_region zap_pte_range zap_page_range zap_page_range_single free_pgtables "
    "tlb_finish_mmu __do_munmap do_vmi_munmap do_vmi_align_munmap"
)
# mm/madvise.c: pages given back by a process that lives on, as allocators do. The second are the callers of more than that.
TRIM: Final = _names("madvise_dontneed_free madvise_dontneed_single_vma madvise_free_single_vma madvise_free_pte_range")
MADVISE: Final = _names("madvise_vma_behavior do_madvise madvise_walk_vmas __x64_sys_madvise __arm64_sys_madvise SyS_madvise")
# fs/fs-writeback.c, mm/page-writeback.c
WRITEBACK: Final = _names(
    "wb_writeback wb_workfn writeback_sb_inodes __writeback_single_inode do_writepages write_cache_pages balance_dirty_pages"
)
# mm/memory.c, arch/x86/mm/fault.c, arch/arm64/mm/fault.c
FAULT: Final = _names(
    "handle_mm_fault __handle_mm_fault do_user_addr_fault exc_page_fault asm_exc_page_fault do_page_fault __do_page_fault "
    "do_mem_abort do_anonymous_page do_huge_pmd_anonymous_page clear_huge_page wp_page_copy"
)
# kernel/locking/qspinlock.c, qrwlock.c, osq_lock.c, mutex.c, rwsem.c
LOCK: Final = _names(
    "native_queued_spin_lock_slowpath queued_spin_lock_slowpath __pv_queued_spin_lock_slowpath queued_read_lock_slowpath "
    "queued_write_lock_slowpath osq_lock mutex_spin_on_owner rwsem_spin_on_owner rwsem_optimistic_spin"
)
# fs/kernfs/dir.c, inode.c, which sysfs is made of as well; kernel/cgroup/cgroup.c, cgroup-v1.c, fs/proc
CGROUPFS: Final = _names(
    "kernfs_fop_readdir kernfs_dop_revalidate kernfs_iop_lookup kernfs_iop_permission kernfs_iop_getattr "
    "kernfs_find_and_get_node_by_id kernfs_walk_and_get_ns kernfs_path_from_node cgroup_seqfile_show cgroup_procs_start "
    "cgroup_procs_next cgroup_procs_show __cgroup_procs_start cgroup_pidlist_start pidlist_array_load css_task_iter_start "
    "css_task_iter_next css_task_iter_advance css_task_iter_end proc_cgroup_show proc_cgroupstats_show cgroup_path_ns"
)
# kernel/auditsc.c, kernel/audit.c
AUDIT: Final = _names(
    "audit_filter_syscall audit_filter_rules audit_log_start audit_log_exit audit_log_end audit_log_format kauditd_thread "
    "__audit_syscall_exit audit_receive"
)
# net/netfilter: rules and connection tracking outside of a softirq (sending, loading rules, nf_conntrack's own worker)
NETFILTER: Final = _names(
    "nf_hook_slow nf_conntrack_in ipt_do_table ip6t_do_table nft_do_chain gc_worker xt_replace_table nf_tables_commit "
    "nf_ct_iterate_cleanup"
)
# block/blk-mq.c, block/blk-core.c, io_uring/rw.c, io_uring/sqpoll.c, drivers/nvme/host/pci.c: asking a device, or a ring of
# requests, again and again. Who does that has the core to itself, by design.
POLLING: Final = _names("blk_mq_poll blk_hctx_poll bio_poll blk_poll nvme_poll io_do_iopoll io_sq_thread iocb_bio_iopoll")
# kernel/futex
FUTEX: Final = _names("do_futex futex_wake futex_wait __futex_wait futex_requeue futex_wait_setup futex_wake_op")
# kernel/fork.c, fs/exec.c, kernel/exit.c, kernel/pid.c
FORK: Final = _names(
    "copy_process kernel_clone _do_fork do_fork dup_mm dup_mmap copy_page_range bprm_execve do_execveat_common "
    "__do_execve_file load_elf_binary begin_new_exec do_exit do_group_exit release_task wait_consider_task do_wait "
    "wait_task_zombie __wake_up_parent"
)
# mm/memcontrol.c: try_charge became try_charge_memcg in 5.13
CHARGE: Final = _names(
    "try_charge try_charge_memcg mem_cgroup_try_charge mem_cgroup_charge __mem_cgroup_charge charge_memcg "
    "obj_cgroup_charge obj_cgroup_charge_pages __memcg_kmem_charge_page mem_cgroup_charge_skmem page_counter_try_charge "
    "mem_cgroup_handle_over_high __mem_cgroup_handle_over_high reclaim_high uncharge_batch page_counter_uncharge refill_stock"
)
# The same file: what cores have charged in advance is taken back before a limit is enforced. A loop over cores, not groups.
DRAIN: Final = _names("drain_all_stock drain_stock drain_local_stock drain_local_memcg_stock")
# kernel/rcu/tree.c, tree_nocb.h, update.c
RCU: Final = _names(
    "rcu_do_batch rcu_core rcu_process_callbacks rcu_gp_kthread rcu_gp_fqs_loop rcu_gp_init rcu_gp_cleanup "
    "nocb_cb_wait rcu_nocb_cb_kthread rcu_nocb_gp_kthread force_qs_rnp synchronize_rcu_expedited kfree_rcu_work"
)
# mm/slub.c, mm/slab_common.c: of a stack that nothing else explains
SLAB: Final = _names(
    "kmem_cache_alloc kmem_cache_free kmem_cache_alloc_node ___slab_alloc __slab_alloc __slab_free slab_free_freelist_hook "
    "new_slab allocate_slab get_partial_node unfreeze_partials __unfreeze_partials deactivate_slab kmem_cache_destroy "
    "cache_reap slabinfo_show s_show get_slabinfo kfree kmem_cache_shrink flush_cpu_slab"
)
# kernel/bpf: a program is named bpf_prog_<tag>_<name> in kallsyms; the interpreter is ___bpf_prog_run
BPF_BEGINNINGS: Final = ("bpf_prog_", "___bpf_prog_run", "__bpf_prog_run")
# net/core/dev.c
NETWORK: Final = _names(
    "net_rx_action net_tx_action napi_threaded_poll napi_threaded_poll_loop napi_poll __napi_poll process_backlog "
    "run_backlog_napi napi_busy_loop"
)
# kernel/time/timer.c, hrtimer.c
TIMERS: Final = _names("run_timer_softirq __run_timers call_timer_fn hrtimer_run_softirq run_timer_base timer_expire_remote")
# block/blk-mq.c, drivers/nvme/host/pci.c, drivers/scsi/scsi_lib.c
COMPLETION: Final = _names(
    "blk_done_softirq blk_complete_reqs blk_mq_complete_request blk_mq_end_request blk_mq_end_request_batch nvme_irq "
    "nvme_pci_complete_rq nvme_pci_complete_batch scsi_softirq_done scsi_complete virtblk_done bio_endio"
)
# kernel/sched/fair.c: run_rebalance_domains became sched_balance_softirq in 6.10 (c6f4a900ee2f and its neighbours)
BALANCING: Final = _names(
    "run_rebalance_domains rebalance_domains sched_balance_softirq sched_balance_domains nohz_idle_balance"
)
# kernel/smp.c, arch/x86/kernel/smp.c: other cores asked this one for something
CALLS: Final = _names(
    "generic_smp_call_function_interrupt generic_smp_call_function_single_interrupt flush_smp_call_function_queue "
    "__flush_smp_call_function_queue flush_tlb_func flush_tlb_func_remote"
)
