"""An agent that leaks on a real systemd and a real kernel, and what is seen of it alone: others work on the same machine."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Report
from exhume.host import owners
from exhume.host.directory import Directory
from exhume.host.root import Root
from exhume.host.systemd.units import read_units
from exhume.recorder.profiles import CHECK, FEW
from exhume.recorder.recorder import record
from exhume.recording.recording import Recording
from exhume.remedy import carry_out, journal
from exhume.remedy.carry_out import Consent
from exhume.remedy.cores import visit_cores
from exhume.remedy.criteria_leak import by_events
from exhume.remedy.manager import Systemd
from exhume.remedy.node import Node
from exhume.remedy.operations import Operations
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.plan_unit import Keep
from exhume.remedy.proof_live import watch
from exhume.remedy.protected_plan import known_agents
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import expected
from exhume.sources.memcg_walk import walk
from tests import systemd
from tests.remedy.test_steps_systemd import restarts, wait

ALL = Consent(True, True)
FILES = 4000
# On a node with fewer, a check does not ask where they came from. Others' may be there, or none.
ENOUGH = FEW + 10
AGENT = """\
[Unit]
Description=An agent that nobody uses
StartLimitIntervalSec=0
[Service]
# Reading a page that nobody has read is enough: it is charged to the group that read it, and keeps it when it is gone.
ExecStart=/bin/sh -c 'cat {pages}/$$(($$$$ %% {files})) > /dev/null; exit 1'
Restart=always
RestartSec=1ms
[Install]
WantedBy=multi-user.target
Alias=agent.service
"""
# A leak of dozens, not of tens of thousands, is to be told.
SMALL = Thresholds(zombies_floor=20, zombies_per_live=0.1, leak_fewest=5, zombies_baseline=1)
# The agent leaks hundreds a minute. That it is less than ten is proven in 45 s, less than one only in three minutes.
SHORT = Thresholds(leak_per_minute=10.0)
HOME = f"/{systemd.NAME}"


class HostsKernel(Root):
    """The machine with the container's systemd: nspawn shows it another boot_id, a part of the groups, and no disk."""

    def at(self, name: str) -> str:
        inner = name.lstrip("/")
        return super().at(name) if inner.startswith("run/") else f"/{inner}"

    def open(self, name: str, flags: int) -> int:
        return super().open(name, flags) if name.lstrip("/").startswith("run/") else Root().open(name, flags)

    def same_kernel(self) -> bool:
        return True


@pytest.fixture(scope="module")
def pages() -> Iterator[Path]:
    """Files on a disk whose pages are in nobody's memory."""
    made = Path(tempfile.mkdtemp(prefix="exhume-test-", dir="/var/tmp"))
    try:
        made.chmod(0o755)
        for number in range(FILES):
            (made / str(number)).write_bytes(b"x" * 4096)
        os.sync()
        for path in made.iterdir():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        yield made
    finally:
        shutil.rmtree(made)


@pytest.fixture(scope="module")
def machine(pages: Path) -> Iterator[systemd.Machine]:
    if why := systemd.unavailable(memory=True):
        pytest.skip(why)
    units = {"ecs.service": AGENT.format(pages=pages, files=FILES)}
    with systemd.boot(units, memory=True) as booted, pytest.MonkeyPatch.context() as patched:
        # Seen from outside, the container's systemd is not at the top of the hierarchy, as a node's is.
        patched.setattr(owners, "ROOT", HOME)
        yield booted


@pytest.fixture
def looping(machine: systemd.Machine) -> Iterator[systemd.Machine]:
    yield started(machine)
    restored(machine)


def started(machine: systemd.Machine) -> systemd.Machine:
    """Enabled and in its loop, with nothing left of an attempt before."""
    restored(machine)
    machine.run(["systemctl", "enable", "ecs.service"])
    machine.run(["systemctl", "start", "--no-block", "ecs.service"])
    assert wait(lambda: restarts(machine, "ecs.service") > 5)
    return machine


def restored(machine: systemd.Machine) -> None:
    while carry_out.last(node(machine)) is not None:
        carry_out.undo(node(machine))
    machine.run(["systemctl", "stop", "ecs.service"], check=False)
    shutil.rmtree(machine.root + journal.DIRECTORY, ignore_errors=True)


def node(machine: systemd.Machine, operations: Operations | None = None) -> Node:
    return Node(HostsKernel(machine.root), Systemd(Root(machine.root)), operations or Operations())


def zombies() -> int:
    """Those of the agent, by name."""
    visit_cores()
    seen = walk()
    return sum(1 for home, rest in seen.places(seen.zombies) if (home + rest).startswith(HOME) and "ecs.service" in home + rest)


def planned(machine: systemd.Machine, target: str, report: Report | None, keep: Keep | None = None) -> Plan:
    there = node(machine)
    with Directory(machine.root) as files:
        protection = Protection(read_units(files), known_agents())
        plan = expected(Planner(there, files, protection, Wishes(keep)).plan(target, report), there)
    # Other people's zombies are none of ours.
    steps = tuple(step for step in plan.steps if step.kind != "purge" or step.target.startswith(HOME))
    return Plan(plan.target, plan.why, steps, plan.limits, plan.relief)


def seen(machine: systemd.Machine) -> Recording:
    """A few seconds of the leak, when there is enough of it to be told as what it is."""
    assert any(wait(lambda: zombies() >= ENOUGH) for _ in range(3)), zombies()
    return ours(record(HostsKernel(machine.root), CHECK, 6_000_000_000))


def leaking(machine: systemd.Machine) -> Recording:
    """The leak as its cgroup events tell it; a check does not watch them, and the count of the node has others' leaks in it."""
    found = ours(watch(HostsKernel(machine.root), 15_000_000_000, None, SHORT).recording)
    assert by_events(found) is not None
    return found


def ours(recording: Recording) -> Recording:
    """What is about the container alone. The rest of the machine leaks, loops and is full for reasons of its own."""
    found = Recording(recording.node)
    for name in ("anchors", "sources", "units"):
        found[name].extend(recording[name])
    for name, where in (("cgroup_events", "path"), ("memcg_walk", "home")):
        table = recording[name]
        found[name].add_rows([tuple(row.values()) for row in table.rows() if str(row[where]).startswith(HOME)])
    return found
