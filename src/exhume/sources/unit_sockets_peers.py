"""The other ends of Unix sockets, which /proc does not tell: asked of the kernel by sock_diag(7)."""

import socket
import struct

from exhume.kernel.ethtool import socket_in

MOST_PEERS = 100_000
_NETLINK_SOCK_DIAG = 4  # include/uapi/linux/netlink.h
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY, include/uapi/linux/sock_diag.h
_REQUEST, _DUMP = 0x001, 0x300  # NLM_F_REQUEST, NLM_F_DUMP
_ERROR, _DONE = 2, 3
_SHOW_PEER = 0x04  # UDIAG_SHOW_PEER, include/uapi/linux/unix_diag.h
_PEER = 2  # UNIX_DIAG_PEER
_CONNECTED = 1 << 1  # states are TCP's: 1 << TCP_ESTABLISHED


def unix_peers(namespace: str | None) -> dict[int, int]:
    """From the inode of each connected Unix socket to its peer's; of our network namespace or the one behind a path."""
    with socket.socket(fileno=socket_in(namespace, socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)) as link:
        link.settimeout(2.0)
        # struct unix_diag_req: family, protocol, pad, states, inode, what to show, cookie (none).
        request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, _CONNECTED, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
        link.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _REQUEST | _DUMP, 1, 0) + request)
        found: dict[int, int] = {}
        while len(found) < MOST_PEERS:
            pairs, more = parse_peers(link.recv(1 << 17))
            found.update(pairs)
            if not more:
                break
        return found


def parse_peers(raw: bytes) -> tuple[dict[int, int], bool]:
    """One datagram of answers: the pairs in it, and whether there are more to come."""
    found: dict[int, int] = {}
    at = 0
    while at + 16 <= len(raw):
        length, kind = struct.unpack_from("=IH", raw, at)
        if kind in (_ERROR, _DONE) or length < 16:
            return found, False
        end = min(at + length, len(raw))
        # struct unix_diag_msg: family, type, state, pad, inode, cookie; then attributes.
        if kind == _BY_FAMILY and at + 32 <= end:
            (inode,) = struct.unpack_from("=I", raw, at + 20)
            place = at + 32
            while place + 4 <= end:
                size, name = struct.unpack_from("=HH", raw, place)
                if size < 4:
                    break
                if name == _PEER and size >= 8 and place + 8 <= end:
                    (found[inode],) = struct.unpack_from("=I", raw, place + 4)
                place += size + 3 & ~3
        at += length + 3 & ~3
    return found, at > 0
