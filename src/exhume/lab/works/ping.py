"""Round trips across a link, a hundred a second: each datagram has when it was sent. Tells what each second was like."""

import socket
import statistics
import struct
import time
from contextlib import suppress

from exhume.lab.work import call, say

STEP_S = 0.01


def main(address: str, port: str) -> None:
    call("lab-ping")
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect((address, int(port)))
    out.setblocking(False)
    due = told = answered = time.monotonic()
    trips: list[float] = []
    worst = silence = 0.0
    while True:
        now = time.monotonic()
        with suppress(OSError):
            out.send(struct.pack("=d", now))
        due = max(due + STEP_S, now)
        while (left := due - time.monotonic()) > 0:
            try:
                (sent,) = struct.unpack("=d", out.recv(64))
            except (BlockingIOError, ConnectionRefusedError):
                time.sleep(min(left, 0.001))
                continue
            answered = time.monotonic()
            trips.append(answered - sent)
        silence = max(silence, time.monotonic() - answered)
        if now - told >= 0.5:
            told = now
            worst = max([worst, *trips])
            quiet = now - answered
            median = statistics.median(trips) if trips else quiet
            say(
                rtt_ms=round(median * 1000, 3),
                worst_rtt_ms=round(worst * 1000, 1),
                silence_ms=round(silence * 1000, 1),
                quiet_ms=round(quiet * 1000, 1),
            )
            trips = []
