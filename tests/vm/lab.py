"""Played inside a machine: scenarios of the lab, each for some seconds. Prints what was measured, and what is left.

An emulated machine is ten times as slow, so how long things take is not held to what a real one does.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from exhume.lab import workshop
from exhume.lab.scenario import Scenario, Settings
from exhume.lab.scenarios import leaks, starvation

SCALE = 1000
SECONDS = 10.0


def dying(directory: str) -> int:
    """By the kernel's own books, which every directory of v2 has."""
    stat = dict(line.split() for line in Path(directory, "cgroup.stat").read_text().splitlines())
    return int(stat["nr_dying_descendants"])


def lines(log: int) -> list[str]:
    """What the node's own log got meanwhile."""
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(os.read(log, 8192).decode(errors="backslashreplace"))
    return found


def play(scenario: Scenario) -> dict[str, Any]:
    settings = Settings(SECONDS, SCALE)
    kernel = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(kernel, 0, os.SEEK_END)
    before = dying("/sys/fs/cgroup")
    with workshop.Lab() as lab:
        with scenario.make(lab, settings) as incident:
            time.sleep(settings.seconds)
            measured = incident.measured()
            there = dying(f"/sys/fs/cgroup/{lab.name}/docker")
        log = lab.kmsg.read_text()
    deadline = time.monotonic() + 120
    while dying("/sys/fs/cgroup") > before + SCALE // 10 and time.monotonic() < deadline:
        time.sleep(0.5)
    return {
        "missing": scenario.missing(),
        "measured": measured,
        "dying": there,
        "log": log,
        "kernel": lines(kernel),
        "left": {
            "runs": sorted(workshop.found()),
            "dying": dying("/sys/fs/cgroup") - before,
            "networks": os.listdir("/run/netns") if os.path.isdir("/run/netns") else [],
        },
    }


def main() -> None:
    os.environ[workshop.SWITCH] = "1"
    chosen = [scenario for scenario in (*starvation.SCENARIOS, *leaks.SCENARIOS) if scenario.name in PLAYED]
    print(json.dumps({scenario.name: play(scenario) for scenario in chosen}))


PLAYED = ("zombie-starvation", "zombies-harmless")

if __name__ == "__main__":
    main()
