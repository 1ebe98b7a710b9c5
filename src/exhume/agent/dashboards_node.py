"""One node: is it well, what hurts it and since when, from the source of a leak to the device that was reset."""

from exhume.agent.dashboards import NODE_UID, Page, Panel, Query, Row
from exhume.agent.rules_grown import grown
from exhume.diagnosis.findings.forecast import PAIN

_N = 'NODE="$node"'


def _rate(metric: str, labels: str = "") -> str:
    return f"rate({metric}{{{_N}{',' if labels else ''}{labels}}}[$__rate_interval])"


_POLLS = _rate("exhume_latency_seconds_bucket", 'what="napi"')

PAGE = Page(
    NODE_UID,
    "exhume: a node",
    (
        Row(
            "Is it well?",
            (
                Panel(
                    "Health",
                    "What the agent says of the last minute.",
                    (Query(f"exhume_node_health{{{_N}}} == 1", "{{health}}"),),
                    look="stat",
                    width=4,
                ),
                Panel(
                    "Verdict",
                    "The cause of what hurts the node, and how sure the agent is of it. Empty while nothing does.",
                    (Query(f"exhume_verdict_confidence{{{_N}}}"),),
                    "percentunit",
                    "table",
                    10,
                ),
                Panel(
                    "Findings",
                    "What is odd in the last minute, by kind and severity; info is none to worry about.",
                    (Query(f"exhume_findings{{{_N}}}", "{{kind}} ({{severity}})"),),
                    width=10,
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Memory cgroups",
            (
                Panel(
                    "Live and dying",
                    "A dying one (zombie) has no directory any more and is still walked. Few beside the live ones are usual.",
                    (Query(f"exhume_memory_cgroups{{{_N}}}", "{{state}} ({{hierarchy}})"),),
                ),
                Panel(
                    "Zombies by whose they were",
                    "The largest sources, named by the agent once a minute at most.",
                    (Query(f"exhume_zombie_memory_cgroups{{{_N}}}", "{{source}}"),),
                    stacked=True,
                ),
                Panel(
                    "Until it hurts",
                    f"Time until there are {PAIN:,} zombies, at the rate of the last hour. Absent while they do not "
                    f"grow in number.",
                    (Query(f"node:exhume_zombie_pain:seconds{{{_N}}}", "time left"),),
                    "s",
                ),
                Panel(
                    "Made, removed, released",
                    "What is removed and not released is a zombie: the gap between the two lines is the leak.",
                    (Query(_rate("exhume_memory_cgroup_changes_total"), "{{change}}"),),
                    "ops",
                ),
                Panel(
                    "What they cost",
                    "Kernel memory of the zombies' structs, estimated.",
                    (Query(f"exhume_zombie_memory_cgroup_bytes{{{_N}}}", "zombies"),),
                    "bytes",
                ),
                Panel(
                    "Crash loops",
                    "What is started again and again, in restarts a second; one that leaks is told apart.",
                    (
                        Query(f"exhume_crash_loop_restarts_rate{{{_N}}}", "{{unit}}"),
                        Query(f"exhume_crash_loop_leaks{{{_N}}} == 1", "{{unit}} leaks"),
                    ),
                ),
            ),
        ),
        Row(
            "Cores and the network",
            (
                Panel(
                    "Cores full of kernel time",
                    "Share of a core's time in which the kernel filled it while the others were free. Any is too much "
                    "for a queue.",
                    (Query(f"{_rate('exhume_core_saturated_seconds_total')} > 0", "core {{cpu}}"),),
                    "percentunit",
                ),
                Panel(
                    "Stalls",
                    "Time spent in waits of 50 ms and more: network polls by device, softirqs, watched threads.",
                    (Query(f"{_rate('exhume_stall_seconds_total')} > 0", "{{what}} {{device}}"),),
                    "percentunit",
                ),
                Panel(
                    "Resets of network devices",
                    "By the reason that the driver gave, within the hour.",
                    (Query(grown("exhume_nic_resets_total", "device, reason", _N), "{{device}}: {{reason}}"),),
                ),
                Panel(
                    "How long polls wait",
                    "Of what was measured in short windows: how many waited how long.",
                    (Query(f"sum by (le) ({_POLLS})", "{{le}}"),),
                    "s",
                    "heatmap",
                    12,
                ),
                Panel(
                    "99 of 100 wait less than",
                    "Of what was measured in short windows.",
                    (
                        Query(
                            f"histogram_quantile(0.99, sum by (le, what) ({_rate('exhume_latency_seconds_bucket')}))",
                            "{{what}}",
                        ),
                    ),
                    "s",
                    width=12,
                ),
            ),
        ),
        Row(
            "Rivals",
            (
                Panel(
                    "Throttling",
                    "Share of the quotas' periods in which a cgroup had used it up.",
                    (Query(f"node:exhume_cpu_throttled:ratio5m{{{_N}}}", "throttled periods"),),
                    "percentunit",
                ),
                Panel(
                    "Reclaim",
                    "Pages that were looked at or taken, by the kernel's thread or by who wanted memory (direct).",
                    (Query(_rate("exhume_reclaim_pages_total"), "{{by}} {{action}}"),),
                    "ops",
                ),
                Panel(
                    "Pressure",
                    "Share of the time in which a task waited for the resource.",
                    (Query(_rate("exhume_pressure_waiting_seconds_total"), "{{resource}}"),),
                    "percentunit",
                ),
            ),
        ),
        Row(
            "The agent",
            (
                Panel(
                    "CPU",
                    "Share of one core that the agent and its children use.",
                    (Query(_rate("exhume_agent_cpu_seconds_total"), "agent"),),
                    "percentunit",
                    width=6,
                ),
                Panel(
                    "Memory and disk",
                    "Resident memory, and what the recording takes on disk.",
                    (
                        Query(f"exhume_agent_resident_memory_bytes{{{_N}}}", "memory"),
                        Query(f"exhume_agent_disk_bytes{{{_N}}}", "recording"),
                    ),
                    "bytes",
                    width=6,
                ),
                Panel(
                    "Not seen",
                    "Sources that are off (why is in the agent's log), what it gave up and lost, verdicts that failed.",
                    (
                        Query(f"exhume_source_up{{{_N}}} == 0", "{{source}} is off"),
                        Query(f"exhume_agent_stepped_down{{{_N}}}", "{{what}} given up"),
                        Query(grown("exhume_agent_lost_total", "what", _N), "{{what}} lost"),
                        Query(
                            f"increase(exhume_verdicts_failed_total{{{_N}}}[1h]) > 0", "verdicts that failed within the hour"
                        ),
                    ),
                    width=6,
                ),
                Panel(
                    "Audit",
                    "What runs by itself, by judgement, and how far it is from its policy.",
                    (
                        Query(f"exhume_audit_units{{{_N}}}", "{{judgement}}"),
                        Query(f"exhume_audit_drift{{{_N}}}", "drift: {{kind}}"),
                    ),
                    look="bargauge",
                    width=6,
                ),
                Panel(
                    "Profiles out",
                    "What was pushed within the hour, by what became of it, and what waits for its receiver.",
                    (
                        Query(f"increase(exhume_profiles_pushed_total{{{_N}}}[1h])", "{{outcome}}"),
                        Query(f"exhume_profiles_waiting{{{_N}}}", "waiting"),
                    ),
                    width=6,
                ),
            ),
        ),
    ),
    one_node=True,
)
