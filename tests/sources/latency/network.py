"""Two network namespaces of the test's own with a pair of veths between them, and packets that go from one to the other."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

RECEIVER = "exhume-r"

# Sends a number of small packets, one at a time, or as one burst that nothing of the ordinary kind interrupts on this core.
_SEND = """
import os, socket, sys, time
count, cpu, burst = map(int, sys.argv[1:])
os.sched_setaffinity(0, {cpu})
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
plain.sendto(b"first", ("10.99.0.2", 4000))
time.sleep(0.05)
print("ready", flush=True)
sys.stdin.readline()
if burst:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
for number in range(count):
    plain.sendto(b"x", ("10.99.0.2", 4000))
    if not burst and number % 10 == 0:
        time.sleep(0.0005)
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
time.sleep(0.02)
"""


@dataclass(frozen=True)
class Pair:
    sender: str
    receiver: str

    @property
    def netns(self) -> int:
        """Inode number of the receiver's namespace."""
        return os.stat(f"/run/netns/{self.receiver}").st_ino

    @property
    def ifindex(self) -> int:
        return int(self._in_receiver("cat", f"/sys/class/net/{RECEIVER}/ifindex"))

    def thread(self, cpu: int) -> None:
        """Have the receiver polled by a kernel thread, on this core."""
        self._in_receiver("sh", "-c", f"echo 1 > /sys/class/net/{RECEIVER}/threaded")
        names = {}
        for path in Path("/proc").glob("[0-9]*/comm"):
            with suppress(OSError):  # others end meanwhile
                names[path.parent.name] = path.read_bytes()
        (task,) = [pid for pid, name in names.items() if name.startswith(f"napi/{RECEIVER}-".encode())]
        os.sched_setaffinity(int(task), {cpu})

    def unthread(self) -> None:
        self._in_receiver("sh", "-c", f"echo 0 > /sys/class/net/{RECEIVER}/threaded")

    @contextmanager
    def sending(self, count: int, *, cpu: int, burst: bool = False) -> Iterator["Sender"]:
        command = ["ip", "netns", "exec", self.sender, sys.executable, "-c", _SEND, str(count), str(cpu), str(int(burst))]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Sender(process)
            finally:
                process.kill()

    def _in_receiver(self, *command: str) -> str:
        done = subprocess.run(["ip", "netns", "exec", self.receiver, *command], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


class Sender:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def send(self) -> None:
        """All of it, and wait until it has arrived."""
        assert self._process.communicate("go\n", timeout=120) is not None
        assert self._process.returncode == 0


@contextmanager
def veth_pair() -> Iterator[Pair]:
    """Packets take the NAPI path: the sender does not bundle them, the receiver does."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("ethtool") is None:
        pytest.skip("needs root, iproute2 and ethtool to make network namespaces")
    pair = Pair(f"exhume-test-s{os.getpid()}", f"exhume-test-r{os.getpid()}")
    try:
        for name in (pair.sender, pair.receiver):
            _run("ip", "netns", "add", name)
        _run("ip", "-n", pair.sender, "link", "add", "exhume-s", "type", "veth", "peer", "name", RECEIVER)
        _run("ip", "-n", pair.sender, "link", "set", RECEIVER, "netns", pair.receiver)
        for name, device, address in ((pair.sender, "exhume-s", "10.99.0.1/24"), (pair.receiver, RECEIVER, "10.99.0.2/24")):
            _run("ip", "-n", name, "address", "add", address, "dev", device)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "link", "set", device, "up")
        _run("ip", "netns", "exec", pair.sender, "ethtool", "-K", "exhume-s", "tso", "off", "gso", "off")
        _run("ip", "netns", "exec", pair.receiver, "ethtool", "-K", RECEIVER, "gro", "on")
        yield pair
    finally:
        for name in (pair.sender, pair.receiver):
            if os.path.exists(f"/run/netns/{name}"):
                subprocess.run(["ip", "netns", "del", name], check=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no network of namespaces can be made here: {' '.join(command)}: {done.stderr.strip()}")
