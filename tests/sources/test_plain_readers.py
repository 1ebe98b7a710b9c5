"""The small readers of /proc: cpu, vmstat, meminfo, pressure, and cgroup directories."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree as CgroupTree
from exhume.host.cpu_list import cpu_list
from exhume.host.root import Root, key_values
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import sentences
from exhume.sources import cpu
from exhume.sources.cgroup_dirs import SAMPLE, CgroupDirs
from exhume.sources.cpu import Cpu, parse_stat
from exhume.sources.facts import facts
from exhume.sources.meminfo import Meminfo
from exhume.sources.pressure import Pressure, parse_pressure
from exhume.sources.processes import INIT_PID_NAMESPACE
from exhume.sources.reader import Reader
from exhume.sources.vmstat import Vmstat, parse_vmstat
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


@pytest.mark.parametrize(("cost_ms", "every_ms"), [(0.2, 50), (1.0, 50), (4.0, 200)])
def test_a_dear_proc_stat_is_read_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost_ms: float, every_ms: int
) -> None:
    """Two per cent of a core, whatever a reading costs: on kernels before 5.1 it adds up every interrupt of every core."""
    tree = Tree(tmp_path)
    tree.stat({0: (1,) * 10})
    spent = iter(range(0, 10**12, round(cost_ms * 1e6)))
    monkeypatch.setattr(cpu, "clock", SimpleNamespace(thread_time_ns=lambda: next(spent)))
    reader = Cpu(Root(str(tmp_path)))
    notes = [reader.read(recording(), i) for i in range(8)]
    assert reader.every_ns == every_ms * 10**6
    assert bool(notes[-1]) is (every_ms > 50)
    assert every_ms == 50 or f"every {every_ms} ms" in sentences(notes[-1])


@pytest.mark.parametrize(("text", "cores"), [("2-3\n", ["2", "3"]), ("  (null)\n", []), ("\n", []), (None, [])])
def test_cores_that_may_run_without_a_tick_are_known(tmp_path: Path, text: str | None, cores: list[str]) -> None:
    tree = Tree(tmp_path)
    tree.stat({0: (1,) * 10})
    if text is not None:
        tree.write("sys/devices/system/cpu/nohz_full", text)
    reader, seen = Cpu(Root(str(tmp_path))), recording()
    reader.read(seen, 1)
    reader.read(seen, 2)
    assert sorted(dict(at)["cpu"] for at in seen.counters("cpu_nohz_full")) == cores
    assert len(seen["counters"]) == len(cores)


def test_another_nodes_name_is_the_one_in_its_file(tmp_path: Path) -> None:
    """Below /host the /proc/sys/kernel/hostname is the container's own: it shows the UTS namespace of whoever reads it."""
    tree = Tree(tmp_path).facts().v1([], 1)
    root = Root(str(tmp_path))
    assert facts(root, CgroupTree(root).layout).hostname == "node-7"
    tree.write("etc/hostname", "# set by cloud-init\n\nreal-node\n")
    assert facts(root, CgroupTree(root).layout).hostname == "real-node"


def test_refaults_of_kernels_before_5_9_have_one_counter() -> None:
    assert parse_vmstat(b"workingset_refault 7\nworkingset_activate 3\n") == {"workingset_refault": 7}
    assert parse_vmstat(b"zswpin 3\nzswpout 9\n") == {"zswpin": 3}


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
    tree.write("sys/fs/cgroup/busy.slice/cpu.pressure", line)
    root, seen = Root(str(tmp_path)), recording()
    Pressure(root, CgroupTree(root)).read(seen, 1)
    node = seen.counter("pressure_us", labels(cgroup="", kind="some", resource="memory"))
    slice_ = seen.counter("pressure_us", labels(cgroup="/busy.slice", kind="some", resource="memory"))
    tenth = seen.counter("pressure_avg10_bp", labels(cgroup="", kind="some", resource="memory"))
    assert node is not None
    assert slice_ is not None
    assert tenth is not None
    assert (node.last, slice_.last, tenth.last) == (5000, 777, 1234)
    assert seen.counter("pressure_us", labels(cgroup="/busy.slice", kind="some", resource="cpu")) is None


def test_on_v1_pressure_says_that_it_is_the_nodes_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v1(["a"], 3)
    tree.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
    root = Root(str(tmp_path))
    assert "node only" in sentences(Pressure(root, CgroupTree(root)).read(recording(), 1))


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
    assert row["children"] == row["leaves"] == 200
    assert row["mount"] == ("/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory")
    assert row["looked"] <= SAMPLE
    assert row["empty"] == (0 if procs else row["looked"])


def test_on_v1_who_lives_in_another_pid_namespace_does_not_judge_directories() -> None:
    """cgroup.procs of a used group reads as empty there: everything would look leaked."""
    memory = Path("/sys/fs/cgroup/memory")
    if os.geteuid() != 0 or not (memory / "cgroup.procs").exists():
        pytest.skip("needs root and the memory controller on cgroup v1")
    if os.readlink("/proc/self/ns/pid") != INIT_PID_NAMESPACE:
        pytest.skip("needs to begin in the first PID namespace")
    code = (
        "import sys\nfrom exhume.errors import Unreadable\nfrom exhume.sources.cgroup_dirs import CgroupDirs\n"
        "from exhume.host.cgroups import Tree\nfrom exhume.host.root import Root\n"
        "from exhume.recording.recording import Node, Recording\nroot = Root(sys.argv[1])\n"
        "try: CgroupDirs(root, Tree(root)).read(Recording(Node('', '', '', '', 1)), 1)\n"
        "except Unreadable as error: print(error)"
    )
    # /proc/self/root is the same node below another path, as a container has it with --host.
    for path in ("/", "/proc/self/root"):
        for prefix, said in (([], ""), (["unshare", "--pid", "--fork"], "only the processes of our own PID namespace")):
            done = subprocess.run([*prefix, sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
            if prefix and done.returncode != 0:
                pytest.skip(f"unshare: {done.stderr.strip()[-200:]}")
            assert done.stderr == ""
            assert said in done.stdout
            assert bool(done.stdout) is bool(said)


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


def test_cpu_lists_are_read_as_the_kernel_writes_them() -> None:
    assert cpu_list(b"0-2,5,7-8\n") == (0, 1, 2, 5, 7, 8)
    assert cpu_list(b"\n") == ()


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=120),
            st.lists(st.lists(st.integers(0, 1 << 66), min_size=8, max_size=12), max_size=3).map(
                lambda cores: (
                    b"cpu  1 2\n"
                    + b"".join(b"cpu%d %s\n" % (i, b" ".join(b"%d" % n for n in ticks)) for i, ticks in enumerate(cores))
                    + b"intr 1\n"
                )
            ),
        ),
        max_size=3,
    )
)
def test_readings_given_together_are_what_each_of_them_says(raws: list[bytes]) -> None:
    reader = cpu.Cpu(Root())
    reader._taken = list(enumerate(raws))
    given_together = Recording(Node("", "", "", "", 2))
    reader.give(given_together)
    expected = [(time, core, *ticks) for time, raw in enumerate(raws) for core, ticks in cpu.parse_stat(raw)]
    assert [tuple(row.values()) for row in given_together["cpu"].rows()] == expected
