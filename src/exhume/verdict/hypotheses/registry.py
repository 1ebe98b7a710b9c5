"""All hypotheses, by the kind of finding that each is about."""

from exhume.verdict.hypotheses import (
    cgroup_dirs_leak,
    core_saturated,
    cpu_full,
    cpu_throttled,
    crash_loop,
    defunct_processes,
    irq_imbalance,
    memcg_leak,
    memcg_walk,
    napi_starved,
    oom,
    others,
    page_fault_storm,
    printk_flood,
    reclaim,
    soft_lockup,
    steal,
    writeback_stall,
    zombie_memcgs,
)
from exhume.verdict.hypotheses.model import Hypothesis

_ALL = (
    crash_loop.HYPOTHESIS,
    defunct_processes.HYPOTHESIS,
    memcg_leak.HYPOTHESIS,
    zombie_memcgs.HYPOTHESIS,
    memcg_walk.HYPOTHESIS,
    cgroup_dirs_leak.HYPOTHESIS,
    reclaim.HYPOTHESIS,
    printk_flood.HYPOTHESIS,
    page_fault_storm.HYPOTHESIS,
    writeback_stall.HYPOTHESIS,
    oom.HYPOTHESIS,
    irq_imbalance.HYPOTHESIS,
    steal.HYPOTHESIS,
    cpu_full.HYPOTHESIS,
    cpu_throttled.HYPOTHESIS,
    core_saturated.HYPOTHESIS,
    soft_lockup.HYPOTHESIS,
    napi_starved.HYPOTHESIS,
    others.NIC_RESET,
    others.OBSERVER_STARVED,
    others.UNUSED_AGENT,
)
HYPOTHESES: dict[str, Hypothesis] = {one.kind: one for one in _ALL}
