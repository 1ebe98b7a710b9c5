"""The catalogue of agents: every entry well formed, each unit one agent's, and needs that are decided by facts."""

import itertools
import re
from fnmatch import translate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.catalogue import load, overlap, program, repository
from exhume.host.directory import Directory
from exhume.host.needs import Facts, facts
from exhume.host.programs import CLOUDS, VOCABULARY, Program
from exhume.host.service import Kind, Service
from tests.examples import examples
from tests.image.planted import Planted
from tests.image.roots import debian

CATALOGUE = load()


def service(name: str, kind: Kind = "unit", **more: str | tuple[str, ...]) -> Service:
    return Service(name, kind, "enabled", True, **more)  # type: ignore[arg-type]


def recognised(one: Service) -> str:
    agent = CATALOGUE.recognise(one)
    return agent.id if agent else ""


def test_it_is_large_and_covers_what_was_promised() -> None:
    assert len(CATALOGUE.agents) >= 60
    promised = """
        ecs-agent ssm-agent cloudwatch-agent xray-daemon datadog-agent newrelic-infra dynatrace-oneagent
        otel-collector filebeat elastic-agent fluentd fluent-bit vector rsyslog promtail grafana-agent
        telegraf node-exporter dcgm-exporter nvidia-persistenced nvidia-fabricmanager dcgm nvsm mig-manager
        nvidia-device-plugin kubelet k3s rke2 kube-proxy containerd docker cri-o podman snapd
        unattended-upgrades dnf-automatic packagekit modem-manager multipathd iscsid udisks2 fwupd motd-news
        man-db updatedb apport whoopsie lxd cloud-init google-guest-agent google-osconfig-agent
        google-ops-agent azure-linux-agent omi azure-monitor-agent oracle-cloud-agent falcon-sensor
        sentinelone mdatp wazuh-agent osquery auditd teleport tailscale chef-client puppet-agent salt-minion
        ansible-pull consul nomad chrony sshd networkd efs-mount-watchdog lustre openibd efa irqbalance tuned
        earlyoom systemd-oomd
    """
    assert set(promised.split()) <= set(CATALOGUE.agents)


@pytest.mark.parametrize("agent", CATALOGUE.agents.values(), ids=lambda agent: agent.id)
def test_every_entry_is_whole(agent: object) -> None:
    assert isinstance(agent, Program)
    for text in (
        agent.name,
        agent.purpose,
        agent.source,
        *(harm.text for harm in agent.harm),
        *(harm.source for harm in agent.harm),
    ):
        assert text == text.strip()
        assert "://" not in text
    assert agent.purpose.endswith(".")
    assert all(harm.text.endswith(".") for harm in agent.harm)
    for pattern in (*agent.units, *agent.images, *agent.executables, *agent.files):
        re.compile(translate(pattern))
    assert all(re.search(r"\.(service|socket|timer|path|target|slice|scope|mount)$", unit) for unit in agent.units)
    assert all(path.startswith("/") for path in (*agent.executables, *agent.files))
    assert all(re.fullmatch(r"/.*|tcp:[0-9]+", socket) for socket in agent.sockets)
    # What is used by a socket says which of its own.
    used = [value for condition in agent.needed_if for word, value in condition if word == "used"]
    assert set(used) <= {*agent.sockets, "tcp:19531"}
    if agent.protected:
        assert agent.needed_if
        assert not agent.off.units
    else:
        assert agent.off.units or agent.off.packages or agent.off.config or agent.images or agent.units
        assert set(agent.off.units) <= set(agent.units)


def test_no_two_agents_recognise_the_same() -> None:
    for one, other in itertools.combinations(CATALOGUE.agents.values(), 2):
        for kind in ("units", "packages", "executables", "files"):
            for pattern, against in itertools.product(getattr(one, kind), getattr(other, kind)):
                assert not overlap(pattern, against), f"{kind}: {one.id} has {pattern}, {other.id} has {against}"


def test_overlap_sees_globs_of_either_side() -> None:
    assert overlap("a*.service", "ab.service")
    assert overlap("ab.service", "a*.service")
    assert overlap("a*.service", "a*c.service")
    assert not overlap("a.service", "b.service")


@pytest.mark.parametrize(
    ("one", "agent"),
    [
        (service("ecs.service"), "ecs-agent"),
        (service("getty@tty1.service"), "systemd-core"),
        (service("snap.lxd.daemon.service"), "lxd"),
        (service("datadog-agent-trace.service"), "datadog-agent"),
        (service("/etc/cron.daily/mlocate", "cron", path="/etc/cron.daily/mlocate"), "updatedb"),
        (service("/etc/cron.d/sysstat:3", "cron", path="/etc/cron.d/sysstat"), "sysstat"),
        (service("agent", "container", description="amazon/amazon-ecs-agent:latest"), "ecs-agent"),
        (service("x", "daemonset", description="busybox docker.io/prom/node-exporter:v1@sha256:00"), "node-exporter"),
        (service("kube-system/p", "static-pod", description="registry.k8s.io/kube-proxy:v1.30"), "kube-proxy"),
        (service("our-ssh.service", command=("-/usr/sbin/sshd -D",)), "sshd"),
        (service("strange.service", package="telegraf"), "telegraf"),
        (service("strange.service", package="nothing"), ""),
        (service("ecs.service.bak"), ""),
        (service("amazon/amazon-ecs-agent", description="amazon/amazon-ecs-agent"), ""),
    ],
)
def test_a_service_is_recognised_by_what_it_is_called_runs_and_comes_from(one: Service, agent: str) -> None:
    assert recognised(one) == agent


def test_names_of_images_and_programs() -> None:
    assert repository("docker.io/library/telegraf:1.2") == "telegraf"
    assert repository("localhost:5000/a/b@sha256:00") == "localhost:5000/a/b"
    assert program("@-/usr/bin/x argv0 y") == "/usr/bin/x"
    assert program("") == ""


def test_the_incidents_agent_is_needed_only_where_a_cluster_is_named() -> None:
    agent = CATALOGUE.agents["ecs-agent"]
    assert agent.harm[0].severity == "critical"
    assert agent.off.units[0] == "ecs.service"
    assert facts(Planted({"/etc/ecs/ecs.config": "# ECS_CLUSTER=old\nECS_LOGLEVEL=info\n"}), []).need(agent) is None
    reason = facts(Planted({"/etc/ecs/ecs.config": "ECS_CLUSTER=training\n"}), []).need(agent)
    assert reason == "/etc/ecs/ecs.config sets ^ECS_CLUSTER="
    assert not facts(Planted({}), []).undecided(agent)


def live(**files: str) -> Planted:
    tree = Planted({f"/{path.replace('__', '/')}": text for path, text in files.items()})
    tree.live = True
    return tree


def test_a_cloud_is_known_live_and_undecided_at_rest() -> None:
    agent = CATALOGUE.agents["ssm-agent"]
    amazon = live(sys__class__dmi__id__sys_vendor="Amazon EC2\n")
    assert facts(amazon, []).need(agent) == "the node runs in aws"
    elsewhere = facts(live(sys__class__dmi__id__sys_vendor="QEMU\n"), [])
    assert elsewhere.need(agent) is None
    assert not elsewhere.undecided(agent)
    assert facts(Planted({}), []).undecided(agent)


def test_hardware_mounts_and_sockets_are_seen_live() -> None:
    tree = Planted(
        {
            "/sys/bus/pci/devices/0000:00:1e.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:00:1e.0/class": "0x030200\n",
            "/sys/bus/pci/devices/0000:00:1f.0/vendor": "0x1d0f\n",
            "/sys/bus/pci/devices/0000:00:1f.0/device": "0xefa1\n",
            "/sys/class/infiniband/efa_0/x": "",
            "/proc/self/mounts": "a /data lustre rw 0 0\n",
            "/etc/fstab": "# old / ext3\nfs-1:/ /efs efs _netdev 0 0\n",
        }
    )
    tree.live = True
    found = facts(tree, [service("kubelet.service")], used=["tcp:9100"])
    assert found.hardware == {"nvidia", "efa"}
    assert found.mounts == {"lustre", "efs"}
    assert found.kubernetes
    assert found.need(CATALOGUE.agents["lustre"]) == "a file system of type lustre is mounted"
    assert found.need(CATALOGUE.agents["node-exporter"]) == "something is connected to tcp:9100"
    assert found.need(CATALOGUE.agents["nvidia-device-plugin"]) == "the node runs Kubernetes and the node has nvidia"
    assert found.need(CATALOGUE.agents["openibd"]) is None
    assert found.need(CATALOGUE.agents["multipathd"]) is None


def test_what_is_filled_is_more_than_there() -> None:
    agent = CATALOGUE.agents["multipathd"]
    assert facts(Planted({"/etc/iscsi/nodes/.keep": ""}), []).need(agent) is None
    assert facts(Planted({"/etc/iscsi/nodes/iqn.2026/x": ""}), []).need(agent) == "/etc/iscsi/nodes is filled in"


def test_nothing_needs_it_and_nobody_knows_are_two_things() -> None:
    tree = live()
    assert CATALOGUE.agents["man-db"].needless
    assert not facts(tree, []).undecided(CATALOGUE.agents["man-db"])
    assert not CATALOGUE.agents["falco"].needless
    assert facts(tree, []).need(CATALOGUE.agents["falco"]) is None
    assert facts(tree, []).undecided(CATALOGUE.agents["falco"])


def test_every_word_of_the_vocabulary_is_used_and_told() -> None:
    used = {word for agent in CATALOGUE.agents.values() for condition in agent.needed_if for word, _ in condition}
    assert used == set(VOCABULARY)
    clouds = {
        value
        for agent in CATALOGUE.agents.values()
        for condition in agent.needed_if
        for word, value in condition
        if word == "cloud"
    }
    assert clouds == set(CLOUDS)


@pytest.mark.ci
def test_most_units_that_a_real_debian_ships_enabled_are_known() -> None:
    root = debian()
    with Directory(str(root)) as tree:
        wants = [place for place in tree.names("/etc/systemd/system") if place.endswith(".wants")]
        enabled = {name for place in wants for name in tree.names(f"/etc/systemd/system/{place}")}
    known = {name for name in enabled if recognised(service(name))}
    assert {"ssh.service", "cron.service", "chrony.service", "docker.service", "unattended-upgrades.service"} <= known
    assert len(known) >= len(enabled) * 0.6, sorted(enabled - known)


@settings(max_examples=examples(200))
@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["unit", "cron", "container", "static-pod", "sysv"]))
def test_any_service_is_recognised_or_not(name: str, text: str, kind: Kind) -> None:
    one = service(name + ".service", kind, path=text, description=text, command=(text,), package=text)
    agent = CATALOGUE.recognise(one)
    assert agent is None or agent.id in CATALOGUE.agents


@settings(max_examples=examples(100))
@given(st.binary(max_size=100))
def test_any_files_decide_every_agents_need(text: bytes) -> None:
    paths = ("/etc/ecs/ecs.config", "/etc/fstab", "/proc/self/mounts", "/sys/class/dmi/id/sys_vendor", "/etc/rsyslog.conf")
    tree = Planted(dict.fromkeys(paths, text))
    tree.live = True
    known: Facts = facts(tree, [])
    decided = [agent for agent in CATALOGUE.agents.values() if agent.needed_if or agent.needless]
    assert all(known.need(agent) or not known.undecided(agent) for agent in decided)
