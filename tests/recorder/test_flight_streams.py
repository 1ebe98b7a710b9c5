"""A recorder that goes on from another: every line of the kernel's log is told once, also one that was said in between."""

import threading
from pathlib import Path

import pytest

from exhume.host.cgroups import Tree as CgroupTree
from exhume.host.root import Root
from exhume.recorder import loop, sources
from exhume.recorder.flight import Flight, Options, Status
from exhume.recording.recording import Recording
from exhume.recording.source_state import Reasons
from exhume.sources.kernel_log import KernelLog
from exhume.sources.reader import Reader
from tests.recorder.test_flight import Memory
from tests.recorder.test_loop import Made

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


def fly(store: Memory, before: Flight | None = None, events_after: int = 0, keep: bool = True) -> Flight:
    options = Options(hz=0, for_ns=5 * TENTH, strict=True, latency=False, events_after=events_after)
    it = Flight(Root(), options, before.streams if before is not None and keep else {})
    try:
        it.run(store, lambda: False)
    finally:
        it.close()
    return it


def events(store: Memory) -> list[int]:
    return [row["time"] for row in store.all()["events"].rows() if row["kind"] != "cpu-hotplug"]


@pytest.mark.parametrize("keep", [True, False])
def test_what_the_log_says_while_a_recorder_ends_is_told_by_the_next_and_nothing_is_told_twice(
    log: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Also where the next one has to read the log from its beginning: `keep` is whether it goes on with the same reader."""
    talks = Talks(log)

    def chosen(root: Root, tree: CgroupTree, of: Root | None) -> list[Reader]:
        fresh = KernelLog(Root(str(log.parent.parent)))
        fresh.every_ns = TENTH
        return [fresh, talks]

    monkeypatch.setattr(sources, "flight", chosen)
    store, before, seen_to = Memory(), None, 0
    for _ in range(3):
        before = fly(store, before, seen_to, keep)
        assert events(store) == talks.said[:-1]
        seen_to = events(store)[-1]
    assert len(talks.said) > 9


def test_a_recorder_hands_on_those_that_follow_a_stream_and_nobody_else(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follows, reads = KernelLog(Root(str(log.parent.parent))), Made("vmstat")
    monkeypatch.setattr(sources, "flight", lambda *_: [follows, reads])
    first = fly(Memory())
    assert first.streams == {"kernel-log": follows}
    monkeypatch.setattr(sources, "flight", lambda *_: [KernelLog(Root(str(log.parent.parent))), Made("vmstat")])
    assert fly(Memory(), first).streams == {"kernel-log": follows}


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STUCK_NS", 150_000_000)
    monkeypatch.setattr(loop, "GRACE_NS", 500_000_000)


def test_a_reader_that_does_not_come_back_is_not_handed_on(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads would read with it."""
    impatient(monkeypatch)
    released = threading.Event()
    monkeypatch.setattr(sources, "flight", lambda *_: [HardLog(Root(str(log.parent.parent)), released)])
    try:
        assert fly(Memory()).streams == {}
    finally:
        released.set()


def test_what_a_reader_read_that_was_given_up_and_came_back_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process, a machine that stood still: whoever follows a stream does not read it again."""
    impatient(monkeypatch)
    talks, store, released = Talks(log), Memory(), threading.Event()
    talks.read(Recording(store.all().node), 5 * 10**9)
    hard = HardLog(Root(str(log.parent.parent)), released)
    monkeypatch.setattr(sources, "flight", lambda *_: [hard])

    def told(_: Status) -> None:
        if "no answer" in store.all().why_off("kernel-log"):
            released.set()

    it = Flight(Root(), Options(hz=0, strict=True, latency=False))
    try:
        it.run(store, lambda: store.all().on("kernel-log"), told)
    finally:
        it.close()
    assert events(store) == talks.said
    assert it.streams == {"kernel-log": hard}
