"""The small readers of /proc: cpu, vmstat, meminfo, pressure, and cgroup directories."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.node.cgroup_dirs import SAMPLE, CgroupDirs
from exhume.node.cgroups import Tree as CgroupTree
from exhume.node.cpu import Cpu, parse_stat
from exhume.node.facts import parse_cpu_list
from exhume.node.meminfo import Meminfo
from exhume.node.pressure import Pressure, parse_pressure
from exhume.node.root import Reader, Root, key_values
from exhume.node.vmstat import Vmstat, parse_vmstat
from exhume.recording.recording import Node, Recording, labels
from tests.trees import Tree, cgroup_stat


def recording() -> Recording:
    return Recording(Node("", "", "", "", 2))


def test_each_core_has_its_ten_counters(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.stat({0: (1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 39: tuple(range(11, 21))})
    seen = recording()
    Cpu(Root(str(tmp_path))).read(seen, 5)
    assert seen["cpu"].ints("core").tolist() == [0, 39]
    assert seen["cpu"].ints("system").tolist() == [3, 13]
    assert seen["cpu"].ints("guest_nice").tolist() == [10, 20]


def test_an_old_kernel_with_fewer_counters_reads_as_zero() -> None:
    assert parse_stat(b"cpu  1 2 3 4\ncpu0 1 2 3 4\n") == [(0, (1, 2, 3, 4, 0, 0, 0, 0, 0, 0))]


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=60).map(lambda tail: b"cpu  1 2 3 4\ncpu0 1 2 3 4\ncpu1 " + tail)))
def test_proc_stat_may_be_garbage(raw: bytes) -> None:
    for core, ticks in parse_stat(raw):
        assert core >= 0
        assert len(ticks) == 10
        assert all(0 <= tick < 1 << 63 for tick in ticks)


def test_reclaim_per_zone_of_old_kernels_is_summed() -> None:
    old = "pgscan_direct_dma 1,pgscan_direct_normal 10,"
    old += "pgscan_direct_throttle 9,allocstall_normal 2,allocstall_movable 3,pgmajfault 4"
    assert parse_vmstat(old.replace(",", "\n").encode()) == {"pgscan_direct": 11, "allocstall": 5, "pgmajfault": 4}
    assert parse_vmstat(b"pgscan_direct 7\npgscan_direct_throttle 3\n") == {"pgscan_direct": 7}


def test_meminfo_is_in_bytes(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/meminfo", "MemTotal:       100 kB\nPercpu:  7 kB\nStrange: 1 kB\n")
    seen = recording()
    Meminfo(Root(str(tmp_path))).read(seen, 1)
    percpu = seen.counter("meminfo_bytes", labels(field="Percpu"))
    assert percpu is not None
    assert percpu.last == 7 * 1024
    assert seen.counter("meminfo_bytes", labels(field="Strange")) is None


def test_pressure_of_the_node_and_of_the_cgroups_below_the_root(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v2({"/": cgroup_stat(1, 0), "/busy.slice": ""})
    line = "some avg10=12.34 avg60=0.00 avg300=0.00 total=5000\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=400\n"
    tree.write("proc/pressure/memory", line)
    tree.write("sys/fs/cgroup/busy.slice/memory.pressure", line.replace("5000", "777"))
    root, seen = Root(str(tmp_path)), recording()
    Pressure(root, CgroupTree(root)).read(seen, 1)
    node = seen.counter("pressure_us", labels(cgroup="", kind="some", resource="memory"))
    slice_ = seen.counter("pressure_us", labels(cgroup="/busy.slice", kind="some", resource="memory"))
    tenth = seen.counter("pressure_avg10_bp", labels(cgroup="", kind="some", resource="memory"))
    assert node is not None
    assert slice_ is not None
    assert tenth is not None
    assert (node.last, slice_.last, tenth.last) == (5000, 777, 1234)


def test_on_v1_pressure_says_that_it_is_the_nodes_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v1(["a"], 3)
    tree.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
    root = Root(str(tmp_path))
    assert "node only" in Pressure(root, CgroupTree(root)).read(recording(), 1)


@pytest.mark.parametrize(
    ("v2", "procs"),
    [(True, ""), (False, ""), (True, "9\n"), (False, "9\n")],
    ids=["v2 empty", "v1 empty", "v2 used", "v1 used"],
)
def test_empty_directories_are_told_from_used_ones(tmp_path: Path, v2: bool, procs: str) -> None:
    tree = Tree(tmp_path)
    tree = tree.v2({"/": cgroup_stat(100, 0)}) if v2 else tree.v1([], 101)
    base = "sys/fs/cgroup/leak" if v2 else "sys/fs/cgroup/memory/leak"
    for i in range(200):
        tree.write(f"{base}/run{i}/cgroup.procs", procs)
        tree.write(f"{base}/run{i}/cgroup.events", f"populated {1 if procs else 0}\nfrozen 0\n")
    root, seen = Root(str(tmp_path)), recording()
    CgroupDirs(root, CgroupTree(root)).read(seen, 1)
    row = next(row for row in seen["cgroup_dirs"].rows() if row["path"] == "/leak")
    assert row["children"] == 200
    assert row["looked"] <= SAMPLE
    assert row["empty"] == (0 if procs else row["looked"])


@pytest.mark.parametrize("reader", [Cpu, Vmstat, Meminfo])
@pytest.mark.parametrize("content", [b"", b"\0\xff\x01 garbage \x00", b"x" * 100_000])
def test_an_empty_or_binary_file_is_a_source_that_is_off(tmp_path: Path, reader: type[Reader], content: bytes) -> None:
    tree = Tree(tmp_path)
    for name in ("stat", "vmstat", "meminfo"):
        tree.write(f"proc/{name}", content)
    with pytest.raises(Unreadable):
        reader(Root(str(tmp_path))).read(recording(), 1)  # type: ignore[call-arg]


@given(st.binary(max_size=300))
def test_no_bytes_break_a_parser(raw: bytes) -> None:
    assert all(value >= 0 for value in parse_vmstat(raw).values())
    assert all(0 <= value < 1 << 63 for _, value in key_values(raw))
    assert set(parse_pressure(raw)) <= {"some", "full"}
    assert len(parse_cpu_list(raw)) <= 8192 * (len(raw) + 1)


def test_cpu_lists_are_read_as_the_kernel_writes_them() -> None:
    assert parse_cpu_list(b"0-2,5,7-8\n") == [0, 1, 2, 5, 7, 8]
    assert parse_cpu_list(b"\n") == []
    assert len(parse_cpu_list(b"0-99999")) == 8192
