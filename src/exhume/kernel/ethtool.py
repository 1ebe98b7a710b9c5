"""The ethtool ioctl, as far as it reads: which driver a network device has, and the statistics that only the driver keeps.

Structures and numbers are those of include/uapi/linux/ethtool.h; net/ethtool/ioctl.c answers. All of it needs no privilege.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
import threading
import weakref
from dataclasses import dataclass
from types import TracebackType

from exhume.text import decode

MOST_STATISTICS = 8192

_SIOCETHTOOL = 0x8946
_GDRVINFO, _GSTRINGS, _GSTATS, _GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
_SS_STATS = 1  # enum ethtool_stringset, ETH_SS_STATS
_NAME = 32  # ETH_GSTRING_LEN
_LONGEST_DEVICE = 15  # IFNAMSIZ with its NUL
_CLONE_NEWNET = 0x40000000

_IFREQ = struct.Struct("16sP16x")  # the union after the name is 24 bytes on 64 bit; more than is read does no harm
_DRVINFO = struct.Struct("=I32s32s32s32s32s12x5I")
_SSET_INFO = struct.Struct("=IIQI")
_STRINGS = struct.Struct("=III")
_STATS = struct.Struct("=II")

# Kernels before 7b07be1ff1cb (6.19, in stable since 6.18.3) copy out as many statistics as the device has *now*, however
# few it had when it was asked for their number: a reset that adds queues in between would write past a buffer made to
# measure. So the buffer is 32 times what the longest list we take needs; pages that nothing is written to cost nothing.
_ROOM = 32 * MOST_STATISTICS * _NAME


@dataclass(frozen=True, slots=True)
class Driver:
    """struct ethtool_drvinfo. In-tree drivers mostly report the kernel's release as their version."""

    name: str
    version: str
    bus: str


class Ethtool:
    """Asks about the devices of one network namespace: ours, or the one behind a path such as /proc/1/ns/net.

    Every question waits for the kernel's rtnl lock, which a driver holds while it resets: it may take seconds.
    Anything that fails raises OSError.
    """

    def __init__(self, namespace: str | None = None) -> None:
        self._names: dict[tuple[str, int], tuple[str, ...]] = {}
        self._fd = socket_in(namespace, socket.AF_INET, socket.SOCK_DGRAM)
        self._close_fd = weakref.finalize(self, os.close, self._fd)  # readers are dropped, not closed
        self._room = mmap.mmap(-1, _ROOM)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._room))

    def __enter__(self) -> "Ethtool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._close_fd()
        self._room.close()

    def driver(self, device: str) -> Driver:
        self._ask(device, _DRVINFO, _GDRVINFO, b"", b"", b"", b"", b"", 0, 0, 0, 0, 0)
        _, name, version, _, bus, *_ = _DRVINFO.unpack_from(self._room)
        return Driver(_text(name), _text(version), _text(bus))

    def statistics(self, device: str) -> dict[str, int]:
        """The driver's statistics by name, as unsigned 64 bit numbers; empty where the driver keeps none."""
        for _ in range(2):
            count = self._count(device)
            if count == 0:
                return {}
            if count > MOST_STATISTICS:
                raise OSError(errno.EOVERFLOW, f"{device} has {count} statistics, more than {MOST_STATISTICS} are not read")
            names = self._names.get((device, count)) or self._read_names(device, count)
            values = self._read_values(device, count)
            if names and values:
                self._names[device, count] = names
                return dict(zip(names, values, strict=True))
        raise OSError(errno.EAGAIN, f"the statistics of {device} change while they are read")

    def _count(self, device: str) -> int:
        self._ask(device, _SSET_INFO, _GSSET_INFO, 0, 1 << _SS_STATS, 0)
        _, _, answered, count = _SSET_INFO.unpack_from(self._room)
        return int(count) if answered & 1 << _SS_STATS else 0

    def _read_names(self, device: str, count: int) -> tuple[str, ...]:
        """Nothing when there are no longer `count` of them, which newer kernels say by a 0."""
        self._ask(device, _STRINGS, _GSTRINGS, _SS_STATS, count)
        if _STRINGS.unpack_from(self._room)[2] != count:
            return ()
        start = _STRINGS.size
        return tuple(_text(self._room[at : at + _NAME]) for at in range(start, start + count * _NAME, _NAME))

    def _read_values(self, device: str, count: int) -> tuple[int, ...]:
        self._ask(device, _STATS, _GSTATS, count)
        if _STATS.unpack_from(self._room)[1] != count:
            return ()
        return struct.unpack_from(f"={count}Q", self._room, _STATS.size)

    def _ask(self, device: str, layout: struct.Struct, *request: int | bytes) -> None:
        name = os.fsencode(device)
        if not 0 < len(name) <= _LONGEST_DEVICE:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        layout.pack_into(self._room, 0, *request)
        fcntl.ioctl(self._fd, _SIOCETHTOOL, _IFREQ.pack(name, self._address))


def _text(raw: bytes) -> str:
    return decode(raw.partition(b"\0")[0])


def socket_in(namespace: str | None, family: int, kind: int, protocol: int = 0) -> int:
    """A socket of ours, or of the network namespace behind a path, as a file descriptor.

    setns() moves one thread, and a socket stays where it was made: a thread goes there, makes it, and ends.
    """

    def make() -> int:
        return socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol).detach()

    if namespace is None:
        return make()
    made: list[int | OSError] = []

    def enter() -> None:
        try:
            fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
                if libc.setns(fd, _CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), namespace)
            finally:
                os.close(fd)
            made.append(make())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter, name="exhume-netns", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # what Python makes of EAGAIN: a limit of threads is reached
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
