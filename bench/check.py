"""exhume check: what it costs, with zombies and without, against the commands it replaces."""

import os
import shutil
import sys
from collections.abc import Iterator

from bench.measure import Row, cost, interleaved, median
from tests import zombies

CHECK = [sys.executable, "-m", "exhume", "check", "--for", "3s"]
PASS = [sys.executable, "-c", "pass"]


def start_up() -> Iterator[Row]:
    """`exhume --help` against a bare interpreter."""
    bare, overview, command = interleaved([PASS, [sys.executable, "-m", "exhume", "--help"], [*CHECK[:4], "--help"]], 31)
    yield Row("exhume --help, wall, against python3 -c pass", overview.wall_s * 1e3, bare.wall_s * 1e3, "ms", 4.0)
    yield Row("exhume check --help, wall, against python3 -c pass", command.wall_s * 1e3, bare.wall_s * 1e3, "ms")


def check_cost() -> Iterator[Row]:
    """A check of three seconds against what one would type instead."""
    tool = ["mpstat", "-P", "ALL", "1", "3"] if shutil.which("mpstat") else ["vmstat", "1", "4"]
    by_hand = (
        f"{' '.join(tool)}; cat /proc/cgroups; find /sys/fs/cgroup -type d | wc -l; dmesg; ps aux; "
        "cat /proc/vmstat /proc/interrupts /proc/softirqs /proc/net/softnet_stat /proc/pressure/*"
    )
    bare, ours, hand = interleaved([PASS, CHECK, ["sh", "-c", by_hand]], 5)
    yield Row("CPU of a 3 s check beyond the interpreter", ours.cpu_s - bare.cpu_s, None, "s", 0.4)
    yield Row(f"CPU, against {tool[0]} and the files by hand", ours.cpu_s, hand.cpu_s, "s")
    yield Row("wall beyond its 3 s", ours.wall_s - 3, None, "s")
    yield Row("peak memory", ours.peak_mb, None, "MB", 80.0)


def check_zombies(count: int = 60_000) -> Iterator[Row]:
    """The same check with 60,000 real zombies and without."""
    if why := zombies.unavailable():
        raise RuntimeError(why)
    runs = 5
    cost(CHECK)
    without = [cost(CHECK) for _ in range(runs)]
    with zombies.zombies(count):
        there = zombies.total()
        cost(CHECK)
        within = [cost(CHECK) for _ in range(runs)]
    before, after = median(without), median(within)
    yield Row(f"wall of a check with {there:,} memory cgroups, against none", after.wall_s, before.wall_s, "s", 1.3)
    yield Row(f"CPU of a check with {there:,} memory cgroups, against none", after.cpu_s, before.cpu_s, "s")
    bare = median([cost(PASS) for _ in range(runs)])
    yield Row("  beyond the interpreter, all of them named", after.cpu_s - bare.cpu_s, None, "s", 0.6)


def check_directories(count: int = 60_000) -> Iterator[Row]:
    """60,000 visible directories: counted in bounded time, against find."""
    if why := zombies.unavailable():
        raise RuntimeError(why)
    bare = median([cost(CHECK) for _ in range(3)])
    with zombies.directories(count):
        find = ["sh", "-c", f"find {zombies.MEMORY} -type d | wc -l"]
        ours, hand = interleaved([CHECK, find], 3)
    yield Row(f"CPU of a check with {count:,} more directories, against find", ours.cpu_s, hand.cpu_s, "s")
    yield Row("its CPU beyond a check without them", ours.cpu_s - bare.cpu_s, None, "s")


def quiet() -> str:
    """A warning when the machine has other work to do."""
    load = os.getloadavg()[0]
    return f"the machine was busy (load {load:.1f}): read with care" if load > 1.0 else ""
