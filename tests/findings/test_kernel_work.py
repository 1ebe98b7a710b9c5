"""What a stack of the kernel was busy with: taken from stacks as they were seen on real kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.findings import kernel_work
from exhume.findings.kernel_work import (
    COMPACTION,
    CONSOLE,
    FAULT,
    FLUSH,
    INTERRUPTS,
    LOCK,
    NETWORK,
    OOM,
    RECLAIM,
    SOFTIRQS,
    UNKNOWN,
    UNMAP,
    WALK,
    WRITEBACK,
    Work,
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
        (f"kmem_cache_free rcu_do_batch rcu_core {_KSOFTIRQD}", SOFTIRQS),
        (f"sched_balance_domains handle_softirqs __irq_exit_rcu {_TIMER} mem_cgroup_iter {_FORCED}", SOFTIRQS),
        (f"nvme_irq handle_irq_event common_interrupt mem_cgroup_iter {_FORCED}", INTERRUPTS),
        # On its way out of an interrupt a task is itself again.
        (f"mem_cgroup_iter shrink_node do_exit exit_to_user_mode_loop irqentry_exit_to_user_mode {_TIMER}", WALK),
        ("crypto_shash_update some_driver", Work("kernel", "was in crypto_shash_update")),
        ("[unknown] some_driver", Work("kernel", "was in some_driver")),
        ("[unknown] [unknown]", UNKNOWN),
        ("", UNKNOWN),
    ],
)  # fmt: skip
def test_a_stack_says_what_the_kernel_did(stack: str, expected: Work) -> None:
    assert work(stack.split()) == expected


_NAMES = sorted(name for value in vars(kernel_work).values() if isinstance(value, frozenset) for name in value)


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(_NAMES)), max_size=8))
def test_any_stack_has_an_answer_in_words(stack: list[str]) -> None:
    assert work(stack).words
    assert work(stack) == work(tuple(stack))
