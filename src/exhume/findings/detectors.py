"""All detectors, in the order of the causal chain they feed: sources of leaks first, what they do to the node after."""

from collections.abc import Callable

from exhume.findings import (
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
    nic_reset,
    observer_starved,
    oom,
    page_fault_storm,
    printk_flood,
    reclaim,
    soft_lockup,
    steal,
    unused_agent,
    writeback_stall,
    zombie_memcgs,
)
from exhume.findings.model import Examined
from exhume.findings.sampled import made_up
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

DETECTORS: tuple[Callable[[Recording, Thresholds], Examined], ...] = (
    crash_loop.detect,
    unused_agent.detect,
    memcg_leak.detect,
    zombie_memcgs.detect,
    cgroup_dirs_leak.detect,
    memcg_walk.detect,
    core_saturated.detect,
    napi_starved.detect,
    nic_reset.detect,
    soft_lockup.detect,
    observer_starved.detect,
    cpu_full.detect,
    cpu_throttled.detect,
    reclaim.detect,
    steal.detect,
    page_fault_storm.detect,
    writeback_stall.detect,
    printk_flood.detect,
    irq_imbalance.detect,
    oom.detect,
    defunct_processes.detect,
)


def examine(recording: Recording, thresholds: Thresholds) -> list[Examined]:
    judged = _in_time(recording)
    return [detect(judged, thresholds) for detect in DETECTORS]


def _in_time(recording: Recording) -> Recording:
    """Without samples whose times are made up: all that detectors ask is when, and for how long."""
    if made_up(recording) == "":
        return recording
    found = Recording(recording.node)
    found.tables.update({name: table for name, table in recording.tables.items() if name not in ("samples", "summary")})
    return found
