"""exhume check on this very kernel: real zombies, a real burst on one core, a real container, real leaked directories."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from exhume.host.root import Root
from exhume.recorder.profiles import CHECK
from exhume.recorder.recorder import record
from tests import zombies
from tests.waiting import wait_for

REPOSITORY = Path(__file__).resolve().parent.parent


def check(*argv: str, prefix: tuple[str, ...] = (), seconds: str = "300ms") -> dict[str, Any]:
    command = [*prefix, sys.executable, "-m", "exhume", "check", "--json", "--for", seconds, *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == {"healthy": 0, "warning": 1, "critical": 2, "unknown": 3}[report["health"]]
    assert isinstance(report, dict)
    return report


def finding(report: dict[str, Any], kind: str) -> dict[str, Any]:
    found = [one for one in report["findings"] if one["kind"] == kind]
    assert found, f"{kind} not among {[one['kind'] for one in report['findings']]}"
    return dict(found[0])


@pytest.fixture
def real_zombies() -> None:
    if why := zombies.unavailable():
        pytest.skip(why)


@pytest.mark.usefixtures("real_zombies")
def test_fifteen_hundred_real_zombies_are_counted_and_told_as_a_warning() -> None:
    """Others on this machine may have zombies too: there are at least ours."""
    with zombies.zombies(1500, tmpfs=True):
        report = check()
    found = finding(report, "zombie-memcgs")
    assert found["severity"] in ("warning", "critical")
    assert 1500 <= found["facts"]["zombies"] < found["facts"]["total"]
    assert report["health"] in ("warning", "critical")


@pytest.mark.usefixtures("real_zombies")
def test_two_thousand_real_empty_directories_are_a_leak_and_no_zombies() -> None:
    with zombies.directories(2000) as parent:
        report = check()
    place = f"/{parent.relative_to(zombies.MEMORY)}"
    (found,) = [one for one in report["findings"] if one["kind"] == "cgroup-dirs-leak" and one["subject"] == place]
    assert found["facts"]["directories"] == 2000
    for one in report["findings"]:
        if one["kind"] == "zombie-memcgs":
            assert one["facts"]["total"] - one["facts"]["zombies"] >= 2000, "those of others, and none of these"


# Holds a core in the kernel for a second when it is told to, and prints how long that was by its own count, in ticks.
BURN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
fd, room = os.open("/dev/zero", os.O_RDONLY), bytearray(1 << 22)
print("ready", flush=True)
sys.stdin.readline()
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
before, end = os.times().system, time.monotonic() + 1.0
while time.monotonic() < end:
    os.readv(fd, [room])
print(round((os.times().system - before) * os.sysconf("SC_CLK_TCK")), flush=True)
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
sys.stdin.readline()
"""


def test_a_second_of_kernel_time_on_one_core_is_in_the_recording_with_its_process() -> None:
    """Whether it is a finding depends on what the other cores do: tests/findings replay that."""
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2 or os.geteuid():
        pytest.skip("needs root to hold a core, and a second one to watch from")
    core = max(cpus)
    command = [sys.executable, "-c", BURN, str(core)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as burner:
        assert burner.stdin is not None
        assert burner.stdout is not None
        assert burner.stdout.readline() == "ready\n"
        told = [burner.stdin]

        def burn(part: float) -> None:
            if part > 0.05 and told:
                told.pop().write("go\n")

        recording = record(Root(), CHECK, 3_000_000_000, burn)
        burnt = int(burner.stdout.readline())
        burner.stdin.write("end\n")
    rows = [row for row in recording["cpu"].rows() if row["core"] == core]
    assert rows[-1]["system"] - rows[0]["system"] >= burnt - 3  # the clock's ticks, rounded twice
    assert burner.pid in recording["processes"].ints("pid")


def test_a_container_is_never_taken_for_the_node() -> None:
    """In its own cgroup, mount and PID namespaces, /proc/cgroups still counts the node, the directories only the container."""
    if why := zombies.unavailable():
        pytest.skip(why)
    group = zombies.PARENT / "container"
    group.mkdir(parents=True, exist_ok=True)
    script = (
        f"echo $$ > {group}/cgroup.procs && exec unshare --cgroup --mount --pid --fork --mount-proc sh -c '"
        'umount /sys/fs/cgroup/memory && mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory && exec "$@"\' sh "$@"'
    )
    try:
        with zombies.zombies(1200, tmpfs=True):
            report = check(prefix=("sh", "-c", script, "sh"))
    finally:
        zombies.remove(group)
    assert not [one for one in report["findings"] if one["kind"] == "zombie-memcgs" and one["severity"] != "info"]
    (unseen,) = [one for one in report["verdict"]["unseen"] if one["kind"] == "zombie-memcgs"]
    assert "only this container" in unseen["because"]
    processes = next(source for source in report["sources"] if source["name"] == "processes")
    assert processes["state"] == "partial"
    assert processes["reasons"] == [{"code": "container-only", "visible": "processes", "consequence": ""}]
    assert "only this container" in processes["reason"]


@pytest.mark.usefixtures("real_zombies")
def test_from_inside_a_container_the_mounted_host_is_judged(tmp_path: Path) -> None:
    group = zombies.PARENT / "container"
    group.mkdir(parents=True, exist_ok=True)
    script = (
        f"mount --rbind / {tmp_path} && echo $$ > {group}/cgroup.procs && exec unshare --cgroup --pid --fork --mount sh -c '"
        "mount -t proc proc /proc && umount /sys/fs/cgroup/memory && "
        'mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory && exec "$@"\' sh "$@"'
    )
    try:
        with zombies.zombies(1200, tmpfs=True):
            report = check("--host", str(tmp_path), prefix=("unshare", "--mount", "sh", "-c", script, "sh"))
    finally:
        zombies.remove(group)
    found = finding(report, "zombie-memcgs")
    assert found["facts"]["zombies"] >= 1200
    processes = next(source for source in report["sources"] if source["name"] == "processes")
    assert (processes["state"], processes["reason"]) == ("on", "")


OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in ("open", "os.open") else None)
from exhume.cli.main import main
main(["check", "--for", "300ms", "--json"])
print("\\n".join(opened), file=sys.stderr)
"""


@pytest.mark.usefixtures("real_zombies")
def test_no_statistics_file_that_walks_the_hierarchy_is_ever_opened() -> None:
    with zombies.zombies(50):
        done = subprocess.run([sys.executable, "-c", OPENED], capture_output=True, text=True, check=True)
    opened = done.stderr.splitlines()
    assert any(name.endswith("cgroups") for name in opened)
    assert not [name for name in opened if name.endswith(("memory.stat", "memory.numa_stat", "memory.kmem.slabinfo"))]


def test_checks_leave_nothing_behind_when_they_are_killed() -> None:
    if os.geteuid():
        pytest.skip("needs root to give it directories for temporary files that nobody else has")
    hidden = [Path(place) for place in ("/tmp", "/var/tmp", "/dev/shm")]
    hidden = [place for place in hidden if not any(path.is_relative_to(place) for path in (REPOSITORY, Path(sys.executable)))]
    own = f'for place in {" ".join(map(str, hidden))}; do mount -t tmpfs exhume-test $place || exit 1; done; exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", own, "sh", sys.executable, "-m", "exhume", "check", "--for", "60s"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/") as running:
        wait_for(lambda: any("anon_inode:" in name for name in opened_by(running.pid)))  # its probes are on
        places = [os.open(f"/proc/{running.pid}/root{place}", os.O_RDONLY) for place in hidden]
        running.kill()
    assert [os.listdir(place) for place in places] == [[] for _ in hidden]
    for place in places:
        os.close(place)


def opened_by(pid: int) -> Iterator[str]:
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{descriptor}")


def test_the_launcher_runs_from_anywhere() -> None:
    if not (REPOSITORY / ".venv" / "locked").exists():
        pytest.skip("run by ./test, which makes .venv")
    done = subprocess.run([str(REPOSITORY / "exhume"), "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.startswith("exhume ")
    assert done.stderr == ""
