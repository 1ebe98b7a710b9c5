"""Processes: names with brackets, the busiest and its core, the defunct."""

import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import sentences
from exhume.sources import processes
from exhume.sources.processes import Processes, parse_cgroup, parse_stat
from tests.trees import Tree, process_stat
from tests.waiting import wait_for


def recording() -> Recording:
    return Recording(Node("", "", "", "", 2))


@pytest.mark.parametrize("comm", ["kubelet", "a) R 1 (b", "(", ")", "x y\nz", "\x1b[2J", ""])
def test_a_name_may_hold_brackets_spaces_and_escapes(comm: str) -> None:
    stat = parse_stat(process_stat(7, comm, 5, 6, 3, "S", 1, 99).encode())
    assert stat is not None
    assert stat == (comm, "S", 1, 5, 6, 99, 3, 0)


@given(st.binary(max_size=300))
def test_stat_and_cgroup_may_be_garbage(raw: bytes) -> None:
    parse_stat(raw)
    parse_stat(b"1 (x) " + raw)
    assert isinstance(parse_cgroup(raw), str)


def faults(line: str, major: int) -> str:
    """The same line of /proc/PID/stat with that many major faults."""
    before, after = line.rsplit(")", 1)
    words = after.split()
    words[9] = str(major)
    return f"{before}) {' '.join(words)}\n"


def test_who_has_major_faults_is_counted_and_who_waits_for_a_disk_is_kept(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    reader, seen = Processes(Root(str(tmp_path))), recording()
    for at_time, major in ((1, 7), (2, 7 + processes.FEWEST_FAULTS), (3, 8 + processes.FEWEST_FAULTS)):
        tree.write("proc/10/stat", faults(process_stat(10, "map)per", 0, 0, 1, "S"), major))
        tree.write("proc/10/cgroup", "0::/web\n")
        tree.write("proc/11/stat", faults(process_stat(11, "reader", 0, 0, 1, "D"), 3))
        reader.read(seen, at_time)
    ((at, series),) = seen.counters("process_major_faults").items()
    assert dict(at) == {"pid": "10", "comm": "map)per", "cgroup": "/web"}
    assert list(zip(series.times.tolist(), series.values.tolist(), strict=True)) == [(1, 7), (2, 57)]
    assert {(row["pid"], row["state"]) for row in seen["processes"].rows()} == {(11, "D")}


def test_the_most_telling_cgroup_is_the_memory_one() -> None:
    assert parse_cgroup(b"4:memory:/a/b\n1:name=systemd:/c/d/e\n0::/\n") == "/a/b"
    assert parse_cgroup(b"4:memory:/\n1:name=systemd:/c/d\n") == "/c/d"
    assert parse_cgroup(b"0::/system.slice/x.service\n") == "/system.slice/x.service"


def test_the_busiest_is_kept_with_both_readings_and_the_defunct_with_their_parent(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/10/stat", process_stat(10, "hog", 5, 100, 1))
    tree.write("proc/10/cgroup", "0::/system.slice/hog.service\n")
    tree.write("proc/11/stat", process_stat(11, "idle", 5, 5, 0, "S"))
    tree.write("proc/11/cgroup", "0::/system.slice/idle.service\n")
    tree.write("proc/12/stat", process_stat(12, "dead", 0, 0, 0, "Z", ppid=11))
    reader, seen = Processes(Root(str(tmp_path))), recording()
    reader.read(seen, 1)
    tree.write("proc/10/stat", process_stat(10, "hog", 5, 350, 1))
    reader.read(seen, 2)
    rows = list(seen["processes"].rows())
    hog = [row for row in rows if row["pid"] == 10]
    assert [(row["time"], row["system"]) for row in hog] == [(1, 100), (2, 350)]
    assert hog[0]["cgroup"] == "/system.slice/hog.service"
    assert [row["ppid"] for row in rows if row["state"] == "Z"] == [11]
    (parent,) = [row for row in rows if row["pid"] == 11]
    assert (parent["comm"], parent["ppid"], parent["cgroup"]) == ("idle", 1, "/system.slice/idle.service")
    defunct = seen.counter("processes_defunct")
    assert defunct is not None
    assert defunct.last == 1


def test_a_number_that_went_to_another_process_is_not_the_same_process(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/10/stat", process_stat(10, "old", 0, 900_000, 1, start=5))
    reader, seen = Processes(Root(str(tmp_path))), recording()
    reader.read(seen, 1)
    tree.write("proc/10/stat", process_stat(10, "new", 0, 30, 1, start=1 << 40))
    reader.read(seen, 2)
    rows = [row for row in seen["processes"].rows() if row["pid"] == 10]
    assert [(row["comm"], row["system"]) for row in rows] == [("new", 0), ("new", 30)]


def test_a_cgroup_is_looked_up_once_a_process(tmp_path: Path) -> None:
    """/proc/PID/cgroup takes cgroup_mutex, which is what a node that makes and removes cgroups waits for."""
    tree = Tree(tmp_path)
    reader, seen = Processes(Root(str(tmp_path))), recording()
    for i, name in enumerate(("first", "second", "third", "fourth")):
        start = 500 if i < 3 else 1 << 40
        tree.write("proc/10/stat", process_stat(10, "hog", 5, 100 * (i + 1), 1, start=start))
        tree.write("proc/10/cgroup", f"0::/{name}\n")
        reader.read(seen, i)
    # The first reading has nothing to compare with and keeps nobody; the last is another process with the same number.
    assert [row["cgroup"] for row in seen["processes"].rows()] == ["/second"] * 4 + ["/fourth"] * 2


def test_of_too_many_processes_the_oldest_and_the_newest_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_PROCESSES", 4)
    tree = Tree(tmp_path)
    for pid in range(1, 11):
        tree.write(f"proc/{pid}/stat", process_stat(pid, f"p{pid}", 0, 0, 0, "Z"))
    reader, seen = Processes(Root(str(tmp_path))), recording()
    reader.read(seen, 1)
    assert "only 4 of 10" in sentences(reader.read(seen, 2))
    assert {row["pid"] for row in seen["processes"].rows()} == {1, 2, 9, 10}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a PID namespace")
@pytest.mark.parametrize(("proc", "said"), [("--mount-proc", True), ("", False)], ids=["its own /proc", "the outer /proc"])
def test_only_who_sees_a_containers_proc_says_that_it_sees_a_container(proc: str, said: bool) -> None:
    """A /proc of the node in a container with a PID namespace of its own shows the node's processes."""
    code = (
        "from exhume.sources.processes import Processes\nfrom exhume.host.root import Root\n"
        "from exhume.recording.recording import Node, Recording\n"
        "from exhume.recording.source_state import sentences\n"
        "print(sentences(Processes(Root()).read(Recording(Node('', '', '', '', 1)), 1)))"
    )
    arguments = [word for word in ("unshare", "--pid", "--fork", proc) if word]
    done = subprocess.run([*arguments, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"unshare: {done.stderr.strip()[-200:]}")
    assert ("only this container's processes" in done.stdout) is said


def test_hidden_processes_are_a_source_that_is_off(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    with pytest.raises(Unreadable, match="shows no process"):
        Processes(Root(str(tmp_path))).read(recording(), 1)


def test_a_real_burner_is_found_with_its_thread_and_core() -> None:
    core = max(os.sched_getaffinity(0))
    code = (
        f"import os, threading\nos.sched_setaffinity(0, {{{core}}})\n"
        "def burn():\n  while True: os.stat('/')\n"
        "threading.Thread(target=burn).start()"
    )
    burner = subprocess.Popen([sys.executable, "-c", code])
    try:
        reader, seen = Processes(Root()), recording()
        rows: list[dict[str, Any]] = []
        moments = count(1)

        def both() -> bool:
            """Threads are read of a process that uses much of a core, which on a busy machine may take its time."""
            reader.read(seen, next(moments))
            time.sleep(0.4)
            rows[:] = [row for row in seen["processes"].rows() if row["pid"] == burner.pid]
            return {row["tid"] == 0 for row in rows} == {True, False}

        wait_for(both)
    finally:
        burner.kill()
        burner.wait()
    assert rows[-1]["core"] == core
    assert rows[-1]["system"] + rows[-1]["user"] > 0


def test_a_defunct_process_pins_its_removed_cgroup_until_it_is_collected() -> None:
    """What the finding says of them, on this kernel: they are zombies of one kind that make zombies of the other."""
    mount = next((path for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if Path(path, "cgroup.stat").exists()), "")
    if os.geteuid() != 0 or not mount:
        pytest.skip("needs root and a cgroup v2 hierarchy")
    home = Path(mount, f"exhume-test-defunct-{os.getpid()}")
    inner = home / "inner"
    inner.mkdir(parents=True)
    child = subprocess.Popen([sys.executable, "-c", f"open({str(inner / 'cgroup.procs')!r}, 'w').write('0')"])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        inner.rmdir()
        assert "nr_dying_descendants 1" in (home / "cgroup.stat").read_text()
        assert child.wait() == 0
        # The last reference is dropped by a worker, a little later.
        wait_for(lambda: "nr_dying_descendants 0" in (home / "cgroup.stat").read_text())
    finally:
        child.wait()
        if inner.exists():
            inner.rmdir()
        home.rmdir()
