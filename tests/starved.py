"""A NAPI thread that is starved for real: a veth pair between two network namespaces, its receiving side polled by a kernel
thread on one core, traffic across it, and somebody who holds that core for a known time."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import wait_for

# Of this process: several may run at once.
_NUMBER = os.getpid() % 100_000
SENDER, RECEIVER = f"exhume-test-{_NUMBER}-a", f"exhume-test-{_NUMBER}-b"
NEAR, FAR = f"exhn{_NUMBER}", f"exht{_NUMBER}"
CORE = 1
LOCK = "/dev/shm/exhume-test-core.lock"
"""Whoever holds a core has it: two test runs on one machine must not hold a core at once, or while one purges."""

_TRAFFIC = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("10.77.3.2", 9))
while True:
    try:
        s.send(b"x" * 64)
    except OSError:
        pass
    time.sleep(0.001)
"""

_HOLD = """
import fcntl, os, sys, time
ms, core = int(sys.argv[1]), int(sys.argv[2])
lock = open(sys.argv[4], "w")
os.sched_setaffinity(0, {core})
if sys.argv[3] == "wait":
    print("ready", flush=True)
    sys.stdin.readline()
fcntl.flock(lock, fcntl.LOCK_EX)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
begin = time.monotonic_ns()
print("holds", flush=True)
while time.monotonic_ns() < begin + ms * 1_000_000:
    pass
end = time.monotonic_ns()
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
print(begin, end)
"""


def needs_starvation() -> None:
    if os.geteuid():
        pytest.skip("it takes root to make network namespaces and real-time processes")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("it takes a second core to watch from")
    for tool in ("ip", "ethtool"):
        if not any(Path(directory, tool).exists() for directory in ("/sbin", "/usr/sbin", "/usr/bin", "/bin")):
            pytest.skip(f"{tool} is not installed")


@dataclass(frozen=True)
class Link:
    thread: int
    """The kernel thread that polls the receiving side."""
    netns: int
    device: str = FAR
    core: int = CORE


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _pollers() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "comm").read_bytes().startswith(f"napi/{FAR}-"[:15].encode()):
                found.add(int(entry.name))
    return found


def _switches(thread: int) -> int:
    return int(Path(f"/proc/{thread}/schedstat").read_text().split()[2])


def waited_ns(thread: int) -> int:
    """How long a thread has waited for a core in all, as the kernel counts it."""
    return int(Path(f"/proc/{thread}/schedstat").read_text().split()[1])


def _remove() -> None:
    for name in (SENDER, RECEIVER):
        subprocess.run(("ip", "netns", "del", name), check=False, capture_output=True)


def _poll_by_thread(real_time: bool) -> int:
    # So that packets take the way through NAPI: see veth_xmit in drivers/net/veth.c
    _run("ip", "netns", "exec", SENDER, "ethtool", "-K", NEAR, "tso", "off", "gso", "off")
    _run("ip", "netns", "exec", RECEIVER, "ethtool", "-K", FAR, "gro", "on")
    _run("ip", "netns", "exec", RECEIVER, "sh", "-c", f"echo 1 > /sys/class/net/{FAR}/threaded")
    (thread,) = _pollers()
    os.sched_setaffinity(thread, {CORE})
    if real_time:
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
    return thread


@contextmanager
def link(*, real_time: bool = False, traffic: bool = True, threaded: bool = True) -> Iterator[Link]:
    """With `real_time` the NAPI thread is of that class itself: then the scheduler's fair server does not let it in either.
    Without `threaded` packets go by the backlog of the core that sends them."""
    _remove()
    sender = None
    try:
        for name in (SENDER, RECEIVER):
            _run("ip", "netns", "add", name)
        _run("ip", "link", "add", NEAR, "netns", SENDER, "type", "veth", "peer", "name", FAR, "netns", RECEIVER)
        for name, device, address in ((SENDER, NEAR, "10.77.3.1/24"), (RECEIVER, FAR, "10.77.3.2/24")):
            _run("ip", "-n", name, "addr", "add", address, "dev", device)
            _run("ip", "-n", name, "link", "set", device, "up")
        thread = 0
        if threaded:
            thread = _poll_by_thread(real_time)
        if traffic:
            sender = subprocess.Popen(("ip", "netns", "exec", SENDER, sys.executable, "-c", _TRAFFIC))
            os.sched_setaffinity(sender.pid, {0})
            os.sched_setscheduler(sender.pid, os.SCHED_FIFO, os.sched_param(5))  # a packet each millisecond, whatever else runs
            if thread:
                before = _switches(thread)
                wait_for(lambda: _switches(thread) > before + 20)
        yield Link(thread, os.stat(f"/run/netns/{RECEIVER}").st_ino)
    finally:
        if sender is not None:
            sender.kill()
            sender.wait()
        _remove()


def hold(ms: int, core: int = CORE) -> "subprocess.Popen[str]":
    """A process that keeps a core for so long from soon on; prints when, on CLOCK_MONOTONIC."""
    return subprocess.Popen((sys.executable, "-c", _HOLD, str(ms), str(core), "", LOCK), stdout=subprocess.PIPE, text=True)


def ready_to_hold(ms: int, core: int = CORE) -> "subprocess.Popen[str]":
    """The same, from the moment when `hold_now` is called."""
    command = (sys.executable, "-c", _HOLD, str(ms), str(core), "wait", LOCK)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def hold_now(process: "subprocess.Popen[str]") -> None:
    """Returns when it holds the core."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    assert process.stdout.readline() == "holds\n"


def held(process: "subprocess.Popen[str]") -> tuple[int, int]:
    """From when to when it held the core, by its own clock."""
    output, _ = process.communicate(timeout=300)
    begin, end = output.splitlines()[-1].split()
    return int(begin), int(end)


@contextmanager
def no_core_held() -> Iterator[None]:
    """No test on this machine holds a core meanwhile: a purge is refused then, and rightly."""
    with open(LOCK, "w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def off_the_core(core: int = CORE, *, real_time: bool = False) -> Iterator[None]:
    """This thread, and those it starts, on other cores: one that waits for the held core sees nothing. With `real_time` it runs
    as soon as it wants to, whatever else does; the processes it starts do not."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed - {core})
    if real_time:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(20))
    try:
        yield
    finally:
        if real_time:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, allowed)
