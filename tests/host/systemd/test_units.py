"""What is said of services: restart arithmetic of the incident's unit, what starts, who needs whom, links, users' units."""

from pathlib import Path

from exhume.host.service import Service
from exhume.host.systemd.units import Units, read_units
from tests.host.systemd.written import tree

VENDOR = "/usr/lib/systemd/system/"
ETC = "/etc/systemd/system/"
ECS = """[Unit]
Description=Amazon Elastic Container Service - container agent
Documentation=man:ecs(8)
Requires=docker.service
After=docker.service cloud-final.service

[Service]
Type=simple
Restart=on-failure
RestartSec=10s
EnvironmentFile=-/var/lib/ecs/ecs.config
EnvironmentFile=-/etc/ecs/ecs.config
ExecStartPre=/usr/libexec/amazon-ecs-init pre-start
ExecStart=/usr/libexec/amazon-ecs-init start
ExecStop=/usr/libexec/amazon-ecs-init stop
ExecStopPost=/usr/libexec/amazon-ecs-init post-stop

[Install]
WantedBy=multi-user.target
"""
BASE = {
    VENDOR + "graphical.target": "[Unit]\nRequires=multi-user.target\n",
    VENDOR + "multi-user.target": "[Unit]\nRequires=basic.target\n",
    VENDOR + "basic.target": "[Unit]\nWants=sockets.target timers.target paths.target\n",
    VENDOR + "sockets.target": "[Unit]\n",
    VENDOR + "timers.target": "[Unit]\n",
    VENDOR + "paths.target": "[Unit]\n",
    VENDOR + "sysinit.target": "[Unit]\n",
}
DEFAULT = {VENDOR + "default.target": "graphical.target"}


def services(units: Units) -> dict[str, Service]:
    return {service.name: service for service in units.services()}


def wants(target: str, unit: str, to: str = "") -> dict[str, str]:
    return {f"{ETC}{target}.wants/{unit}": VENDOR + (to or unit)}


def test_the_incidents_unit_is_endless_and_the_arithmetic_says_why(tmp_path: Path) -> None:
    docker = "[Service]\nExecStart=/usr/bin/dockerd\nDelegate=yes\n"
    files = {**BASE, VENDOR + "ecs.service": ECS, VENDOR + "docker.service": docker}
    with tree(tmp_path, files, DEFAULT | wants("multi-user.target", "ecs.service")) as root:
        units = read_units(root)
        every = services(units)
    ecs = every["ecs.service"]
    assert (ecs.state, ecs.starts, ecs.pulled_by, ecs.needed_by) == ("enabled", True, ("multi-user.target",), ())
    assert ecs.needs == ("docker.service",)
    assert ecs.restart is not None
    assert ecs.restart.endless
    assert (ecs.restart.policy, ecs.restart.delay_s, ecs.restart.burst, ecs.restart.interval_s) == ("on-failure", 10, 5, 10)
    assert ecs.restart.why == (
        "It is started again whenever it fails; a start every 10 s makes 1 in 10 s, and the limit is 5: it never bites."
    )
    assert ecs.restart.prevent == ""
    assert ecs.cgroups == "runs amazon-ecs-init, which starts the ECS agent in a container and starts it again when it ends"
    assert ecs.command == ("/usr/libexec/amazon-ecs-init start", "/usr/libexec/amazon-ecs-init pre-start")
    assert units.links("ecs.service") == ("/etc/systemd/system/multi-user.target.wants/ecs.service",)
    assert units.path("ecs.service") == "/usr/lib/systemd/system/ecs.service"
    assert every["docker.service"].needed_by == ("ecs.service",)
    assert every["docker.service"].cgroups == "runs dockerd, which makes a cgroup for each container (Delegate=yes)"


def test_a_drop_in_or_the_manager_can_make_the_limit_bite_or_switch_it_off(tmp_path: Path) -> None:
    looping = "[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=3\n"
    files = {VENDOR + f"{name}.service": looping for name in ("plain", "limited", "free")}
    files |= {
        ETC + "limited.service.d/limit.conf": "[Unit]\nStartLimitIntervalSec=1min\n",
        ETC + "free.service.d/limit.conf": "[Unit]\nStartLimitIntervalSec=0\n",
        "/etc/systemd/system.conf": "[Manager]\nDefaultStartLimitBurst=2\nDefaultStartLimitIntervalSec=1s\n",
        "/usr/lib/systemd/system.conf.d/50-limit.conf": "[Manager]\nDefaultStartLimitIntervalSec=10s\n",
    }
    with tree(tmp_path, files) as root:
        said = {name: service.restart for name, service in services(read_units(root)).items()}
    assert {name: how.endless for name, how in said.items() if how} == {
        "plain.service": False,  # two starts, 6 s, of 10
        "limited.service": False,
        "free.service": True,
    }
    free = said["free.service"]
    assert free is not None
    assert free.why == (
        "It is started again whenever it ends, however it does, and the start limit is switched off (StartLimitIntervalSec=0): "
        "nothing ever stops it."
    )


def test_exit_statuses_that_change_the_policy_are_said(tmp_path: Path) -> None:
    loop = "[Service]\nExecStart=/bin/false\nRestartSec=1min\n"
    files = {
        VENDOR + "quiet.service": loop,
        VENDOR + "forced.service": loop + "RestartForceExitStatus=133 SIGTERM\n",
        VENDOR + "spared.service": loop + "Restart=on-failure\nSuccessExitStatus=143\nRestartPreventExitStatus=5 6\n",
        VENDOR + "misplaced.service": loop + "Restart=always\nStartLimitIntervalSec=1h\n",
    }
    with tree(tmp_path, files) as root:
        said = {name.removesuffix(".service"): service.restart for name, service in services(read_units(root)).items()}
    assert said["quiet"] is None
    assert {name: how.why.partition(": it never bites")[2] for name, how in said.items() if how} == {
        "forced": "; 133 SIGTERM always starts it again (RestartForceExitStatus=).",
        "spared": "; 143 counts as a clean end (SuccessExitStatus=); only 5 6 ends it (RestartPreventExitStatus=).",
        "misplaced": "; StartLimitIntervalSec= stands in [Service], where systemd passes it over.",
    }
    assert {name: how.prevent for name, how in said.items() if how} == {"forced": "", "spared": "5 6", "misplaced": ""}


def test_what_starts_is_what_boot_reaches_and_what_that_triggers(tmp_path: Path) -> None:
    run = "[Service]\nExecStart=/bin/true\n"
    files = {
        **BASE,
        **{VENDOR + f"{name}.service": run for name in ("wanted", "ticked", "plugged", "idle", "masked", "asked", "behind")},
        VENDOR + "each@.service": run,
        VENDOR + "ticked.timer": "[Timer]\nOnBootSec=1\n",
        VENDOR + "plugged.socket": "[Socket]\nListenStream=/run/x\n",
        VENDOR + "each.socket": "[Socket]\nListenStream=/run/y\nAccept=yes\n",
        VENDOR + "idle.timer": "[Timer]\nOnBootSec=1\n",
        VENDOR + "masked.service": run + "[Unit]\nWants=behind.service\n",
        VENDOR + "dbus.service": run,
        "/usr/share/dbus-1/system-services/a.b.service": "[D-BUS Service]\nName=a.b\nSystemdService=asked.service\n",
        "/usr/lib/udev/rules.d/9.rules": 'ACTION=="add", ENV{SYSTEMD_WANTS}+="behind.service x@$name.service"\n',
    }
    links = DEFAULT | wants("multi-user.target", "wanted.service") | wants("timers.target", "ticked.timer")
    links |= wants("sockets.target", "plugged.socket") | wants("sockets.target", "each.socket")
    links |= wants("multi-user.target", "masked.service") | wants("multi-user.target", "dbus.service")
    links |= wants("multi-user.target", "each@one.service", "each@.service") | {ETC + "masked.service": "/dev/null"}
    with tree(tmp_path, files, links) as root:
        every = services(read_units(root))
    pulled = {name: service.pulled_by for name, service in every.items() if name.endswith(".service") and service.starts}
    assert pulled == {
        "wanted.service": ("multi-user.target",),
        "ticked.service": ("ticked.timer",),
        "plugged.service": ("plugged.socket",),
        "each@.service": ("each.socket",),
        "each@one.service": ("multi-user.target",),
        "dbus.service": ("multi-user.target",),
        "asked.service": ("D-Bus name a.b",),
        "behind.service": ("udev rule /usr/lib/udev/rules.d/9.rules",),
    }
    assert not every["idle.timer"].starts
    assert every["masked.service"].state == "masked"
    assert every["each@one.service"].path == VENDOR + "each@.service"


def test_a_usr_merged_root_has_each_unit_once(tmp_path: Path) -> None:
    files = {**BASE, VENDOR + "a.service": "[Service]\nExecStart=/bin/true\n"}
    links = DEFAULT | {"/lib": "usr/lib", ETC + "multi-user.target.wants/a.service": "/lib/systemd/system/a.service"}
    links |= {ETC + "b.service": "/lib/systemd/system/a.service"}
    with tree(tmp_path, files, links) as root:
        units = read_units(root)
        assert [place.path for place in units.layout.places] == ["/etc/systemd/system", "/usr/lib/systemd/system"]
        assert units.canonical("b.service") == "a.service"
        assert units.aliases("a.service") == ("b.service",)
        assert units.links("b.service") == (ETC + "b.service", ETC + "multi-user.target.wants/a.service")
        assert [service.name for service in units.services() if service.name.endswith(".service")] == ["a.service"]


def test_users_units_of_all_and_of_one(tmp_path: Path) -> None:
    run = "[Service]\nExecStart=/bin/true --token=abc\n[Install]\nWantedBy=default.target\n"
    own = "/home/ann/.config/systemd/user/"
    files = {
        "/etc/passwd": "root:x:0:0::/root:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\nbroken\n",
        "/usr/lib/systemd/user/all.service": run,
        "/usr/lib/systemd/user/default.target": "[Unit]\n",
        own + "hers.service": run,
    }
    links = {
        own + "default.target.wants/hers.service": "../hers.service",
        "/etc/systemd/user/default.target.wants/all.service": "/usr/lib/systemd/user/all.service",
    }
    with tree(tmp_path, files, links) as root:
        every = services(read_units(root, "user"))
    assert {name: (service.state, service.starts, service.kind) for name, service in every.items()} == {
        "all.service": ("enabled", True, "user-unit"),
        "default.target": ("static", True, "user-unit"),
        "hers.service": ("enabled", True, "user-unit"),
    }
    assert every["hers.service"].notes == ("of the user ann",)
    assert every["hers.service"].command == ("/bin/true --token=***",)


def test_circles_of_aliases_and_of_dependencies_and_templates_without_end_come_to_an_end(tmp_path: Path) -> None:
    files = {
        **BASE,
        VENDOR + "one.service": "[Unit]\nRequires=two.service\n[Service]\nExecStart=/bin/true\n",
        VENDOR + "two.service": "[Unit]\nRequires=one.service\n[Service]\nExecStart=/bin/true\n",
        VENDOR + "more@.service": "[Unit]\nWants=more@%ia.service more@%ib.service\n[Service]\nExecStart=/bin/true\n",
    }
    links = DEFAULT | wants("multi-user.target", "one.service") | wants("multi-user.target", "more@x.service", "more@.service")
    links |= {ETC + f"r{n}.service": f"r{(n + 1) % 12}.service" for n in range(12)} | {ETC + "self.service": "self.service"}
    with tree(tmp_path, files, links) as root:
        units = read_units(root)
        assert units.graph.cut
        assert len(units.graph.forward) < 5_000
        every = services(units)
        assert every["one.service"].needed_by == ("two.service",)
        assert units.canonical("r3.service") == "r3.service"
        assert units.state("r3.service") == "bad"
        assert units.state("self.service") == "bad"
