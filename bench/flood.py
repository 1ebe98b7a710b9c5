"""Sends small UDP packets as fast as it can for so long, in the network namespace it is started in; prints how many a second.

python -m bench.flood ADDRESS SECONDS
"""

import ctypes
import os
import socket
import sys
import time

BATCH = 64


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("sent", ctypes.c_uint))


def main(address: str, seconds: float) -> None:
    os.sched_setaffinity(0, {1})
    libc = ctypes.CDLL(None, use_errno=True)
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect((address, 9))
    data = ctypes.create_string_buffer(64)
    vector = _Vector(ctypes.addressof(data), 64)
    header = _Header(None, 0, ctypes.addressof(vector), 1, None, 0, 0)
    messages = (_Message * BATCH)(*[_Message(header, 0) for _ in range(BATCH)])
    sent = 0
    begin = now = time.perf_counter()
    while now < begin + seconds:
        done = libc.sendmmsg(out.fileno(), messages, BATCH, 0)
        if done > 0:
            sent += done
        now = time.perf_counter()
    print(sent / (now - begin))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
