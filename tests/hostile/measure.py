"""A command in a child, and what it and its own children used."""

import os
import resource
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

_LIMIT_S = 300.0  # a hang
SOURCE = Path(__file__).resolve().parents[2] / "src"


@dataclass(frozen=True, slots=True)
class Used:
    code: int
    text: str
    cpu_s: float
    memory_bytes: int
    """The largest sum of the memory of all processes: what each has for itself, and the largest part of files of one.

    ru_maxrss begins with that of the process that forked, so it is asked of /proc.
    """


def used(arguments: list[str], **environment: str) -> Used:
    settings = {**os.environ, "PYTHONPATH": str(SOURCE), "EXHUME_CONFIG": "", **environment}
    if not settings["EXHUME_CONFIG"]:
        del settings["EXHUME_CONFIG"]
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, "-m", "exhume", *arguments]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=settings, start_new_session=True
        )
        most, stop = [0], threading.Event()
        watch = threading.Thread(target=_watch, args=(child.pid, most, stop))
        watch.start()
        timer = threading.Timer(_LIMIT_S, child.kill)
        timer.start()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        _, status, usage = os.wait4(child.pid, 0)
        timer.cancel()
        stop.set()
        watch.join()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
    return Used(child.returncode, text, usage.ru_utime + usage.ru_stime, most[0])


def _watch(pid: int, most: list[int], stop: threading.Event) -> None:
    page = resource.getpagesize()
    while not stop.wait(0.01):
        alone, files = 0, 0
        for one in _tree(pid):
            try:
                _, resident, shared, *_ = map(int, Path(f"/proc/{one}/statm").read_bytes().split())
                most[0] = max(most[0], _highest(one))
            except (OSError, ValueError, IndexError):
                continue
            alone += resident - shared
            files = max(files, shared)
        most[0] = max(most[0], (alone + files) * page)


def _highest(pid: int) -> int:
    """The most that a process had so far."""
    text = Path(f"/proc/{pid}/status").read_bytes()
    return int(text.partition(b"VmHWM:")[2].split()[0]) << 10


def _tree(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_bytes().split())
        except OSError:
            continue
    return found
