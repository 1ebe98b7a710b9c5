"""Many listeners to one multicast group, who never read: the kernel hands each packet to every one of them, in a softirq."""

import resource
import socket
import time

from exhume.lab.work import call, say

_ROOM = 4096  # bytes in a listener's queue: full at once, and then all that is left is the work of finding that out


def main(group: str, port: str, address: str, count: str) -> None:
    call("lab-listen")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listeners = []
    for _ in range(int(count)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
        listener.bind((group, int(port)))
        listeners.append(listener)
    # One joins, all hear: a socket hears what comes to its address unless it says otherwise (IP_MULTICAST_ALL).
    member = socket.inet_aton(group) + socket.inet_aton(address)
    listeners[0].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    say(listening=len(listeners))
    while True:
        time.sleep(3600)
