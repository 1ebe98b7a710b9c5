"""Audits and gates of images, of services, and of soaks that are made of numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.directory import Directory
from exhume.host.tree import Tree
from exhume.image.audit import Live
from exhume.image.audit_tree import audit_tree
from exhume.image.gate import judge_node
from exhume.image.gate_image import image_checks
from exhume.image.gate_model import Gate, Options
from exhume.image.policy import Listed, Policy, first_policy
from exhume.recording.recording import Recording
from exhume.sources.unit_life import Life
from tests.diagnosis.findings.lives import count, life, walk
from tests.golden import adapter
from tests.golden.adapter import Data
from tests.image.incident import incident
from tests.image.planted import Planted
from tests.image.test_audit import BOUNDED, ENDLESS, audited, facts, service
from tests.image.test_gate import DAY, MINUTE, leak, soaked, units
from tests.remedy.nodes import scratch

TODAY = date(2026, 4, 1)
LIVES: dict[str, Live] = {
    "crash_loop": Live({"ecs.service": Life("ecs.service", "activating", "auto-restart", 900, "exit-code", 1, 5, since_s=3.0)}),
    "crash_loop_in_a_recording": Live(loops={"metrics-shim.service": "seen"}),
    "runs_quietly": Live({"ecs.service": Life("ecs.service", "active", "running", 0, "success", cpu_s=0.2, since_s=9e5)}),
}
AGENT = "[Service]\nExecStart=/opt/agent\nRestart=always\nRestartSec=10\n[Install]\nWantedBy=multi-user.target\n"
_UNITS, _ETC = "/usr/lib/systemd/system", "/etc/systemd/system"
_FILES = {f"{_UNITS}/multi-user.target": "[Unit]\n", f"{_UNITS}/agent.service": AGENT}
_DEFAULT = {f"{_UNITS}/default.target": "multi-user.target"}
_ENABLED = {**_DEFAULT, f"{_ETC}/multi-user.target.wants/agent.service": f"{_UNITS}/agent.service"}
_DROP_IN = f"{_ETC}/agent.service.d/a.conf"
PLANTED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "agent_enabled": (_FILES, _ENABLED),
    "agent_disabled": (_FILES, _DEFAULT),
    "agent_masked": (_FILES, {**_ENABLED, f"{_ETC}/agent.service": "/dev/null"}),
    "agent_with_a_limit": ({**_FILES, _DROP_IN: "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=3\n"}, _ENABLED),
    "agent_that_is_not_restarted": ({**_FILES, _DROP_IN: "[Service]\nRestart=no\n"}, _ENABLED),
    "cron_and_rc_local": (
        {**_FILES, "/etc/crontab": "* * * * * root /opt/agent\n", "/etc/rc.local": "#!/bin/sh\n/opt/agent &\n"},
        _DEFAULT,
    ),
}


@contextmanager
def _image() -> Iterator[Tree]:
    with scratch() as path, Directory(str(incident(path / "image"))) as tree:
        yield tree


def _policies(tree: Tree) -> dict[str, Policy | None]:
    """What the policy says of an image, from nothing to all."""
    listed = first_policy(unit.service for unit in audit_tree(tree, today=TODAY).units).agents
    owned = tuple(Listed(one.name, "platform", one.purpose) for one in listed)

    def but(name: str, *instead: Listed) -> Policy:
        return Policy((*(one for one in owned if one.name != name), *instead))

    return {
        "no_policy": None,
        "all_owned": Policy(owned),
        "empty": Policy(),
        "agent_kept": but("ecs.service", Listed("ecs.service", "compute", "needed for batch jobs", keep=True)),
        "one_not_listed": but("metrics-shim.service"),
        "one_past_its_date": but("cron.service", Listed("cron.service", "platform", review=date(2026, 1, 1))),
        "one_without_owner": but("cron.service", Listed("cron.service")),
        "one_of_another_image": but("ssh.service", Listed("ssh.service", "platform", images=("build-*",))),
    }


def audits() -> dict[str, Data]:
    cases: dict[str, Data] = {}
    with _image() as tree:
        for name, policy in _policies(tree).items():
            cases[f"incident_image/{name}"] = adapter.audit(audit_tree(tree, policy, today=TODAY))
        for name, live in LIVES.items():
            cases[f"incident_image/live_{name}"] = adapter.audit(audit_tree(tree, None, live, today=TODAY))
    for name, (files, links) in PLANTED.items():
        cases[f"planted/{name}"] = adapter.audit(audit_tree(Planted(files, links), today=TODAY))
    agent = service("ecs.service", restart=ENDLESS)
    found = {
        "agent_configured": audited(agent, about=facts({"/etc/ecs/ecs.config": b"ECS_CLUSTER=a\n"})),
        "agent_forgotten": audited(agent),
        "agent_with_a_limit": audited(service("ecs.service", restart=BOUNDED)),
        "kubelet": audited(service("kubelet.service", restart=ENDLESS)),
        "modem_without_manager": audited(service("modem.service")),
        "modem_with_manager": audited(service("modem.service"), about=facts(units=("NetworkManager.service",))),
        "agent_of_another_cloud": audited(service("ssm.service"), about=facts(cloud="gcp")),
        "agent_of_this_cloud": audited(service("ssm.service"), about=facts(cloud="aws")),
        "timer_of_a_harmful_agent": audited(
            service("ecs.timer"), service("ecs.service", restart=ENDLESS, pulled_by=("ecs.timer",))
        ),
    }
    return cases | {f"services/{name}": adapter.audit(one) for name, one in found.items()}


def _leaking(seconds: float, period: float, start: float = 5, path: str = "/system.slice/ecs.service") -> Recording:
    recording = soaked(seconds)
    leak(recording, start, seconds - 10, period, path)
    return recording


def _at_once() -> Recording:
    recording = soaked(10 * MINUTE)
    leak(recording, 300, 312, 0.5, "/system.slice/once.service")
    return recording


def _released() -> Recording:
    recording = soaked(70 * MINUTE)
    for one in range(100):
        life(recording, f"/system.slice/setup-{one}.service", one, one + 1, one, released=one + 31)
    return recording


def _counted() -> Recording:
    recording = soaked(10 * MINUTE, on=("cpu", "units", "zombies", "memcg"))
    for at in range(0, 600, 2):
        count(recording, at, at // 10, 100)
    return recording


def _places() -> Recording:
    recording = soaked(70 * MINUTE, dying=80)
    walk(recording, 70 * MINUTE, "/system.slice/agent.service", "/system.slice", 60, unit="agent.service")
    walk(recording, 70 * MINUTE, "/system.slice/other.service", "/system.slice", 20, unit="other.service")
    return recording


def _restarting(restarts: list[int], sub: str = "auto-restart") -> Recording:
    recording = soaked(60)
    units(recording, "ecs.service", restarts, sub)
    return recording


SOAKS: dict[str, tuple[Callable[[], Recording], Options]] = {
    "quiet_long_enough": (lambda: soaked(70 * MINUTE, live=10), Options()),
    "quiet_ten_minutes": (lambda: soaked(10 * MINUTE + 1), Options()),
    "quiet_ten_minutes_short_life": (lambda: soaked(10 * MINUTE + 1), Options(life_s=2 * DAY)),
    "quiet_67_minutes": (lambda: soaked(67 * MINUTE), Options()),
    "quiet_68_minutes": (lambda: soaked(68 * MINUTE), Options()),
    "too_many_groups": (lambda: soaked(70 * MINUTE, dying=68_440, live=240), Options()),
    "leak": (lambda: _leaking(10 * MINUTE, 10), Options()),
    "slow_leak": (lambda: _leaking(60 * MINUTE, 900), Options()),
    "leak_elsewhere": (lambda: _leaking(70 * MINUTE, 10, path="/other/z"), Options(under="/mine")),
    "leak_while_booting": (lambda: _leaking(72 * MINUTE, 4000, start=20), Options(settle_s=120)),
    "many_at_once": (_at_once, Options()),
    "released_after_a_while": (_released, Options()),
    "counted_without_events": (_counted, Options()),
    "old_zombies_of_a_place": (_places, Options()),
    "old_zombies_elsewhere": (_places, Options(under="/user.slice")),
    "crash_loop": (lambda: _restarting([1, 3, 5, 7, 9, 11]), Options()),
    "two_restarts": (lambda: _restarting([0, 1, 2]), Options()),
    "given_up": (lambda: _restarting([0, 5, 5, 5, 5, 5], "failed"), Options()),
    "nothing_seen": (lambda: soaked(100 * MINUTE, on=("cpu",)), Options()),
    "zombies_not_named": (lambda: soaked(100, dying=60, on=("cpu", "memcg", "units", "cgroup-events")), Options()),
}


def gates() -> dict[str, Data]:
    cases = {
        f"soaks/{name}": adapter.gate(judge_node(soak(), Thresholds(), options)) for name, (soak, options) in SOAKS.items()
    }
    with _image() as tree:
        for name, policy in _policies(tree).items():
            cases[f"incident_image/{name}"] = _gate(tree, policy)
    for name, (files, links) in PLANTED.items():
        cases[f"planted/{name}"] = _gate(Planted(files, links), None)
    return cases


def _gate(tree: Tree, policy: Policy | None) -> Data:
    return adapter.gate(Gate("image", image_checks(audit_tree(tree, policy, today=TODAY), policy), Options()))
