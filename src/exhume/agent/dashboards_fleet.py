"""All nodes: how many are well, which are worst, and what they have in common."""

from exhume.agent.dashboards import Page, Panel, Query, Row
from exhume.diagnosis.findings.forecast import PAIN

_LEFT = "topk(20, {})"

PAGE = Page(
    "exhume-fleet",
    "exhume: the fleet",
    (
        Row(
            "How many are well?",
            (
                Panel(
                    "Nodes by health",
                    "What their agents say of the last minute.",
                    (Query("fleet_health:exhume_nodes:count", "{{health}}"),),
                    stacked=True,
                    width=10,
                ),
                Panel(
                    "Agents that answer",
                    "Share of the agents that could be scraped.",
                    (Query("fleet:exhume_agents_up:ratio", "answer"),),
                    "percentunit",
                    "stat",
                    4,
                ),
                Panel(
                    "Verdicts",
                    "What hurts nodes now, and how many: one culprit on many nodes comes from what they have in common.",
                    (Query("fleet_verdict:exhume_nodes:count"),),
                    look="table",
                    width=10,
                ),
                Panel(
                    "Nodes that are not well",
                    "By name, with how bad it is; a click on one leads to its page.",
                    (Query('sum by (NODE, health) (exhume_node_health{health!="healthy"} == 1)'),),
                    look="table",
                    width=12,
                ),
                Panel(
                    "Their verdicts",
                    "What hurts each of them, and how sure its agent is of it.",
                    (Query("max by (NODE, cause, subject) (exhume_verdict_confidence)"),),
                    "percentunit",
                    "table",
                    12,
                ),
            ),
        ),
        Row(
            "Zombies",
            (
                Panel(
                    "Zombie memory cgroups",
                    "All nodes together.",
                    (Query("fleet:exhume_zombies:sum", "zombies"),),
                ),
                Panel(
                    "By whose they were",
                    "All nodes together, the largest sources.",
                    (Query(_LEFT.format("fleet_source:exhume_zombies:sum"), "{{source}}"),),
                    stacked=True,
                ),
                Panel(
                    "What they cost",
                    "Kernel memory of their structs, estimated, all nodes together.",
                    (Query("fleet:exhume_zombie_bytes:sum", "zombies"),),
                    "bytes",
                ),
                Panel(
                    "Worst nodes: zombies for each live memory cgroup",
                    "Five is a warning, if there are a thousand.",
                    (Query(_LEFT.format("node:exhume_zombies_per_live:ratio"), "{{NODE}}"),),
                    look="bargauge",
                    limit=5.0,
                ),
                Panel(
                    "Next nodes to hurt",
                    f"Time until they have {PAIN:,} zombies, at the rate of the last hour.",
                    (Query("bottomk(20, node:exhume_zombie_pain:seconds)", "{{NODE}}"),),
                    "s",
                    "bargauge",
                ),
                Panel(
                    "Crash loops that leak",
                    "Units, and on how many nodes each.",
                    (Query("fleet_unit:exhume_crash_loops:count", "{{unit}}"),),
                    look="table",
                ),
            ),
        ),
        Row(
            "Cores and the network",
            (
                Panel(
                    "Worst cores",
                    "The nodes whose fullest core was longest full of kernel time.",
                    (Query(_LEFT.format("node:exhume_core_saturated:ratio_rate5m > 0"), "{{NODE}}"),),
                    "percentunit",
                ),
                Panel(
                    "Worst polls",
                    "The nodes whose network polls were late for longest.",
                    (Query(_LEFT.format("node:exhume_napi_stalled:ratio_rate5m > 0"), "{{NODE}}"),),
                    "percentunit",
                ),
                Panel(
                    "Resets of network devices",
                    "Within the hour, by reason, all nodes together.",
                    (Query("fleet_reason:exhume_nic_resets:increase1h", "{{reason}}"),),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Rivals",
            (
                Panel(
                    "Throttling",
                    "The nodes with the largest share of used-up quota periods.",
                    (Query(_LEFT.format("node:exhume_cpu_throttled:ratio5m"), "{{NODE}}"),),
                    "percentunit",
                    width=12,
                ),
                Panel(
                    "Reclaim",
                    "The nodes that look at most pages to find free ones.",
                    (Query(_LEFT.format("node:exhume_reclaim_scanned:rate5m"), "{{NODE}}"),),
                    "ops",
                    width=12,
                ),
            ),
        ),
        Row(
            "Agents",
            (
                Panel(
                    "Dearest agents",
                    "Share of one core.",
                    (Query(_LEFT.format("node:exhume_agent_cpu:ratio_rate5m"), "{{NODE}}"),),
                    "percentunit",
                    width=6,
                ),
                Panel(
                    "Given up",
                    "Agents that gave something up to keep to their limits.",
                    (Query("count by (what) (exhume_agent_stepped_down == 1)", "{{what}}"),),
                    width=6,
                ),
                Panel(
                    "Versions",
                    "Of the agents.",
                    (Query("count by (version) (exhume_build_info)", "{{version}}"),),
                    look="table",
                    width=6,
                ),
                Panel(
                    "Audit",
                    "What runs by itself, by judgement, and how far from its policy; all nodes together.",
                    (
                        Query("sum by (judgement) (exhume_audit_units)", "{{judgement}}"),
                        Query("sum by (kind) (exhume_audit_drift)", "drift: {{kind}}"),
                    ),
                    look="bargauge",
                    width=6,
                ),
            ),
        ),
    ),
    one_node=False,
)
