"""A small job of two workers across a link, step after step a request and its answer. It dies as Ray's do, of a time-out."""

import socket
import sys
import time

from exhume.lab.work import call, say


def main(address: str, port: str, patience_s: str) -> None:
    call("ray::Trainer")
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect((address, int(port)))
    out.settimeout(float(patience_s))
    step = 0
    while True:
        try:
            out.send(b"step %d" % step)
            out.recv(2048)
        except OSError:
            say(job="failed", error=f"ObjectFetchTimedOutError at step {step}", steps=step)
            sys.exit(1)
        step += 1
        if step % 50 == 0:
            say(job="running", steps=step)
        time.sleep(0.02)
