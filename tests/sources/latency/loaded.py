"""Which BPF programs there are in the kernel, ours and others'."""

import os
import re
import struct
import time
from contextlib import suppress
from pathlib import Path

from exhume.kernel.bpf.syscall import Command, attributes, bpf


def of_process(pid: int | str = "self") -> set[int]:
    """Numbers of the programs that a process holds."""
    return _held(pid, "prog_id")


def maps_of_process(pid: int | str = "self") -> set[int]:
    return _held(pid, "map_id")


def _held(pid: int | str, what: str) -> set[int]:
    found = set()
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            held = re.search(rf"^{what}:\t(\d+)$", file.read_text(), re.MULTILINE)
        except OSError:
            continue
        if held:
            found.add(int(held[1]))
    return found


def map_bytes() -> int:
    """What the maps take that this process holds, as the kernel says."""
    total = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            text = Path(f"/proc/self/fdinfo/{fd}").read_text()
        except OSError:
            continue
        if "map_id:" in text:
            taken = re.search(r"^memlock:\t(\d+)$", text, re.MULTILINE)
            assert taken is not None
            total += int(taken[1])
    return total


def in_kernel(kind: Command = Command.PROG_GET_NEXT_ID) -> set[int]:
    found = set()
    last = 0
    with suppress(FileNotFoundError):  # after the last one
        while True:
            attr = attributes("III", last, 0, 0)
            bpf(kind, attr)
            last = int(struct.unpack_from("=I", attr, 4)[0])
            found.add(last)
    return found


def gone(programs: set[int], kind: Command = Command.PROG_GET_NEXT_ID) -> bool:
    """Whether none of them is left, at the latest after a minute: the kernel lets go of them after a grace period."""
    deadline = time.monotonic() + 120
    while programs & in_kernel(kind):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def maps_gone(maps: set[int]) -> bool:
    return gone(maps, Command.MAP_GET_NEXT_ID)
