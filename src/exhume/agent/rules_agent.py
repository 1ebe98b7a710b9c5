"""The rules for nodes that run the agent.

The agent judges and Prometheus keeps the time. What a symptom is, the detectors say, by thresholds that are set on the node; an
alert asks how long it goes on. `exhume_findings` speaks of the last minute and is looked at over two, so half a minute of
trouble holds an expression for three and a half: none fires that must hold for five. A reset of a network device is told even
if it is one, because what it broke stays broken.
"""

from typing import Final

from exhume.agent.rules import HELD, Alert, held
from exhume.diagnosis.findings.forecast import PAIN
from exhume.diagnosis.findings.thresholds import Thresholds

_LIMITS = Thresholds()
DYING = 'exhume_memory_cgroups{state="dying"}'
LIVE = 'exhume_memory_cgroups{state="live"}'
_DRIFT, _OVERDUE = (f'exhume_audit_drift{{kind{match}"past-review"}}' for match in ("!=", "="))


def _pain_s(over: str) -> str:
    """By least squares, so that a node whose zombies come and go has no slope for long."""
    return f"clamp_min(({PAIN} - {held(DYING)}) / (deriv({DYING}[{over}]) > 0), 0)"


PAIN_S = _pain_s("1h")
# Of a job that is started every hour and leaves zombies each time, nothing grows between two of its runs. It leaks if some came
# within the last hour and a half, and those of the two hours before have stayed. A burst that comes once is not both at once.
_BY_TURNS = (
    f"{_pain_s('6h')} < <7d>\n"
    "and on (NODE) max_over_time(exhume_memory_cgroup_leak_rate[90m]) > 0\n"
    f"and min_over_time({DYING}[2h]) > min_over_time({DYING}[2h] offset 2h)"
)
THROTTLED = (
    "sum by (NODE) (rate(exhume_cpu_throttled_periods_total[{0}])) / sum by (NODE) (rate(exhume_cpu_quota_periods_total[{0}]))"
)


def _found(kind: str, over: str) -> str:
    return f'sum by (NODE) (max_over_time(exhume_findings{{kind="{kind}",severity!="info"}}[{over}])) > 0'


def _each(query: str, said: str) -> str:
    """What a query of this node gives, one after the other, in an annotation; nothing if it gives nothing."""
    return f"{{{{ range printf `{query}` $labels.NODE | query }}}}{said}{{{{ end }}}}"


# A verdict stands as long as anything hurts the node, a leak for weeks; what was said before a reset does not explain it. One
# that was given for it is no older than the finding, which is of a minute and is looked at over a quarter of an hour.
_FRESH_VERDICT = (
    "max_over_time(exhume_verdict_confidence[15m])"
    " and on (NODE) (time() - max_over_time(exhume_verdict_timestamp_seconds[15m]) < <17m>)"
)
_WHERE = "on {{ $labels.NODE }}"
# What a description says of a node's verdict, where there is one.
_VERDICT = _each(
    "exhume_verdict_confidence{NODE=%q}",
    " The verdict is {{ .Labels.cause }} of {{ .Labels.subject }}, confidence {{ .Value | humanizePercentage }}.",
)

ALERTS: Final = (
    Alert(
        "ExhumeZombieMemoryCgroups",
        f"{held(DYING)} >= {_LIMITS.zombies_floor}\nand ignoring (state) {held(DYING)} >= ignoring (state) "
        f"{_LIMITS.zombies_per_live:g} * {held(LIVE)}",
        600,
        "warning",
        f"Many zombie memory cgroups {_WHERE}",
        '{{ printf "%.0f" $value }} memory cgroups '
        f"{_WHERE} are zombies: their directories are gone, and the kernel still walks them."
        + _each(f"{LIVE[:-1]},NODE=%q}}", ' {{ printf "%.0f" .Value }} are alive.')
        + _each("exhume_zombie_memory_cgroup_bytes{NODE=%q}", " They cost about {{ .Value | humanize1024 }}B of kernel memory.")
        + _each(
            "topk(1, exhume_zombie_memory_cgroups{NODE=%q})", ' Most ({{ printf "%.0f" .Value }}) were of {{ .Labels.source }}.'
        ),
        action="On the node, `sudo exhume zombies` says whose they were and what pins them, `sudo exhume zombies "
        "purge --dry-run` what can be let go without a reboot.",
    ),
    Alert(
        "ExhumeMemoryCgroupLeak",
        # An agent that was restarted tells no rate for a minute, and then one of a minute, which may be none.
        f"{PAIN_S} < <7d>\nand on (NODE) max_over_time(exhume_memory_cgroup_leak_rate[{HELD}]) > 0\nor\n{_BY_TURNS}",
        3600,
        "warning",
        f"Memory cgroups leak {_WHERE}",
        f"At the rate at which they come there are {PAIN:,} zombie memory cgroups {_WHERE} in "
        f"{{{{ $value | humanizeDuration }}}}; "
        "from about then on one walk over them is long enough for a network driver to give up."
        + _each(
            f"{DYING[:-1]},NODE=%[1]q}} - min_over_time({DYING[:-1]},NODE=%[1]q}}[1h])",
            ' {{ printf "%.0f" .Value }} came within the last hour.',
        ),
        action="On the node, `sudo exhume check` names the source and `sudo exhume fix UNIT` prints the plan that "
        "ends it. A reboot only puts it off.",
    ),
    Alert(
        "ExhumeCoreSaturated",
        _found("core-saturated", "2m"),
        300,
        "warning",
        f"The kernel fills a core {_WHERE}",
        f"Again and again for five minutes, a core was full of kernel time {_WHERE} while the others were not."
        + _each(
            "topk(3, increase(exhume_core_saturated_seconds_total{NODE=%q}[10m]) > 0)",
            ' Core {{ .Labels.cpu }}: {{ printf "%.1f" .Value }} s of the last ten minutes.',
        )
        + _VERDICT,
        action="On the node, `sudo exhume diagnose --last` says who held the core, in which function of the kernel, and why.",
    ),
    Alert(
        "ExhumeNapiStarving",
        _found("napi-starved", "2m"),
        300,
        "critical",
        f"Network queues are not polled in time {_WHERE}",
        f"Again and again for five minutes, the poll of a network device {_WHERE} was late; drivers give up after some seconds."
        + _each(
            'topk(3, increase(exhume_stall_seconds_total{what="napi",NODE=%q}[10m]) > 0)',
            ' {{ .Labels.device }}: {{ printf "%.1f" .Value }} s late in the last ten minutes.',
        )
        + _VERDICT,
        action="Give the node no new jobs that do not bear a reset. On it, `sudo exhume latency` says which device "
        "waits and who holds its core, `sudo exhume diagnose --last` what is behind it.",
    ),
    Alert(
        "ExhumeNicResetExplained",
        f"({_found('nic-reset', '15m')})\n"
        f"* on (NODE) group_left (cause, subject) (0 * topk by (NODE) (1, {_FRESH_VERDICT}) + 1)",
        60,
        "critical",
        f"A network device was reset {_WHERE}, because of {{{{ $labels.cause }}}}",
        f"{{{{ $value }}}} network device(s) {_WHERE} were reset by their driver within a quarter of an hour. The "
        f"agent's verdict is "
        "{{ $labels.cause }} of {{ $labels.subject }}. Whatever talked through it may have lost its connections."
        + _each(
            "exhume_nic_resets_total{NODE=%q} > 0",
            ' {{ .Labels.device }}: {{ printf "%.0f" .Value }} since the agent began ({{ .Labels.reason }}).',
        ),
        action="Start jobs of this node that lost their connections again elsewhere. On the node, `sudo exhume "
        "diagnose --last` has the chain, the evidence and what to do.",
    ),
    Alert(
        "ExhumeNicResetUnexplained",
        f"({_found('nic-reset', '15m')})\nunless on (NODE) ({_FRESH_VERDICT})",
        300,
        "warning",
        f"A network device was reset {_WHERE}, and why is not visible",
        f"{{{{ $value }}}} network device(s) {_WHERE} were reset by their driver within a quarter of an hour, and "
        f"nothing that the "
        "agent saw explains it."
        + _each(
            "exhume_nic_resets_total{NODE=%q} > 0",
            ' {{ .Labels.device }}: {{ printf "%.0f" .Value }} since the agent began ({{ .Labels.reason }}).',
        ),
        action="On the node, `sudo exhume diagnose --last` says which sources were off and what they would have "
        "shown; `sudo exhume bundle /var/lib/exhume/recording -o FILE` makes one file for the vendor.",
    ),
    Alert(
        "ExhumeReclaimAndThrottling",
        "(\n"
        '  sum by (NODE) (rate(exhume_reclaim_pages_total{by="direct",action="scanned"}[2m]))'
        f" > {_LIMITS.direct_reclaim_pages}\n"
        "or\n"
        f'  sum by (NODE) (rate(exhume_reclaim_pages_total{{by="kswapd",action="scanned"}}[2m])) > {_LIMITS.kswapd_pages}\n'
        ")\n"
        "and on (NODE)\n"
        f"  {THROTTLED.format('2m')} > {_LIMITS.throttled_ratio:g}",
        300,
        "warning",
        f"Memory is short and CPU quotas are used up at once {_WHERE}",
        f'{{{{ printf "%.0f" $value }}}} pages a second are scanned for reclaim {_WHERE}'
        + _each(
            "sum(rate(exhume_cpu_throttled_periods_total{NODE=%[1]q}[2m]))"
            " / sum(rate(exhume_cpu_quota_periods_total{NODE=%[1]q}[2m]))",
            ", while {{ .Value | humanizePercentage }} of the periods of all CPU quotas are used up",
        )
        + ". Together they look like a slow node: reclaim takes the quota of whoever needs memory.",
        action="On the node, `sudo exhume check` says whether zombies are among what reclaim walks over. Raise the "
        "memory of who reclaims before its CPU quota.",
    ),
    Alert(
        "ExhumeCrashLoopLeaks",
        "60 * max_over_time(exhume_crash_loop_restarts_rate[5m])\nand on (NODE, unit) "
        "max_over_time(exhume_crash_loop_leaks[5m]) == 1",
        600,
        "warning",
        f"{{{{ $labels.unit }}}} crashes again and again {_WHERE} and leaks memory cgroups",
        f"{{{{ $labels.unit }}}} is started {{{{ $value | humanize }}}} times a minute {_WHERE}, and its memory cgroups "
        f"stay behind as "
        "zombies." + _each('exhume_memory_cgroups{state="dying",NODE=%q}', ' There are {{ printf "%.0f" .Value }} in all.'),
        action="`journalctl -u {{ $labels.unit }}` says why it ends, `sudo exhume audit {{ $labels.unit }}` whether "
        "anybody needs it. If nobody does, `sudo exhume fix {{ $labels.unit }}` prints the plan that ends it.",
    ),
    Alert(
        "ExhumeAgentDown",
        'up{job="JOB"} == 0',
        300,
        "warning",
        f"exhume's agent does not answer {_WHERE}",
        f"Prometheus could not scrape exhume's agent {_WHERE} for five minutes: nothing watches that node.",
        action="`systemctl status exhume-agent`, or the pod's log. Look at the node as well: one that starves may not answer.",
    ),
    Alert(
        "ExhumeAgentAbsent",
        'absent(up{job="JOB"})',
        600,
        "warning",
        "No agent of exhume is scraped at all",
        "Prometheus knows no target of the job JOB: service discovery, the job's name or the installation changed.",
        action="Look at Prometheus's targets: is there a job JOB, and does its service discovery find the nodes?",
    ),
    Alert(
        "ExhumeAgentStuck",
        "increase(exhume_agent_batches_total[2m]) == 0\n"
        "or\n"
        "  changes(exhume_agent_judged_timestamp_seconds[5m]) == 0"
        f" and last_over_time(exhume_agent_judged_timestamp_seconds[{HELD}] offset 5m)",
        300,
        "warning",
        f"exhume's agent answers and no longer records or judges {_WHERE}",
        f"For minutes the agent {_WHERE} has recorded nothing, or has not judged with all its detectors: what its other "
        "metrics say is old, or not all there is."
        + _each(
            "rate(exhume_agent_batches_total{NODE=%q}[2m])",
            " It records {{ .Value | humanize }} batches a second; 0.5 and more are usual.",
        ),
        action="Its log says what it waited for, or why it could not judge. Restart the agent if nothing has restarted it.",
    ),
    Alert(
        "ExhumeAgentSteppedDown",
        f"{held('exhume_agent_stepped_down')} == 1",
        900,
        "info",
        f"exhume's agent has given up {{{{ $labels.what }}}} {_WHERE}",
        f"To keep to its own limits the agent {_WHERE} no longer has {{{{ $labels.what }}}}."
        + _each("rate(exhume_agent_cpu_seconds_total{NODE=%q}[10m])", " It uses {{ .Value | humanizePercentage }} of a core")
        + _each("exhume_agent_resident_memory_bytes{NODE=%q}", " and {{ .Value | humanize1024 }}B."),
        action="Find out what makes the node dear to watch, or raise agent.cpu_limit_ratio or agent.memory_limit_mib.",
    ),
    Alert(
        "ExhumeRecordingLost",
        'sum by (NODE, what) (increase(exhume_agent_lost_total{what=~"rows, .*"}[5m])) > 0',
        900,
        "warning",
        f"exhume's agent cannot keep what it records {_WHERE}",
        f'{{{{ printf "%.0f" $value }}}} rows in five minutes are lost {_WHERE} ({{{{ $labels.what }}}}), for a '
        "quarter of an hour: of an incident that comes now there is no recording."
        + _each("exhume_agent_disk_bytes{NODE=%q}", " The recording has {{ .Value | humanize1024 }}B."),
        action="Make room on the disk of the recording, or raise agent.budget_mib. On the node, `sudo exhume info "
        "/var/lib/exhume/recording` says what it has, and the agent's log what could not be written.",
    ),
    Alert(
        "ExhumeProfilesNotPushed",
        '(\n  sum by (NODE) (increase(exhume_profiles_pushed_total{outcome!="sent"}[10m])) > 0\n'
        "or\n"
        # Of incidents alone there are few: one that is refused while none is sent tells as much as many.
        '  sum by (NODE) (increase(exhume_profiles_pushed_total{outcome!="sent"}[1h])) > 0\n'
        '  unless sum by (NODE) (increase(exhume_profiles_pushed_total{outcome="sent"}[1h])) > 0\n'
        "or\n"
        "  min by (NODE) (min_over_time(exhume_profiles_waiting[10m])) > 0\n"
        # Where pushing was switched off, what waited was dropped on purpose, and there is no number of those that wait.
        f")\nand on (NODE) {held('exhume_profiles_waiting')}",
        1800,
        "info",
        f"Profiles do not reach their receiver {_WHERE}",
        f"For half an hour profiles {_WHERE} waited to be pushed, or were refused or dropped and none was sent since."
        + _each("exhume_profiles_waiting{NODE=%q}", ' {{ printf "%.0f" .Value }} wait now.')
        + _each(
            'increase(exhume_profiles_pushed_total{outcome!="sent",NODE=%q}[1h]) > 0',
            ' {{ printf "%.0f" .Value }} {{ .Labels.outcome }} within the hour.',
        ),
        action="The agent's log on the node says what the receiver answers. A token that has run out is to be replaced in the "
        "file that agent.push.token_file names; the agent sees that by itself.",
    ),
    Alert(
        "ExhumeAuditDrift",
        f"max by (NODE, kind) ({held(_DRIFT)}) > 0",
        3600,
        "info",
        f"What runs by itself {_WHERE} is not what its policy says",
        f"{{{{ $value }}}} unit(s) {_WHERE} differ from the lifecycle policy: {{{{ $labels.kind }}}}.",
        action="On the node, `sudo exhume audit --policy FILE` names the units. Change the node or the policy.",
    ),
    Alert(
        "ExhumeAuditOverdue",
        f"max by (NODE) ({held(_OVERDUE)}) > 0",
        3600,
        "info",
        f"Reviews of what runs by itself are overdue {_WHERE}",
        f"The lifecycle policy has {{{{ $value }}}} review(s) {_WHERE} whose date has passed.",
        action="On the node, `sudo exhume audit --policy FILE` names them. Look again, and write down a new date.",
    ),
    Alert(
        "ExhumeAuditStale",
        f"time() - {held('exhume_audit_timestamp_seconds')} > <3d>",
        3600,
        "info",
        f"The recurring audit has stopped {_WHERE}",
        f"The last audit {_WHERE} is {{{{ $value | humanizeDuration }}}} old; it is made once a day.",
        action="The agent's log on the node says why its audits fail (`no audit: ...`).",
    ),
)
