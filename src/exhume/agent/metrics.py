"""Every metric that the agent exports: its name, its unit, its labels and how many series it can have at most.

In one place, for the collector, for the documentation (docs/metrics.md is made of it) and for the rules and dashboards, which
may use no other name.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gauge", "counter", "histogram"]

TOP: Final = 20
"""Of what has no natural bound (units, cgroups, sources of zombies) so many are told one by one, and the rest as OTHER."""
OTHER: Final = "(other)"

MOST_CORES: Final = 512
MOST_DEVICES: Final = 16

# Upper bounds in seconds of the histograms' buckets: powers of two of a microsecond, as the kernel's side counts them, so that
# nothing is guessed. From 8 us, below which nobody is late, to 4 s, before the first driver gives up.
EDGES_US: Final = (8, 32, 128, 512, 2_048, 8_192, 32_768, 131_072, 524_288, 1_048_576, 2_097_152, 4_194_304)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    most: int = 1
    """Series at most, whatever the node has; of a histogram, of each of its buckets."""
    source: str = ""
    """What it is read from: the source of `exhume info` that must be on for it."""
    folds: bool = False
    """Whether its labels come from outside: the last series is OTHER then, where what has none of its own is counted."""


def _all(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS: Final = _all(
    Metric(
        "exhume_memory_cgroups",
        "gauge",
        "Memory cgroups of the node: live ones have a directory, dying ones (zombies) have none and are still walked.",
        ("state", "hierarchy"),
        4,
        "memcg",
    ),
    Metric(
        "exhume_zombie_memory_cgroups",
        "gauge",
        f"Zombie memory cgroups by whose they were: the {TOP} largest, the rest as {OTHER}. Named from 100 on, now and then.",
        ("source",),
        TOP + 1,
        "zombies",
    ),
    Metric(
        "exhume_memory_cgroup_leak_rate",
        "gauge",
        "Zombie memory cgroups that are added a second, over the last ten minutes; 0 where their number does not grow.",
        (),
        1,
        "memcg",
    ),
    Metric(
        "exhume_zombie_memory_cgroup_bytes",
        "gauge",
        "Kernel memory that zombies cost in structs, estimated by their number and the number of CPUs.",
        (),
        1,
        "memcg",
    ),
    Metric(
        "exhume_memory_cgroup_changes_total",
        "counter",
        "cgroups of the memory hierarchy that were made, removed and released.",
        ("change",),
        3,
        "cgroup-events",
    ),
    Metric(
        "exhume_core_saturated_seconds_total",
        "counter",
        "Seconds in which a core was full of kernel time, while the others were not.",
        ("cpu",),
        MOST_CORES,
        "cpu",
        folds=True,
    ),
    Metric(
        "exhume_core_saturated_episodes_total",
        "counter",
        "Times that a core was full of kernel time, while the others were not.",
        ("cpu",),
        MOST_CORES,
        "cpu",
        folds=True,
    ),
    Metric(
        "exhume_latency_seconds",
        "histogram",
        "How long polls, softirqs and threads waited to run. Measured in short windows: rates of it are of those, not of all.",
        ("what", "device"),
        2 + MOST_DEVICES + 1,
        "latency",
    ),
    Metric(
        "exhume_stalls_total",
        "counter",
        "Stalls of 50 ms and more that have ended: of a network device's poll, a softirq, a watched thread.",
        ("what", "device"),
        3 + MOST_DEVICES + 1,
        "latency",
        folds=True,
    ),
    Metric(
        "exhume_stall_seconds_total",
        "counter",
        "Time spent in such stalls.",
        ("what", "device"),
        3 + MOST_DEVICES + 1,
        "latency",
        folds=True,
    ),
    Metric(
        "exhume_nic_resets_total",
        "counter",
        "Resets of network devices, by the reason that the log gives. docs/recording.md says what counts as one.",
        ("device", "reason"),
        4 * MOST_DEVICES,
        "kernel-log",
        folds=True,
    ),
    Metric(
        "exhume_crash_loop_restarts_rate",
        "gauge",
        f"Restarts a second of what is started again and again now, at most {TOP} of them, those that leak first.",
        ("unit",),
        TOP,
    ),
    Metric(
        "exhume_crash_loop_leaks",
        "gauge",
        "1 for a crash loop in whose cgroup zombies are left behind, 0 for one that leaves none.",
        ("unit",),
        TOP,
    ),
    Metric(
        "exhume_cpu_throttled_seconds_total",
        "counter",
        "Time for which cgroups were kept from running by their CPU quota, all of them together.",
        (),
        1,
        "throttling",
    ),
    Metric(
        "exhume_cpu_throttled_periods_total",
        "counter",
        "Periods in which a cgroup used up its quota, all cgroups together.",
        (),
        1,
        "throttling",
    ),
    Metric(
        "exhume_cpu_quota_periods_total",
        "counter",
        "Periods in which a cgroup with a quota wanted to run, all cgroups together.",
        (),
        1,
        "throttling",
    ),
    Metric(
        "exhume_reclaim_pages_total",
        "counter",
        "Pages that reclaim looked at (scanned) or took (stolen): the kernel's thread, or directly who wanted memory.",
        ("by", "action"),
        4,
        "vmstat",
    ),
    Metric(
        "exhume_pressure_waiting_seconds_total",
        "counter",
        "Time in which at least one task waited for the resource (pressure, some).",
        ("resource",),
        3,
        "pressure",
    ),
    Metric(
        "exhume_findings",
        "gauge",
        "Findings of the last look at the last minute, by kind and severity.",
        ("kind", "severity"),
        3 * 25,
    ),
    Metric(
        "exhume_node_health",
        "gauge",
        "1 for the health that the node has now, 0 for the others: healthy, warning, critical, unknown.",
        ("health",),
        4,
    ),
    Metric(
        "exhume_verdict_confidence",
        "gauge",
        "How sure the last verdict is of its cause, 0 to 1. Absent when neither it nor an incident goes on.",
        ("cause", "subject"),
        1,
    ),
    Metric(
        "exhume_verdict_timestamp_seconds",
        "gauge",
        "When the last verdict was given. Absent before the first.",
        (),
        1,
    ),
    Metric(
        "exhume_verdicts_failed_total",
        "counter",
        "Attempts at a verdict that failed or took a minute, or for which nothing could be written; each is tried three times.",
    ),
    Metric(
        "exhume_incidents_total",
        "counter",
        "Incidents that were found and pinned in the recording, by kind.",
        ("kind",),
        30,
        folds=True,
    ),
    Metric(
        "exhume_source_up",
        "gauge",
        "1 for a source that is read, 0 for one that is off: why is in the log and in `exhume info`.",
        ("source",),
        40,
    ),
    Metric(
        "exhume_agent_cpu_seconds_total",
        "counter",
        "CPU time of the agent and of its children.",
    ),
    Metric(
        "exhume_agent_batches_total",
        "counter",
        "Batches of rows that the recorder has brought. It stands still when the recorder is stuck.",
    ),
    Metric(
        "exhume_agent_judged_timestamp_seconds",
        "gauge",
        "When all detectors looked at the last minute last; before that, when the agent began. It stands still when one fails.",
    ),
    Metric("exhume_agent_resident_memory_bytes", "gauge", "Resident memory of the agent and of its children."),
    Metric("exhume_agent_disk_bytes", "gauge", "What the recording takes on disk."),
    Metric(
        "exhume_agent_stepped_down",
        "gauge",
        "1 for each thing that the agent has switched off to keep to its own limits.",
        ("what",),
        8,
    ),
    Metric(
        "exhume_agent_lost_total",
        "counter",
        "What the agent could not keep: stack samples, rows, records of the kernel.",
        ("what",),
        9,
        folds=True,
    ),
    Metric(
        "exhume_profiles_pushed_total",
        "counter",
        "Profiles that were pushed, by how it went: sent, failed for good, dropped as the spool was full or pushing off.",
        ("outcome",),
        3,
    ),
    Metric("exhume_profiles_waiting", "gauge", "Profiles in the spool that wait to be sent; absent where none are pushed."),
    Metric(
        "exhume_audit_units",
        "gauge",
        "What runs by itself on the node, by the judgement of the daily audit.",
        ("judgement",),
        4,
    ),
    Metric(
        "exhume_audit_drift",
        "gauge",
        "How far the node is from its lifecycle policy: not-allowed (in this image), new, past-review, no-owner, gone.",
        ("kind",),
        5,
    ),
    Metric(
        "exhume_audit_timestamp_seconds",
        "gauge",
        "When the last audit was made; before the first, when the agent began with them. Absent without audits.",
    ),
    Metric("exhume_build_info", "gauge", "1, with the version of the agent.", ("version",), 1),
)


def most_series() -> int:
    """Series of an agent that has everything at its bound: a histogram is its buckets, a sum and a count."""
    each = {"histogram": len(EDGES_US) + 3}
    return sum(metric.most * each.get(metric.kind, 1) for metric in METRICS.values())
