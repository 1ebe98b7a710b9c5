"""The same looks without BPF: from a tree of files, and from the running kernel."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.bpf import Btf, unavailable
from exhume.kernel.clock import Clock
from exhume.sources.facts import online_cpus
from exhume.sources.latency import weak
from exhume.sources.latency.discover import Discover, Thread, core_of, polls
from exhume.sources.latency.look import Looker
from exhume.sources.latency.stalls import Change, Stall, Stalls
from exhume.sources.latency.weak import WeakDiscover, WeakLooker, parse_schedstat
from tests.sources.latency.waiting import CORE, HELD_MS, WAITED_NS, named, needs_a_core_to_hold
from tests.starved import held, hold_now, off_the_core, ready_to_hold
from tests.trees import Tree, process_stat
from tests.waiting import wait_for

MS = 1_000_000


class Node:
    """A node of files: two ksoftirqd, a thread that polls, and a process with two threads."""

    def __init__(self, path: Path) -> None:
        self.tree = Tree(path)
        self.root = Root(str(path))
        self.task(1, "systemd", ppid=0)
        for tid, comm in ((14, "ksoftirqd/0"), (22, "ksoftirqd/1"), (300, "napi/eth0-8193"), (9, "kworker/0:1")):
            self.task(tid, comm, ppid=2)
        self.task(400, "kubelet", ppid=1)
        self.task(401, "kubelet-io", ppid=1, of=400)
        self.task(500, "ksoftirqd/0", ppid=1)

    def task(self, tid: int, comm: str, *, ppid: int, of: int = 0, state: str = "S", core: int = 1) -> None:
        stat = process_stat(tid, comm, 1, 1, core, state, ppid)
        self.tree.write(f"proc/{tid}/stat", stat)
        self.tree.write(f"proc/{of or tid}/task/{tid}/comm", comm + "\n")
        self.schedstat(tid, 1000, 0, 5)

    def schedstat(self, tid: int, ran: int, waited: int, times: int) -> None:
        self.tree.write(f"proc/{tid}/schedstat", f"{ran} {waited} {times}\n")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_threads_are_told_by_their_name_and_by_whose_children_they_are(node: Node) -> None:
    found = WeakDiscover(node.root).find()
    assert [(one.comm, one.tid) for one in found.ksoftirqd] == [("ksoftirqd/0", 14), ("ksoftirqd/1", 22)]
    assert [(one.comm, one.tid, one.device) for one in found.threads] == [("napi/eth0-8193", 300, "eth0")]


def test_the_children_of_kthreadd_are_asked_for_where_the_kernel_tells_them(node: Node) -> None:
    node.tree.write("proc/2/task/2/children", "22 300 77777 nonsense ")
    found = WeakDiscover(node.root).find()
    assert [one.tid for one in (*found.threads, *found.ksoftirqd)] == [300, 22]


def test_others_are_found_by_name_each_once_and_impostors_are_none_of_the_kernels(node: Node) -> None:
    found = WeakDiscover(node.root, re.compile("kube|ksoftirqd|napi")).find()
    tids = [one.tid for one in found.threads]
    assert sorted(tids) == [14, 22, 300, 400, 401, 500]
    assert [(one.pid, one.kernel) for one in found.threads if one.tid == 401] == [(400, False)]
    (impostor,) = [one for one in found.threads if one.tid == 500]
    assert (impostor.kernel, core_of(impostor)) == (False, -1)
    assert [one.tid for one in found.ksoftirqd] == [14, 22]


def test_a_search_has_a_bound(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weak, "MOST_TASKS", 1)
    assert len(WeakDiscover(node.root, re.compile("")).find().threads) <= 2


def test_a_node_without_proc_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="/proc"):
        WeakDiscover(Root(str(tmp_path))).find()
    with pytest.raises(Unreadable, match="/proc/1/schedstat is not there"):
        WeakLooker(Root(str(tmp_path)))


def test_a_kernel_without_the_accounts_is_a_reason(node: Node) -> None:
    node.tree.write("proc/1/schedstat", "0 0\n")
    with pytest.raises(Unreadable, match="CONFIG_SCHED_INFO"):
        WeakLooker(node.root)


class Looks:
    """Looks at a node of files every 25 ms of its own time."""

    def __init__(self, node: Node, names: str) -> None:
        self.node = node
        self.looker = WeakLooker(node.root)
        found = WeakDiscover(node.root, re.compile(names)).find()
        self.looker.watch(found.threads, found.ksoftirqd)
        self.stalls = Stalls(50 * MS)
        self.now = 10_000 * MS
        self.look()

    def look(self, ms: int = 25) -> list[Change]:
        self.now += ms * MS
        assert self.looker.glance()
        return self.stalls.add(self.looker.seen(self.now), self.looker.threads, self.looker.cores)


def test_a_thread_that_is_runnable_and_does_not_run_waits(node: Node) -> None:
    looks = Looks(node, "^kubelet$")
    node.schedstat(400, 2000, 0, 6)
    assert looks.look() == []
    ran_last = looks.now
    node.task(400, "kubelet", ppid=1, state="R", core=3)
    node.schedstat(400, 2000, 0, 6)
    assert looks.look() == []
    (begun,) = looks.look()
    assert (begun.over, begun.stall.what, begun.stall.core, begun.stall.start) == (False, "runqueue", 3, ran_last)
    assert begun.stall.holder is None
    for _ in range(4):
        assert looks.look() == []
    node.schedstat(400, 2100, 140 * MS, 7)
    (over,) = looks.look()
    assert over.stall is begun.stall
    assert over.stall.length_ns(0) == 150 * MS, "as long as it was seen to wait, which is more than the kernel counted"
    assert looks.stalls.quiet


def test_a_wait_between_two_looks_is_told_by_the_kernels_account(node: Node) -> None:
    looks = Looks(node, "^kubelet$")
    node.schedstat(300, 1100, 90 * MS, 6)
    (over,) = looks.look(400)
    assert (over.over, over.stall.what, over.stall.device, over.stall.length_ns(0)) == (True, "napi", "eth0", 90 * MS)


def test_threads_that_sleep_or_run_do_not_wait(node: Node) -> None:
    looks = Looks(node, "kubelet")
    node.task(400, "kubelet", ppid=1, state="R")
    for i in range(1, 10):
        node.schedstat(400, 1000 + i, i, 5)
        assert looks.look() == []
    assert looks.stalls.quiet


def test_ksoftirqd_is_watched_as_a_thread_and_once_if_it_was_asked_for_too(node: Node) -> None:
    looks = Looks(node, "ksoftirqd")
    assert sorted(one.tid for one in looks.looker.threads) == [14, 22, 300, 500]
    assert looks.looker.cores == []
    node.task(22, "ksoftirqd/1", ppid=2, state="R")
    told = [change for _ in range(4) for change in looks.look()]
    assert [(change.over, change.stall.subject) for change in told] == [(False, "ksoftirqd/1 [22]")]


def test_a_thread_that_is_gone_or_says_nonsense_is_not_there(node: Node) -> None:
    looks = Looks(node, "kubelet")
    node.tree.write("proc/400/schedstat", "1 2\n")
    (node.tree.path / "proc/300/schedstat").unlink()
    rows = looks.looker.seen(looks.now)
    there = {one.tid: int(row["there"]) for one, row in zip(looks.looker.threads, rows.threads, strict=True)}
    assert there == {300: 0, 400: 0, 401: 1, 14: 1, 22: 1}


@given(st.one_of(st.binary(max_size=80), st.lists(st.integers(0, 2**70)).map(lambda n: " ".join(map(str, n)).encode())))
def test_any_account_is_three_numbers_or_none(raw: bytes) -> None:
    words = raw.split()
    parsed = parse_schedstat(raw)
    if parsed is not None:
        assert parsed == tuple(int(word) for word in words)
    else:
        assert len(words) != 3 or not all(word.isdigit() and len(word) < 20 for word in words)


# The running kernel


def test_this_kernels_threads_are_found_as_bpf_finds_them() -> None:
    found = WeakDiscover(Root()).find()
    assert [one.comm for one in found.ksoftirqd] == [f"ksoftirqd/{core}" for core in online_cpus(Root())]
    if why := unavailable():
        pytest.skip(why)
    finder = Discover(Btf.vmlinux())
    strong = finder.find()
    finder.close()
    assert [one.tid for one in found.ksoftirqd] == [one.tid for one in strong.ksoftirqd]
    # Others may begin and end to poll meanwhile.
    assert all(polls(one) for one in found.threads)


def test_the_same_stall_is_found_as_with_bpf() -> None:
    needs_a_core_to_hold()
    with named(b"exhume-waits", spin=True) as pid, Clock() as clock, off_the_core(real_time=True):
        (thread,) = [one for one in WeakDiscover(Root(), re.compile("^exhume-waits$")).find().threads if one.tid == pid]
        looker = WeakLooker(Root())
        looker.watch([thread], [])
        over = _held_up(looker, clock)
        assert {(stall.what, stall.core, stall.thread) for stall in over} == {("runqueue", CORE, thread)}
        if why := unavailable():
            pytest.skip(why)
        finder = Discover(Btf.vmlinux(), re.compile("^exhume-waits$"))
        strong = [one for one in finder.find().threads if one.tid == pid]
        finder.close()
        with Looker(Btf.vmlinux(), 50 * MS) as other:
            other.watch(strong, [])
            same = _held_up(other, clock)
    assert {(stall.what, stall.core, stall.subject) for stall in same} == {("runqueue", CORE, over[0].subject)}


def _held_up(looker: Looker | WeakLooker, clock: Clock) -> list[Stall]:
    """Long stalls that were told while the core was held, and again when they were over."""
    stalls = Stalls(50 * MS)
    told: list[Change] = []

    def over() -> list[Stall]:
        lasting = [change.stall for change in told if not change.over]
        ended = [change.stall for change in told if change.over and change.stall.length_ns(0) > WAITED_NS]
        return [stall for stall in ended if any(stall is one for one in lasting)]

    def look() -> list[Stall]:
        now = clock.now()
        looker.glance()
        told.extend(stalls.add(looker.seen(now), looker.threads, looker.cores))
        return over()

    holder = ready_to_hold(HELD_MS)
    look()
    hold_now(holder)
    wait_for(look)
    held(holder)
    return over()


def test_it_takes_no_privilege() -> None:
    if os.geteuid():
        pytest.skip("it takes root to become nobody")
    code = (
        "import os, re, sys\n"
        "from exhume.sources.latency.weak import WeakDiscover, WeakLooker\n"
        "from exhume.host.root import Root\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "found = WeakDiscover(Root()).find()\n"
        "looker = WeakLooker(Root()); looker.watch(found.threads, found.ksoftirqd)\n"
        "print(len(found.ksoftirqd), looker.seen(1).threads['there'].all())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""
    assert done.stdout == f"{len(online_cpus(Root()))} True\n"


def test_a_thread_that_nobody_has_is_not_there() -> None:
    looker = WeakLooker(Root())
    looker.watch([Thread(1, 0, 4_194_304, 1, "none", "", 0)], [])
    assert looker.seen(1).threads["there"].tolist() == [0]
