"""Sends every datagram back."""

import socket

from exhume.lab.work import call, say


def main(port: str) -> None:
    call("lab-echo")
    both = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    both.bind(("0.0.0.0", int(port)))
    say(listening=int(port))
    while True:
        data, address = both.recvfrom(2048)
        both.sendto(data, address)
