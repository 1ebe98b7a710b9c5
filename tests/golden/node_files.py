"""Nodes made of files: read at fixed moments by the readers of `exhume check`, and the target of plans of `exhume fix`."""

from collections.abc import Callable
from pathlib import Path

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree as CgroupTree
from exhume.host.root import Root
from exhume.recorder.profiles import CHECK
from exhume.recording.recording import Recording
from exhume.recording.source_state import SourceState
from exhume.remedy.node import Node
from exhume.sources.cpu import Cpu
from exhume.sources.facts import facts
from exhume.sources.reader import Reader
from tests.golden.adapter import MILLISECOND
from tests.image.incident import incident as incident_image
from tests.image.incident import link, write
from tests.incidents.recorded import BASE, REAL, SECOND
from tests.remedy.nodes import FileManager, node
from tests.trees import ENA_LINES, HZ, Tree, cgroup_stat, incident, process_stat

STEP = 100 * MILLISECOND
STEPS = 30
BASE_TICKS = 100_000


def _log(tree: Tree, *lines: tuple[float, int, str]) -> None:
    """The kernel log with fixed times: seconds before the recording began, priority, message."""
    tree.write(
        "dev/kmsg",
        "".join(f"{level},{1000 + i},{BASE // 1000 - int(ago * 1e6)},-;{text}\n" for i, (ago, level, text) in enumerate(lines)),
    )


def the_incident(path: Path) -> Tree:
    tree = incident(path)
    _log(tree, (40.2, 4, ENA_LINES[0]), (40.1, 3, ENA_LINES[1]), (38.7, 6, ENA_LINES[2]))
    return tree


def _later(path: Path, seconds: float) -> Tree:
    tree = incident(path)
    _log(tree, (seconds + 1.5, 4, ENA_LINES[0]), (seconds + 1.4, 3, ENA_LINES[1]), (seconds, 6, ENA_LINES[2]))
    return tree


def the_incident_an_hour_ago(path: Path) -> Tree:
    return _later(path, 2700)


def the_incident_hours_ago(path: Path) -> Tree:
    return _later(path, 7240)


def zombies_on_v2(path: Path) -> Tree:
    tree = Tree(path).facts(cpus=8, kernel="6.8.0-1021-aws")
    return tree.v2({"/": cgroup_stat(220, 9000, memory=True), "/system.slice": cgroup_stat(40, 9000, memory=True)})


def quiet_on_v2(path: Path) -> Tree:
    tree = Tree(path).facts(cpus=8, kernel="6.8.0-1021-aws")
    return tree.v2({"/": cgroup_stat(220, 90, memory=True), "/system.slice": cgroup_stat(40, 9, memory=True)})


def inside_a_container(path: Path) -> Tree:
    return Tree(path).facts(cpus=4).v1(["mine"], total=68_680, whole=False)


def without_cores(path: Path) -> Tree:
    return Tree(path).facts(cpus=2)


TREES: dict[str, tuple[Callable[[Path], Tree], int, int | None]] = {
    "the_incident": (the_incident, 96, 39),
    "the_incident_without_load": (the_incident, 96, None),
    "the_incident_an_hour_ago": (the_incident_an_hour_ago, 96, None),
    "the_incident_hours_ago": (the_incident_hours_ago, 96, None),
    "zombies_on_v2": (zombies_on_v2, 8, None),
    "quiet_on_v2": (quiet_on_v2, 8, None),
    "busy_core_on_v2": (quiet_on_v2, 8, 5),
    "inside_a_container": (inside_a_container, 4, None),
    "without_cores": (without_cores, 0, None),
}
"""Each with the number of its cores, and the core that is full of kernel time."""


def _move(tree: Tree, cpus: int, full: int | None, step: int) -> None:
    """Counters of the cores as they are after so many steps."""
    if not cpus:
        return
    ticks = round(step * STEP / SECOND * HZ)
    busy, base = round(ticks * 0.14), BASE_TICKS
    ordinary = (base + busy, 0, base, base + ticks - busy, 0, 0, 0, 0, 0, 0)
    cores = dict.fromkeys(range(cpus), ordinary)
    if full is not None:
        cores[full] = (base, 0, base + ticks, base, 0, 0, 0, 0, 0, 0)
        tree.write("proc/4242/stat", process_stat(4242, "kubelet", 40, 900 + ticks, full))
    tree.stat(cores)


def recorded(make: Callable[[Path], Tree], cpus: int, full: int | None, path: Path) -> Recording:
    """Three seconds of the node as `exhume check --host` would record them, at fixed moments."""
    tree = make(path)
    root = Root(str(path))
    groups = CgroupTree(root)
    recording = Recording(facts(root, groups.layout))
    cores, others = [Cpu(root)], CHECK.readers(root, groups, root)
    states: dict[str, SourceState] = {}
    for step in range(STEPS + 1):
        now = BASE + step * STEP
        _move(tree, cpus, full, step)
        if step % 10 == 0:
            recording["anchors"].add(now, now, now, REAL + step * STEP, 1000)
        for reader in [*cores, *(others if step % (STEPS // 2) == 0 else ())]:
            states[reader.name] = _read(reader, recording, now)
    for name, state in states.items():
        recording.add_source(BASE, name, state)
    return recording


def _read(reader: Reader, recording: Recording, now: int) -> SourceState:
    try:
        reader.read(recording, now)
    except (Unreadable, OSError):
        return SourceState("off")
    return SourceState("on")


LIB, ETC = "/lib/systemd/system", "etc/systemd/system"
SERVICES = ("batch-runner", "job-supervisor", "metrics-relay", "node_exporter", "logrotate", "haproxy")


def fixable(path: Path) -> Node:
    """A node with the units that the scenes name, leaked cgroup directories and a parent of defunct processes."""
    incident_image(path)
    for name in SERVICES:
        text = f"[Service]\nExecStart=/usr/bin/{name}\nRestart=always\nRestartSec=5\n[Install]\nWantedBy=multi-user.target\n"
        write(path, f"{LIB}/{name}.service", text)
        link(path, f"{ETC}/multi-user.target.wants/{name}.service", f"{LIB}/{name}.service")
    for i in range(3):
        (path / f"sys/fs/cgroup/memory/system.slice/run-r{i}.scope").mkdir(parents=True)
    (path / "sys/fs/cgroup/memory/memory.usage_in_bytes").touch()
    tree = Tree(path)
    tree.write("proc/uptime", "684000.00 1000000.00\n")
    tree.write("proc/8123/stat", process_stat(8123, "job-supervisor", 1, 1, 0, "S"))
    tree.write("proc/8123/cgroup", "0::/system.slice/job-supervisor.service\n")
    for pid in (9001, 9002):
        tree.write(f"proc/{pid}/stat", process_stat(pid, "job", 0, 0, 0, "Z", 8123))
    manager = FileManager(path, path / "manager")
    manager.set(**{f"{name}.service": "active" for name in (*SERVICES, "ecs", "docker", "containerd", "kubelet")})
    return node(path, manager=manager)
