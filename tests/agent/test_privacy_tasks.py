"""Whose stacks are hidden where tenants are: by the cgroup, at the time, and in doubt."""

from pathlib import Path

import numpy as np
import pytest

from exhume.host.root import Root
from exhume.sources.sampling.images import Images
from exhume.sources.sampling.records import tasks as side_band
from exhume.sources.sampling.tasks import NO_PID, Process, Tasks
from tests.sources.sampling import made_records as made
from tests.trees import Tree

UID, ID = "12345678-90ab-cdef-1234-567890abcdef", "0123456789abcdef" * 4
POD = f"/kubepods/burstable/pod{UID}/{ID}"


class Hiding:
    def __init__(self, tree: Tree, hide: bool = True) -> None:
        self.tree, self.changed = tree, list[int]()
        self.tasks = Tasks(Root(str(tree.path)), Images(), False, self._change, hide_tenants=hide)

    def _change(self, process: Process) -> None:
        self.changed.append(process.pid)

    def proc(self, pid: int, cgroup: str) -> None:
        self.tree.write(f"proc/{pid}/cgroup", f"3:memory:{cgroup}\n")

    def batch(self, *records: bytes, sampled: tuple[int, ...]) -> None:
        for told in self.tasks.hear(side_band(b"".join(records)), np.array(sorted(sampled), dtype=np.int64)):
            self.tasks.apply(told)

    def hidden(self, pid: int) -> bool:
        process = self.tasks.process(pid)
        self.tasks.cgroup(process, 0)
        return process.space.hidden


@pytest.fixture
def node(tmp_path: Path) -> Hiding:
    return Hiding(Tree(tmp_path))


@pytest.mark.parametrize(
    ("cgroup", "hidden"),
    [
        ("/system.slice/kubelet.service", False),
        ("/user.slice/user-0.slice/session-1.scope", False),
        ("/", False),
        (POD, True),
        (f"/kubepods/burstable/pod{UID}", True),
        (f"/docker/{ID}", True),
        (f"/system.slice/docker-{ID}.scope", True),
        (f"/machine.slice/libpod-{ID}.scope/container", True),
    ],
)
def test_containers_and_pods_are_tenants(node: Hiding, cgroup: str, hidden: bool) -> None:
    node.proc(10, cgroup)
    assert node.hidden(10) == hidden


def test_nobody_is_hidden_where_nobody_asked_for_it(tmp_path: Path) -> None:
    everybody = Hiding(Tree(tmp_path), hide=False)
    everybody.proc(10, POD)
    assert not everybody.hidden(10)
    assert not everybody.hidden(11)


def test_one_of_whom_nothing_can_be_read_is_hidden(node: Hiding) -> None:
    assert node.hidden(10)
    assert node.hidden(0)
    assert node.hidden(NO_PID)


def test_a_child_that_ended_before_it_was_read_is_hidden_although_its_parent_is_not(node: Hiding) -> None:
    """A runtime forks, puts the child into a pod, and the child is gone: what it inherited says nothing."""
    node.proc(10, "/system.slice/containerd.service")
    assert not node.hidden(10)
    node.batch(made.fork(11, 10, 5), made.comm(11, 11, b"app", 6, by_exec=True), made.exit_of(11, 7), sampled=(11,))
    assert node.tasks.process(11).cgroup == "/system.slice/containerd.service"
    assert node.hidden(11)
    assert not node.hidden(10)


def test_who_execs_in_a_pod_is_hidden_from_then_on_under_another_number(node: Hiding) -> None:
    node.proc(10, "/system.slice/containerd.service")
    assert not node.hidden(10)
    before = node.tasks.process(10).space.number
    node.proc(10, POD)
    node.batch(made.comm(10, 10, b"app", 5, by_exec=True), sampled=(10,))
    node.changed.clear()
    assert node.hidden(10)
    assert node.tasks.process(10).space.number != before
    assert node.changed == [10], "what was cached of it is dropped"


def test_a_fork_in_a_pod_is_hidden_at_once(node: Hiding) -> None:
    node.proc(10, POD)
    assert node.hidden(10)
    node.batch(made.fork(11, 10, 5), sampled=(11,))
    assert node.tasks.process(11).space.hidden


def unsure(node: Hiding, pid: int) -> bool:
    process = node.tasks.process(pid)
    node.tasks.cgroup(process, 0)
    return process.unsure


def test_it_is_not_sure_whose_what_executed_and_ended_before_it_was_read_was(tmp_path: Path) -> None:
    """Hidden or not: that it may have been put into a container goes with it. So do its children, who were there with it."""
    node = Hiding(Tree(tmp_path), hide=False)
    node.proc(10, "/system.slice/containerd.service")
    assert not unsure(node, 10)
    app = (made.fork(11, 10, 5), made.comm(11, 11, b"app", 6, by_exec=True), made.fork(12, 11, 7))
    node.batch(*app, made.exit_of(11, 8), made.exit_of(12, 9), sampled=(11, 12))
    assert [unsure(node, pid) for pid in (10, 11, 12)] == [False, True, True]
    assert node.tasks.process(12).cgroup == "/system.slice/containerd.service"


def test_it_is_sure_of_what_was_read_and_of_what_only_forked(tmp_path: Path) -> None:
    node = Hiding(Tree(tmp_path), hide=False)
    node.proc(10, "/system.slice/cron.service")
    node.proc(11, "/system.slice/cron.service")
    ran = (made.fork(11, 10, 5), made.comm(11, 11, b"sh", 6, by_exec=True), made.fork(12, 10, 7), made.exit_of(12, 8))
    node.batch(*ran, sampled=(10, 11, 12))
    assert [unsure(node, pid) for pid in (10, 11, 12)] == [False, False, False]
