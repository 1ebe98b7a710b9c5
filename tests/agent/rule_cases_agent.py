"""Cases for the rules of nodes that run the agent."""

from tests.agent.rule_cases import BEGIN, DAY, HOUR, Case, climbing, failing, fires, gone, rising, silent, steady, then

NODE = 'instance="n1",job="exhume"'
OTHER = 'instance="n2",job="exhume"'


def at(metric: str, labels: str = "", node: str = NODE) -> str:
    return f"{metric}{{{node}{',' if labels else ''}{labels}}}"


def _finding(kind: str, severity: str = "warning") -> str:
    return at("exhume_findings", f'kind="{kind}",severity="{severity}"')


def _grows(value: float, per_second: float, lasts: int | None = None) -> str:
    """Quiet, then growth, for as long as it lasts; then it stays where it is."""
    quiet = steady(value, BEGIN)
    if lasts is None:
        return f"{quiet} {rising(value, per_second, 3 * HOUR)}"
    return f"{quiet} {rising(value, per_second, lasts)} {steady(value + per_second * lasts, 3 * HOUR)}"


def _by_turns(every: int, zombies: int, times: int) -> dict[str, str]:
    """A job that leaves so many each time that it runs, within half a minute. The rate that the agent tells is of ten."""
    dying, rate = [steady(300, BEGIN)], [steady(0, BEGIN)]
    for turn in range(times):
        left = 300 + zombies * turn
        dying += [rising(left, zombies / 30, 30), steady(left + zombies, every - 30)]
        rate += [steady(zombies / 600, 600), steady(0, every - 600)]
    return {DYING: " ".join(dying), LEAK_RATE: " ".join(rate), LIVE: steady(2000, 7 * HOUR), **_LONG}


UP = at("up")
BATCHES = at("exhume_agent_batches_total")
JUDGED = at("exhume_agent_judged_timestamp_seconds")
LIVE = at("exhume_memory_cgroups", 'state="live",hierarchy="v1"')
DYING = at("exhume_memory_cgroups", 'state="dying",hierarchy="v1"')
LEAK_RATE = at("exhume_memory_cgroup_leak_rate")
VERDICT = at("exhume_verdict_confidence", 'cause="memcg-leak",subject="ecs.service"')
RESTARTS = at("exhume_crash_loop_restarts_rate", 'unit="ecs.service"')
LEAKS = at("exhume_crash_loop_leaks", 'unit="ecs.service"')
DIRECT = at("exhume_reclaim_pages_total", 'by="direct",action="scanned"')
KSWAPD = at("exhume_reclaim_pages_total", 'by="kswapd",action="scanned"')
THROTTLED = at("exhume_cpu_throttled_periods_total")
PERIODS = at("exhume_cpu_quota_periods_total")
STEPPED = at("exhume_agent_stepped_down", 'what="samples"')
LOST, SAMPLES_LOST = (at("exhume_agent_lost_total", f'what="{what}"') for what in ("rows, disk full", "samples"))
OVERDUE = at("exhume_audit_drift", 'kind="past-review"')
NEW = at("exhume_audit_drift", 'kind="new"')
AUDITED = at("exhume_audit_timestamp_seconds")
WAITING = at("exhume_profiles_waiting")
VERDICT_AT = at("exhume_verdict_timestamp_seconds")
SENT, FAILED = (at("exhume_profiles_pushed_total", f'outcome="{outcome}"') for outcome in ("sent", "failed"))

BASE = {
    UP: steady(1, 4 * HOUR),
    BATCHES: rising(0, 1, 4 * HOUR),
    JUDGED: rising(0, 1, 4 * HOUR),
    LIVE: steady(240, 4 * HOUR),
    DYING: steady(300, 4 * HOUR),
    LEAK_RATE: steady(0, 4 * HOUR),
    PERIODS: rising(0, 100, 4 * HOUR),
}
_LONG = {UP: steady(1, 7 * HOUR), BATCHES: rising(0, 1, 7 * HOUR), JUDGED: rising(0, 1, 7 * HOUR)}
_ENDS = f"{rising(0, 1, BEGIN)} stale"
_LEAK = "ExhumeMemoryCgroupLeak"
# Looked at between two turns of a leak, when nothing grows.
_SEEN_LATER = {110 * 60: {}, 170 * 60: {_LEAK: "pending"}, 230 * 60: {_LEAK: "firing"}, 290 * 60: {_LEAK: "firing"}}
# Every fourth minute a scrape fails: at 705 s after BEGIN for the third time, at 3,585 s for the fifteenth.
_FAILS = 705
_SCRAPED = {
    BATCHES: failing(rising(0, 1, 225), rising(0, 1, BEGIN)),
    JUDGED: failing(rising(0, 1, 225), rising(0, 1, BEGIN)),
    LIVE: failing(steady(240, 225), steady(240, BEGIN)),
    DYING: failing(steady(300, 225), steady(300, BEGIN)),
    LEAK_RATE: failing(steady(0, 225), steady(0, BEGIN)),
    PERIODS: failing(rising(0, 100, 225), rising(0, 100, BEGIN)),
}


def _fails(alert: str, series: dict[str, str], for_s: int) -> Case:
    """Fires as if none had failed, and goes on while one does."""
    at_last = for_s + 45 + (_FAILS - for_s - 45) % 240
    states = {30: {alert: "pending"}, for_s - 30: {alert: "pending"}, for_s + 45: {alert: "firing"}, at_last: {alert: "firing"}}
    return Case(f"{alert}, while every fourth minute a scrape fails", (alert,), {**_SCRAPED, **series}, states)


def _gone(alert: str, series: dict[str, str], for_s: int) -> Case:
    """A node that is gone, with all that was scraped of it, some minutes after it began: no alert stays for long."""
    ends = for_s + 240
    left = {
        name: f"{steady(value, BEGIN + ends)} stale" for name, value in {UP: 1, LIVE: 240, DYING: 300, LEAK_RATE: 0}.items()
    }
    left |= {name: f"{rising(0, 1, BEGIN + ends)} stale" for name in (BATCHES, JUDGED, PERIODS)}
    states = {ends - 15: {alert: "firing"}, ends + 330: {}}
    return Case(f"{alert}, of a node that is gone", (alert,), {**left, **series}, states)


# A finding is of the last minute: what lasted for half a minute is found for one and a half.
_SEEN_S = 90

CASES: tuple[Case, ...] = (
    # Zombies
    fires("68,440 zombies beside 240 live memory cgroups", "ExhumeZombieMemoryCgroups", {DYING: then(68_440, before=300)}, 600),
    silent(
        "900 zombies are few, however few are alive",
        "ExhumeZombieMemoryCgroups",
        {DYING: then(900), LIVE: steady(10, 4 * HOUR)},
    ),
    silent(
        "4,000 zombies beside 1,000 live ones are no small multiple of them",
        "ExhumeZombieMemoryCgroups",
        {DYING: then(4000), LIVE: steady(1000, 4 * HOUR)},
    ),
    silent("30 s of many zombies", "ExhumeZombieMemoryCgroups", {DYING: then(68_440, before=300, lasts=30)}),
    _fails("ExhumeZombieMemoryCgroups", {DYING: failing(steady(68_440, 225), steady(300, BEGIN))}, 600),
    _gone("ExhumeZombieMemoryCgroups", {DYING: f"{steady(300, BEGIN)} {steady(68_440, 840)} stale"}, 600),
    silent(
        "30 s of many zombies, and then the node is gone",
        "ExhumeZombieMemoryCgroups",
        {DYING: f"{steady(300, BEGIN)} {steady(68_440, 30)} stale"},
    ),
    Case(
        "many zombies that go when a scrape has failed",
        ("ExhumeZombieMemoryCgroups",),
        {DYING: f"{steady(300, BEGIN)} {steady(68_440, 885)} stale {steady(300, HOUR)}"},
        {885: {"ExhumeZombieMemoryCgroups": "firing"}, 900: {}},
    ),
    # The leak
    fires(
        "one zombie every ten seconds, as it was published",
        "ExhumeMemoryCgroupLeak",
        {DYING: _grows(300, 0.1), LEAK_RATE: then(0.1)},
        HOUR,
        pending=300,
    ),
    Case(
        "one zombie every ten seconds, while every fiftieth minute a scrape fails",
        (_LEAK,),
        {
            DYING: f"{steady(300, BEGIN)} {climbing(300, 0.1, 4, 2985)}",
            LEAK_RATE: f"{steady(0, BEGIN)} {climbing(0.1, 0, 4, 2985)}",
        },
        {300: {_LEAK: "pending"}, 2985: {_LEAK: "pending"}, 4000: {_LEAK: "firing"}, 5985: {_LEAK: "firing"}},
    ),
    Case(
        "one zombie every ten seconds, while the agent is restarted every fiftieth minute and tells no rate for a minute more",
        (_LEAK,),
        {
            DYING: f"{steady(300, BEGIN)} {climbing(300, 0.1, 4, 2925, 60)}",
            # What it tells at first is of a minute, and none came within it.
            LEAK_RATE: " ".join([steady(0, BEGIN), *[f"{steady(0.1, 2925)} stale {gone(120)} {steady(0, 60)}"] * 3]),
        },
        {300: {_LEAK: "pending"}, 3100: {_LEAK: "pending"}, 4000: {_LEAK: "firing"}, 6100: {_LEAK: "firing"}},
    ),
    Case(
        "a leak that ends: the rate is of ten minutes, and is held for five",
        (_LEAK,),
        {
            DYING: _grows(300, 0.1, 4500),
            LEAK_RATE: f"{steady(0, BEGIN)} {steady(0.1, 5100)} {steady(0, 3 * HOUR)}",
        },
        {4500: {_LEAK: "firing"}, 5385: {_LEAK: "firing"}, 5430: {}},
    ),
    _gone(
        _LEAK,
        {
            DYING: f"{steady(300, BEGIN)} {rising(300, 0.1, HOUR + 240)} stale",
            LEAK_RATE: f"{steady(0, BEGIN)} {steady(0.1, HOUR + 240)} stale",
        },
        HOUR,
    ),
    silent(
        "zombies that come and go",
        "ExhumeMemoryCgroupLeak",
        {
            DYING: " ".join([steady(300, BEGIN), *[rising(300, 0.2, 900), rising(480, -0.2, 900)] * 6]),
            LEAK_RATE: " ".join([steady(0, BEGIN), *[steady(0.2, 900), steady(0, 900)] * 6]),
        },
    ),
    silent(
        "one zombie every five minutes does not hurt within a week",
        "ExhumeMemoryCgroupLeak",
        {DYING: _grows(300, 1 / 300), LEAK_RATE: then(1 / 300)},
    ),
    silent(
        "600 zombies within 30 s that stay, and no more",
        "ExhumeMemoryCgroupLeak",
        {DYING: _grows(300, 20, 30), LEAK_RATE: then(1, lasts=630)},
    ),
    Case(
        "150 zombies every half an hour",
        (_LEAK,),
        _by_turns(HOUR // 2, 150, 12),
        _SEEN_LATER,
    ),
    Case(
        "200 zombies every hour",
        (_LEAK,),
        _by_turns(HOUR, 200, 6),
        _SEEN_LATER,
    ),
    Case("2,000 zombies twice, an hour apart", (_LEAK,), _by_turns(HOUR, 2000, 2), silent_until=5 * HOUR),
    Case(
        "zombies that come every hour and go",
        (_LEAK,),
        {
            DYING: " ".join([steady(300, BEGIN), *[rising(300, 5, 30), steady(450, 2370), steady(300, 1200)] * 6]),
            LEAK_RATE: " ".join([steady(0, BEGIN), *[steady(0.25, 600), steady(0, 3000)] * 6]),
            **_LONG,
        },
        silent_until=5 * HOUR,
    ),
    # Findings that last
    fires(
        "a core that the kernel fills again and again",
        "ExhumeCoreSaturated",
        {_finding("core-saturated"): then(1, before=None)},
        300,
    ),
    silent(
        "what is only told for information", "ExhumeCoreSaturated", {_finding("core-saturated", "info"): then(1, before=None)}
    ),
    silent(
        "a core that the kernel fills for 30 s",
        "ExhumeCoreSaturated",
        {_finding("core-saturated"): then(1, before=None, lasts=_SEEN_S)},
    ),
    fires("a starved poll", "ExhumeNapiStarving", {_finding("napi-starved", "critical"): then(1, before=None)}, 300),
    silent("polls that are a little late", "ExhumeNapiStarving", {_finding("napi-starved", "info"): then(1, before=None)}),
    silent(
        "30 s of starved polls, on a core that the kernel fills",
        "ExhumeNapiStarving",
        {
            _finding("napi-starved", "critical"): then(1, before=None, lasts=_SEEN_S),
            _finding("core-saturated"): then(1, before=None, lasts=_SEEN_S),
        },
    ),
    Case(
        "trouble that comes back every minute and a half is one trouble",
        ("ExhumeCoreSaturated",),
        {_finding("core-saturated"): " ".join([gone(BEGIN), *[steady(1, 60), gone(90)] * 20])},
        {30: {"ExhumeCoreSaturated": "pending"}, 600: {"ExhumeCoreSaturated": "firing"}},
    ),
    # Resets of network devices
    fires(
        "a reset, and a verdict",
        "ExhumeNicResetExplained",
        {
            _finding("nic-reset", "critical"): then(1, before=None, lasts=60),
            VERDICT: then(0.97, before=None, lasts=60),
            VERDICT_AT: then(BEGIN, before=None),
        },
        60,
    ),
    Case(
        "a reset, and a verdict of ten days ago that still stands: it explains nothing",
        ("ExhumeNicResetExplained", "ExhumeNicResetUnexplained"),
        {
            _finding("nic-reset", "critical"): then(1, before=None, lasts=60),
            VERDICT: steady(0.97, 4 * HOUR),
            VERDICT_AT: steady(-10 * DAY, 4 * HOUR),
        },
        {
            120: {"ExhumeNicResetUnexplained": "pending"},
            400: {"ExhumeNicResetUnexplained": "firing"},
            1200: {},
        },
    ),
    Case(
        "a reset, and a verdict of ten days ago that is given anew: it explains it until the reset is over",
        ("ExhumeNicResetExplained", "ExhumeNicResetUnexplained"),
        {
            _finding("nic-reset", "critical"): then(1, before=None, lasts=60),
            VERDICT: steady(0.97, 4 * HOUR),
            VERDICT_AT: then(BEGIN, before=-10 * DAY),
        },
        {
            15: {"ExhumeNicResetExplained": "pending"},
            120: {"ExhumeNicResetExplained": "firing"},
            900: {"ExhumeNicResetExplained": "firing"},
            945: {"ExhumeNicResetExplained": "firing"},
            1200: {},
        },
    ),
    fires(
        "a reset, and no verdict",
        "ExhumeNicResetUnexplained",
        {_finding("nic-reset", "critical"): then(1, before=None, lasts=60)},
        300,
    ),
    Case(
        "two verdicts within a quarter of an hour: the surer one is told, and no rule fails",
        ("ExhumeNicResetExplained", "ExhumeNicResetUnexplained"),
        {
            _finding("nic-reset", "critical"): then(1, before=None, lasts=60),
            VERDICT: then(0.97, before=None, lasts=60),
            VERDICT.replace("memcg-leak", "steal"): then(0.4, before=None, lasts=60),
            VERDICT_AT: then(BEGIN, before=None),
        },
        {120: {"ExhumeNicResetExplained": "firing"}, 1200: {}},
    ),
    Case(
        "a verdict on one node explains no reset on another",
        ("ExhumeNicResetUnexplained",),
        {
            _finding("nic-reset", "critical"): then(1, before=None, lasts=60),
            VERDICT.replace("n1", "n2"): then(0.97, before=None),
            VERDICT_AT.replace("n1", "n2"): then(BEGIN, before=None),
        },
        {400: {"ExhumeNicResetUnexplained": "firing"}},
    ),
    silent("a reset of an hour ago", "ExhumeNicResetUnexplained", {_finding("nic-reset", "info"): then(1, before=None)}),
    silent(
        "a verdict without a reset",
        "ExhumeNicResetExplained",
        {VERDICT: then(0.97, before=None), VERDICT_AT: then(BEGIN, before=None)},
    ),
    # Reclaim and throttling
    fires(
        "direct reclaim while half of the quota's periods are used up",
        "ExhumeReclaimAndThrottling",
        {DIRECT: _grows(0, 5000), THROTTLED: _grows(0, 50)},
        300,
        pending=75,
    ),
    fires(
        "kswapd's work counts as well",
        "ExhumeReclaimAndThrottling",
        {KSWAPD: _grows(0, 600_000), THROTTLED: _grows(0, 80)},
        300,
        pending=75,
    ),
    silent("reclaim alone", "ExhumeReclaimAndThrottling", {DIRECT: _grows(0, 5000), THROTTLED: _grows(0, 5)}),
    silent("throttling alone", "ExhumeReclaimAndThrottling", {DIRECT: _grows(0, 100), THROTTLED: _grows(0, 90)}),
    silent(
        "reclaim on one node and throttling on another",
        "ExhumeReclaimAndThrottling",
        {
            DIRECT: _grows(0, 5000),
            at("exhume_cpu_throttled_periods_total", node=OTHER): _grows(0, 50),
            at("exhume_cpu_quota_periods_total", node=OTHER): rising(0, 100, 4 * HOUR),
        },
    ),
    silent("30 s of both", "ExhumeReclaimAndThrottling", {DIRECT: _grows(0, 90_000, 30), THROTTLED: _grows(0, 100, 30)}),
    # Crash loops
    fires("a loop that leaks", "ExhumeCrashLoopLeaks", {RESTARTS: then(0.1, before=None), LEAKS: then(1, before=None)}, 600),
    silent(
        "a loop that leaves nothing", "ExhumeCrashLoopLeaks", {RESTARTS: then(0.1, before=None), LEAKS: then(0, before=None)}
    ),
    silent(
        "30 s of a loop that leaks",
        "ExhumeCrashLoopLeaks",
        {RESTARTS: then(1.0, before=None, lasts=_SEEN_S), LEAKS: then(1, before=None, lasts=_SEEN_S)},
    ),
    # The agent
    fires(
        "an agent that does not answer",
        "ExhumeAgentDown",
        {UP: then(0, before=1), BATCHES: _ENDS, JUDGED: _ENDS},
        300,
    ),
    silent("an agent that is restarted", "ExhumeAgentDown", {UP: then(0, before=1, lasts=30)}),
    fires(
        "nobody is scraped",
        "ExhumeAgentAbsent",
        {UP: f"{steady(1, BEGIN)} stale", BATCHES: _ENDS, JUDGED: _ENDS},
        600,
        alone=True,
    ),
    silent("30 s without a target", "ExhumeAgentAbsent", {UP: f"{steady(1, BEGIN)} stale _ {steady(1, HOUR)}"}, alone=True),
    Case(
        "a recorder that is stuck",
        ("ExhumeAgentStuck",),
        {BATCHES: f"{rising(0, 1, BEGIN)} {steady(285, 3 * HOUR)}"},
        {30: {}, 150: {"ExhumeAgentStuck": "pending"}, 480: {"ExhumeAgentStuck": "firing"}},
    ),
    silent(
        "a recorder that stands still for 30 s",
        "ExhumeAgentStuck",
        {BATCHES: f"{rising(0, 1, BEGIN)} {steady(285, 30)} {rising(285, 1, 3 * HOUR)}"},
    ),
    Case(
        "an agent that records and no longer judges",
        ("ExhumeAgentStuck",),
        {JUDGED: f"{rising(0, 1, BEGIN)} {steady(285, 3 * HOUR)}"},
        {270: {}, 330: {"ExhumeAgentStuck": "pending"}, 660: {"ExhumeAgentStuck": "firing"}},
    ),
    Case(
        "an agent that no longer judges, while every fourth minute a scrape fails",
        ("ExhumeAgentStuck",),
        {**_SCRAPED, JUDGED: failing(steady(285, 225), rising(0, 1, BEGIN))},
        # That of the time at which it stood still already, five minutes ago, is missing at 525 s.
        {330: {"ExhumeAgentStuck": "pending"}, 660: {"ExhumeAgentStuck": "firing"}, 765: {"ExhumeAgentStuck": "firing"}},
    ),
    Case(
        "an agent that has just been started and has not judged yet",
        ("ExhumeAgentStuck",),
        {BATCHES: f"{gone(BEGIN)} {rising(0, 1, HOUR)}", JUDGED: f"{gone(BEGIN)} {steady(1, 60)} {rising(60, 1, HOUR)}"},
        {15: {}, 45: {}, 60: {}},
    ),
    silent(
        "an agent that has given up verdicts and judges every 50 s",
        "ExhumeAgentStuck",
        {JUDGED: " ".join(steady(50 * turn, 45) for turn in range(80)), STEPPED.replace("samples", "verdicts"): steady(1, 600)},
    ),
    fires("an agent that gives something up", "ExhumeAgentSteppedDown", {STEPPED: then(1, before=None)}, 900),
    silent("30 s without it", "ExhumeAgentSteppedDown", {STEPPED: then(1, before=None, lasts=30)}),
    _fails("ExhumeAgentSteppedDown", {STEPPED: failing(steady(1, 225), gone(BEGIN))}, 900),
    _gone("ExhumeAgentSteppedDown", {STEPPED: f"{gone(BEGIN)} {steady(1, 1140)} stale"}, 900),
    # The recording. The series begins with the first rows that are lost.
    fires("a disk that stays full", "ExhumeRecordingLost", {LOST: f"{gone(BEGIN)} {rising(40, 20, 3 * HOUR)}"}, 900),
    _fails("ExhumeRecordingLost", {LOST: failing(rising(40, 20, 225), gone(BEGIN))}, 900),
    Case(
        "a disk that is full and has room again",
        ("ExhumeRecordingLost",),
        {LOST: f"{gone(BEGIN)} {rising(40, 20, 1200)} {steady(24_040, HOUR)}"},
        {1185: {"ExhumeRecordingLost": "firing"}, 1530: {}},
    ),
    silent("rows that were lost long ago", "ExhumeRecordingLost", {LOST: steady(4000, 4 * HOUR)}),
    silent("stack samples that are lost are not the recording", "ExhumeRecordingLost", {SAMPLES_LOST: _grows(0, 1)}),
    silent(
        "a disk that is full for 30 s", "ExhumeRecordingLost", {LOST: f"{gone(BEGIN)} {rising(40, 20, 30)} {steady(640, HOUR)}"}
    ),
    # Profiles
    Case(
        "a receiver that is away",
        ("ExhumeProfilesNotPushed",),
        {WAITING: then(3), FAILED: steady(0, 4 * HOUR)},
        {540: {}, 660: {"ExhumeProfilesNotPushed": "pending"}, 2460: {"ExhumeProfilesNotPushed": "firing"}},
    ),
    fires("a receiver that refuses", "ExhumeProfilesNotPushed", {WAITING: then(0), FAILED: _grows(0, 0.02)}, 1800),
    silent("profiles that are sent", "ExhumeProfilesNotPushed", {WAITING: then(0), SENT: _grows(0, 0.02), FAILED: then(0)}),
    Case(
        "the profile of one incident, refused",
        ("ExhumeProfilesNotPushed",),
        {WAITING: then(0), SENT: then(0), FAILED: f"{steady(0, BEGIN)} {steady(1, 3 * HOUR)}"},
        {
            30: {"ExhumeProfilesNotPushed": "pending"},
            1700: {"ExhumeProfilesNotPushed": "pending"},
            1860: {"ExhumeProfilesNotPushed": "firing"},
            3700: {},
        },
    ),
    silent(
        "one profile is refused, others are sent after it",
        "ExhumeProfilesNotPushed",
        {WAITING: then(0), FAILED: then(1), SENT: f"{steady(0, BEGIN + 900)} {steady(1, 3 * HOUR)}"},
    ),
    silent(
        "30 s of refusals",
        "ExhumeProfilesNotPushed",
        {WAITING: then(2, lasts=30), FAILED: _grows(0, 0.1, 30), SENT: _grows(0, 0.01)},
    ),
    silent(
        "pushing is switched off, and what waited is dropped",
        "ExhumeProfilesNotPushed",
        {WAITING: f"{steady(3, BEGIN)} stale", SENT: then(0), FAILED.replace("failed", "dropped"): then(3)},
    ),
    # The audit
    fires("a unit that the policy does not know", "ExhumeAuditDrift", {NEW: then(2, before=None)}, HOUR),
    silent("no drift", "ExhumeAuditDrift", {NEW: then(0, before=None)}),
    silent("30 s of drift", "ExhumeAuditDrift", {NEW: then(2, before=None, lasts=30)}),
    _fails("ExhumeAuditDrift", {NEW: failing(steady(2, 225), gone(BEGIN))}, HOUR),
    _gone("ExhumeAuditDrift", {NEW: f"{gone(BEGIN)} {steady(2, HOUR + 240)} stale"}, HOUR),
    fires("a review whose date has passed", "ExhumeAuditOverdue", {OVERDUE: then(1, before=None)}, HOUR),
    silent("no review overdue", "ExhumeAuditOverdue", {OVERDUE: then(0, before=None)}),
    silent("30 s of an overdue review", "ExhumeAuditOverdue", {OVERDUE: then(1, before=None, lasts=30)}),
    _fails("ExhumeAuditOverdue", {OVERDUE: failing(steady(1, 225), gone(BEGIN))}, HOUR),
    _gone("ExhumeAuditOverdue", {OVERDUE: f"{gone(BEGIN)} {steady(1, HOUR + 240)} stale"}, HOUR),
    fires("the last audit is five days old", "ExhumeAuditStale", {AUDITED: then(-5 * DAY, before=0)}, HOUR),
    Case(
        "no audit has succeeded since the agent was started three days ago",
        ("ExhumeAuditStale",),
        # Where none was made yet the agent tells when it was started.
        {AUDITED: steady(BEGIN + 600 - 3 * DAY, 4 * HOUR)},
        {600: {}, 630: {"ExhumeAuditStale": "pending"}, HOUR + 660: {"ExhumeAuditStale": "firing"}},
    ),
    silent("the last audit is of yesterday", "ExhumeAuditStale", {AUDITED: then(-DAY, before=0)}),
    silent("30 s of an old audit", "ExhumeAuditStale", {AUDITED: then(-5 * DAY, before=0, lasts=30)}),
    _fails("ExhumeAuditStale", {AUDITED: failing(steady(-5 * DAY, 225), steady(0, BEGIN))}, HOUR),
    _gone("ExhumeAuditStale", {AUDITED: f"{steady(0, BEGIN)} {steady(-5 * DAY, HOUR + 240)} stale"}, HOUR),
)
