"""Tells systemd how the service fares, where it asked to be told: sd_notify(3), a datagram to the socket in NOTIFY_SOCKET."""

import os
import socket
from contextlib import suppress


def notify(state: str) -> bool:
    """READY=1, WATCHDOG=1, STOPPING=1 ...; whether anybody was told."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return False
    address = f"\0{place[1:]}" if place.startswith("@") else place
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as to:
        to.sendto(state.encode(), address)
        return True
    return False
