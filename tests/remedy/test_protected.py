"""What is protected, and that no route leads to it: random trees of units, every way of naming a target, and ground truth by
another, simpler reading of the same files."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError, Refused
from exhume.host.directory import Directory
from exhume.host.programs import protected_unit
from exhume.host.systemd.units import read_units
from exhume.image import policy
from exhume.remedy import carry_out, journal
from exhume.remedy.carry_out import Consent
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.plan_unit import KEEPS, Keep
from exhume.remedy.protected import built_in
from exhume.remedy.protected_commands import programs
from exhume.remedy.protected_plan import known_agents, why_not
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.cgroups import remove_empty_cgroups
from exhume.remedy.steps.files import make_link, remove_link, write_file
from exhume.remedy.steps.units import reset_failed, start_unit, stop_unit
from tests.examples import examples
from tests.remedy.nodes import FileManager, node

ETC, LIB, OPT = "etc/systemd/system", "usr/lib/systemd/system", "opt/agent"
KUBELET, SSHD, DBUS = "kubelet.service", "sshd.service", "dbus.socket"
SACRED = (KUBELET, SSHD, DBUS, "containerd.service", "nvidia-device-plugin.service", "multi-user.target", "system.slice")
OURS = ("ecs.service", "agent.service", "a-b.service", "w@.service", "w@1.service", "late.timer", "door.socket", "watch.path")


@pytest.mark.parametrize(
    "unit",
    [
        *("kubelet.service", "KUBELET.service", "Kubelet.Service", "kubelet@x.service", "kubelet.socket", "sshd@1-2.service"),
        *("NetworkManager.service", "systemd-journald@x.service", "exhume-agent.service", "dbus.socket", "getty@tty1.service"),
        *("sshd-vsock.socket", "sshd-unix-local.socket", "snap.k8s.containerd.service", "snap.k8s.kubelet.service"),
        *("snap.kube-proxy.daemon.service", "k0sworker.service", "k0scontroller.service", "host-containerd.service"),
        *("nvidia-device-plugin.service", "kubelet\\x2eservice.service", "kube\\x6cet.service", "crio.service", "init.scope"),
        *("ovs-vswitchd.service", "ovsdb-server.service", "openvswitch.service", "openvswitch-switch.service", "iwd.service"),
        *("strongswan.service", "strongswan-starter.service", "rdma.service", "host-containers@admin.service"),
    ],
)
def test_these_are_protected(unit: str) -> None:
    assert protected_unit(unit)
    assert built_in(unit)


@pytest.mark.parametrize(
    "unit",
    ["ecs.service", "sshdlike.service", "snapd.service", "kubeletx.service", "x-kubelet.service", "host-containers@x.service"],
)
def test_these_are_not(unit: str) -> None:
    assert not protected_unit(unit)
    assert not built_in(unit, known_agents())


@pytest.mark.parametrize(
    "unit", ["a.target", "a.slice", "a.scope", "a.mount", "-.mount", "dev-sda.device", "a.swap", "a.automount"]
)
def test_only_services_and_what_starts_them_are_acted_on(unit: str) -> None:
    assert "is not acted on" in built_in(unit)


def test_what_the_catalogue_protects_is_protected() -> None:
    assert "without which the node" in built_in("opensm.service", known_agents())
    assert "it belongs to Teleport" in built_in("teleport-update.timer", known_agents())


@pytest.mark.parametrize(
    "line",
    [
        *(
            "/usr/bin/kubelet --config x",
            "-/home/kubernetes/bin/kubelet",
            '"/usr/bin/containerd"',
            "/opt/x/bin/dockerd -H fd://",
        ),
        *("/bin/sh -c 'exec kubelet $ARGS'", "/usr/bin/env kubelet", '/bin/bash -ec "ulimit -n 1; /usr/bin/crio"'),
        *("/bin/sh -c '/opt/datadog-agent/bin/agent; exec /usr/sbin/opensm'",),
        *("@!!/usr/sbin/sshd sshd -D", "/usr/sbin/opensm", "/usr/bin/nice /usr/sbin/NetworkManager"),
        *("/bin/bash -c 'kubelet --config=/x'", "/bin/sh -c 'sleep 1; containerd'", "@/bin/sh agent -c 'test -x a && kubelet'"),
        *("/usr/bin/env FOO=1 kubelet", "/usr/bin/env -S 'FOO=1 kubelet'", "/usr/bin/nice -n -5 kubelet"),
        *("/usr/bin/chrt -f 10 containerd", "/usr/bin/taskset -c 0-3 nice -n 5 crio", "/usr/bin/timeout 5 /usr/bin/kubelet"),
        *("/usr/bin/systemd-cat -t x kubelet", "/usr/bin/systemd-inhibit --why=x k3s agent", "/usr/bin/unshare -m kubelet"),
        *("/sbin/ip netns exec a /usr/sbin/sshd -D", "/sbin/ip vrf exec mgmt sshd -D", "/usr/bin/nsenter -t 1 -m -- dockerd"),
        *("/hyperkube kubelet --x", "/opt/bin/kubelet-v1.29.4", "/opt/bin/kubelet_1.29", "/usr/bin/flock /run/l containerd"),
        *("/bin/bash -o pipefail -ec 'if a; then FOO=1 exec kubelet; fi'", "/usr/bin/su root -c 'crio'"),
        *("/bin/sh -c 'runsomehow /usr/bin/kubelet'", "/usr/sbin/ovs-vswitchd unix:/x", "/usr/bin/timeout $T kubelet"),
    ],
)
def test_a_unit_is_protected_by_what_it_runs_whatever_its_name(line: str) -> None:
    assert "the way to it is lost" in built_in("node-agent.service", known_agents(), tuple(programs(line)))
    with root() as made:
        made.unit("node-agent.service", f"[Service]\nExecStart={line}\n")
        for keep in (None, *KEEPS):
            with pytest.raises(Refused, match=r"node-agent.service is left alone: it (runs|belongs to)"):
                planned(made, "node-agent.service", keep)
        plan = Plan("x", "t", (make_link(f"/{ETC}/node-agent.service", "/dev/null", "r"),))
        with pytest.raises(Refused, match="nothing was changed"):
            carry_out.apply(plan, node(made.root), Consent(True, True))


@pytest.mark.parametrize(
    "line",
    [
        *("/usr/bin/docker run --rm x", "/usr/bin/podman start -a x", "/usr/bin/ssh -N tunnel", "/bin/sh -c 'pgrep kubelet'"),
        *("/usr/local/bin/kubelet-exporter", "/usr/bin/systemctl restart kubelet", ""),
        *("/usr/libexec/amazon-ecs-init start --kubelet kubelet --containerd /usr/bin/containerd",),
        *("/opt/datadog-agent/bin/agent run -p /run/agent.pid --cri-socket /run/containerd/containerd.sock kubelet",),
        *("/usr/bin/node-problem-detector --config.system-log-monitor=/config/kubelet.json --logtostderr kubelet containerd",),
        *("/usr/bin/env KUBELET=/usr/bin/kubelet DD_CRI=containerd /opt/datadog-agent/bin/agent run kubelet",),
        *(
            "/opt/fluent-bit/bin/fluent-bit -i systemd -p _SYSTEMD_UNIT=kubelet -t kubelet",
            "/usr/bin/nice -n 5 fluent-bit kubelet",
        ),
        *("/usr/bin/falco --cri /run/containerd/containerd.sock --disable-source kubelet", "/usr/bin/timeout 5 curl kubelet"),
        *(
            "/bin/sh -c 'journalctl -fu kubelet | grep -E \"kubelet|containerd\" | logger -t kubelet'",
            "/bin/bash /opt/x -c kubelet",
        ),
        *("/bin/sh -c 'exec /opt/agent --root /var/lib/kubelet --state /run/containerd'", "/bin/sh -c 'command -v kubelet'"),
        *("/usr/bin/systemd-cat -t kubelet /opt/agent", "/bin/sh -c 'for x in kubelet containerd; do pgrep $x; done'"),
    ],
)
def test_what_only_speaks_of_a_protected_program_is_a_target_like_any_other(line: str) -> None:
    assert not built_in("node-agent.service", known_agents(), tuple(programs(line)))
    with root() as made:
        made.unit(
            "node-agent.service", f"[Service]\nExecStart={line}\nExecStop=/bin/true kubelet\nEnvironment=KUBELET=kubelet\n"
        )
        assert planned(made, "node-agent.service", force=False).steps


def test_a_unit_is_protected_by_where_the_program_leads_that_it_runs() -> None:
    with root() as made:
        made.unit("kubelet", "x", "usr/bin").link("usr/local/bin/node", "/usr/bin/kubelet").link("opt/d", "usr/local/bin/node")
        made.unit("k3s", "x", "usr/local/bin").link("usr/local/bin/kubectl", "k3s").link("usr/bin/agent", "nowhere")
        made.unit("node-agent.service", "[Service]\nExecStart=/usr/bin/nice -n 5 /usr/local/bin/node\n")
        made.unit("proxy.service", "[Service]\nExecStart=/usr/local/bin/kubectl proxy\n")
        made.unit("agent.service", "[Service]\nExecStart=/usr/bin/agent --kubelet /usr/local/bin/node\n")
        with pytest.raises(Refused, match=r"it runs /usr/bin/kubelet, .* \(/usr/local/bin/node is a link to it\)"):
            planned(made, "node-agent.service")
        assert planned(made, "proxy.service").steps
        assert planned(made, "agent.service").steps


@given(st.text(alphabet="ab \"'\\;&|()`$-=/@\n", max_size=40) | st.text())
def test_any_line_is_read(line: str) -> None:
    assert all(isinstance(each, str) for start in ("", "/bin/sh -c ", "env -S ") for each in programs(start + line))


def test_a_socket_that_starts_instances_of_a_protected_template_is_left_alone() -> None:
    socket = "[Socket]\nListenStream=22\nAccept=yes\n"
    with root() as made:
        made.unit("door.socket", socket).unit("door@.service", "[Service]\nExecStart=-/usr/sbin/sshd -i\n")
        made.unit("in.socket", socket).unit("sshd@.service").link(f"{ETC}/in@.service", f"/{LIB}/sshd@.service")
        made.unit("plain.socket", socket).unit("plain@.service")
        for target in ("door.socket", "in.socket"):
            with pytest.raises(Refused, match=r"it starts .*@.service, which is protected"):
                planned(made, target)
        assert planned(made, "plain.socket").steps


def test_an_instance_that_runs_and_no_file_names_is_met_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with root() as made:
        made.unit("ecs.service").unit("far.service")
        monkeypatch.setattr(FileManager, "dependents", lambda self, unit: _RUNNING.get(unit, ()))
        manager = manager_of(made)
        manager.set(**dict.fromkeys(("ecs.service", "w@7.service", "sshd@7.service"), "active"))
        with Directory(str(made.root)) as tree:
            protection = Protection(read_units(tree), known_agents(), manager=manager)
            assert protection.stopped_with(["far.service"]) == ("w@7.service",)
            for unit in ("ecs.service", "far.service"):
                guard = protection.built_in(unit)
                assert (guard is not None) == (unit == "ecs.service"), guard
        plan = Plan("x", "t", (stop_unit("ecs.service", "r"),))
        with pytest.raises(Refused, match=r"sshd@7.service stops with it, and is protected"):
            carry_out.apply(plan, node(made.root, manager=manager), Consent(True, True))


_RUNNING = {"ecs.service": ("x@1.service",), "x@1.service": ("sshd@7.service",), "far.service": ("w@7.service",)}


def test_nothing_is_started_that_a_protected_unit_would_be_stopped_for() -> None:
    with root() as made:
        made.unit("theirs.service").unit(KUBELET, "[Unit]\nConflicts=theirs.service\n")
        made.unit("ours.service", f"[Unit]\nConflicts={KUBELET}\n")
        made.unit("pulls.service", "[Unit]\nWants=ours.service\n")
        made.unit("above.service", "[Unit]\nConflicts=below.service\n")
        made.unit("below.service").unit(SSHD, "[Unit]\nBindsTo=below.service\n")
        made.unit("fine.service", "[Unit]\nConflicts=theirs.service\nWants=kubelet.service\n")
        with Directory(str(made.root)) as tree:
            protection = Protection(read_units(tree), known_agents())
            assert "conflicts with kubelet.service" in protection.why_not_start("theirs.service")
            assert "conflicts with kubelet.service" in protection.why_not_start("ours.service")
            assert protection.why_not_start("pulls.service").startswith("ours.service, which pulls.service starts, conflicts")
            assert "conflicts with sshd.service" in protection.why_not_start("above.service")
            assert protection.why_not_start("fine.service") == ""
            for unit in ("theirs.service", "ours.service", "pulls.service", "above.service"):
                for step in (start_unit(unit, "r"), Step("restart-unit", unit, "r")):
                    assert why_not(step, tree, protection)
                assert not why_not(reset_failed(unit, "r"), tree, protection)
            assert not why_not(start_unit("fine.service", "r"), tree, protection)
            manager = manager_of(made)
            for state in ("active", "inactive"):
                manager.set(**{KUBELET: state})
                protection = Protection(read_units(tree), known_agents(), manager=manager)
                assert bool(protection.why_not_start("ours.service")) == (state == "active")


@given(st.text())
def test_any_text_is_judged(name: str) -> None:
    assert isinstance(protected_unit(name), bool)
    assert isinstance(built_in(name, known_agents()), str)


@dataclass
class Made:
    """A root with units in it."""

    root: Path
    files: dict[str, str] = field(default_factory=dict)

    def unit(self, name: str, text: str = "", place: str = LIB) -> Self:
        path = self.root / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or "[Service]\nExecStart=/bin/true\n")
        return self

    def directory(self, path: str) -> Self:
        (self.root / path).mkdir(parents=True)
        return self

    def link(self, path: str, target: str) -> Self:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink() and not place.exists():
            place.symlink_to(target)
        return self


@contextmanager
def root() -> Iterator[Made]:
    path = Path(tempfile.mkdtemp(prefix="exhume-test-"))
    try:
        made = Made(path)
        (path / ETC).mkdir(parents=True)
        for name in SACRED:
            made.unit(name, "[Unit]\nDescription=x\n")
        yield made
    finally:
        shutil.rmtree(path)


def planned(made: Made, target: str, keep: Keep | None = None, force: bool = True, kept: str = "") -> Plan:
    manager = FileManager(made.root, made.root / "manager")
    manager.set(**dict.fromkeys((*SACRED, *OURS), "active"))
    rules = policy.parse(kept.encode(), "policy") if kept else None
    with Directory(str(made.root)) as tree:
        protection = Protection(read_units(tree), known_agents(), rules)
        there = node(made.root, manager=manager)
        return Planner(there, tree, protection, Wishes(keep, force)).plan(target)


ROUTES: dict[str, Callable[[Made], str]] = {
    "its name": lambda made: KUBELET,
    "its stem": lambda made: "kubelet",
    "its file": lambda made: f"/{LIB}/{KUBELET}",
    "another case": lambda made: (made.unit("KubeLet.service"), "KubeLet.service")[1],
    "its cgroup": lambda made: f"/system.slice/{KUBELET}",
    "its cgroup below the mount": lambda made: f"/sys/fs/cgroup/memory/system.slice/{KUBELET}/inner",
    "the slice that it is in": lambda made: "/system.slice",
    "the slice by name": lambda made: "system.slice",
    "an alias": lambda made: (made.link(f"{ETC}/innocent.service", f"/{LIB}/{KUBELET}"), "innocent.service")[1],
    "an alias by its name alone": lambda made: (made.link(f"{ETC}/innocent.service", KUBELET), "innocent")[1],
    "an alias of an alias": lambda made: (
        made.link(f"{ETC}/one.service", "two.service"),
        made.link(f"{ETC}/two.service", KUBELET),
        "one.service",
    )[2],
    "the file of an alias": lambda made: (made.link(f"{ETC}/innocent.service", KUBELET), f"/{ETC}/innocent.service")[1],
    "a link from elsewhere to its file": lambda made: (made.link("opt/x", f"/{LIB}/{KUBELET}"), "/opt/x")[1],
    "its drop-in directory": lambda made: (made.unit("x.conf", place=f"{ETC}/{KUBELET}.d"), f"/{ETC}/{KUBELET}.d/x.conf")[1],
    "an instance": lambda made: (made.unit("sshd@.service"), "sshd@1.service")[1],
    "an instance's alias": lambda made: (
        made.unit("sshd@.service"),
        made.link(f"{ETC}/door@.service", f"/{LIB}/sshd@.service"),
        "door@7.service",
    )[2],
    "a timer that starts it": lambda made: (made.unit("x.timer", f"[Timer]\nUnit={KUBELET}\n"), "x.timer")[1],
    "a socket that starts it": lambda made: (made.unit("x.socket", f"[Socket]\nService={KUBELET}\n"), "x.socket")[1],
    "a path that starts it": lambda made: (made.unit("x.path", f"[Path]\nUnit={KUBELET}\n"), "x.path")[1],
    "what it is bound to": lambda made: (
        made.unit(KUBELET, "[Unit]\nBindsTo=x.service\n"),
        made.unit("x.service"),
        "x.service",
    )[2],
    "what it is a part of": lambda made: (
        made.unit(KUBELET, "[Unit]\nPartOf=x.service\n"),
        made.unit("x.service"),
        "x.service",
    )[2],
    "what it requires by a link": lambda made: (
        made.unit("x.service"),
        made.link(f"{ETC}/{KUBELET}.requires/x.service", f"/{LIB}/x.service"),
        "x.service",
    )[2],
    "what it requires two steps away": lambda made: (
        made.unit(KUBELET, "[Unit]\nRequires=y.service\n"),
        made.unit("y.service", "[Unit]\nBindsTo=x.service\n"),
        made.unit("x.service"),
        "x.service",
    )[3],
    "what it requires by a drop-in of its prefix": lambda made: (
        made.unit("kubelet-helper.service"),
        made.unit("x.service"),
        made.unit("q.conf", "[Unit]\nRequires=x.service\n", f"{ETC}/kubelet-.service.d"),
        "x.service",
    )[3],
    "what passes its stop on to it": lambda made: (
        made.unit("x.service", f"[Unit]\nPropagatesStopTo={KUBELET}\n"),
        "x.service",
    )[1],
    "what alone needs it": lambda made: (
        made.unit("x.service", "[Unit]\nWants=foo-device-plugin.service\n"),
        made.unit("foo-device-plugin.service", "[Unit]\nStopWhenUnneeded=yes\n"),
        "x.service",
    )[2],
    "what alone needs it, two steps away": lambda made: (
        made.unit("x.service", "[Unit]\nRequires=y.service\n"),
        made.unit("y.service", f"[Unit]\nStopWhenUnneeded=yes\nBindsTo={KUBELET}\n"),
        made.unit(KUBELET, "[Unit]\nStopWhenUnneeded=on\n"),
        "x.service",
    )[3],
    "what it takes its stop from": lambda made: (
        made.unit(KUBELET, "[Unit]\nStopPropagatedFrom=x.service\n"),
        made.unit("x.service"),
        "x.service",
    )[2],
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("keep", [None, *KEEPS])
def test_no_route_leads_to_a_protected_unit_and_force_does_not_open_one(route: str, keep: Keep | None) -> None:
    with root() as made:
        target = ROUTES[route](made)
        with pytest.raises(ExhumeError) as refused:
            planned(made, target, keep)
        if keep is None:
            assert isinstance(refused.value, Refused), refused.value
            assert "--force does not lift this" in str(refused.value)


SHARED: dict[str, Callable[[Made], object]] = {
    "both are links to a third": lambda made: (
        made.directory("etc/proxy"),
        made.link(f"{ETC}/{KUBELET}.d", "/etc/proxy"),
        made.link(f"{ETC}/ecs.service.d", "../../proxy"),
    ),
    "its is a link to ours": lambda made: (
        made.directory(f"{ETC}/ecs.service.d"),
        made.link(f"{ETC}/{KUBELET}.d", "ecs.service.d"),
    ),
    "its is a link to ours, which is not there yet": lambda made: made.link(f"{LIB}/{KUBELET}.d", f"/{ETC}/ecs.service.d"),
    "ours is a link to its": lambda made: (
        made.directory(f"{LIB}/{KUBELET}.d"),
        made.link(f"{ETC}/ecs.service.d", f"/{LIB}/{KUBELET}.d"),
    ),
    "ours is a link to its template's": lambda made: (
        made.unit("sshd@1.service"),
        made.directory(f"{LIB}/sshd@.service.d"),
        made.link(f"{ETC}/ecs.service.d", f"/{LIB}/sshd@.service.d"),
    ),
    "ours is a link to that of an instance without a file": lambda made: (
        made.directory(f"{ETC}/getty@tty1.service.d"),
        made.link(f"{ETC}/ecs.service.d", "getty@tty1.service.d"),
    ),
    "ours is a link to that of a slice": lambda made: (
        made.directory(f"{ETC}/system.slice.d"),
        made.link(f"{ETC}/ecs.service.d", "system.slice.d"),
    ),
    "ours is a link to its alias's": lambda made: (
        made.link(f"{ETC}/innocent.service", f"/{LIB}/{KUBELET}"),
        made.directory(f"{ETC}/innocent.service.d"),
        made.link(f"{ETC}/ecs.service.d", "innocent.service.d"),
    ),
    "ours is a link to that of all services": lambda made: (
        made.directory(f"{LIB}/service.d"),
        made.link(f"{ETC}/ecs.service.d", f"/{LIB}/service.d"),
    ),
    "deeper than systemd looks": lambda made: (
        made.directory(f"{ETC}/a/b"),
        made.link(f"{ETC}/{KUBELET}.d", "a/b"),
        made.link(f"{ETC}/ecs.service.d", "a/b"),
    ),
    "ours is a link to that of a socket that starts it": lambda made: (
        made.unit("door.socket", "[Socket]\nListenStream=1\nAccept=yes\n").unit(
            "door@.service", "[Service]\nExecStart=/bin/sshd\n"
        ),
        made.directory(f"{ETC}/door.socket.d"),
        made.link(f"{ETC}/ecs.service.d", "door.socket.d"),
    ),
    "a drop-in of it is a link to ours": lambda made: made.link(
        f"{ETC}/{KUBELET}.d/proxy.conf", "../ecs.service.d/zz-exhume.conf"
    ),
}


@pytest.mark.parametrize("way", SHARED)
def test_no_drop_in_is_written_where_a_protected_unit_reads_it_by_a_link(way: str) -> None:
    with root() as made:
        made.unit("ecs.service")
        SHARED[way](made)
        with pytest.raises(Refused, match="reads what is there, and is protected"):
            planned(made, "ecs.service", "do-nothing")
        plan = Plan("x", "a test", (write_file(f"/{ETC}/ecs.service.d/zz-exhume.conf", b"[Service]\n", "r"),))
        with pytest.raises(Refused, match="nothing was changed"):
            carry_out.apply(plan, node(made.root), Consent(True, True))
        assert not list(made.root.rglob("zz-exhume.conf"))


def test_a_link_in_a_directory_that_is_a_protected_units_too_stays() -> None:
    with root() as made:
        made.unit("x.service").unit("ecs.service")
        (made.root / "etc/shared").mkdir()
        made.link("etc/shared/x.service", f"/{LIB}/x.service")
        made.link(f"{ETC}/ecs.service.wants", "/etc/shared").link(f"{ETC}/{KUBELET}.wants", "/etc/shared")
        plan = planned(made, "x.service")
        assert [step.kind for step in plan.steps] == ["stop-unit", "make-link", "reload"]
        assert any("kubelet.service wants it" in one.why for one in plan.relief)
        plan = Plan("x", "a test", (remove_link(f"/{ETC}/ecs.service.wants/x.service", "", "r"),))
        with pytest.raises(Refused, match=r"kubelet.service reads what is there"):
            carry_out.apply(plan, node(made.root), Consent(True, True))


@pytest.mark.parametrize("way", ["its file", "an alias", "two links more"])
def test_no_file_goes_that_a_protected_unit_is_read_from_by_links_outside(way: str) -> None:
    with root() as made:
        made.unit("foo.service", place=LIB if way == "an alias" else ETC).link(f"{ETC}/bar.service", f"/{LIB}/foo.service")
        at = f"/{ETC}/{'bar' if way == 'an alias' else 'foo'}.service"
        made.link("opt/y.service", at).link("opt/x.service", "y.service" if way == "two links more" else at)
        made.link(f"{ETC}/openibd.service", "/opt/x.service").link(f"{ETC}/fine.service", "/opt/z.service")
        with pytest.raises(Refused, match=rf"{at} stays: links of openibd.service lead there"):
            planned(made, "foo.service")
        step = make_link(at, "/dev/null", "r", over_file=True)
        with pytest.raises(Refused, match=r"openibd.service is read from there, and is protected"):
            carry_out.apply(Plan("x", "t", (step,)), node(made.root), Consent(True, True))
        (made.root / ETC / "openibd.service").unlink()
        assert planned(made, "foo.service").steps


def test_a_directory_of_drop_ins_that_is_a_link_and_nobody_elses_is_written_to() -> None:
    with root() as made:
        made.unit("ecs.service")
        (made.root / "etc/proxy").mkdir()
        made.link(f"{ETC}/ecs.service.d", "/etc/proxy")
        plan = planned(made, "ecs.service", "start-limit")
        assert carry_out.apply(plan, node(made.root, manager=manager_of(made)), Consent(True, True)).exit_code == 0
        assert (made.root / "etc/proxy/zz-exhume.conf").is_file()


def manager_of(made: Made) -> FileManager:
    return FileManager(made.root, made.root / "manager")


def test_what_a_protected_unit_only_wants_is_refused_but_by_force_and_its_link_stays() -> None:
    with root() as made:
        made.unit("x.service")
        made.unit("multi-user.target", "[Unit]\nWants=kubelet.service\n", ETC)
        made.link(f"{ETC}/default.target", "multi-user.target")
        made.link(f"{ETC}/{KUBELET}.wants/x.service", f"/{LIB}/x.service")
        made.link(f"{ETC}/multi-user.target.wants/x.service", f"/{LIB}/x.service")
        with pytest.raises(Refused, match=r"it is needed by kubelet.service; --keep do-nothing leaves it in place"):
            planned(made, "x.service", force=False)
        plan = planned(made, "x.service")
        assert [step.target for step in plan.steps if step.kind == "remove-link"] == [
            f"/{ETC}/multi-user.target.wants/x.service"
        ]
        assert any("kubelet.service wants it" in one.why for one in plan.relief)


def test_what_the_policy_keeps_is_refused_but_by_force() -> None:
    kept = '[agents."x.service"]\nowner = "storage"\nkeep = true\n'
    with root() as made:
        made.unit("x.service")
        with pytest.raises(Refused, match=r"x.service is left alone: the policy keeps it, its owner is storage"):
            planned(made, "x.service", force=False, kept=kept)
        assert planned(made, "x.service", kept=kept).steps


def test_a_unit_that_depends_on_a_protected_one_is_a_target_like_any_other() -> None:
    with root() as made:
        made.unit("x.service", f"[Unit]\nPartOf={KUBELET}\nBindsTo=containerd.service\n")
        plan = planned(made, "x.service", force=False)
        assert [(step.kind, step.target) for step in plan.steps] == [
            ("stop-unit", "x.service"),
            ("make-link", f"/{ETC}/x.service"),
            ("reload", "systemd"),
        ]


HOME = "/root"
FORBIDDEN = [
    stop_unit(KUBELET, "r"),
    start_unit("innocent.service", "r"),
    Step("restart-unit", "sshd@3.service", "r", undoable=False),
    make_link(f"/{ETC}/{KUBELET}", "/dev/null", "r"),
    make_link(f"/{ETC}/innocent.service", "/dev/null", "r", over_file=True),
    make_link(f"/{ETC}/new.service", KUBELET, "r"),
    remove_link(f"/{ETC}/multi-user.target.wants/{KUBELET}", "", "r"),
    remove_link(f"/{ETC}/{KUBELET}.wants/ecs.service", "", "r"),
    write_file(f"/{ETC}/{KUBELET}.d/exhume.conf", b"", "r"),
    write_file(f"/{ETC}/innocent.service.d/exhume.conf", b"", "r"),
    write_file(f"/{ETC}/service.d/exhume.conf", b"", "r"),
    write_file(f"/{ETC}/kubelet-.service.d/exhume.conf", b"", "r"),
    write_file(f"/units/{KUBELET}.d/exhume.conf", b"", "r"),
    write_file(f"/{ETC}/fine.service.d/theirs.conf", b"", "r"),
    write_file(f"/{ETC}/fine.service", b"", "r"),
    make_link(f"/{ETC}/fine.service", "/opt/evil.service", "r"),
    make_link("/etc/ld.so.preload", "/dev/null", "r"),
    remove_link("/etc/alternatives/sh", "", "r"),
    *(
        write_file(path, b"", "r")
        for path in (
            *(
                "/etc/cron.d/x",
                "/etc/ld.so.preload",
                f"{HOME}/.ssh/authorized_keys",
                "/etc/passwd",
                "/etc/shadow",
                "/etc/sudoers",
            ),
            *("/etc/sudoers.d/x", "/etc/pam.d/sshd", "/usr/local/bin/x", "/etc/profile.d/x.sh", "/var/spool/cron/root", "/x"),
            *("/etc/systemd/system-generators/x", "/etc/systemd/user/x.service", "/run/systemd/generator/x.service"),
        )
    ),
    write_file(f"/lib/systemd/system/{KUBELET}", b"", "r"),
    write_file("/opt/agent/linked", b"", "r"),
    write_file("/etc/kubernetes/kubelet.conf", b"", "r"),
    write_file("/etc/ssh/sshd_config", b"", "r"),
    write_file(f"{journal.DIRECTORY}/20260101-000000.jsonl", b"", "r"),
    write_file("/state/remedy/lock", b"", "r"),
    write_file("/etc/exhume/exhume.toml", b"", "r"),
    remove_empty_cgroups("/sys/fs/cgroup/memory", (f"/system.slice/{KUBELET}",), "r"),
]


@pytest.mark.parametrize("step", FORBIDDEN, ids=lambda step: f"{step.kind} {step.target}")
def test_a_plan_from_anywhere_that_meets_a_protected_unit_is_refused_before_anything_is_touched(step: Step) -> None:
    with root() as made:
        made.link(f"{ETC}/innocent.service", f"/{LIB}/{KUBELET}")
        made.link("units", f"/{ETC}")
        made.link("lib", "usr/lib")
        made.link("state", "/var/lib/exhume")
        (made.root / "var/lib/exhume").mkdir(parents=True)
        made.unit("linked", place=OPT)
        made.link(f"{ETC}/crio.service", f"/{OPT}/linked")
        before = sorted(str(path) for path in made.root.rglob("*"))
        manager = FileManager(made.root, made.root / "manager")
        manager.set(**{KUBELET: "active"})
        plan = Plan("x", "a test", (write_file(f"/{ETC}/ecs.service.d/exhume.conf", b"", "r"), step))
        with pytest.raises(Refused, match="nothing was changed"):
            carry_out.apply(plan, node(made.root, manager=manager), Consent(True, True))
        assert sorted(str(path) for path in made.root.rglob("*")) == sorted([*before, str(made.root / "manager")])
        assert manager.calls == []


def test_what_became_protected_meanwhile_is_refused_on_resume() -> None:
    with root() as made:
        made.unit("ecs.service")
        manager = FileManager(made.root, made.root / "manager")
        manager.set()
        there = node(made.root, manager=manager)
        place = made.root / ETC / "two.service.d"
        place.mkdir()
        (place / "exhume.conf").symlink_to("nowhere")
        writes = [write_file(f"/{ETC}/{name}.service.d/exhume.conf", b"", "r") for name in ("one", "two")]
        plan = Plan("x", "t", (*writes, stop_unit("ecs.service", "r")))
        assert carry_out.apply(plan, there, Consent(True, True)).exit_code == 2
        (place / "exhume.conf").unlink()
        made.link(f"{ETC}/crio.service", f"/{LIB}/ecs.service")
        with pytest.raises(Refused, match="must not be"):
            carry_out.resume(there)
        assert manager.calls == []
        assert carry_out.undo(there).exit_code == 0


# The property. What is true is read off the disk by other means: real paths, and a closure over names as they are written.

NAMES = (*SACRED[:5], *OURS)
NEEDS = ("Requires", "BindsTo", "Wants", "Requisite")
LISTS = (*NEEDS, "PartOf", "PropagatesStopTo", "Conflicts")
PROGRAMS = (
    *("/bin/true", "/bin/true", "/bin/true kubelet", "/opt/x/bin/kubelet --x", "-/usr/sbin/sshd -i"),
    *("/bin/sh -c 'sleep 1; kubelet'", "/usr/bin/env A=b nice -n 5 sshd -D"),
)
RENAMED = PROGRAMS[3:]


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, ...]]:
    """What is made, in order: units with dependencies, aliases, drop-ins, links that enable."""
    made: list[tuple[str, ...]] = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6)):
        lines = draw(st.lists(st.tuples(st.sampled_from(LISTS), st.sampled_from(NAMES)), max_size=2))
        text = "".join(f"{key}={other}\n" for key, other in lines) + draw(st.sampled_from(("", "StopWhenUnneeded=yes\n")))
        made.append(("unit", name, f"[Unit]\n{text}[Service]\nExecStart={draw(st.sampled_from(PROGRAMS))}\n", _place(draw)))
    aliases = st.sampled_from(("x.service", "y.service", "w@1.service", "z.socket", "x@.service"))
    targets = st.sampled_from((KUBELET, SSHD, DBUS, "y.service", "x.service", "ecs.service", "w@.service"))
    made += draw(st.lists(st.tuples(st.just("alias"), aliases, targets, st.sampled_from((ETC, LIB))), max_size=3))
    for _ in range(draw(st.integers(0, 2))):
        owner = draw(st.sampled_from((*NAMES, "x.service", "a-.service", "service")))
        made.append(("drop-in", owner, f"{draw(st.sampled_from(LISTS))}={draw(st.sampled_from(NAMES))}\n"))
    wanting = st.tuples(
        st.just("wants"), st.sampled_from(("multi-user.target", *NAMES)), st.sampled_from((*NAMES, "x.service"))
    )
    made += draw(st.lists(wanting, max_size=3))
    shared = st.sampled_from((*NAMES, "x.service"))
    made += draw(st.lists(st.tuples(st.just("shared"), shared, shared), max_size=1))
    if draw(st.booleans()):
        made.append(("hop", draw(st.sampled_from(SACRED[3:5])), draw(st.sampled_from(("ecs.service", "agent.service")))))
    if draw(st.booleans()):
        made.append(("accept", draw(st.sampled_from(("door.socket", "z.socket"))), draw(st.sampled_from((*PROGRAMS, "link")))))
    if draw(st.booleans()):
        made.append(("trigger", draw(st.sampled_from(("x.timer", "late.timer"))), draw(st.sampled_from((*NAMES, "x.service")))))
    return made


def _place(draw: st.DrawFn) -> str:
    return draw(st.sampled_from((ETC, LIB)))


TARGETS = (
    *("x.service", "y.service", "x.service", "/opt/x", f"/{ETC}/x.service", "w@1.service", "z.socket", "x@1.service"),
    *("x.timer", "w@2.service", *NAMES),
)


def build(made: Made, parts: list[tuple[str, ...]]) -> None:
    for part in parts:
        match part:
            case ("unit", name, text, place):
                made.unit(name, text, place)
            case ("alias", name, target, place):
                made.link(f"{place}/{name}", target)
            case ("drop-in", owner, text):
                made.unit("d.conf", f"[Unit]\n{text}", f"{ETC}/{owner}.d")
            case ("wants", owner, name):
                made.link(f"{ETC}/{owner}.wants/{name}", f"/{LIB}/{name}")
            case ("shared", one, other):
                (made.root / "etc/proxy").mkdir(parents=True, exist_ok=True)
                made.link(f"{ETC}/{one}.d", "../../proxy").link(f"{ETC}/{other}.d", f"{one}.d")
            case ("hop", name, target):
                made.link("opt/hop.service", f"/{ETC}/{target}").link(f"{ETC}/{name}", "/opt/hop.service")
            case ("accept", name, runs):
                made.unit(name, "[Socket]\nListenStream=1\nAccept=yes\n", ETC)
                template = name.replace(".socket", "@.service")
                if runs == "link":
                    made.unit("sshd@.service").link(f"{ETC}/{template}", f"/{LIB}/sshd@.service")
                else:
                    made.unit(template, f"[Service]\nExecStart={runs}\n")
            case ("trigger", name, target):
                made.unit(name, f"[Timer]\nOnBootSec=1\nUnit={target}\n", ETC)
    made.link("opt/x", f"/{ETC}/x.service")


class Truth:
    """What is protected, as plainly as it can be told: by names, and by what systemd would pass a stop on to."""

    def __init__(self, made: Made) -> None:
        self.root = made.root
        self.texts: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        for place in (LIB, ETC):
            for path in sorted((made.root / place).iterdir()):
                if path.is_symlink() and os.readlink(path) != "/dev/null":
                    self.aliases[path.name] = os.path.basename(os.readlink(path))
                elif path.is_file():
                    self.aliases.pop(path.name, None)
                    self.texts[path.name] = path.read_text()

    def sacred(self, name: str) -> bool:
        """By the unit's own name, after its links: what a link of a protected name leads to is judged by the tool's stricter
        rule, and needs no truth."""
        seen = set()
        while name in self.aliases and name not in seen:
            seen.add(name)
            target = self.aliases[name]
            if target.rpartition(".")[2] != name.rpartition(".")[2] or ("@" in target) != ("@" in name):
                break
            name = target
        return name in SACRED or name == "sshd@.service" or self.renamed(name) or self.accepts(name)

    def renamed(self, name: str) -> bool:
        """Whether it runs what is protected, under another name."""
        text = self.texts.get(name) or self.texts.get(f"{name.partition('@')[0]}@.service" if "@" in name else "", "")
        lines = [value for key, value in _pairs(text) if key == "ExecStart" and name.endswith(".service")]
        return any(line in RENAMED for line in lines)

    def lost(self, names: set[str]) -> list[str]:
        """Those that must not stop. A template is no unit: which instances of it run the manager says."""
        return [name for name in names if name in SACRED or (self.renamed(name) and "@." not in name)]

    def accepts(self, name: str) -> bool:
        """Whether it starts instances of what is protected."""
        accepting = name.endswith(".socket") and ("Accept", "yes") in _pairs(self.texts.get(name, ""))
        return accepting and self.sacred(name.replace(".socket", "@.service"))

    def conflicts(self, name: str) -> set[str]:
        """What a start of it would stop, by plain settings in unit files."""
        own = {value for key, value in _pairs(self.texts.get(name, "")) if key == "Conflicts"}
        return own | {other for other, text in self.texts.items() if ("Conflicts", name) in _pairs(text)}

    def stops(self, name: str) -> set[str]:
        """What a stop of it would reach by plain settings in unit files."""
        reached, queue = {name}, [name]
        for each in queue:
            for other, text in self.texts.items():
                pairs = [line.partition("=")[::2] for line in text.splitlines()]
                hit = any(key in ("Requires", "BindsTo", "PartOf", "Requisite") and value == each for key, value in pairs)
                hit |= any(("PropagatesStopTo", other) == pair for pair in _pairs(self.texts.get(each, "")))
                needs = any(key in NEEDS and value == other for key, value in _pairs(self.texts.get(each, "")))
                hit |= needs and ("StopWhenUnneeded", "yes") in _pairs(text)
                if hit and other not in reached:
                    reached.add(other)
                    queue.append(other)
        return reached


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(line.partition("=")[0], line.partition("=")[2]) for line in text.splitlines()]


def assert_harmless(plan: Plan, truth: Truth) -> None:
    sacred_files = {os.path.realpath(truth.root / place / name) for place in (LIB, ETC) for name in SACRED}
    for step in plan.steps:
        if step.kind.endswith("-unit"):
            assert not truth.sacred(step.target), step
            assert not truth.lost(truth.stops(step.target)), step
            if step.kind == "start-unit":
                assert not truth.lost(truth.conflicts(step.target)), step
        elif step.kind in ("write-file", "make-link", "remove-link", "remove-file"):
            path = truth.root / step.target.lstrip("/")
            assert os.path.realpath(path.parent) + "/" + path.name not in sacred_files, step
            parent = path.parent.name
            assert parent.removesuffix(".d") not in SACRED, step
            owner = parent.rpartition(".")[0]
            assert owner not in SACRED or owner.endswith(".target"), step
            if path.parent.suffix != ".d":
                assert not truth.sacred(path.name), step


Asked = list[tuple[str, Keep | None, bool]]
SEQUENCES = st.lists(
    st.tuples(st.sampled_from(TARGETS), st.sampled_from((None, *KEEPS)), st.booleans()), min_size=1, max_size=4
)


@settings(max_examples=examples(60))
@given(trees(), SEQUENCES)
def test_no_sequence_of_targets_touches_a_protected_unit(parts: list[tuple[str, ...]], targets: Asked) -> None:
    assert_never_touched(parts, targets)


@pytest.mark.ci
@settings(max_examples=examples(600))
@given(trees(), SEQUENCES)
def test_no_sequence_of_hundreds_touches_a_protected_unit(parts: list[tuple[str, ...]], targets: Asked) -> None:
    assert_never_touched(parts, targets)


def assert_never_touched(parts: list[tuple[str, ...]], targets: Asked) -> None:
    with root() as made:
        build(made, parts)
        manager = FileManager(made.root, made.root / "manager")
        for target, keep, force in targets:
            truth = Truth(made)
            before = {
                name: (made.root / place / name).lstat() for place in (LIB, ETC) for name in SACRED if _there(made, place, name)
            }
            try:
                plan = planned(made, target, keep, force)
            except ExhumeError:
                continue
            assert_harmless(plan, truth)
            with Directory(str(made.root)) as tree:
                protection = Protection(read_units(tree), known_agents())
                assert not [why for step in plan.steps if (why := why_not(step, tree, protection))], plan
            applied = carry_out.apply(plan, node(made.root, manager=manager), Consent(True, True))
            if applied.exit_code == 0:
                assert_nothing_is_left(made, plan, target, keep, force)
            touched = {call.split()[1] for call in manager.calls if " " in call}
            assert not [unit for unit in touched if truth.sacred(unit)]
            after = {
                name: (made.root / place / name).lstat() for place in (LIB, ETC) for name in SACRED if _there(made, place, name)
            }
            assert after == before
            inside = [made.root / ETC / f"{name}.d" for name in (*NAMES, "x.service", "y.service") if truth.sacred(name)]
            assert not [file for directory in inside for file in directory.glob("*exhume*")]


def assert_nothing_is_left(made: Made, plan: Plan, target: str, keep: Keep | None, force: bool) -> None:
    """Twice applied is once applied: no file is changed again."""
    try:
        again = planned(made, target, keep, force)
    except ExhumeError:
        return  # a name that is none any more, or a unit that is masked and so has no loop to break
    uncovered = any(step.kind == "remove-link" and step.target == f"/{ETC}/{again.target}" for step in plan.steps)
    if uncovered:
        return  # the name was an alias in /etc, which is gone, and hid a unit of its own below /lib: that is another one
    assert not [step for step in again.steps if step.kind in ("write-file", "make-link", "remove-link")], again


def _there(made: Made, place: str, name: str) -> bool:
    return os.path.lexists(made.root / place / name)


@pytest.mark.parametrize("needed", ["", "active", "inactive"])
def test_what_stops_because_nobody_needs_it_is_stopped_by_name_and_what_others_need_is_not(needed: str) -> None:
    with root() as made:
        made.unit("ecs.service", "[Unit]\nWants=helper.service\n").unit("helper.service", "[Unit]\nStopWhenUnneeded=yes\n")
        if needed:
            made.unit("agent.service", "[Unit]\nWants=helper.service\n")
        manager = manager_of(made)
        manager.set(**{"ecs.service": "active", "helper.service": "active", "agent.service": needed or "inactive"})
        with Directory(str(made.root)) as tree:
            for rules in (None, policy.parse(b'[agents."helper.service"]\nowner = "x"\nkeep = true\n', "policy")):
                protection = Protection(read_units(tree), known_agents(), rules, manager)
                planner = Planner(node(made.root, manager=manager), tree, protection)
                if rules and needed != "active":
                    with pytest.raises(Refused, match=r"helper.service is left alone: the policy keeps it.*--force stops it"):
                        planner.plan("ecs.service")
                    continue
                stopped = [step.target for step in planner.plan("ecs.service").steps if step.kind == "stop-unit"]
                assert stopped == [*(["helper.service"] if needed != "active" else []), "ecs.service"]


def test_a_target_that_goes_when_nobody_needs_it_keeps_nobody_from_being_stopped() -> None:
    with root() as made:
        made.unit("ecs.service", "[Unit]\nWants=sound.target\n").unit("sound.target", "[Unit]\nStopWhenUnneeded=yes\n")
        assert planned(made, "ecs.service", force=False).steps


def test_a_namespace_of_the_journal_keeps_nobody_from_being_stopped() -> None:
    with root() as made:
        made.unit("ecs.service", "[Service]\nExecStart=/bin/true\nLogNamespace=ecs\n")
        made.unit("systemd-journald@.socket", "[Unit]\nStopWhenUnneeded=yes\n")
        stopped = [step.target for step in planned(made, "ecs.service", force=False).steps if step.kind == "stop-unit"]
        assert stopped == ["ecs.service"]
