"""What the kernel was busy with, in words, by the functions on a stack: for a sentence that says why a core was not free.

Names are those of the kernel's source, each group with the file it is from; a compiler may have inlined any of them, so a
kind of work is known by its callers as well as by its innermost function.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from exhume.profile.classes import IRQ, LEFT, SOFTIRQ, mark


class Work(NamedTuple):
    key: str
    words: str
    """After a name: "kubelet walked memory cgroups"."""


WALK: Final = Work("walk", "walked memory cgroups")
FLUSH: Final = Work("flush", "walked memory cgroups to sum up their statistics")
RECLAIM: Final = Work("reclaim", "reclaimed memory")
CONSOLE: Final = Work("console", "printed kernel messages to a slow console")
COMPACTION: Final = Work("compaction", "moved pages about (compaction)")
OOM: Final = Work("oom", "looked for a process to kill (out of memory)")
UNMAP: Final = Work("unmap", "gave back the memory of a process")
WRITEBACK: Final = Work("writeback", "wrote pages back to disk")
FAULT: Final = Work("fault", "served page faults")
LOCK: Final = Work("lock", "spun on a lock")
NETWORK: Final = Work("network", "was busy with packets")
SOFTIRQS: Final = Work("softirq", "ran softirqs")
INTERRUPTS: Final = Work("irq", "served interrupts")
USER: Final = Work("user", "ran its own code")
UNKNOWN: Final = Work("unknown", "held the core")
IDLE: Final = Work("idle", "was idle")

# Each goes from one memory cgroup to the next, dead ones included, or is called for each of them.
_WALK: Final = frozenset(
    # mm/memcontrol.c, kernel/cgroup/cgroup.c: the walk itself
    "mem_cgroup_iter css_next_descendant_pre css_next_descendant_post css_next_child css_rightmost_descendant "
    # mm/memcontrol.c, memcontrol-v1.c since 6.11: reading memory.stat, memory.numa_stat. Before dd8657b6c1cb (5.8) each line
    # of the second was a walk of its own; before 42a300353577 (5.2) the first was one, before 8de7ecc6483b (4.17) several.
    "memcg_stat_show memcg_sum_events tree_events tree_stat memcg_numa_stat_show mem_cgroup_nr_lru_pages "
    "mem_cgroup_node_nr_lru_pages "
    # mm/workingset.c, a shrinker that is asked of every group; mm/memcontrol.c, before a group's limit is enforced
    "count_shadow_nodes drain_all_stock".split()
)
# kernel/cgroup/rstat.c (css_rstat_* since 6.16), mm/memcontrol.c: statistics are summed up over the groups that changed.
# That is a walk, too, but one that passes by what does not change, as most of the dead do not.
_FLUSH: Final = frozenset("mem_cgroup_flush_stats __mem_cgroup_flush_stats do_flush_stats flush_memcg_stats_dwork".split())
_FLUSH_BEGINNINGS: Final = ("cgroup_rstat_", "css_rstat_", "mem_cgroup_css_rstat_flush", "__cgroup_rstat_")
# mm/vmscan.c, mm/shrinker.c since 6.7: reclaim visits every memory cgroup (shrink_node_memcgs; before 5.5 shrink_node).
_VISITS: Final = frozenset(
    "shrink_node shrink_node_memcgs shrink_node_memcg shrink_zone shrink_many shrink_one lru_gen_shrink_node shrink_lruvec "
    "lru_gen_shrink_lruvec get_scan_count lruvec_lru_size shrink_slab shrink_slab_memcg do_shrink_slab "
    "mem_cgroup_shrink_node".split()
)
# The same files, fs/super.c, fs/dcache.c, fs/inode.c, mm/rmap.c: a visit that finds something to do. A group that is visited
# and has nothing to give is what costs when there are many of them: then none of these is on the stack.
_PAGES: Final = frozenset(
    "shrink_folio_list shrink_page_list shrink_inactive_list shrink_active_list isolate_lru_folios isolate_lru_pages "
    "move_folios_to_lru move_pages_to_lru evict_folios evict_pages scan_folios isolate_folios try_to_unmap rmap_walk "
    "try_to_shrink_lruvec folio_referenced page_referenced pageout super_cache_scan prune_dcache_sb prune_icache_sb "
    "shrink_dentry_list scan_shadow_nodes list_lru_walk_one".split()
)
_RECLAIM: Final = frozenset(
    "kswapd balance_pgdat kswapd_shrink_node do_try_to_free_pages try_to_free_pages try_to_free_mem_cgroup_pages "
    "__alloc_pages_direct_reclaim mem_cgroup_force_empty_write reclaim_high drop_slab drop_slab_node".split()
)
# kernel/printk/printk.c, nbcon.c; drivers/tty/serial/8250/8250_port.c: a byte at a time, and waits for each
_CONSOLE: Final = frozenset(
    "console_unlock console_flush_all console_emit_next_record nbcon_emit_next_record call_console_drivers "
    "serial8250_console_write serial8250_console_putchar univ8250_console_write uart_console_write wait_for_xmitr wait_for_lsr "
    "hvc_console_print vt_console_print".split()
)
# mm/compaction.c, mm/migrate.c, mm/khugepaged.c
_COMPACTION: Final = frozenset(
    "compact_zone compact_zone_order try_to_compact_pages kcompactd kcompactd_do_work isolate_migratepages_block "
    "isolate_freepages_block migrate_pages migrate_pages_batch collapse_huge_page khugepaged".split()
)
# mm/oom_kill.c
_OOM: Final = frozenset("out_of_memory mem_cgroup_out_of_memory oom_kill_process dump_tasks dump_header".split())
# mm/mmap.c, mm/memory.c, mm/mmu_gather.c
_UNMAP: Final = frozenset(
    "exit_mmap unmap_vmas unmap_page_range unmap_region zap_pte_range zap_page_range free_pgtables tlb_finish_mmu "
    "__do_munmap do_vmi_munmap do_vmi_align_munmap madvise_dontneed_free".split()
)
# fs/fs-writeback.c, mm/page-writeback.c
_WRITEBACK: Final = frozenset(
    "wb_writeback wb_workfn writeback_sb_inodes __writeback_single_inode do_writepages write_cache_pages "
    "balance_dirty_pages".split()
)
# mm/memory.c, arch/x86/mm/fault.c, arch/arm64/mm/fault.c
_FAULT: Final = frozenset(
    "handle_mm_fault __handle_mm_fault do_user_addr_fault exc_page_fault asm_exc_page_fault do_page_fault __do_page_fault "
    "do_mem_abort do_anonymous_page do_huge_pmd_anonymous_page clear_huge_page wp_page_copy".split()
)
# kernel/locking/qspinlock.c, qrwlock.c, osq_lock.c, mutex.c, rwsem.c
_LOCK: Final = frozenset(
    "native_queued_spin_lock_slowpath queued_spin_lock_slowpath __pv_queued_spin_lock_slowpath queued_read_lock_slowpath "
    "queued_write_lock_slowpath osq_lock mutex_spin_on_owner rwsem_spin_on_owner rwsem_optimistic_spin".split()
)
_NETWORK: Final = frozenset(  # net/core/dev.c
    "net_rx_action net_tx_action napi_threaded_poll napi_threaded_poll_loop napi_poll __napi_poll process_backlog "
    "run_backlog_napi napi_busy_loop".split()
)

# The first that fits is told: what other work leads to comes before what leads to it.
_KINDS: Final = (
    (COMPACTION, _COMPACTION),
    (UNMAP, _UNMAP),
    (WRITEBACK, _WRITEBACK),
    (FAULT, _FAULT),
    (LOCK, _LOCK),
)


def work(stack: Sequence[str]) -> Work:
    """What a kernel stack, innermost function first, was busy with. Without a name on it nothing is known."""
    names, above = _inner([name.split(".", 1)[0] for name in stack])  # .isra.0, .constprop.0, .cold
    found = set(names)
    if found & _NETWORK:
        return NETWORK
    if above:
        return SOFTIRQS if above == SOFTIRQ else INTERRUPTS
    # From within anything else: whoever prints pays for everybody's messages, and the search for a victim walks groups, too.
    if found & _CONSOLE:
        return CONSOLE
    if found & _OOM:
        return OOM
    if (memcg := _memcg(found)) is not None:
        return memcg
    for kind, functions in _KINDS:
        if found & functions:
            return kind
    named = next((name for name in names if name and not name.startswith("[")), "")
    return Work("kernel", f"was in {named}") if named else UNKNOWN


def _memcg(found: set[str]) -> Work | None:
    if found & _PAGES:
        return RECLAIM
    if found & _WALK:
        return WALK
    if found & _FLUSH or any(name.startswith(_FLUSH_BEGINNINGS) for name in found):
        return FLUSH
    if found & _VISITS:
        return RECLAIM if found & _LOCK else WALK
    # Reclaim is where an allocation or a fault may end up; what it in turn ends up in (compaction) is told instead.
    return RECLAIM if found & _RECLAIM and not found & _COMPACTION else None


def _inner(names: list[str]) -> tuple[list[str], int]:
    """The part of a stack that is of the softirq or interrupt on top of it, if there is one, and which it is."""
    left = False
    for i, name in enumerate(names):
        kind = mark(name)
        if kind == LEFT:
            left = True
        elif kind == SOFTIRQ or (kind == IRQ and not left):
            # A softirq is told where an interrupt leads to one: mark() of what is further out does not change it.
            return names[: i + 1], kind
    return names, 0
