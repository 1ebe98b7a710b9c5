"""Against real systemd on a real Debian root: unit files by `systemctl --root`, the graph by a systemd that booted from it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.host.directory import Directory
from exhume.host.systemd.units import Units, read_units
from tests.host.systemd.booted import listed, made_by_generators, show
from tests.image.roots import debian
from tests.systemd import Machine, boot, unavailable

KINDS = ("Requires", "Requisite", "Wants", "BindsTo", "PartOf", "Upholds", "Conflicts", "Triggers", "OnFailure", "OnSuccess")
DAEMONS = ("chrony", "containerd", "cron", "dnsmasq", "docker", "haproxy", "nginx", "prometheus-node-exporter", "redis-server")


@pytest.fixture(scope="module")
def root() -> Path:
    return debian()


@pytest.fixture(scope="module")
def units(root: Path) -> Iterator[Units]:
    with Directory(str(root)) as tree:
        yield read_units(tree)


@pytest.fixture(scope="module")
def machine(root: Path) -> Iterator[Machine]:
    if why := unavailable():
        pytest.skip(why)
    with boot(root=str(root), target="sysinit.target") as booted:
        yield booted


def unit_files(root: Path, *options: str) -> dict[str, tuple[str, str]]:
    command = ["systemctl", f"--root={root}", "list-unit-files", "--no-legend", "--no-pager", *options]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {words[0]: (words[1], words[2]) for line in text.splitlines() if (words := line.split())}


def test_every_unit_file_has_the_state_that_systemctl_says(root: Path, units: Units) -> None:
    ours = units.files()
    generated = {name for name, state in ours.items() if state == "generated"}
    theirs = {name: state for name, (state, _) in unit_files(root).items() if name not in generated}
    assert generated == {"rpc_pipefs.target", "run-rpc_pipefs.mount"}  # which Debian's /etc/nfs.conf asks for
    assert len(theirs) > 200
    assert {"enabled", "disabled", "static", "masked", "alias"} <= set(theirs.values())
    assert {name: state for name, state in ours.items() if name not in generated} == theirs


def test_what_is_enabled_equals_what_systemctl_lists_and_the_daemons_are_among_it(root: Path, units: Units) -> None:
    ours = {service.name for service in units.services() if service.state == "enabled" and service.name in units.layout.files}
    assert ours == set(unit_files(root, "--state=enabled"))
    assert {f"{daemon}.service" for daemon in DAEMONS} <= ours


def test_presets_are_those_that_systemctl_shows(root: Path, units: Units) -> None:
    theirs = {name: preset for name, (_, preset) in unit_files(root).items() if preset != "-"}
    assert len(theirs) > 30
    assert {name: f"{units.preset(name)}d" for name in theirs} == theirs


def test_user_units_have_the_state_that_systemctl_says(root: Path) -> None:
    with Directory(str(root)) as tree:
        ours = read_units(tree, "user").files()
    theirs = {name: state for name, (state, _) in unit_files(root, "--global").items()}
    assert len(theirs) > 10
    assert ours == theirs


def test_each_dependency_is_one_that_the_running_systemd_has_and_none_is_missing(machine: Machine, units: Units) -> None:
    graph = units.graph
    theirs = show(machine, graph.forward, "Id", *KINDS)
    machines_own = made_by_generators(machine)
    edges = 0
    wrong = []
    for name, shown in theirs.items():
        assert shown["Id"] == name
        for kind in KINDS:
            expected = {other for other in listed(shown[kind]) if (name, other) not in machines_own}
            ours = {other for other in graph.of(name, kind) if (name, other) not in machines_own}
            edges += len(expected)
            if ours != expected:
                wrong.append((name, kind, sorted(ours - expected), sorted(expected - ours)))
    assert wrong == []
    assert edges > 500


def test_names_and_masks_are_those_of_the_running_systemd(machine: Machine, units: Units) -> None:
    theirs = show(machine, units.graph.forward, "Names", "LoadState")
    ours = {name: {name, *units.aliases(name)} for name in theirs}
    assert ours == {name: listed(shown["Names"]) for name, shown in theirs.items()}
    masked = {name for name, shown in theirs.items() if shown["LoadState"] == "masked"}
    assert masked == {name for name in theirs if units.state(name) == "masked"}
    assert masked


def test_what_boot_reaches_equals_list_dependencies(machine: Machine, units: Units) -> None:
    """Of the default target, all the way down; what triggers add comes on top of it and is not listed by systemctl."""
    command = ["systemctl", "list-dependencies", "--all", "--plain", "--no-pager", "default.target"]
    lines = machine.run(command, timeout=300).stdout.splitlines()
    theirs = {line.strip("● ○×").strip() for line in lines[1:]}
    graph = units.graph
    reached = reach(units, made_by_generators(machine))
    # -.mount and its like have no file: the kernel's table of mounts makes them.
    assert {name for name in theirs if name in graph.forward} == reached
    assert {name.rpartition(".")[2] for name in theirs - reached} <= {"mount", "device"}
    there = {name for name in reach(units, set()) if name not in graph.missing and units.state(name) != "masked"}
    assert there <= graph.starting.keys()


def reach(units: Units, more: set[tuple[str, str]]) -> set[str]:
    queue = [units.canonical("default.target")]
    reached = set(queue)
    for name in queue:
        made = (other for owner, other in more if owner == name)
        for other in (*units.graph.of(name, "Requires", "Requisite", "Wants", "BindsTo", "Upholds"), *made):
            if other not in reached:
                reached.add(other)
                queue.append(other)
    return reached - {queue[0]}


def test_every_name_that_dbus_starts_is_a_service_that_the_running_systemd_can_load(machine: Machine, units: Units) -> None:
    by_name = [name for name, by in units.graph.starting.items() if any(each.startswith("D-Bus name ") for each in by)]
    assert "systemd-hostnamed.service" in by_name
    assert {shown["LoadState"] for shown in show(machine, by_name, "LoadState").values()} == {"loaded"}
