"""An agent for container metrics, as cAdvisor: lists every cgroup below one and reads the statistics of each, all the time."""

import os
import time

from exhume.lab.work import call, on_core, say


def main(groups: str, core: str, name: str) -> None:
    call(name)
    on_core(int(core))
    while True:
        begin = time.monotonic()
        listed = one_pass(groups)
        say(listed=listed, pass_ms=round((time.monotonic() - begin) * 1000, 1))
        if not listed:
            time.sleep(0.1)


def one_pass(groups: str) -> int:
    listed = 0
    with os.scandir(groups) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                listed += _read(f"{entry.path}/memory.stat")
    return listed


def _read(file: str) -> int:
    try:
        fd = os.open(file, os.O_RDONLY)
    except OSError:  # removed meanwhile
        return 0
    try:
        while os.read(fd, 65536):
            pass
    finally:
        os.close(fd)
    return 1
