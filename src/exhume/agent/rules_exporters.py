"""The rules for nodes without the agent: node_exporter's metrics and the kubelet's own, and what they cannot see.

They need `--collector.cgroups`, for reclaim a wider `--collector.vmstat.fields`, for crash loops `--collector.systemd` with
`--collector.systemd.enable-restarts-metrics`; and the label NODE on both jobs, which is what `and on (NODE)` matches by. They
see no zombie apart from a live cgroup, no stretch on a core that is shorter than a scrape, no late poll, no driver's word, no
loop inside a unit, and no cause.
"""

from typing import Final

from exhume.agent.rules import HELD, Alert, held
from exhume.diagnosis.findings.forecast import PAIN
from exhume.diagnosis.findings.thresholds import Thresholds

_LIMITS = Thresholds()
_ALL = 'node_cgroups_cgroups{subsys_name="memory"}'
# cAdvisor has a series for every cgroup that it watches: what lives, or nearly. A scrape of it that fails is borne for less
# long, because those count that ended meanwhile.
_WATCHED = 'count by (NODE) (last_over_time(container_memory_usage_bytes{id!=""}[2m]))'
_KERNEL = 'sum by (NODE, cpu) (rate(node_cpu_seconds_total{mode=~"system|irq|softirq"}[2m]))'
# Over more than an hour, and held against more than an hour ago: what leaks by a job of every hour does so in steps.
_GROWS = f"deriv({_ALL}[2h])"
_WHERE = "on {{ $labels.NODE }}"

ALERTS: Final = (
    Alert(
        "NodeMemoryCgroupsMany",
        f"{held(_ALL)} >= {_LIMITS.zombies_floor}\n"
        "and on (NODE) (\n"
        f"  max by (NODE) ({held(_ALL)}) >= {_LIMITS.zombies_per_live + 1:g} * {_WATCHED}\n"
        "or\n"
        f"  max by (NODE) ({held(_ALL)}) >= {PAIN}\n"
        ")",
        900,
        "warning",
        f"Far more memory cgroups than containers {_WHERE}",
        '{{ printf "%.0f" $value }} memory cgroups '
        f"{_WHERE} are known to the kernel, and a small part of them to the kubelet. The rest are zombies or leaked "
        f"directories: "
        "`exhume check` tells them apart.",
        action="On the node, `sudo exhume check` says which they are, whose, and what to do.",
    ),
    Alert(
        "NodeMemoryCgroupLeak",
        f"clamp_min(({PAIN} - {held(_ALL)}) / ({_GROWS} > 0), 0) < <7d>\n"
        f"and {held(_ALL)} - last_over_time({_ALL}[{HELD}] offset 90m) > {_LIMITS.leak_fewest}",
        5400,
        "warning",
        f"Memory cgroups grow in number {_WHERE}",
        f"At the rate of the last two hours there are {PAIN:,} memory cgroups {_WHERE} in "
        f"{{{{ $value | humanizeDuration }}}}. Live ones are "
        "counted as well: a node that is being filled with pods looks like this for an hour or two.",
        action="Is the node being filled with pods? If not, `sudo exhume check` on it names the source.",
    ),
    Alert(
        "NodeCoreSaturatedByKernel",
        f"{_KERNEL} > 0.5\nand on (NODE) avg by (NODE) ({_KERNEL}) < 0.5",
        600,
        "warning",
        f"The kernel fills core {{{{ $labels.cpu }}}} {_WHERE}",
        f"Core {{{{ $labels.cpu }}}} {_WHERE} spent {{{{ $value | humanizePercentage }}}} of two minutes in the kernel, "
        f"and the others "
        "did not. Stretches of a few seconds, which are enough for a driver to give up, do not reach this.",
        action="On the node, `sudo exhume check` says who holds the core, in which function of the kernel, and why.",
    ),
    Alert(
        "NodePacketsDroppedBySoftnet",
        "sum by (NODE) (increase(node_softnet_dropped_total[2m])) > 0",
        300,
        "warning",
        f"The kernel drops packets before anybody looks at them {_WHERE}",
        f"{{{{ $value | humanize }}}} packets in two minutes {_WHERE} found the backlog of their core full. A queue "
        f"that is not polled "
        "shows nowhere in these metrics: this is the nearest to it.",
        action="On the node, `sudo exhume latency` says which polls are late and who holds their cores; if none is, "
        "raise net.core.netdev_max_backlog.",
    ),
    Alert(
        "NodeLinkBounced",
        "sum by (NODE, device) "
        '(increase(node_network_carrier_changes_total{device!~"(veth|cali|lxc|br|docker|cni|tap).*"}[15m])) >= 2\n'
        # The kernel begins to count anew, and a link that comes up has changed twice.
        f"unless on (NODE) time() - {held('node_boot_time_seconds')} < <20m>",
        60,
        "warning",
        f"The link of {{{{ $labels.device }}}} went and came back {_WHERE}",
        f"{{{{ $labels.device }}}} {_WHERE} changed its carrier {{{{ $value | humanize }}}} times in a quarter of an "
        f"hour. A driver that "
        "resets its device does that, and so does a cable; the kernel log says which.",
        action="On the node, `journalctl -k` says whether its driver reset it; if it did, `sudo exhume check` says why.",
    ),
    Alert(
        "NodeReclaimAndThrottling",
        f"sum by (NODE) (rate(node_vmstat_pgscan_direct[2m])) > {_LIMITS.direct_reclaim_pages}\n"
        "and on (NODE)\n"
        "  sum by (NODE) (rate(container_cpu_cfs_throttled_periods_total[2m]))\n"
        f"    / sum by (NODE) (rate(container_cpu_cfs_periods_total[2m])) > {_LIMITS.throttled_ratio:g}",
        300,
        "warning",
        f"Memory is short and CPU quotas are used up at once {_WHERE}",
        f'{{{{ printf "%.0f" $value }}}} pages a second are scanned {_WHERE} by those who want memory, while containers '
        f"use up their "
        "CPU quota.",
        action="On the node, `sudo exhume check` says who reclaims and whether zombies are in the way. Raise the "
        "memory of who reclaims before its CPU quota.",
    ),
    Alert(
        "NodeCrashLoop",
        f"increase(node_systemd_service_restart_total[10m]) >= {_LIMITS.crash_restarts}\nand on (NODE) {_GROWS} > 0",
        900,
        "warning",
        f"{{{{ $labels.name }}}} is restarted again and again {_WHERE}, and memory cgroups grow in number",
        f"systemd restarted {{{{ $labels.name }}}} {_WHERE} {{{{ $value | humanize }}}} times in ten minutes. A loop "
        f"inside a unit is not "
        "counted by systemd and does not show here.",
        action="`journalctl -u {{ $labels.name }}` on the node says why it ends, `sudo exhume audit {{ $labels.name "
        "}}` whether anybody needs it.",
    ),
    Alert(
        "NodeExporterDown",
        'up{job="EXPORTERS"} == 0',
        300,
        "warning",
        f"node_exporter does not answer {_WHERE}",
        f"Prometheus could not scrape node_exporter {_WHERE} for five minutes: none of these alerts watches that node.",
        action="Look at the exporter's pod or unit, and at the node: one that starves may not answer.",
    ),
)
