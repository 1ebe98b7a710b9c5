"""`python -m tests.deploy.seen HOST`: what each source of the flight recorder has to say after a second, as JSON.

Run with fewer capabilities or in a container, and compared with what it says to root.
"""

import json
import os
import re
import sys
import time
from collections import defaultdict

from exhume.errors import Unreadable
from exhume.host.cgroups import layout
from exhume.host.root import Root
from exhume.recorder.profiles import FLIGHT
from exhume.recorder.recorder import Options, Recorder
from exhume.recorder.samples import Options as SampleOptions
from exhume.recording.recording import Recording
from exhume.sources.latency.cgroup_paths import CgroupPaths

_VARIES = re.compile(r"looked \d+ ms apart at worst: .*|\d+ lines that look like .*|; groups came and went meanwhile")
_NAMES = {"latency-reclaim": "latency", "latency-windows": "latency", "latency-stacks": "samples"}


class _Store:
    """Keeps what the sources say of themselves."""

    chapter = 0
    size_bytes = 0

    def __init__(self) -> None:
        self.lost: dict[str, int] = {}
        self.next_ids: dict[str, int] = defaultdict(int)
        self.said: dict[str, tuple[str, str]] = {}

    def append(self, rows: Recording) -> None:
        for row in rows["sources"].rows():
            state = "off" if row["state"] == "off" else "on"  # partial varies with the load: a long gap between two looks
            self.said[row["name"]] = state, _VARIES.sub("", row["reason"])

    def turn(self) -> None:
        return


def look(host: str) -> dict[str, list[str]]:
    root = Root(host)
    store = _Store()
    with Recorder(root, FLIGHT, Options(SampleOptions(49, kernel_only=True))) as recorder:
        # The probes of the latency thread are attached when the machine gets round to it.
        begun = time.monotonic()
        recorder.run(store, 30_000_000_000, lambda: time.monotonic() - begun > 1.2 and "latency-windows" in store.said)
    found: dict[str, list[str]] = defaultdict(list)
    for name, (state, reason) in sorted(store.said.items()):
        found[_NAMES.get(name, name)].append(f"{name}: {state} {reason}".strip())
    found["latency"].append(f"paths: {_path_of_a_group(root)}")
    return found


def _path_of_a_group(root: Root) -> str:
    """What `latency` does to name the group that reclaims: a directory found by its number."""
    try:
        hierarchy = layout(root).of("memory")
        if hierarchy is None:
            return "no memory controller"
        return CgroupPaths(root).path(os.stat(root.at(hierarchy.path)).st_ino) or "not found"
    except Unreadable as error:
        return str(error)


if __name__ == "__main__":
    json.dump(look(sys.argv[1]), sys.stdout, indent=1)
