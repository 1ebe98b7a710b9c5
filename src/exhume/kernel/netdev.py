"""The netdev family of generic netlink, as far as it reads: which NAPI serves a queue, its interrupt, and its thread if any.

The kernel's own word where /proc/interrupts has only names; since 6.8, and for drivers that tell it (netif_queue_set_napi,
netif_napi_set_irq). Numbers are those of include/uapi/linux/netdev.h and genetlink.h; net/core/netdev-genl.c answers, under
the rtnl lock or that of the device. It needs no privilege. A device that is down has no NAPI here.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from exhume.kernel.ethtool import socket_in

MOST_BYTES = 4 << 20  # of an answer; a NAPI takes about 70

_NETLINK_GENERIC = 16
_CTRL, _GETFAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_QUEUE_GET, _NAPI_GET = 10, 11
_QUEUE_ID, _QUEUE_IFINDEX, _QUEUE_TYPE, _QUEUE_NAPI = 1, 2, 3, 4
_NAPI_IFINDEX, _NAPI_ID, _NAPI_IRQ, _NAPI_PID, _NAPI_THREADED = 1, 2, 3, 4, 8

_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_GENERIC = struct.Struct("=BBH")  # struct genlmsghdr
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr
_TYPE = 0x3FFF  # NLA_TYPE_MASK


@dataclass(frozen=True, slots=True)
class Napi:
    ifindex: int
    id: int
    """0 for one that cannot be busy polled: virtio_net's of a transmit queue, for one."""
    irq: int | None
    pid: int | None
    """Of its thread, as the initial pid namespace numbers it."""
    threaded: bool | None
    """None where the kernel does not tell (before 6.17)."""


@dataclass(frozen=True, slots=True)
class NapiQueue:
    ifindex: int
    side: Literal["rx", "tx"]
    number: int
    napi: int | None


class Netdev:
    """Asks about the devices of one network namespace, as Ethtool does. Anything that fails raises OSError; a kernel without
    the family or the command says ENOENT or EOPNOTSUPP."""

    def __init__(self, namespace: str | None = None) -> None:
        self._socket = socket.socket(fileno=socket_in(namespace, socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC))
        self._socket.settimeout(60)  # the answer to a dump is made while it is asked for; this only ends what never should be
        try:
            self._family = self._find()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def napis(self) -> list[Napi]:
        return [napi for message in self._ask(self._family, _NAPI_GET) if (napi := parse_napi(message)) is not None]

    def queues(self) -> list[NapiQueue]:
        return [queue for message in self._ask(self._family, _QUEUE_GET) if (queue := parse_queue(message)) is not None]

    def _find(self) -> int:
        name = b"netdev\0"
        asked = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(name), _FAMILY_NAME) + name + b"\0"
        for message in self._ask(_CTRL, _GETFAMILY, asked, dump=False):
            found = attributes(message).get(_FAMILY_ID, b"")
            if len(found) == 2:
                return int(struct.unpack("=H", found)[0])
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _ask(self, family: int, command: int, body: bytes = b"", dump: bool = True) -> Iterator[bytes]:
        """The bodies of the messages that answer."""
        length = _HEADER.size + _GENERIC.size + len(body)
        flags = _REQUEST | (_DUMP if dump else 0)
        self._socket.send(_HEADER.pack(length, family, flags, command, 0) + _GENERIC.pack(command, 1, 0) + body)
        left = MOST_BYTES
        while left > 0:
            raw = self._socket.recv(1 << 16)
            left -= len(raw)
            for kind, message in messages(raw):
                if kind in (_ERROR, _DONE):
                    raise_error(message)
                    return
                yield message[_GENERIC.size :]
            if not dump:
                return
        raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW))


def raise_error(message: bytes) -> None:
    """NLMSG_ERROR and NLMSG_DONE begin with 0 or a negative error number."""
    number = -int(struct.unpack_from("=i", message)[0]) if len(message) >= 4 else errno.EPROTO
    if number > 0:
        raise OSError(number, os.strerror(number))


def messages(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each whole message."""
    while len(raw) >= _HEADER.size:
        length, kind, _, _, _ = _HEADER.unpack_from(raw)
        if not _HEADER.size <= length <= len(raw):
            return
        yield kind, raw[_HEADER.size : length]
        raw = raw[(length + 3) & ~3 :]


def attributes(raw: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while len(raw) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(raw)
        if not _ATTRIBUTE.size <= length <= len(raw):
            break
        found[kind & _TYPE] = raw[_ATTRIBUTE.size : length]
        raw = raw[(length + 3) & ~3 :]
    return found


def parse_napi(message: bytes) -> Napi | None:
    of = attributes(message)
    ifindex, number = _number(of.get(_NAPI_IFINDEX)), _number(of.get(_NAPI_ID))
    if ifindex is None or number is None:
        return None
    threaded = _number(of.get(_NAPI_THREADED))
    return Napi(
        ifindex, number, _number(of.get(_NAPI_IRQ)), _number(of.get(_NAPI_PID)), None if threaded is None else threaded > 0
    )


def parse_queue(message: bytes) -> NapiQueue | None:
    of = attributes(message)
    ifindex, number, side = (_number(of.get(kind)) for kind in (_QUEUE_IFINDEX, _QUEUE_ID, _QUEUE_TYPE))
    if ifindex is None or number is None or side not in (0, 1):
        return None
    return NapiQueue(ifindex, "tx" if side else "rx", number, _number(of.get(_QUEUE_NAPI)))


def _number(raw: bytes | None) -> int | None:
    return struct.unpack("=I", raw)[0] if raw is not None and len(raw) == 4 else None
