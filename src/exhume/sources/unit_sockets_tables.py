"""The kernel's lists of sockets, /proc/net/{tcp,tcp6,udp,udp6,unix}, as data. Pure: bytes in, rows out."""

import ipaddress
import os
import struct
import sys
from typing import NamedTuple

MOST_ROWS = 100_000

LISTEN, ESTABLISHED = 0x0A, 0x01  # include/net/tcp_states.h
_UNCONNECTED_UDP = 0x07  # a UDP socket that is bound and talks to everybody is TCP_CLOSE to the kernel
_ACCEPTS = 0x10000  # __SO_ACCEPTCON, include/uapi/linux/net.h
_CONNECTED = 3  # SS_CONNECTED, include/uapi/linux/net.h


class Inet(NamedTuple):
    protocol: str
    local: tuple[str, int]
    remote: tuple[str, int]
    listening: bool
    connected: bool
    inode: int


class Unix(NamedTuple):
    path: str
    """Empty for a socket without a name; @... for an abstract one."""
    listening: bool
    connected: bool
    inode: int


def parse_inet(raw: bytes, protocol: str) -> list[Inet]:
    """Rows of tcp4_seq_show and udp4_seq_show (net/ipv4); what does not parse is passed over."""
    rows = []
    for line in raw.split(b"\n", MOST_ROWS)[1:MOST_ROWS]:
        words = line.split(None, 10)
        try:
            local, remote, state, inode = _address(words[1]), _address(words[2]), int(words[3], 16), int(words[9])
        except (IndexError, ValueError):
            continue
        if protocol.startswith("udp"):
            listening, connected = state == _UNCONNECTED_UDP, state == ESTABLISHED
        else:
            listening, connected = state == LISTEN, state == ESTABLISHED
        if 0 < inode < 1 << 63:  # those without a process have none: TIME_WAIT and the like
            rows.append(Inet(protocol, local, remote, listening, connected, inode))
    return rows


def _address(word: bytes) -> tuple[str, int]:
    """Words of 32 bits in the machine's own byte order, and the port, in hex."""
    host, colon, port = word.partition(b":")
    if not colon or len(host) not in (8, 32) or len(port) != 4:
        raise ValueError(word)
    order = "<" if sys.byteorder == "little" else ">"
    packed = b"".join(struct.pack(order + "I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
    number: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(packed)
    if isinstance(number, ipaddress.IPv6Address) and number.ipv4_mapped is not None:
        number = number.ipv4_mapped  # an IPv4 client of a socket that takes both
    return str(number), int(port, 16)


def parse_unix(raw: bytes) -> list[Unix]:
    """Rows of unix_seq_show (net/unix/af_unix.c). A path may hold spaces, and anything else but a line's end."""
    rows = []
    for line in raw.split(b"\n", MOST_ROWS)[1:MOST_ROWS]:
        words = line.split(None, 7)
        try:
            flags, state, inode = int(words[3], 16), int(words[5], 16), int(words[6])
        except (IndexError, ValueError):
            continue
        if 0 < inode < 1 << 63:
            path = os.fsdecode(words[7]) if len(words) > 7 else ""
            rows.append(Unix(path, bool(flags & _ACCEPTS), state == _CONNECTED, inode))
    return rows
