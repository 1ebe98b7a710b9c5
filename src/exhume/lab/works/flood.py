"""Sends so many small datagrams a second to a multicast group, from one core."""

import socket
import time

from exhume.lab.work import call, on_core, say

STEP_S = 0.002
_DATA = b"x" * 64


def main(group: str, port: str, address: str, a_second: str, core: str) -> None:
    call("lab-flood")
    on_core(int(core))
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    each = max(1, round(float(a_second) * STEP_S))
    sent, due = 0, time.monotonic()
    told = due
    while True:
        for _ in range(each):
            try:
                out.sendto(_DATA, (group, int(port)))
            except OSError:  # the sender's own queue is full
                break
            sent += 1
        now = time.monotonic()
        due = max(due + STEP_S, now - 0.1)
        if now - told > 0.5:
            told = now
            say(sent=sent)
        if due > now:
            time.sleep(due - now)
