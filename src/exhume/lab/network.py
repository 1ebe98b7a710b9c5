"""A link of two network namespaces by a veth pair, whose receiving side is polled by a kernel thread of its own on one core."""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from exhume.errors import Refused
from exhume.kernel.ethtool import socket_in
from exhume.lab.workshop import Lab

NEAR, FAR = "lab0", "lab1"
NEAR_ADDRESS, FAR_ADDRESS = "10.203.0.1", "10.203.0.2"
PORT: Final = 4711

_SIOCETHTOOL = 0x8946
# include/uapi/linux/ethtool.h: offloads by their old switches, which every kernel still takes
_STSO, _SGSO, _SGRO = 0x1F, 0x24, 0x2C
_PATIENCE_S = 5


def missing() -> str:
    """Why no link can be made here; "" if it can."""
    if (os.cpu_count() or 1) < 2:
        return "it takes two cores: one to starve, one to live on"
    if not any(os.access(f"{place}/ip", os.X_OK) for place in os.environ.get("PATH", "").split(":")):
        return "it takes ip (iproute2)"
    return ""


class Network:
    """Programs in the two namespaces talk across the link; `thread` polls its far end."""

    def __init__(self, lab: Lab, core: int, priority: int = 0, threaded: bool = True) -> None:
        """With a `priority` the polling thread is of the real-time class, below whoever starves it: else the scheduler's
        fair server lets it in after a second."""
        self._lab = lab
        self.near, self.far = f"{lab.name}-near", f"{lab.name}-far"
        for name in (self.near, self.far):
            _run("ip", "netns", "add", name)
            _without_ipv6(name)
        _run("ip", "link", "add", NEAR, "netns", self.near, "type", "veth", "peer", "name", FAR, "netns", self.far)
        for name, device, address in ((self.near, NEAR, NEAR_ADDRESS), (self.far, FAR, FAR_ADDRESS)):
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
            _run("ip", "-n", name, "link", "set", device, "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
        self.thread = self._poll_by_thread(core, priority) if threaded else 0

    def work(self, where: str, what: str, *arguments: object) -> "subprocess.Popen[str]":
        """A little program in one of the namespaces."""
        return self._lab.work("in-network", f"/run/netns/{where}", what, *arguments)

    def _poll_by_thread(self, core: int, priority: int) -> int:
        # veth_xmit in drivers/net/veth.c: only packets that are not segmented later go by the way of NAPI
        _offloads(self.near, NEAR, ((_STSO, 0), (_SGSO, 0)))
        _offloads(self.far, FAR, ((_SGRO, 1),))
        _run("ip", "netns", "exec", self.far, "sh", "-c", f"echo 1 > /sys/class/net/{FAR}/threaded")
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            found = _pollers()
            if found:
                for thread in found:
                    os.sched_setaffinity(thread, {core})
                    if priority:
                        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))
                return found[0]
            time.sleep(0.02)
        raise Refused(f"{FAR} got no NAPI thread: this kernel cannot poll a veth that way (5.12)")

    def close(self) -> None:
        for name in (self.near, self.far):
            subprocess.run(("ip", "netns", "del", name), check=False, capture_output=True)


def _pollers() -> list[int]:
    """Threads napi/lab1-N. Other runs may have such, too, in a namespace of their own: the newest is ours."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "comm").read_bytes().startswith(f"napi/{FAR}-".encode()):
                found.append(int(entry.name))
    return sorted(found, reverse=True)[:1]


def _offloads(network: str, device: str, switches: tuple[tuple[int, int], ...]) -> None:
    fd = socket_in(f"/run/netns/{network}", socket.AF_INET, socket.SOCK_DGRAM)
    try:
        for command, on in switches:
            room = ctypes.create_string_buffer(struct.pack("=II", command, on), 8)
            request = struct.pack("16sP16x", device.encode(), ctypes.addressof(room))
            fcntl.ioctl(fd, _SIOCETHTOOL, request)
    except OSError as error:
        raise Refused(f"the offloads of {device} cannot be set: {error.strerror}") from None
    finally:
        os.close(fd)


def _without_ipv6(network: str) -> None:
    """It is of no use here, and a link that gets it is worth a line in the node's log to some kernels (seen on 6.1)."""
    switch = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
    _run("ip", "netns", "exec", network, "sh", "-c", f"test ! -e {switch} || echo 1 > {switch}")


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{' '.join(command)} failed: {done.stderr.strip()}")
