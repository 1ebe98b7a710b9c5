"""A mixed load for the recorder's benchmarks: `python -m bench.load SECONDS [RATE]`.

Compressing, hashing, parsing, small files, a pipe between two processes, and RATE short processes a second. The parts rest
now and then, so that cores are idle too.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable


def _work(end: float, task: Callable[[], object], busy_s: float, rest_s: float) -> None:
    while time.monotonic() < end:
        until = time.monotonic() + busy_s
        while time.monotonic() < until:
            task()
        time.sleep(rest_s)


def _compress(end: float) -> None:
    block = os.urandom(1 << 14) * 4
    _work(end, lambda: hashlib.sha256(zlib.compress(block, 3)).digest(), 0.05, 0.06)


def _parse(end: float) -> None:
    text = json.dumps([{"name": f"n{i}", "values": list(range(i % 30)), "nested": {"a": i}} for i in range(200)])
    _work(end, lambda: sorted(json.loads(text), key=lambda row: str(row["nested"])), 0.04, 0.08)


def _files(end: float) -> None:
    with tempfile.TemporaryDirectory() as place:

        def touch() -> None:
            for i in range(20):
                with open(f"{place}/{i}", "wb") as file:
                    file.write(b"x" * 4096)
                os.stat(f"{place}/{i}")
            for name in os.listdir(place):
                os.unlink(f"{place}/{name}")

        _work(end, touch, 0.03, 0.1)


def _pipe(end: float) -> None:
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(write)
        while os.read(read, 1):
            pass
        os._exit(0)
    _work(end, lambda: os.write(write, b"x"), 0.02, 0.05)
    os.close(write)


def _short(end: float, rate: int) -> None:
    begun, started = time.monotonic(), 0
    while time.monotonic() < end:
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        started += 1
        time.sleep(max(0.0, begun + started / rate - time.monotonic()))


def main() -> None:
    end = time.monotonic() + float(sys.argv[1])
    rate = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    parts: list[Callable[[float], None]] = [_compress, _parse, _files, _pipe]
    if rate:
        parts.append(lambda until: _short(until, rate))
    children = []
    for part in parts:
        child = os.fork()
        if child == 0:
            part(end)
            os._exit(0)
        children.append(child)
    try:
        for child in children:
            os.waitpid(child, 0)
    except KeyboardInterrupt:
        for child in children:
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
