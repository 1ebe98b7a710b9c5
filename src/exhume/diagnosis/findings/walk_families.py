"""Why the kernel walks memory cgroups: which family of walks a stack is of, and the file, fault or thread that asked for it."""

from collections.abc import Sequence
from typing import Final

from exhume.diagnosis.findings import kernel_functions as of
from exhume.diagnosis.findings.kernel_work import FLUSH, Work, bare

NUMA_STAT: Final = "numa_stat"
STAT: Final = "memory.stat"
RSTAT: Final = "rstat flush"
CHARGE: Final = "charge/limit"
RECLAIM: Final = "reclaim"
# Files by which reclaim is requested of one group and all below it.
MEMORY_RECLAIM: Final = "memory.reclaim"
FORCE_EMPTY: Final = "memory.force_empty"
REQUESTED_BELOW: Final = (MEMORY_RECLAIM, FORCE_EMPTY)


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


# mm/memcontrol.c, memcontrol-v1.c since 6.11. mem_cgroup_nr_lru_pages alone is the first: memory.stat calls it with its own
# function below it, and that is looked for before.
_NUMA_STAT: Final = _named("memcg_numa_stat_show memory_numa_stat_show")
_NUMA_STAT_PARTS: Final = _named("mem_cgroup_nr_lru_pages mem_cgroup_node_nr_lru_pages")
_STAT: Final = _named(
    "memcg_stat_show memory_stat_show memory_stat_format memcg_stat_format memcg1_stat_format memcg_sum_events tree_events "
    "tree_stat"
)
# mm/memcontrol.c: a group at its limit; a task that is made to pay for being above memory.high
_CHARGE: Final = of.CHARGE

# From what was asked for to how: the first that fits is told.
_THROUGH: Final = (
    ("memory.numa_stat", _NUMA_STAT),
    ("memory.stat", _STAT),
    (MEMORY_RECLAIM, _named("memory_reclaim user_proactive_reclaim")),  # mm/memcontrol.c, vmscan.c since 6.17
    (FORCE_EMPTY, _named("mem_cgroup_force_empty_write mem_cgroup_force_empty")),
    ("a write to its limit", _named("mem_cgroup_resize_max mem_cgroup_resize_limit memory_max_write memory_high_write")),
    ("cpu.stat", _named("cpu_stat_show cgroup_base_stat_cputime_show")),  # kernel/cgroup/cgroup.c, rstat.c
    ("drop_caches", _named("drop_caches_sysctl_handler drop_slab drop_slab_node")),  # fs/drop_caches.c
    ("kswapd", _named("kswapd balance_pgdat")),
    ("the kernel's own flush every 2 s", _named("flush_memcg_stats_dwork")),  # mm/memcontrol.c, FLUSH_TIME
    ("memory.high, which it is above", _named("mem_cgroup_handle_over_high __mem_cgroup_handle_over_high reclaim_high")),
)
_AT_LIMIT: Final = "a charge against its limit"
_FAULT_AT_LIMIT: Final = "a page fault, charged against its limit"
_DIRECT: Final = _named("try_to_free_pages __alloc_pages_direct_reclaim __alloc_pages_slowpath")
_LAST: Final = (
    ("a page fault", of.FAULT),
    ("a read()", _named("ksys_read vfs_read __x64_sys_read sys_read SyS_read __arm64_sys_read ksys_pread64")),
    ("a write()", _named("ksys_write vfs_write __x64_sys_write sys_write SyS_write __arm64_sys_write")),
)


def family(stack: Sequence[str], work: Work) -> str:
    """Of a stack that kernel_work calls a walk, or a flush."""
    if work.key == FLUSH.key:
        return RSTAT
    found = set(bare(stack))
    if found & _NUMA_STAT:
        return NUMA_STAT
    if found & _STAT:
        return STAT
    if found & _NUMA_STAT_PARTS:
        return NUMA_STAT
    return CHARGE if found & _CHARGE else RECLAIM


def through(stack: Sequence[str]) -> str:
    """The file that was read or written, or what else led to it; empty where the stack does not show it."""
    found = set(bare(stack))
    for words, functions in _THROUGH:
        if found & functions:
            return words
    if found & _CHARGE:
        return _FAULT_AT_LIMIT if found & of.FAULT else _AT_LIMIT
    if found & _DIRECT:
        return "direct reclaim"
    return next((words for words, functions in _LAST if found & functions), "")
