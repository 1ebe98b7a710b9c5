"""Records the lab's incidents for `tests/golden/recordings`: root, a machine to make incidents on, and EXHUME_LAB=1.

    EXHUME_LAB=1 python -m tests.golden.lab DIR [NAME...]

Recordings have no user-space frames and no name of the machine (reduce.py). A new recording is a new case: the verdict on it
depends on what else the machine did. So keep those that are there.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from exhume.lab.catalogue import scenario, scenarios
from exhume.lab.scenario import Settings
from exhume.lab.workshop import Lab, end
from exhume.python import python
from tests.golden.reduce import reduce

_BEGIN_S = 60.0
_SETTLE_S = 2.0


@dataclass(frozen=True)
class Take:
    """One recording: a scenario, how long it lasts, and what follows while the recorder still runs."""

    name: str
    scenario: str
    seconds: float = 12.0
    scale: int = 3000
    idle_s: float = 0.0
    """The programs end, what they left stays, and the recorder runs on for this long."""
    cleaned_s: float = 0.0
    """The lab removes all that it made, and the recorder runs on for this long."""


TAKES = (
    *(Take(each.name, each.name) for each in scenarios()),
    Take("starvation-then-idle", "zombie-starvation", scale=6000, idle_s=75.0),
    Take("starvation-then-cleaned", "zombie-starvation", scale=6000, cleaned_s=30.0),
    Take("directories-then-cleaned", "dir-leak", cleaned_s=20.0),
)


@contextmanager
def _recorder(path: Path, log_root: Path) -> Iterator[None]:
    command = python("-m", "exhume", "record", str(path), "--quiet", "--kernel-only", "--hz", "97", "--for", "300s")
    with open(path.with_suffix(".log"), "w+") as errors:
        process = subprocess.Popen([*command, "--log-root", str(log_root)], stdin=subprocess.DEVNULL, stderr=errors)
        try:
            deadline = time.monotonic() + _BEGIN_S
            while not list(path.glob("*/open-*")) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(_SETTLE_S)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
        errors.seek(0)
        if process.returncode:
            raise SystemExit(f"the recorder failed: {errors.read().strip()}")


def record(take: Take, path: Path) -> None:
    chosen = scenario(take.scenario)
    if reason := chosen.missing():
        raise SystemExit(f"{take.scenario} cannot be made here: {reason}")
    recorders: list[AbstractContextManager[None]] = []

    with Lab() as lab:

        def begin() -> None:
            if not recorders:
                recorder = _recorder(path, lab.home)
                recorder.__enter__()
                recorders.append(recorder)

        lab.begins = begin
        try:
            if not chosen.prepares:
                begin()
            with chosen.make(lab, Settings(take.seconds, take.scale)):
                begin()
                time.sleep(take.seconds)
                if not take.cleaned_s and not take.idle_s:
                    recorders.pop().__exit__(None, None, None)
            if take.idle_s:
                for process in reversed(lab._processes):
                    end(process)
                time.sleep(take.idle_s)
                recorders.pop().__exit__(None, None, None)
        except BaseException:
            for recorder in recorders:
                recorder.__exit__(None, None, None)
            raise
    if take.cleaned_s:
        time.sleep(take.cleaned_s)
        recorders.pop().__exit__(None, None, None)


def main(arguments: list[str]) -> None:
    out, names = Path(arguments[0]), arguments[1:]
    for take in TAKES:
        if names and take.name not in names:
            continue
        with tempfile.TemporaryDirectory() as directory:
            raw = Path(directory) / take.name
            record(take, raw)
            shutil.rmtree(out / take.name, ignore_errors=True)
            size = reduce(raw, out / take.name)
        print(f"{take.name}: {size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
