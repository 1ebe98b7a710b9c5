"""Throttling by quota, on fixture trees of both versions and for real where a v1 cpu hierarchy is at hand."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.cgroups import Tree as CgroupTree
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import sentences
from exhume.sources import throttling
from exhume.sources.throttling import Throttling, parse_cpu_max
from tests.trees import Tree, cgroup_stat
from tests.waiting import wait_for


def read(root: Root, between: Callable[[], None] | None = None) -> Recording:
    recording = Recording(Node("", "", "", "", 2))
    reader = Throttling(root, CgroupTree(root))
    reader.read(recording, 1)
    if between is not None:
        between()
        reader.read(recording, 2)
    return recording


def last(recording: Recording, name: str, cgroup: str) -> int:
    series = recording.counter(name, labels(cgroup=cgroup))
    assert series is not None, f"{name} of {cgroup}"
    return series.last


def test_v2_groups_with_a_quota_are_followed_and_others_are_not(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v2({"/": cgroup_stat(2, 0), "/limited": "", "/free": ""})
    tree.write("sys/fs/cgroup/limited/cpu.max", "50000 100000\n")
    tree.write("sys/fs/cgroup/limited/cpu.stat", "usage_usec 9\nnr_periods 100\nnr_throttled 40\nthrottled_usec 1500\n")
    tree.write("sys/fs/cgroup/free/cpu.max", "max 100000\n")
    tree.write("sys/fs/cgroup/free/cpu.stat", "nr_periods 7\n")
    recording = read(Root(str(tmp_path)))
    assert last(recording, "cpu_throttled_periods", "/limited") == 40
    assert last(recording, "cpu_throttled_ns", "/limited") == 1_500_000
    assert last(recording, "cpu_quota_us", "/limited") == 50_000
    assert recording.counter("cpu_periods", labels(cgroup="/free")) is None


def test_a_group_that_is_made_later_is_followed_from_zero_and_one_that_goes_is_not(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v2({"/": cgroup_stat(2, 0), "/old": ""})
    tree.write("sys/fs/cgroup/old/cpu.max", "50000 100000\n")
    tree.write("sys/fs/cgroup/old/cpu.stat", "nr_periods 100\nnr_throttled 40\nthrottled_usec 1500\n")
    root, recording = Root(str(tmp_path)), Recording(Node("", "", "", "", 2))
    reader = Throttling(root, CgroupTree(root, again_ns=1))
    reader.read(recording, 1)
    tree.write("sys/fs/cgroup/new/cpu.max", "20000 100000\n")
    tree.write("sys/fs/cgroup/new/cpu.stat", "nr_periods 9\nnr_throttled 8\nthrottled_usec 7\n")
    reader.read(recording, 2)
    series = recording.counter("cpu_throttled_periods", labels(cgroup="/new"))
    assert series is not None
    assert (series.times.tolist(), series.values.tolist()) == ([1, 2], [0, 8])
    assert len(recording.counters("cpu_throttled_periods")[labels(cgroup="/old")].times) == 2
    shutil.rmtree(tmp_path / "sys/fs/cgroup/old")
    reader.read(recording, 3)
    groups = recording.counter("cpu_quota_groups")
    assert groups is not None
    assert groups.values.tolist() == [1, 2, 1]


def test_v1_names_its_files_and_units_differently(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v1([], 1)
    base = "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1"
    tree.write(f"{base}/cpu.cfs_quota_us", "20000\n")
    tree.write(f"{base}/cpu.cfs_period_us", "100000\n")
    tree.write(f"{base}/cpu.stat", "nr_periods 10\nnr_throttled 3\nthrottled_time 77\n")
    tree.write("sys/fs/cgroup/cpu,cpuacct/kubepods/cpu.cfs_quota_us", "-1\n")
    recording = read(Root(str(tmp_path)))
    assert last(recording, "cpu_throttled_ns", "/kubepods/pod1") == 77
    assert recording.counter("cpu_periods", labels(cgroup="/kubepods")) is None


def test_reading_stops_when_it_takes_too_long_and_says_how_many_were_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path).v2({"/": cgroup_stat(3, 0), "/a": "", "/b": "", "/c": ""})
    for name in "abc":
        tree.write(f"sys/fs/cgroup/{name}/cpu.max", "50000 100000\n")
        tree.write(f"sys/fs/cgroup/{name}/cpu.stat", "nr_periods 1\n")
    slow = iter(range(0, 10**12, 30_000_000))  # every look at the clock is 30 ms later
    monkeypatch.setattr(throttling, "clock", SimpleNamespace(monotonic_ns=lambda: next(slow)))
    recording = Recording(Node("", "", "", "", 2))
    root = Root(str(tmp_path))
    assert sentences(Throttling(root, CgroupTree(root)).read(recording, 1)) == "2 of 3 groups with a quota were left out"
    assert len(recording.counters("cpu_periods")) == 1


@given(st.binary(max_size=60))
def test_a_quota_may_be_garbage(raw: bytes) -> None:
    quota = parse_cpu_max(raw)
    assert quota is None or (quota.quota_us >= 0 and quota.period_us > 0)


def test_a_real_group_that_uses_up_its_quota_is_seen() -> None:
    cpu = Path("/sys/fs/cgroup/cpu")
    if os.geteuid() != 0 or not (cpu / "cpu.cfs_quota_us").exists():
        pytest.skip("needs root and the cpu controller on cgroup v1")
    group = cpu / f"exhume-test-quota-{os.getpid()}"
    group.mkdir()
    (group / "cpu.cfs_quota_us").write_text("1000")

    def throttled() -> bool:
        return int((group / "cpu.stat").read_text().split("nr_throttled ")[1].split()[0]) >= 5

    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        (group / "cgroup.procs").write_text(str(burner.pid))
        recording = read(Root(), between=lambda: wait_for(throttled))
    finally:
        burner.kill()
        burner.wait()
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.02)
    series = recording.counter("cpu_throttled_periods", labels(cgroup=f"/{group.name}"))
    assert series is not None
    assert series.last >= 5
