"""Ground truth by other means than exhume's own readers: the kernel's files, read as anybody would."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exhume.lab.cgroup import Cgroup
from exhume.text import from_json


def memory_cgroups(top: Cgroup) -> int:
    """Live and dying: by /proc/cgroups on v1, below a directory by its cgroup.stat on v2."""
    if top.hierarchy.version == 2:
        stat = _stat(top, "cgroup.stat")
        return stat["nr_descendants"] + stat["nr_dying_descendants"]
    for line in Path("/proc/cgroups").read_text().splitlines():
        if line.startswith("memory\t"):
            return int(line.split()[2])
    return 0


def zombies(top: Cgroup) -> int:
    """On v2 those below a directory. v1 counts only for the whole node, where others may have some, too: at least ours."""
    if top.hierarchy.version == 2:
        return _stat(top, "cgroup.stat")["nr_dying_descendants"]
    return memory_cgroups(top) - sum(1 for _ in os.walk(top.hierarchy.path))


def zombies_below(top: Cgroup, pages_each: int = 1) -> int:
    """Whatever others do meanwhile. v1 has no such count, but what the dead hold is in the statistics of what is above them;
    the kernel brings those up to date every two seconds (FLUSH_TIME in mm/memcontrol.c)."""
    if top.hierarchy.version == 2:
        return zombies(top)
    return _stat(top, "memory.stat")["total_cache"] // os.sysconf("SC_PAGESIZE") // pages_each


def _stat(top: Cgroup, name: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in (top.directory / name).read_text().splitlines() if (words := line.split())}


def directories(top: Cgroup) -> int:
    return sum(1 for _ in os.walk(top.directory))


def processes(top: Cgroup) -> int:
    """In it and in all that is below it, by cgroup.procs."""
    return sum(len((Path(directory) / "cgroup.procs").read_text().split()) for directory, _, _ in os.walk(top.directory))


def cpu_seconds(pid: int) -> tuple[float, float]:
    """What a process has used so far, in user space and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks, int(fields[12]) / ticks


def wanted_seconds(pid: int) -> float:
    """For how long a process has run or waited for a core: what it would take if it had one to itself."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return (int(ran) + int(waited)) / 1e9


def core_ticks(core: int) -> tuple[int, int]:
    """USER_HZ ticks of a core in the kernel (system, irq, softirq), and in all but what the hypervisor took; -1 stands for all
    cores together."""
    wanted = f"cpu{core} " if core >= 0 else "cpu "
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(wanted):
            ticks = [int(word) for word in line.split()[1:8]]
            return ticks[2] + ticks[5] + ticks[6], sum(ticks)
    return 0, 0


class Sampled:
    """Calls something at a rhythm, in a thread, until it is closed."""

    def __init__(self, every_s: float, read: Callable[[float], None]) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(every_s, read), daemon=True)
        self._thread.start()

    def _run(self, every_s: float, read: Callable[[float], None]) -> None:
        while not self._end.wait(every_s):
            read(time.monotonic())

    def close(self) -> None:
        self._end.set()
        self._thread.join(5)


# Of 50 in half a second: where the hypervisor took nearly all of it, the rest says little.
_FEWEST_TICKS = 10


class KernelTime:
    """The largest share of kernel time that a core had over half a second, and for how long it was above 95 % in all."""

    def __init__(self, core: int) -> None:
        self.highest = 0.0
        self.full_s = 0.0
        self._core = core
        self._last = core_ticks(core)
        self._at = time.monotonic()
        self._sampled = Sampled(0.5, self._read)

    def _read(self, now: float) -> None:
        kernel, total = core_ticks(self._core)
        passed = total - self._last[1]
        share = (kernel - self._last[0]) / passed if passed >= _FEWEST_TICKS else 0.0
        self.highest = max(self.highest, share)
        self.full_s += (now - self._at) if share >= 0.95 else 0.0
        self._last, self._at = (kernel, total), now

    def close(self) -> None:
        self._sampled.close()


class Heard:
    """The last word of a little program on each thing that it tells."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._known: dict[str, Any] = {}
        self._history: dict[str, list[Any]] = {}
        self._times: dict[str, list[float]] = {}
        self._lock = threading.Lock()
        self._process = process
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                told = from_json(line)
                with self._lock:
                    self._known |= told
                    for name, value in told.items():
                        self._history.setdefault(name, []).append(value)
                        self._times.setdefault(name, []).append(time.monotonic())
        except ValueError:  # the stream was closed, or the line cut by a kill
            return

    def get(self, name: str, default: Any = 0) -> Any:
        with self._lock:
            return self._known.get(name, default)

    def all(self, name: str) -> list[Any]:
        with self._lock:
            return list(self._history.get(name, ()))

    def since(self, name: str, least_ms: float) -> float | None:
        """When something began that, as told, had lasted so many milliseconds or more by then; None if nothing did."""
        with self._lock:
            told = zip(self._times.get(name, ()), self._history.get(name, ()), strict=True)
            return next((at - ms / 1000 for at, ms in told if ms >= least_ms), None)

    def wait(self, name: str, seconds: float) -> Any:
        """Until it was told; None if it was not, or the program ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = self.get(name, None)
            if value is not None:
                return value
            if self._process.poll() is not None:
                time.sleep(0.05)
                return self.get(name, None)
            time.sleep(0.02)
        return None
