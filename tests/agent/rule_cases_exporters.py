"""Cases for the rules of nodes without the agent. Exporter and kubelet have the label `node` in common, no more."""

from tests.agent.rule_cases import BEGIN, DAY, HOUR, Case, climbing, failing, fires, gone, rising, silent, steady, then

_EXPORTER = 'node="n1",instance="10.0.0.1:9100",job="node"'
_KUBELET = 'node="n1",instance="10.0.0.1:10250",job="kubelet"'


def _exporter(metric: str, labels: str = "") -> str:
    return f"{metric}{{{_EXPORTER}{',' if labels else ''}{labels}}}"


def _kubelet(metric: str, labels: str) -> str:
    return f"{metric}{{{_KUBELET},{labels}}}"


def _grows(value: float, per_second: float, lasts: int | None = None) -> str:
    quiet = steady(value, BEGIN)
    if lasts is None:
        return f"{quiet} {rising(value, per_second, 3 * HOUR)}"
    return f"{quiet} {rising(value, per_second, lasts)} {steady(value + per_second * lasts, 3 * HOUR)}"


UP = _exporter("up")
ALL = _exporter("node_cgroups_cgroups", 'subsys_name="memory"')
KERNEL = [_exporter("node_cpu_seconds_total", f'cpu="{cpu}",mode="system"') for cpu in range(4)]
DROPPED = _exporter("node_softnet_dropped_total", 'cpu="0"')
CARRIER = _exporter("node_network_carrier_changes_total", 'device="eth0"')
BOOTED = _exporter("node_boot_time_seconds")
DIRECT = _exporter("node_vmstat_pgscan_direct")
RESTARTS = _exporter("node_systemd_service_restart_total", 'name="ecs.service"')
THROTTLED = _kubelet("container_cpu_cfs_throttled_periods_total", 'pod="a",container="main"')
PERIODS = _kubelet("container_cpu_cfs_periods_total", 'pod="a",container="main"')
WATCHED = [_kubelet("container_memory_usage_bytes", f'id="/kubepods/{i}"') for i in range(3)]

BASE = {
    UP: steady(1, 4 * HOUR),
    ALL: steady(300, 4 * HOUR),
    **{core: rising(0, 0.05, 4 * HOUR) for core in KERNEL},
    **{watched: steady(1, 4 * HOUR) for watched in WATCHED},
    PERIODS: rising(0, 10, 4 * HOUR),
    DROPPED: steady(0, 4 * HOUR),
    BOOTED: steady(-10 * DAY, 4 * HOUR),
}
# Down for two minutes, from BEGIN on; the kernel that comes back has begun 30 s before.
_BOOTED = BEGIN + 105
_BOOTS = f"{steady(-10 * DAY, BEGIN)} stale {gone(120)} {steady(_BOOTED, 3 * HOUR)}"
_CARRIER_BOOTS = f"{steady(6, BEGIN)} stale {gone(120)} {steady(2, 1800)}"

CASES: tuple[Case, ...] = (
    fires("68,680 memory cgroups and three containers", "NodeMemoryCgroupsMany", {ALL: then(68_680, before=300)}, 900),
    silent("900 memory cgroups", "NodeMemoryCgroupsMany", {ALL: then(900, before=300)}),
    silent("30 s of many memory cgroups", "NodeMemoryCgroupsMany", {ALL: then(68_680, before=300, lasts=30)}),
    Case(
        "2,000 memory cgroups and three containers, while every fourth minute a scrape of both jobs fails",
        ("NodeMemoryCgroupsMany",),
        {
            ALL: failing(steady(2000, 225), steady(300, BEGIN)),
            **{watched: failing(steady(1, 225), steady(1, BEGIN)) for watched in WATCHED},
        },
        {
            870: {"NodeMemoryCgroupsMany": "pending"},
            930: {"NodeMemoryCgroupsMany": "firing"},
            945: {"NodeMemoryCgroupsMany": "firing"},
        },
    ),
    Case(
        "2,000 memory cgroups on a node that is gone",
        ("NodeMemoryCgroupsMany",),
        {
            ALL: f"{steady(300, BEGIN)} {steady(2000, 1200)} stale",
            **{watched: f"{steady(1, BEGIN + 1200)} stale" for watched in WATCHED},
        },
        {1185: {"NodeMemoryCgroupsMany": "firing"}, 1530: {}},
    ),
    Case(
        "one more every twenty seconds",
        ("NodeMemoryCgroupLeak",),
        {ALL: _grows(300, 0.05)},
        # An hour and a half must have passed to compare with, and as long is its `for`.
        {600: {}, 90 * 60 + 60: {"NodeMemoryCgroupLeak": "pending"}, 3 * HOUR + 120: {"NodeMemoryCgroupLeak": "firing"}},
    ),
    Case(
        "one more every twenty seconds, while every fiftieth minute a scrape fails",
        ("NodeMemoryCgroupLeak",),
        {ALL: f"{steady(300, BEGIN)} {climbing(300, 0.05, 4, 2985)}"},
        # One fails at 5,985 s and at 8,985 s; those that failed 90 minutes before 8,385 s and 11,385 s are missing then.
        {
            90 * 60 + 60: {"NodeMemoryCgroupLeak": "pending"},
            8985: {"NodeMemoryCgroupLeak": "pending"},
            3 * HOUR + 120: {"NodeMemoryCgroupLeak": "firing"},
            11_385: {"NodeMemoryCgroupLeak": "firing"},
        },
    ),
    Case(
        "a job of every hour that leaves 200, ten minutes late once",
        ("NodeMemoryCgroupLeak",),
        {ALL: f"{steady(300, HOUR)} {steady(500, HOUR + 600)} {steady(700, HOUR - 600)} {steady(900, HOUR)}"},
        {600: {}, 2 * HOUR + 60: {"NodeMemoryCgroupLeak": "pending"}, 3 * HOUR + 1800: {"NodeMemoryCgroupLeak": "firing"}},
    ),
    silent("no growth", "NodeMemoryCgroupLeak", {ALL: steady(900, 4 * HOUR)}),
    silent("600 pods' cgroups within 30 s, and no more", "NodeMemoryCgroupLeak", {ALL: _grows(300, 20, 30)}),
    fires("a core at 90 % system", "NodeCoreSaturatedByKernel", {KERNEL[2]: _grows(0, 0.9)}, 600, pending=90),
    silent("every core at 60 % system", "NodeCoreSaturatedByKernel", {core: _grows(0, 0.6) for core in KERNEL}),
    silent("a core at 100 % system for 30 s", "NodeCoreSaturatedByKernel", {KERNEL[2]: _grows(0, 1.0, 30)}),
    fires("packets are dropped", "NodePacketsDroppedBySoftnet", {DROPPED: _grows(0, 5)}, 300),
    silent("none is dropped", "NodePacketsDroppedBySoftnet", {DROPPED: steady(1234, 4 * HOUR)}),
    silent("packets are dropped for 30 s", "NodePacketsDroppedBySoftnet", {DROPPED: _grows(0, 50, 30)}),
    fires("the link goes and comes back twice", "NodeLinkBounced", {CARRIER: f"{steady(2, BEGIN)} {steady(6, 3 * HOUR)}"}, 60),
    silent("the link stays", "NodeLinkBounced", {CARRIER: steady(6, 4 * HOUR)}),
    Case("a reboot", ("NodeLinkBounced",), {CARRIER: f"{_CARRIER_BOOTS} {steady(2, HOUR)}", BOOTED: _BOOTS}, silent_until=HOUR),
    Case(
        "a reboot, a scrape that fails after it, and a link that goes and comes back half an hour later",
        ("NodeLinkBounced",),
        {
            CARRIER: f"{_CARRIER_BOOTS} {steady(4, HOUR)}",
            BOOTED: f"{steady(-10 * DAY, BEGIN)} stale {gone(120)} {steady(_BOOTED, 225)} stale {steady(_BOOTED, HOUR)}",
        },
        {150: {}, 360: {}, 375: {}, 1920: {}, 1980: {"NodeLinkBounced": "pending"}, 2100: {"NodeLinkBounced": "firing"}},
    ),
    fires(
        "reclaim and throttling, told by two jobs",
        "NodeReclaimAndThrottling",
        {DIRECT: _grows(0, 5000), THROTTLED: _grows(0, 5)},
        300,
        pending=75,
    ),
    silent("reclaim alone", "NodeReclaimAndThrottling", {DIRECT: _grows(0, 5000), THROTTLED: _grows(0, 0.5)}),
    silent(
        "reclaim here and throttling on another node",
        "NodeReclaimAndThrottling",
        {
            DIRECT: _grows(0, 5000),
            THROTTLED.replace("n1", "n2"): _grows(0, 5),
            PERIODS.replace("n1", "n2"): rising(0, 10, 4 * HOUR),
        },
    ),
    silent("30 s of both", "NodeReclaimAndThrottling", {DIRECT: _grows(0, 90_000, 30), THROTTLED: _grows(0, 10, 30)}),
    Case(
        "a unit that is restarted every ten seconds, while cgroups grow in number",
        ("NodeCrashLoop",),
        {RESTARTS: _grows(0, 0.1), ALL: _grows(300, 0.01)},
        {15: {}, 300: {"NodeCrashLoop": "pending"}, 1300: {"NodeCrashLoop": "firing"}},
    ),
    silent("restarts without growth", "NodeCrashLoop", {RESTARTS: _grows(0, 0.1)}),
    silent("restarts for 30 s", "NodeCrashLoop", {RESTARTS: _grows(0, 1, 30), ALL: _grows(300, 0.01)}),
    fires("an exporter that does not answer", "NodeExporterDown", {UP: then(0, before=1)}, 300),
    silent("an exporter that answers", "NodeExporterDown", {}),
    silent("an exporter that is restarted", "NodeExporterDown", {UP: then(0, before=1, lasts=30)}),
)
