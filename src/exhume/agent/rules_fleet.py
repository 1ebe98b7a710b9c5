"""Recording rules for the fleet view: a number for each node, and one for all of them, made once for whoever asks."""

from typing import Final

from exhume.agent.rules import Record
from exhume.agent.rules_agent import DYING, LIVE, PAIN_S, THROTTLED
from exhume.agent.rules_grown import grown

RECORDS: Final = (
    Record("node:exhume_zombies_per_live:ratio", f"max by (NODE) ({DYING} / ignoring (state) ({LIVE} > 0))"),
    Record("node:exhume_zombie_pain:seconds", f"min by (NODE) ({PAIN_S})"),
    Record("node:exhume_core_saturated:ratio_rate5m", "max by (NODE) (rate(exhume_core_saturated_seconds_total[5m]))"),
    Record("node:exhume_napi_stalled:ratio_rate5m", 'sum by (NODE) (rate(exhume_stall_seconds_total{what="napi"}[5m]))'),
    Record("node:exhume_cpu_throttled:ratio5m", THROTTLED.format("5m")),
    Record("node:exhume_reclaim_scanned:rate5m", 'sum by (NODE) (rate(exhume_reclaim_pages_total{action="scanned"}[5m]))'),
    Record("node:exhume_agent_cpu:ratio_rate5m", "sum by (NODE) (rate(exhume_agent_cpu_seconds_total[5m]))"),
    Record("fleet:exhume_agents_up:ratio", 'avg(up{job="JOB"})'),
    Record("fleet_health:exhume_nodes:count", "sum by (health) (exhume_node_health)"),
    Record("fleet_verdict:exhume_nodes:count", "count by (cause, subject) (exhume_verdict_confidence)"),
    Record("fleet:exhume_zombies:sum", f"sum({DYING})"),
    Record("fleet:exhume_zombie_bytes:sum", "sum(exhume_zombie_memory_cgroup_bytes)"),
    Record("fleet_source:exhume_zombies:sum", "sum by (source) (exhume_zombie_memory_cgroups)"),
    Record("fleet_unit:exhume_crash_loops:count", "count by (unit) (exhume_crash_loop_leaks == 1)"),
    Record("fleet_reason:exhume_nic_resets:increase1h", grown("exhume_nic_resets_total", "reason")),
)
