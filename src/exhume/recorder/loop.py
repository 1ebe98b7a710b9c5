"""Drives the readers for a while and returns what they saw.

The core readers keep their rhythm in this thread; all others run in a second one, so that a slow answer (a hung PID 1, a
process table of thousands) costs no reading of the CPU. Each read fills a buffer of its own that is handed over whole: a
reader that never comes back leaves nothing half-written, and only its own source is off.
"""

import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.kernel.clock import Clock
from exhume.node.cgroups import Tree
from exhume.node.facts import facts
from exhume.node.root import Reader, Root
from exhume.recorder import sources
from exhume.recording.recording import Node, Recording

# How long after the window the other thread may still take for its last readings.
GRACE_NS = 4_000_000_000
ANCHOR_EVERY_NS = 1_000_000_000


@dataclass(slots=True)
class _Source:
    """A reader and how it fared."""

    reader: Reader
    since: int
    state: str = ""
    reason: str = ""
    cost: int = 0

    def read(self, into: Recording, now: Callable[[], int], strict: bool) -> None:
        start = time.thread_time_ns()
        moment = now()
        try:
            state, reason = "on", self.reader.read(into, moment)
        except Unreadable as error:
            state, reason = "off", str(error)
        except OSError as error:
            state, reason = "off", f"{error.strerror or error}"
        except Exception as error:
            if strict:
                raise
            state, reason = "off", f"a bug in exhume, please report it: {_where(error)}"
        self.cost += time.thread_time_ns() - start
        if state != self.state:
            self.since = moment
        self.state, self.reason = state, reason


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name}, {frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"


class _Steady(threading.Thread):
    """Reads everything once, then each in its rhythm, then everything once more."""

    def __init__(self, readers: list[_Source], node: Node, now: Callable[[], int], strict: bool) -> None:
        super().__init__(name="exhume-readers", daemon=True)
        self.done: queue.SimpleQueue[Recording] = queue.SimpleQueue()
        self.at: _Source | None = None
        self.failure: BaseException | None = None
        self._sources = readers
        self._node = node
        self._now = now
        self._strict = strict
        self._end = threading.Event()

    def finish(self) -> None:
        self._end.set()

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    def _run(self) -> None:
        due = {}
        for source in self._sources:
            self._read(source)
            if source.reader.every_ns:
                due[id(source)] = time.monotonic_ns() + source.reader.every_ns
        while not self._end.is_set():
            wait = min(due.values(), default=time.monotonic_ns() + ANCHOR_EVERY_NS) - time.monotonic_ns()
            if wait > 0 and self._end.wait(wait / 1e9):
                break
            for source in self._sources:
                if id(source) in due and due[id(source)] <= time.monotonic_ns():
                    self._read(source)
                    due[id(source)] = time.monotonic_ns() + source.reader.every_ns
                    if not source.reader.every_ns:  # it found itself too dear to be asked again before the end
                        del due[id(source)]
        for source in self._sources:
            self._read(source)

    def _read(self, source: _Source) -> None:
        if source.state == "off" and source.reader.every_ns == 0:
            return  # what was not there three seconds ago need not be asked again
        self.at = source
        buffer = Recording(self._node)
        source.read(buffer, self._now, self._strict)
        self.done.put(buffer)
        self.at = None


def record(root: Root, for_ns: int, progress: Callable[[float], None] | None = None, strict: bool = False) -> Recording:
    """Read the node for so long. With `strict` a bug in a reader is raised instead of switching its source off."""
    tree = Tree(root)
    recording = Recording(facts(root, tree.layout))
    with Clock() as clock:
        fast = [_Source(reader, clock.now()) for reader in sources.fast(root)]
        others = [_Source(reader, clock.now()) for reader in sources.steady(root, tree)]
        steady = _Steady(others, recording.node, clock.now, strict)
        steady.start()
        _keep_time(recording, clock, fast, for_ns, progress, strict)
        steady.finish()
        steady.join(GRACE_NS / 1e9)
        while not steady.done.empty():
            recording.extend(steady.done.get())
        if steady.failure is not None:
            raise steady.failure
        stuck = steady.at if steady.is_alive() else None
        recording["sources"].add(clock.now(), "clock", *_clock_state(clock), 0)
    for source in fast + others:
        state, reason = source.state or "off", source.reason
        if source is stuck:
            state, reason = "off", f"no answer within {(for_ns + GRACE_NS) / 1e9:.0f} s"
        elif not source.state:
            reason = "not asked: a source before it did not answer"
        recording["sources"].add(source.since, source.reader.name, state, reason, source.cost)
    return recording


def _keep_time(
    recording: Recording,
    clock: Clock,
    fast: list[_Source],
    for_ns: int,
    progress: Callable[[float], None] | None,
    strict: bool,
) -> None:
    start = time.monotonic_ns()
    end = start + for_ns
    due = start
    anchored = 0
    while True:
        now = time.monotonic_ns()
        if now - anchored >= ANCHOR_EVERY_NS:
            anchor = clock.anchor()
            recording["anchors"].add(anchor.perf_ns, anchor.monotonic_ns, anchor.boot_ns, anchor.real_ns, anchor.error_ns)
            anchored = now
        for source in fast:
            source.read(recording, clock.now, strict)
        if progress is not None:
            progress(min(1.0, (now - start) / for_ns))
        if now >= end:
            return
        # A reading that came late is not made up for: the rhythm goes on from now.
        due = max(due + min(source.reader.every_ns for source in fast), time.monotonic_ns())
        time.sleep(max(0, min(due, end) - time.monotonic_ns()) / 1e9)


def _clock_state(clock: Clock) -> tuple[str, str]:
    if clock.reason:
        return "off", f"{clock.reason}; kernel-log times may be off by some milliseconds"
    return "on", ""
