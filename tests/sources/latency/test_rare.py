"""Reclaim, the lock of the cgroup statistics and transmit timeouts, on the running kernel."""

import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.errors import Unreadable
from exhume.host.cgroups import Hierarchy, Walk, layout, walk
from exhume.host.root import Root
from exhume.kernel.bpf import R1, R2, R6, R7, Block, BpfError, Btf, BtfError, Builder, Features, Link, Program, ProgramKind
from exhume.kernel.bpf.maps import possible_cpus
from exhume.sources.latency import cgroup_paths, rare, rare_programs
from exhume.sources.latency.cgroup_paths import CgroupPaths
from exhume.sources.latency.rare import Rare, Taken, memory_bytes
from tests.kernel.bpf.needs import needs_bpf, needs_test_run
from tests.sources.latency import loaded
from tests.sources.latency.network import RECEIVER, veth_pair

pytestmark = needs_bpf


NOTHING = Taken((), (), 0, 0, (), 0)

# Joins the group, fills page cache in it and has the kernel take that back.
_RECLAIM = """
import os, sys
group, file = sys.argv[1:]
open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
with open(file, "wb") as out:
    out.write(bytes(8 << 20))
    out.flush()
    os.fsync(out.fileno())
try:
    name, value = ("memory.force_empty", "0") if os.path.exists(f"{group}/memory.force_empty") else ("memory.reclaim", "4M")
    open(f"{group}/{name}", "w").write(value)
except OSError as error:  # not all of it can be taken back
    print(error)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup of the test's own."""
    hierarchy = layout(Root()).of("memory")
    if os.geteuid() != 0 or hierarchy is None:
        pytest.skip("needs root and a hierarchy with the memory controller")
    path = Path(hierarchy.path) / f"exhume-test-rare-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    try:
        yield path
    finally:
        for _ in range(50):
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def test_reclaim_is_told_by_the_cgroup_of_the_thread_that_had_to_do_it(group: Path, tmp_path: Path) -> None:
    if not any((group / name).exists() for name in ("memory.force_empty", "memory.reclaim")):
        pytest.skip("this kernel has nothing by which a cgroup is told to reclaim")
    paths = CgroupPaths()
    with Rare() as probe:
        assert "mm_vmscan_memcg_reclaim_end" not in probe.off
        probe.take()
        done = subprocess.Popen([sys.executable, "-c", _RECLAIM, str(group), str(tmp_path / "filled")])
        assert done.wait(120) == 0
        taken = probe.take()
        (mine, *more) = [r for r in taken.reclaims if paths.path(r.cgroup_id) == f"/{group.name}"]
        assert all(r.cgroup_id == mine.cgroup_id for r in more)
        assert mine.kind == "memcg"
        assert mine.duration.count > 0
        assert 0 < mine.duration.max_ns <= mine.duration.sum_ns
        assert mine.duration.pid == done.pid
        assert mine.duration.comm.startswith("python")
        assert mine.cgroup_id not in {r.cgroup_id for r in probe.take().reclaims}
        group.rmdir()
        assert paths.path(mine.cgroup_id) == "", "it is gone"
        group.mkdir()
        assert paths.path(mine.cgroup_id) == "", "and another one of the same name is another one"


def test_a_number_becomes_a_path_only_where_there_is_a_cgroup(group: Path) -> None:
    inner = group / "a b\t\udcff (deleted)"  # cgroup_mkdir takes all but a new line
    inner.mkdir()
    try:
        paths = CgroupPaths()
        assert paths.path(group.stat().st_ino) == f"/{group.name}"
        assert paths.path(inner.stat().st_ino) == f"/{group.name}/a b\t\\xff (deleted)"
        assert paths.path(group.parent.stat().st_ino) == "/"
        for number in (0, 1 << 40, (1 << 64) - 1, 1 << 64, -1):
            assert paths.path(number) == ""
    finally:
        inner.rmdir()


def test_unknown_numbers_do_not_have_the_hierarchy_walked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[str] = []

    def counted(root: Root, hierarchy: Hierarchy) -> Walk:
        walks.append(hierarchy.path)
        return walk(root, hierarchy)

    monkeypatch.setattr(cgroup_paths, "walk", counted)
    now = [time.monotonic_ns()]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    paths = CgroupPaths()
    assert [paths.path(number) for number in range(1 << 40, (1 << 40) + 1000)] == [""] * 1000
    assert len(walks) == 1
    now[0] += 1_000_000_000
    assert paths.path(1 << 40) == ""
    assert len(walks) == 2


def test_a_node_without_memory_cgroups_has_no_paths(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no hierarchy with the memory controller"):
        CgroupPaths(Root(str(tmp_path)))


@needs_test_run
def test_reclaim_within_reclaim_is_measured_as_two() -> None:
    paths = CgroupPaths()
    with Rare(attach=False) as probe:
        probe.program("mm_vmscan_direct_reclaim_begin").run(0, 0)
        probe.program("mm_vmscan_memcg_reclaim_begin").run(0, 0)
        time.sleep(0.002)
        probe.program("mm_vmscan_memcg_reclaim_end").run(0)
        probe.program("mm_vmscan_memcg_reclaim_end").run(0)
        probe.program("mm_vmscan_direct_reclaim_end").run(0)
        probe.program("mm_vmscan_direct_reclaim_end").run(0)
        direct, memcg = probe.take().reclaims
        assert probe.take() == NOTHING
        mine = next(line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if "memory" in line)
        assert paths.path(direct.cgroup_id) == paths.path(memcg.cgroup_id) == mine
    assert (direct.kind, memcg.kind) == ("direct", "memcg")
    assert direct.duration.count == memcg.duration.count == 1, "an end without a beginning is nothing"
    assert direct.duration.sum_ns >= memcg.duration.sum_ns >= 2_000_000
    assert direct.duration.pid == threading.get_native_id()


@needs_test_run
def test_the_lock_of_the_statistics_counts_only_when_it_was_waited_for() -> None:
    with Rare(attach=False) as probe:
        if "cgroup_rstat_locked" in probe.off:
            pytest.skip(probe.off["cgroup_rstat_locked"])
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        try:
            probe.program("cgroup_rstat_locked").run(0, 0, 0)
            probe.program("cgroup_rstat_locked").run(0, 0, 1)
            assert probe.take() == NOTHING, "nobody was seen to begin"
            probe.program("cgroup_rstat_lock_contended").run(0, 0, 1)
            probe.program("cgroup_rstat_locked").run(0, 0, 1)
        finally:
            os.sched_setaffinity(0, before)
        (wait,) = probe.take().rstat_waits
        assert probe.take() == NOTHING
    assert (wait.cpu, wait.wait.count, wait.wait.pid) == (min(before), 1, threading.get_native_id())


def test_a_look_at_memory_statistics_is_a_flush(group: Path) -> None:
    with Rare() as probe:
        if "memcg_flush_stats" in probe.off:
            pytest.skip(probe.off["memcg_flush_stats"])
        probe.take()
        for _ in range(20):
            (group / "memory.stat").read_bytes()
        assert probe.take().flushes >= 20
        if Features().test_run:
            probe.detach()
            probe.take()
            probe.program("memcg_flush_stats").run(0, 0, 1, 0)
            probe.program("memcg_flush_stats").run(0, 0, 0, 1)
            taken = probe.take()
            assert (taken.flushes, taken.forced_flushes) == (2, 1)


@needs_test_run
def test_a_transmit_timeout_names_device_namespace_and_queue() -> None:
    """No device here loses its interrupts, so the program is run with the address of a real one."""
    p = Builder()
    with veth_pair() as pair, Block(8) as found, Rare(attach=False) as probe:
        if "net_dev_xmit_timeout" in probe.off:
            pytest.skip(probe.off["net_dev_xmit_timeout"])
        name = Btf.vmlinux().offset("net_device", "name")
        wanted, _ = struct.unpack("=Q8s", RECEIVER.encode().ljust(16, b"\0"))
        p.argument(R6, 1)
        p.read(R1, R6 + name)
        p.mov(R2, wanted)
        p.jump_if(R1, "!=", R2, "other")
        p.address_of(R7, found)
        p.store(R7 + 0, R6)
        p.label("other")
        p.exit(0)
        with (
            Program(ProgramKind.RAW_TRACEPOINT, p, "exhume_test") as spy,
            spy.attach_raw("net_dev_start_xmit"),
            pair.sending(5, cpu=min(os.sched_getaffinity(0))) as sender,
        ):
            sender.send()
        (device,) = struct.unpack("=Q", found.read())
        assert device, "it answered, if only that nobody listens"
        probe.program("net_dev_xmit_timeout").run(device, 3)
        probe.program("net_dev_xmit_timeout").run(device, 3)
        probe.program("net_dev_xmit_timeout").run(device, 0)
        now = time.monotonic_ns()
        first, second = probe.take().timeouts
        assert (first.device, first.netns, first.queue, first.count) == (RECEIVER, pair.netns, 0, 1)
        assert (second.device, second.netns, second.queue, second.count) == (RECEIVER, pair.netns, 3, 2)
        assert second.last_ns < first.last_ns < now
        assert probe.take() == NOTHING


@needs_test_run
def test_what_finds_no_room_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rare_programs, "RECLAIMS", 1)
    with Rare(attach=False) as probe:
        for kind in ("direct", "memcg"):
            probe.program(f"mm_vmscan_{kind}_reclaim_begin").run(0, 0)
            probe.program(f"mm_vmscan_{kind}_reclaim_end").run(0)
        taken = probe.take()
        assert [r.kind for r in taken.reclaims] == ["direct"]
        assert taken.unkept == 1
        assert probe.take() == NOTHING


def test_a_kernel_without_some_of_the_tracepoints_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    attach = Program.attach_raw

    def as_in_6_8(self: Program, tracepoint: str) -> Link:
        if tracepoint.startswith(("cgroup_rstat", "memcg_")):
            raise BpfError(f"this kernel has no tracepoint {tracepoint}")
        return attach(self, tracepoint)

    monkeypatch.setattr(Program, "attach_raw", as_in_6_8)
    with Rare() as probe:
        assert set(probe.off) == {"cgroup_rstat_lock_contended", "cgroup_rstat_locked", "memcg_flush_stats"}
        assert probe.off["memcg_flush_stats"] == "this kernel has no tracepoint memcg_flush_stats"


def test_without_btf_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def types() -> Btf:
        raise BtfError("there is no BTF")

    monkeypatch.setattr(rare, "kernel_types", types)
    with Rare() as probe:
        wanting = {"mm_vmscan_direct_reclaim_end", "mm_vmscan_memcg_reclaim_end", "net_dev_xmit_timeout"}
        assert {name for name, why in probe.off.items() if why == "there is no BTF"} == wanting


def test_programs_are_gone_when_closed() -> None:
    before = loaded.of_process()
    probe = Rare()
    mine = loaded.of_process() - before
    assert len(mine) == 8 - len(probe.off)
    assert mine <= loaded.in_kernel()
    probe.close()
    assert loaded.gone(mine)


def test_the_maps_take_no_more_than_is_said() -> None:
    before = loaded.map_bytes()
    with Rare():
        taken = loaded.map_bytes() - before
    said = memory_bytes(possible_cpus())
    assert taken <= said <= 1.3 * taken
    assert memory_bytes(96) < 5 << 20
