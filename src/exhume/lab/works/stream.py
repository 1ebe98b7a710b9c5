"""A steady stream of bytes over TCP: `take` them, or `give` so many megabytes a second."""

import socket
import time

from exhume.lab.work import call, say

PIECE = b"\0" * (64 << 10)


def main(role: str, address: str, port: str, megabytes_a_second: str = "0") -> None:
    call(f"lab-{role}")
    if role == "take":
        _take(address, int(port))
    else:
        _give(address, int(port), float(megabytes_a_second))


def _take(address: str, port: int) -> None:
    with socket.create_server((address, port)) as server:
        say(listening=port)
        taken, told = 0, time.monotonic()
        connection, _ = server.accept()
        while data := connection.recv(1 << 20):
            taken += len(data)
            if time.monotonic() - told >= 0.5:
                told = time.monotonic()
                say(bytes=taken)


def _give(address: str, port: int, megabytes_a_second: float) -> None:
    out = socket.create_connection((address, port))
    due = time.monotonic()
    while True:
        out.sendall(PIECE)
        due = max(due + len(PIECE) / (megabytes_a_second * 1e6), time.monotonic() - 0.2)
        if (rest := due - time.monotonic()) > 0:
            time.sleep(rest)
