"""Switches a network device in and out of promiscuous mode, so that the kernel says so each time: a flood of messages of its
own, as of a device that flaps. A program's lines in /dev/kmsg would be no such thing: they are marked as a program's.
"""

import fcntl
import socket
import struct
import time

from exhume.lab.work import call, say

# include/uapi/linux/sockios.h, include/uapi/linux/if.h
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_PROMISC = 0x100
_REQUEST = struct.Struct("16sH14x")


def main(device: str, a_second: str, most: str) -> None:
    """`most` messages, then it is quiet: what is in the kernel's log pushes older lines out."""
    call("lab-flapper")
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    name = device.encode()
    _, flags = _REQUEST.unpack(fcntl.ioctl(control, _SIOCGIFFLAGS, _REQUEST.pack(name, 0)))
    due = told = time.monotonic()
    for count in range(1, int(most) + 1):
        flags ^= _IFF_PROMISC
        fcntl.ioctl(control, _SIOCSIFFLAGS, _REQUEST.pack(name, flags))
        due = max(due + 1 / float(a_second), time.monotonic() - 0.1)
        if (rest := due - time.monotonic()) > 0:
            time.sleep(rest)
        if time.monotonic() - told > 0.5:
            told = time.monotonic()
            say(messages=count)
    say(messages=int(most))
    while True:
        time.sleep(3600)
