"""Runs of the lab for tests: played in this process, or in one that can be killed; and what is left of them, looked for without
the code that cleans."""

import operator
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from exhume.lab import workshop
from exhume.lab.scenario import Scenario, Settings, passing
from exhume.sources.memcg_walk import walk

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the lab takes root")
MARK = "EXHUME_TEST_MARK"
# The scenario by its module, so that the run depends on no other.
_PLAY = """
import sys, time
from importlib import import_module
from exhume.lab.scenario import Settings
from exhume.lab.workshop import Lab
module, name, scale = sys.argv[1:]
(chosen,) = (each for each in import_module(f"exhume.lab.scenarios.{module}").SCENARIOS if each.name == name)
with Lab() as lab:
    print(lab.id, flush=True)
    with chosen.make(lab, Settings(60, int(scale))):
        print("under way", flush=True)
        time.sleep(60)
"""


SENSES: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, "==": operator.eq}
# Numbers of the whole machine, or shares of a core that other programs want too. `exhume lab score` needs a quiet machine.
OTHERS = frozenset(
    "left_each user_share computing_cores network_mb_s written_mb_s rtt_ms longest_silence_ms throttled_share".split()
)


def play(scenario: Scenario, seconds: float, scale: int) -> dict[str, Any]:
    """Its ground truth. Nothing of it is left when this returns."""
    if why := scenario.missing():
        pytest.skip(why)
    settings = Settings(seconds, scale)
    with workshop.Lab() as lab:
        with scenario.make(lab, settings) as incident:
            for _ in passing(seconds):
                pass
            measured = incident.measured()
        assert lab.id in workshop.found()
    assert left(lab.id) == []
    assert lab.id not in workshop.found()
    return scenario.ground_truth(lab.name, settings, measured)


def broken(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """The promises that were not kept, but for those that others on this machine can break. Each is told as it was measured."""
    for promise in truth["promises"]:
        assert promise["kept"] is SENSES[promise["sense"]](promise["measured"], promise["bound"]), promise
    return [promise for promise in truth["promises"] if not promise["kept"] and promise["what"] not in OTHERS]


class Run:
    """One in a process of its own, which everything that it starts can be told by."""

    def __init__(self, module: str, name: str, scale: int) -> None:
        self.mark = secrets.token_hex(8)
        environment = {
            **os.environ,
            workshop.SWITCH: "1",
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PLAY, module, name, str(scale)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def programs(self) -> list[str]:
        """What of it runs, by the environment that each has from it."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "comm").read_text().strip())
        return found


@contextmanager
def run(module: str, name: str, scale: int) -> Iterator[Run]:
    made = Run(module, name, scale)
    try:
        yield made
    finally:
        made.kill()
        assert made.process.stdout is not None
        made.process.stdout.close()
        workshop.clean()


def left(run: str) -> list[str]:
    """Paths with a run's name in them, in every place where one may be."""
    places = [Path("/run/exhume-lab"), Path("/run/netns"), Path("/dev/shm"), Path("/var/tmp"), *_mounts()]
    found = []
    for place in places:
        with suppress(OSError):
            found += [str(place / entry) for entry in os.listdir(place) if run in entry]
    return found


def _mounts() -> list[Path]:
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(line[1]) for line in lines if line[2] in ("cgroup", "cgroup2")]


def zombies(run: str) -> int:
    """Zombies that a run has left."""
    found = walk()
    return sum(run in path for path in found.paths(found.zombies.tolist()))


def patiently(true: Callable[[], bool], seconds: float = 120) -> bool:
    """Whether it becomes true: what the kernel takes down in the background takes a while."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
