"""A recorder that goes on from another: every line of the kernel's log is told once, also one that was said in between."""

import threading
from pathlib import Path

import pytest

from exhume.host.root import Root
from exhume.recorder.profiles import FLIGHT, Profile
from exhume.recorder.recorder import Options, Recorder, Status
from exhume.recording.recording import Recording
from exhume.recording.source_state import Reasons
from exhume.sources.kernel_log import KernelLog
from exhume.sources.reader import Reader
from tests.recorder.test_readers import Made, reading
from tests.recorder.test_recorder import Memory

TENTH = 100_000_000


class Talks:
    """The kernel's log, which says something each time after it was read: also after the last time."""

    name = "talks"

    def __init__(self, log: Path, every_ns: int = TENTH) -> None:
        self.every_ns = every_ns
        self.said: list[int] = []
        self._log = log

    def read(self, recording: Recording, time: int) -> Reasons:
        microseconds = time // 1000
        with self._log.open("ab") as log:
            log.write(b"6,%d,%d,-;ena 0000:20:03.0 eth0: Keep alive watchdog timeout.\n" % (len(self.said), microseconds))
        self.said.append(microseconds * 1000)
        return ()


class HardLog(KernelLog):
    """One that hangs until it is released, each time."""

    every_ns = TENTH

    def __init__(self, root: Root, released: threading.Event) -> None:
        super().__init__(root)
        self._released = released

    def read(self, recording: Recording, time: int) -> Reasons:
        said = super().read(recording, time)
        self._released.wait()
        return said


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "dev/kmsg"
    path.parent.mkdir()
    path.touch()
    return path


def only(*followed: Reader) -> Profile:
    return reading(FLIGHT, *followed, latency=None, grace_ns=500_000_000, stuck_ns=150_000_000)


def fly(profile: Profile, store: Memory, before: Recorder | None = None, events_after: int = 0, keep: bool = True) -> Recorder:
    options = Options(strict=True, events_after=events_after)
    it = Recorder(Root(), profile, options, before.streams if before is not None and keep else {})
    try:
        it.run(store, 5 * TENTH)
    finally:
        it.close()
    return it


def events(store: Memory) -> list[int]:
    return [row["time"] for row in store.all()["events"].rows() if row["kind"] != "cpu-hotplug"]


@pytest.mark.parametrize("keep", [True, False])
def test_what_the_log_says_while_a_recorder_ends_is_told_by_the_next_and_nothing_is_told_twice(log: Path, keep: bool) -> None:
    """Also where the next one has to read the log from its beginning: `keep` is whether it goes on with the same reader."""
    talks = Talks(log)

    store, before, seen_to = Memory(), None, 0
    for _ in range(3):
        fresh = KernelLog(Root(str(log.parent.parent)))
        fresh.every_ns = TENTH
        before = fly(only(fresh, talks), store, before, seen_to, keep)
        assert events(store) == talks.said[:-1]
        seen_to = events(store)[-1]
    assert len(talks.said) > 9


def test_a_recorder_hands_on_those_that_follow_a_stream_and_nobody_else(log: Path) -> None:
    follows, reads = KernelLog(Root(str(log.parent.parent))), Made("vmstat")
    first = fly(only(follows, reads), Memory())
    assert first.streams == {"kernel-log": follows}
    assert fly(only(KernelLog(Root(str(log.parent.parent))), Made("vmstat")), Memory(), first).streams == {
        "kernel-log": follows
    }


def test_a_reader_that_does_not_come_back_is_not_handed_on(log: Path) -> None:
    """Two threads would read with it."""
    released = threading.Event()
    try:
        assert fly(only(HardLog(Root(str(log.parent.parent)), released)), Memory()).streams == {}
    finally:
        released.set()


def test_what_a_reader_read_that_was_given_up_and_came_back_is_told(log: Path) -> None:
    """A stopped process, a machine that stood still: whoever follows a stream does not read it again."""
    talks, store, released = Talks(log), Memory(), threading.Event()
    talks.read(Recording(store.all().node), 5 * 10**9)
    hard = HardLog(Root(str(log.parent.parent)), released)

    def told(_: Status) -> None:
        if "no answer" in store.all().why_off("kernel-log"):
            released.set()

    it = Recorder(Root(), only(hard), Options(strict=True))
    try:
        it.run(store, stop=lambda: store.all().on("kernel-log"), status=told)
    finally:
        it.close()
    assert events(store) == talks.said
    assert it.streams == {"kernel-log": hard}
