"""A real leak on this kernel, before, going on, and stopped: the window is ended early in one case and passed in the other."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.root import Root
from exhume.remedy.criteria_leak import by_events
from exhume.remedy.proof import prove
from exhume.remedy.proof_live import LeakWatch, watch
from tests import zombies

pytestmark = [pytest.mark.ci, pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "can be made")]

SECOND = 1_000_000_000
LIMITS = Thresholds()
NEVER = Thresholds(leak_per_minute=1e9)
"""With which nothing is a leak, so that nothing is ended early."""


_LEAKER = """
import sys, time
from pathlib import Path
from tests import zombies
parent, fd, page = Path(sys.argv[1]), int(sys.argv[2]), 0
while True:
    zombies.one(parent, f"z{page}", fd, page)
    page += 1
    time.sleep(0.1)
"""


class Leak:
    """Ten a second, by a process of its own: pages are charged to the cgroup of a process's first thread."""

    def __init__(self, fd: int) -> None:
        self._parent = zombies.PARENT / f"verify-{os.getpid()}"
        self._parent.mkdir(parents=True)
        self._fd = fd
        command = [sys.executable, "-c", _LEAKER, str(self._parent), str(fd)]
        self._process = subprocess.Popen(command, pass_fds=[fd], cwd=Path(__file__).parents[2])

    def count(self) -> int:
        """How many it has made: each has a page of the file."""
        return os.fstat(self._fd).st_size // zombies.PAGE

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def remove(self) -> None:
        self.stop()
        os.ftruncate(self._fd, 0)
        zombies.remove(self._parent)


@contextmanager
def leak() -> Iterator[Leak]:
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="exhume-test-") as file:
        made = Leak(file.fileno())
        try:
            yield made
        finally:
            made.remove()


def test_a_real_leak_fails_early_while_it_goes_on_and_passes_once_it_is_stopped() -> None:
    with leak() as made:
        count, began = made.count(), time.monotonic()
        before = watch(Root(), 15 * SECOND, None, NEVER)
        per_minute = (made.count() - count) / (time.monotonic() - began) * 60
        assert before.early == ""
        going_on = watch(Root(), 60 * SECOND, before.recording, LIMITS)
        assert going_on.early.startswith("the leak goes on")
        failed = prove(before.recording, going_on.recording, LIMITS, going_on.early)
        assert failed.passed is False
        assert failed.after.seconds < 60
        made.stop()
        after = watch(Root(), 25 * SECOND, before.recording, LIMITS)
    places = LeakWatch(before.recording, LIMITS).places
    now = by_events(after.recording)
    assert now is not None
    assert [place for place in places if "verify-" in place and len(now.at([place]))] == []
    rate = prove(before.recording, after.recording, LIMITS).criteria[0]
    # Others may make zombies on this machine, and then it leaks.
    assert rate.status == "passed" or "elsewhere" in rate.because, rate
    assert rate.before is not None
    assert rate.before > per_minute / 2  # as many as the leaking process made, and perhaps those of others


def test_who_asks_to_stop_is_heard_and_told() -> None:
    calls = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) > 3

    heard: list[float] = []
    watched = watch(Root(), 60 * SECOND, None, NEVER, stop, lambda part, _: heard.append(part))
    assert watched.stopped
    assert watched.recording["sources"].texts("name")
    assert max(heard) < 0.5
