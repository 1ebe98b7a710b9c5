"""Cases for the recording rules of the fleet's view."""

from tests.agent.rule_cases import HOUR, RECORDED_AT, Case, gone, rising, steady
from tests.agent.rule_cases_agent import DIRECT, DYING, KSWAPD, LEAKS, NODE, OTHER, THROTTLED, VERDICT, at

THIRD = 'instance="n3",job="exhume"'


def _reset(device: str, reason: str, node: str = NODE) -> str:
    return at("exhume_nic_resets_total", f'device="{device}",reason="{reason}"', node)


CASES: tuple[Case, ...] = (
    Case(
        "two nodes, one of which is ill",
        (),
        {
            DYING: steady(2400, 4 * HOUR),
            at("exhume_memory_cgroups", 'state="live",hierarchy="v2"', OTHER): steady(100, 4 * HOUR),
            at("exhume_memory_cgroups", 'state="dying",hierarchy="v2"', OTHER): steady(50, 4 * HOUR),
            at("exhume_zombie_memory_cgroups", 'source="ecs.service"'): steady(2300, 4 * HOUR),
            at("exhume_zombie_memory_cgroups", 'source="ecs.service"', OTHER): steady(40, 4 * HOUR),
            at("exhume_zombie_memory_cgroup_bytes"): steady(5e7, 4 * HOUR),
            at("exhume_node_health", 'health="critical"'): steady(1, 4 * HOUR),
            at("exhume_node_health", 'health="healthy"'): steady(0, 4 * HOUR),
            at("exhume_node_health", 'health="critical"', OTHER): steady(0, 4 * HOUR),
            at("exhume_node_health", 'health="healthy"', OTHER): steady(1, 4 * HOUR),
            VERDICT: steady(0.9, 4 * HOUR),
            LEAKS: steady(1, 4 * HOUR),
            at("exhume_core_saturated_seconds_total", 'cpu="0"'): steady(7, 4 * HOUR),
            at("exhume_core_saturated_seconds_total", 'cpu="39"'): rising(0, 0.25, 4 * HOUR),
            at("exhume_stall_seconds_total", 'what="napi",device="eth0"'): rising(0, 0.5, 4 * HOUR),
            at("exhume_stall_seconds_total", 'what="softirq",device=""'): rising(0, 0.1, 4 * HOUR),
            THROTTLED: rising(0, 20, 4 * HOUR),
            DIRECT: rising(0, 10, 4 * HOUR),
            KSWAPD: rising(0, 30, 4 * HOUR),
            at("exhume_agent_cpu_seconds_total"): rising(0, 0.015625, 4 * HOUR),
            at("up", node=OTHER): steady(0, 4 * HOUR),
            at("exhume_nic_resets_total", 'device="eth0",reason="keep-alive"'): steady(3, 4 * HOUR),
        },
        alone=True,
        records={
            "node:exhume_zombies_per_live:ratio": {'{instance="n1"}': 10, '{instance="n2"}': 0.5},
            "node:exhume_core_saturated:ratio_rate5m": {'{instance="n1"}': 0.25},
            "node:exhume_napi_stalled:ratio_rate5m": {'{instance="n1"}': 0.5},
            "node:exhume_cpu_throttled:ratio5m": {'{instance="n1"}': 0.2},
            "node:exhume_reclaim_scanned:rate5m": {'{instance="n1"}': 40},
            "node:exhume_agent_cpu:ratio_rate5m": {'{instance="n1"}': 0.015625},
            "node:exhume_zombie_pain:seconds": {},
            "fleet:exhume_agents_up:ratio": {"": 0.5},
            "fleet_health:exhume_nodes:count": {'{health="critical"}': 1, '{health="healthy"}': 1},
            "fleet_verdict:exhume_nodes:count": {'{cause="memcg-leak",subject="ecs.service"}': 1},
            "fleet:exhume_zombies:sum": {"": 2450},
            "fleet:exhume_zombie_bytes:sum": {"": 5e7},
            "fleet_source:exhume_zombies:sum": {'{source="ecs.service"}': 2340},
            "fleet_unit:exhume_crash_loops:count": {'{unit="ecs.service"}': 1},
            "fleet_reason:exhume_nic_resets:increase1h": {'{reason="keep-alive"}': 0},
        },
    ),
    Case(
        "resets of network devices, the first of its kind among them, whether or not the agent was restarted since",
        (),
        {
            # As old as the agent: one more within the hour.
            _reset("eth0", "timeout"): f"{steady(3, RECORDED_AT)} {steady(4, 4 * HOUR)}",
            _reset("eth1", "timeout"): steady(2, 4 * HOUR),
            # The first of its kind, and a second one.
            _reset("eth0", "keep-alive"): f"{gone(RECORDED_AT)} {steady(1, 120)} {steady(2, 4 * HOUR)}",
            # The first of its kind on a node on which the agent was restarted afterwards.
            _reset("eth0", "missing", OTHER): f"{gone(RECORDED_AT)} {steady(1, 120)} stale",
            # One long ago and one after the restart: the series is 1 again.
            _reset("eth1", "missing", OTHER): f"{steady(1, 600)} stale {gone(600)} {steady(1, 4 * HOUR)}",
            at("up", node=OTHER): steady(1, 4 * HOUR),
            at("exhume_agent_batches_total", node=OTHER): f"{rising(0, 1, 600)} {rising(0, 1, 4 * HOUR)}",
            # Of a node that Prometheus has only begun to see, nothing is new.
            _reset("eth0", "other", THIRD): f"{gone(600)} {steady(7, 4 * HOUR)}",
            at("exhume_agent_batches_total", node=THIRD): f"{gone(600)} {rising(5000, 1, 4 * HOUR)}",
        },
        alone=True,
        records={
            "fleet_reason:exhume_nic_resets:increase1h": {
                '{reason="keep-alive"}': 2,
                '{reason="missing"}': 2,
                '{reason="other"}': 0,
                '{reason="timeout"}': 1,
            }
        },
    ),
    Case(
        "a node that leaks one every ten seconds hurts in two days",
        (),
        {DYING: rising(2720, 0.1, 4 * HOUR)},
        alone=True,
        # 2,720 and 0.1 for 1,500 s are 2,870 by then.
        records={"node:exhume_zombie_pain:seconds": {'{instance="n1"}': 171_300}},
    ),
)
