"""Played inside a machine: look at it, let a crash-looping unit leak memory cgroups, look again. Prints what was seen.

The kernel's own count is read here in a few lines that share nothing with the code under test.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STARTS = 20
UNIT = "leak.service"
_LEAK = Path("/var/tmp/leak")
_CGROUP = Path("/sys/fs/cgroup")
# Each start writes two pages of a file of its own, which stay in the page cache and pin the group it ran in.
_TEXT = f"""\
[Unit]
Description=Crashes as soon as it has written a file
StartLimitIntervalSec=0
[Service]
MemoryAccounting=yes
ExecStart=/bin/sh -c 'printf %%08192d 0 > {_LEAK}/$$$$; exit 1'
Restart=always
RestartSec=50ms
"""


# An emulated PID 1 beside a crash loop may answer after seconds, which on a real machine would be a fault.
PATIENT = """
import sys
from dataclasses import replace
from exhume.cli.main import main
from exhume.host import bus
from exhume.recorder import profiles
bus.DEADLINE_S = 60.0
profiles.CHECK = replace(profiles.CHECK, stuck_ns=120 * 10**9)
sys.exit(main(sys.argv[1:]))
"""


def dying() -> int:
    """How many memory cgroups have no directory any more, by the kernel's own books; -1 if memory is in no hierarchy."""
    if (_CGROUP / "cgroup.stat").exists():
        stat = dict(line.split() for line in (_CGROUP / "cgroup.stat").read_text().splitlines())
        return int(stat.get("nr_dying_subsys_memory", stat["nr_dying_descendants"]))
    if not (_CGROUP / "memory").exists():
        return -1
    total = next(int(line.split()[2]) for line in Path("/proc/cgroups").read_text().splitlines() if line.startswith("memory"))
    return total - sum(1 for _ in os.walk(_CGROUP / "memory"))


def check() -> dict[str, Any]:
    """One look by exhume. The numbers are as of its end: the kernel's count is taken just after it."""
    command = [sys.executable, "-c", PATIENT, "check", "--json", "--for", "1s"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode > 3:  # no verdict but a failure, which it has explained on stderr
        sys.exit(done.returncode)
    return {"exit": done.returncode, "report": json.loads(done.stdout), "dying": dying()}


def check_at_rest() -> dict[str, Any]:
    """A look during which the kernel's count stayed the same, so that both must agree to the last one."""
    for _ in range(5):
        before = dying()
        seen = check()
        if seen["dying"] == before:
            return seen
    raise RuntimeError("the number of dying cgroups does not come to rest")


def named() -> dict[str, Any]:
    """The zombies by name, and the kernel's count just after."""
    command = [sys.executable, "-m", "exhume", "zombies", "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return {"report": json.loads(done.stdout), "dying": dying()}


def named_at_rest() -> dict[str, Any]:
    for _ in range(5):
        before = dying()
        seen = named()
        if seen["dying"] == before:
            return seen
    raise RuntimeError("the number of dying cgroups does not come to rest")


def purge() -> dict[str, Any]:
    """Free them, whatever it costs this machine's cache."""
    os.sync()
    command = [
        sys.executable,
        "-m",
        "exhume",
        "zombies",
        "purge",
        "--under",
        "/system.slice",
        "--yes",
        "--accept-cache-loss",
        "--json",
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    return {"exit": done.returncode, "report": json.loads(done.stdout or "{}"), "dying": dying()}


def starts() -> int:
    return len(list(_LEAK.iterdir()))


def _wait(count: int) -> None:
    while starts() < count:
        time.sleep(0.1)


def _systemctl(verb: str) -> None:
    subprocess.run(["systemctl", verb, UNIT], stdin=subprocess.DEVNULL, check=True)


def main() -> None:
    _LEAK.mkdir()
    Path("/run/systemd/system", UNIT).write_text(_TEXT)
    before = check_at_rest()
    _systemctl("start")
    _wait(7)  # more than make a crash loop worth telling
    during = check()
    _wait(STARTS)
    _systemctl("stop")
    after = check_at_rest()
    story = {
        "before": before,
        "during": during,
        "starts": starts(),
        "after": after,
        "named": named_at_rest(),
        "purged": purge(),
    }
    print(json.dumps(story))


if __name__ == "__main__":
    main()
