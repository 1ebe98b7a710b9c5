"""The audit's judgement: what is needed is never called unused, and harm needs no proof of idleness."""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.catalogue import Catalogue
from exhume.host.needs import Facts
from exhume.host.programs import Harm, Program
from exhume.host.service import Inventory, Restart, Service
from exhume.image.audit import Audit, Live, Unit, audit
from exhume.image.audit_evidence import Known, in_use, looping
from exhume.image.audit_judge import Judged, judge, needs_of
from exhume.image.policy import Listed, Policy
from exhume.sources.unit_life import Life
from exhume.sources.unit_sockets_model import Endpoint, Sockets

TODAY = date(2026, 11, 16)
DAY = 86_400.0
WHY = "a start every 10 s makes 1 in 10 s, and the limit is 5: it never bites"
ENDLESS = Restart("on-failure", 10.0, 5, 10.0, True, WHY)
BOUNDED = Restart("on-failure", 0.1, 5, 10.0, False, "a start every 0.1 s makes 5 in 0.5 s, and then it ends")
ECS = Program(
    id="ecs",
    name="the ECS agent",
    group="aws",
    purpose="runs tasks of Amazon ECS",
    source="a test",
    units=("ecs.service",),
    needed_if=((("path", "/etc/ecs/ecs.config"), ("contains", "ECS_CLUSTER=")),),
    harm=(Harm("critical", "it leaves a memory cgroup with each crash", "a test"),),
)
KUBELET = Program("kubelet", "the kubelet", "kubernetes", "runs pods", "a test", units=("kubelet.service",), protected=True)
SSM = Program(
    "ssm", "the SSM agent", "aws", "lets people in", "a test", units=("ssm.service",), needed_if=((("cloud", "aws"),),)
)
MODEM = Program(
    "modem",
    "ModemManager",
    "desktop",
    "modems",
    "a test",
    units=("modem.*",),
    needed_if=((("unit_active", "NetworkManager.*"),),),
)
CATALOGUE = Catalogue([ECS, KUBELET, SSM, MODEM])


def service(name: str = "x.service", **more: object) -> Service:
    return Service(**{"name": name, "kind": "unit", "state": "enabled", "starts": True, **more})  # type: ignore[arg-type]


def facts(files: dict[str, bytes] | None = None, live: bool = False, units: tuple[str, ...] = (), cloud: str = "") -> Facts:
    there = files or {}
    return Facts(there.__contains__, there.__contains__, there.get, frozenset(units), live=live, cloud=cloud)


def audited(*services: Service, policy: Policy | None = None, live: Live | None = None, about: Facts | None = None) -> Audit:
    return audit(Inventory("Debian", services), CATALOGUE, about or facts(), TODAY, policy, live)


def only(report: Audit, name: str) -> Unit:
    return next(unit for unit in report.units if unit.service.name == name)


TEXTS = st.sampled_from(["", "because"])
LIVES = st.none() | st.builds(
    Life,
    st.just("x.service"),
    st.sampled_from(["active", "failed", "inactive", "activating", ""]),
    st.sampled_from(["running", "auto-restart", "failed", "dead", "exited"]),
    st.integers(-1, 9),
    st.sampled_from(["", "success", "exit-code"]),
    st.integers(0, 3),
    st.integers(0, 255),
    st.just(""),
    st.sampled_from([-1.0, 0.1, 1e5]),
    st.sampled_from([-1.0, 5.0, 3600.0, 9 * DAY]),
)
ENDS = st.builds(
    Endpoint,
    st.sampled_from(["tcp", "unix"]),
    st.sampled_from(["/run/x.sock", "0.0.0.0:80"]),
    st.integers(0, 3),
    st.sampled_from([(), ("kubelet.service",), ("systemd-journald.service",)]),
    st.integers(0, 2),
    st.sampled_from([-1.0, 9 * DAY]),
    st.sampled_from([-1.0, 60.0]),
)
SOCKETS = st.none() | st.builds(
    Sockets, st.lists(ENDS, max_size=2).map(tuple), st.integers(0, 2), st.sampled_from([(), ("dbus.service",)])
)
SERVICES = st.builds(
    Service,
    st.sampled_from(["x.service", "x.timer", "x.target", "/etc/crontab:3"]),
    st.sampled_from(["unit", "cron", "container"]),
    st.sampled_from(["enabled", "static", "disabled", "masked"]),
    st.booleans(),
    path=st.sampled_from(["", "/usr/lib/systemd/system/x.service"]),
    package=st.sampled_from(["", "systemd"]),
    pulled_by=st.sampled_from([(), ("multi-user.target",), ("x.timer",)]),
    needed_by=st.sampled_from([(), ("y.service",), ("x.timer",), ("off.service",)]),
    restart=st.sampled_from([None, ENDLESS, BOUNDED]),
    conditions=st.sampled_from([(), ("ConditionPathExists=/x is not there",)]),
)
KNOWN = st.builds(
    Known,
    agent=TEXTS,
    protected=st.booleans(),
    harm=TEXTS,
    needed_here=TEXTS,
    not_needed_here=TEXTS,
    listed=st.sampled_from([None, Listed("x"), Listed("x", "infra", "why", keep=True)]),
    life=LIVES,
    sockets=SOCKETS,
    loop=TEXTS,
    unseen=st.booleans(),
    weak=st.just(frozenset({"off.service"})),
)


@given(SERVICES, KNOWN)
def test_what_something_needs_is_never_unused_nor_harmful(thing: Service, known: Known) -> None:
    judged = judge(thing, known)
    if any(needs_of(thing, known)):
        assert judged.judgement in ("needed", "unknown")
    if thing.needed_by == ("off.service",):
        assert judged.judgement != "unused"
    if thing.needed_by == ("y.service",) or known.protected or (known.listed is not None and known.listed.keep):
        assert judged.judgement not in ("unused", "harmful")


@given(SERVICES, KNOWN)
def test_unused_needs_a_proof(thing: Service, known: Known) -> None:
    judged = judge(thing, known)
    if judged.judgement == "unused":
        assert known.not_needed_here or known.life is not None
        assert not in_use(known)
    if not known.not_needed_here and known.life is None:
        assert judged.judgement != "unused"


@given(SERVICES, KNOWN)
def test_every_judgement_has_its_reasons_as_whole_sentences(thing: Service, known: Known) -> None:
    judged = judge(thing, known)
    assert judged.reasons
    assert all(reason and reason.isprintable() for reason in judged.reasons)


@given(SERVICES, KNOWN)
def test_keeping_it_in_the_policy_always_clears_it(thing: Service, known: Known) -> None:
    kept = judge(thing, replace(known, listed=Listed("x", keep=True)))
    assert kept.judgement in ("needed", "unknown")
    assert kept.judgement == "needed" or not thing.starts


def test_the_incidents_agent_is_harmful_with_the_arithmetic() -> None:
    report = audited(service("ecs.service", restart=ENDLESS, pulled_by=("multi-user.target",)))
    unit = only(report, "ecs.service")
    assert unit.judgement == "harmful"
    assert unit.reasons[0] == f"it can restart for ever: {WHY}"
    assert unit.reasons[1] == "known harm: it leaves a memory cgroup with each crash (a test)"
    assert "no other unit needs it, multi-user.target starts it" in unit.reasons
    assert report.exit_code == 2
    assert [(one.kind, one.severity) for one in report.findings] == [
        ("endless-restart", "critical"),
        ("harmful-agent", "critical"),
    ]


def test_the_same_agent_where_it_is_configured_is_needed() -> None:
    configured = facts({"/etc/ecs/ecs.config": b"ECS_CLUSTER=training\n"})
    report = audited(service("ecs.service", restart=ENDLESS), about=configured)
    unit = only(report, "ecs.service")
    assert unit.judgement == "needed"
    assert unit.reasons[0] == "it is needed because /etc/ecs/ecs.config sets ECS_CLUSTER="
    assert unit.reasons[1].startswith("but it can restart for ever")
    assert [(one.kind, one.severity) for one in report.findings] == [("endless-restart", "warning")]
    assert report.exit_code == 1


def test_a_kubelet_that_restarts_for_ever_is_needed_and_no_warning() -> None:
    report = audited(service("kubelet.service", restart=ENDLESS))
    assert only(report, "kubelet.service").judgement == "needed"
    assert [(one.kind, one.severity) for one in report.findings] == [("endless-restart", "info")]
    assert report.exit_code == 0


def test_an_unknown_daemon_that_restarts_for_ever_is_harmful_and_the_policy_can_keep_it() -> None:
    thing = service("mystery.service", restart=ENDLESS)
    assert only(audited(thing), "mystery.service").judgement == "harmful"
    kept = audited(thing, policy=Policy((Listed("mystery.service", "ml", "our own", keep=True),)))
    assert only(kept, "mystery.service").judgement == "needed"
    assert only(kept, "mystery.service").reasons[0] == "the policy keeps it (ml): our own"
    assert kept.exit_code == 0


def test_a_start_limit_that_bites_is_no_harm() -> None:
    report = audited(service("mystery.service", restart=BOUNDED))
    assert only(report, "mystery.service").judgement == "unknown"
    assert report.exit_code == 0


def test_what_does_not_start_is_not_judged_harmful() -> None:
    report = audited(service("ecs.service", state="disabled", starts=False, restart=ENDLESS))
    unit = only(report, "ecs.service")
    assert unit.judgement == "unknown"
    assert unit.reasons[:2] == (
        "nothing starts it by itself (disabled)",
        f"if it were started: it can restart for ever: {WHY}",
    )
    assert report.exit_code == 0


def test_an_image_that_cannot_tell_its_cloud_leaves_the_agent_unknown() -> None:
    assert only(audited(service("ssm.service")), "ssm.service").judgement == "unknown"


def test_an_agent_is_unused_where_what_it_is_for_is_excluded_by_the_image_alone() -> None:
    unit = only(audited(service("modem.service")), "modem.service")
    assert unit.judgement == "unused"
    assert unit.reasons[0] == "nothing that ModemManager is for is here: no NetworkManager.* starts"
    there = audited(service("modem.service"), about=facts(units=("NetworkManager.service",)))
    assert only(there, "modem.service").judgement == "needed"


def test_on_a_live_node_nothing_is_unused_while_nobody_could_look_or_somebody_is_connected() -> None:
    life = {"modem.service": Life("modem.service", "active", "running", 0, "success")}
    ends = Sockets((Endpoint("unix", "/run/modem.sock", 1, ("job.service",)),))
    looked = {"modem.service": Sockets((Endpoint("unix", "/run/modem.sock"),))}
    about = facts(live=True)

    def judgement(live: Live) -> str:
        return only(audited(service("modem.service"), live=live, about=about), "modem.service").judgement

    assert judgement(Live(life, looked, unseen=True)) == "unknown"
    assert judgement(Live(life, looked)) == "unused"
    assert judgement(Live(life, {"modem.service": ends})) == "needed"


def test_a_crash_loop_that_systemd_counts_is_harmful_and_of_what_is_needed_a_finding() -> None:
    life = Life("x.service", "activating", "auto-restart", 41, "exit-code", 1, 5)
    report = audited(service("x.service"), live=Live({"x.service": life}, {}))
    unit = only(report, "x.service")
    assert unit.judgement == "harmful"
    assert unit.reasons[0] == "it is in a crash loop now: systemd has restarted it 41 times, the last time with exit status 5"
    needed = audited(service("x.service", needed_by=("y.service",)), service("y.service"), live=Live({"x.service": life}, {}))
    assert only(needed, "x.service").judgement == "needed"
    assert [(one.kind, one.severity) for one in needed.findings] == [("crash-loop", "critical")]
    assert needed.exit_code == 2


def test_a_crash_loop_that_only_a_recording_shows_counts_as_well() -> None:
    report = audited(service("x.service"), live=Live({}, {}, loops={"x.service": "a recording shows it in a crash loop"}))
    assert only(report, "x.service").judgement == "harmful"
    assert report.findings[0].kind == "crash-loop"


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        (Life("x", "activating", "auto-restart", 3, "exit-code", 1, 1), True),
        (Life("x", "activating", "auto-restart", 2, "exit-code", 1, 1), False),
        (Life("x", "active", "running", 9, "success", 1, 1, since_s=5.0), True),
        (Life("x", "active", "running", 9, "success", 1, 1, since_s=9000.0), False),
        (Life("x", "active", "running", 9, "success", 0, 0, since_s=5.0), False),
        (Life("x", "active", "running", 0, "success", 0, 0, since_s=5.0), False),
    ],
)
def test_a_loop_is_several_restarts_the_last_of_them_fresh(life: Life, expected: bool) -> None:
    assert looping(life) is expected


def idle(**more: object) -> Known:
    life = Life("x.service", "active", "running", 0, "success", cpu_s=0.4, since_s=9 * DAY)
    ends = Sockets((Endpoint("unix", "/run/x.sock", made_s=9 * DAY),))
    return replace(Known(life=life, sockets=ends), **more)  # type: ignore[arg-type]


def test_a_daemon_that_nobody_ever_connected_to_and_that_used_no_cpu_is_unused() -> None:
    assert judge(service(), idle()) == Judged(
        "unused",
        (
            "nobody has ever connected to its one socket, and in 9 d it has used 400 ms of CPU time",
            "no other unit needs it",
        ),
    )


@pytest.mark.parametrize(
    "known",
    [
        idle(life=Life("x.service", "active", "running", 0, cpu_s=900.0, since_s=9 * DAY)),
        idle(life=Life("x.service", "active", "running", 0, cpu_s=0.0, since_s=3600.0)),
        idle(life=Life("x.service", "active", "running", 0, cpu_s=-1.0, since_s=9 * DAY)),
        idle(sockets=Sockets((Endpoint("unix", "/run/x.sock", made_s=9 * DAY, touched_s=60.0),))),
        idle(sockets=Sockets((Endpoint("tcp", "0.0.0.0:80"),))),
        idle(sockets=Sockets((Endpoint("unix", "/run/x.sock", made_s=9 * DAY),), outgoing=1)),
        idle(sockets=Sockets((Endpoint("unix", "/run/x.sock", made_s=9 * DAY),), talks_to=("kubelet.service",))),
        idle(sockets=Sockets()),
        idle(sockets=None),
    ],
)
def test_less_than_that_proves_nothing(known: Known) -> None:
    assert judge(service(), known).judgement == "unknown"


def test_a_timer_is_as_harmful_as_what_it_starts_and_its_service_is_not_needed_for_it() -> None:
    report = audited(
        service("ecs.service", state="static", restart=ENDLESS, pulled_by=("ecs.timer",), needed_by=("ecs.timer",)),
        service("ecs.timer", pulled_by=("timers.target",)),
    )
    assert only(report, "ecs.service").judgement == "harmful"
    assert only(report, "ecs.timer").judgement == "harmful"
    assert only(report, "ecs.timer").reasons[0] == "it starts ecs.service, which is harmful"


def test_drift_alone_is_a_warning() -> None:
    report = audited(service("mystery.service"), policy=Policy())
    assert [one.kind for one in report.drift] == ["new"]
    assert report.exit_code == 1


def test_what_only_sleepers_or_parts_of_itself_need_can_be_harmful_and_never_unused() -> None:
    sleeper = service("off.service", state="disabled", starts=False)
    report = audited(service("ecs.service", restart=ENDLESS, needed_by=("off.service",)), sleeper)
    assert only(report, "ecs.service").judgement == "harmful"
    assert (
        "only off.service needs it, and what does not start, or is a part of it, does not count"
        in only(report, "ecs.service").reasons
    )
    part = service("modem.helper.service")
    report = audited(service("modem.service", needed_by=("modem.helper.service",)), part)
    assert only(report, "modem.service").judgement == "unknown"


def test_what_only_harmful_things_need_is_needed_and_says_so() -> None:
    report = audited(service("ecs.service", restart=ENDLESS), service("docker.service", needed_by=("ecs.service",)))
    unit = only(report, "docker.service")
    assert unit.judgement == "needed"
    assert unit.reasons == (
        "ecs.service needs it",
        "but of all that need it none is needed itself: ecs.service is harmful",
    )


def test_what_runs_cron_lines_or_containers_is_needed_for_them() -> None:
    lines = [Service(f"/etc/crontab:{number}", "cron", "enabled", True, pulled_by=("modem",)) for number in (3, 4)]
    unit = only(audited(service("modem.service"), *lines), "modem.service")
    assert (unit.judgement, unit.reasons[0]) == ("needed", "it runs /etc/crontab:3 and /etc/crontab:4")
    off = [replace(line, starts=False) for line in lines]
    assert only(audited(service("modem.service"), *off), "modem.service").judgement == "unused"


def test_a_pod_that_the_kubelet_starts_again_for_ever_is_as_pods_are() -> None:
    report = audited(Service("kube-system/x", "static-pod", "enabled", True, restart=ENDLESS))
    assert report.units[0].judgement == "unknown"
    assert [(one.kind, one.severity) for one in report.findings] == [("endless-restart", "info")]
    assert report.exit_code == 0
    container = audited(Service("x", "container", "enabled", True, restart=ENDLESS))
    assert (container.units[0].judgement, container.exit_code) == ("harmful", 2)


def test_what_its_own_condition_holds_back_does_no_harm_unless_it_runs_all_the_same() -> None:
    thing = service("x.service", restart=ENDLESS, conditions=("ConditionPathExists=/x does not hold on this image",))
    assert (only(audited(thing), "x.service").judgement, audited(thing).exit_code) == ("unknown", 0)
    for state, expected in (("inactive", "unknown"), ("active", "harmful")):
        live = Live({"x.service": Life("x.service", state, "running", 0)}, {})
        assert only(audited(thing, live=live), "x.service").judgement == expected


def test_what_systemd_has_given_up_is_in_no_loop_now() -> None:
    given_up = Life("x.service", active="failed", sub="failed", restarts=9, exit_code=1, exit_status=1, since_s=2.0)
    assert not looping(given_up)
    assert looping(replace(given_up, active="activating", sub="auto-restart"))
    assert looping(replace(given_up, sub="failed-before-auto-restart"))


def test_what_is_protected_besides_is_not_told_as_needed_by_harmful_ones_alone() -> None:
    ecs = service("ecs.service", restart=ENDLESS)
    kubelet, docker = service("kubelet.service", needed_by=("ecs.service",)), service("x.service", needed_by=("ecs.service",))
    units = {unit.service.name: unit for unit in audited(ecs, kubelet, docker).units}
    assert units["ecs.service"].judgement == "harmful"
    assert not any("none is needed itself" in reason for reason in units["kubelet.service"].reasons)
    assert any("none is needed itself" in reason for reason in units["x.service"].reasons)


def test_why_something_does_not_start_is_told() -> None:
    container = service("web", kind="container", state="disabled", starts=False, conditions=("no dockerd is installed",))
    assert judge(container, Known()).reasons[0] == "nothing starts it by itself: no dockerd is installed"
    wrong = service(starts=False, pulled_by=("multi-user.target",), notes=("systemd refuses it: it has no ExecStart=",))
    assert judge(wrong, Known()).reasons[0] == (
        "multi-user.target would start it, but systemd refuses it: it has no ExecStart="
    )
