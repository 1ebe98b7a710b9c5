"""Drives the readers for a while and returns what they saw.

The core readers keep their rhythm in this thread; all others run in a second one, so that a slow answer (a hung PID 1, a
process table of thousands) costs no reading of the CPU. Each read fills a buffer of its own that is handed over whole: a
reader that never comes back leaves nothing half-written, only its own source is off, and a new thread goes on.
"""

import os
import queue
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from exhume.errors import NotPresent, Unreadable
from exhume.host.cgroups import Tree
from exhume.host.root import Root
from exhume.kernel.clock import Clock
from exhume.recorder import sources
from exhume.recorder.latency import Latency, Options
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Absent, Bug, Failed, SourceRow, SourceState, Timeout
from exhume.sources.facts import facts
from exhume.sources.latency.weak import parse_schedstat
from exhume.sources.reader import Reader

# How long after the window the other thread may still take for its last readings.
GRACE_NS = 10_000_000_000
# How long one read may be held by the kernel before the others go on without it. systemd has a deadline of its own, of 1.5 s.
STUCK_NS = 2_500_000_000
ANCHOR_EVERY_NS = 1_000_000_000
LATENCY = Options(brief=True)
# Readings that are due within so long of each other are done together.
TOGETHER_NS = 50_000_000


@dataclass(slots=True, eq=False)
class Source:
    """A reader and how it fared."""

    reader: Reader
    since: int
    state: SourceState | None = None
    """None: it was not read yet."""
    cost: int = 0
    rhythm: int = 0
    """How often it wanted to be read at first."""

    def __post_init__(self) -> None:
        self.rhythm = self.reader.every_ns

    def read(self, into: Recording, now: Callable[[], int], strict: bool) -> None:
        start = time.thread_time_ns()
        moment = now()
        try:
            state = SourceState.read(self.reader.read(into, moment))
        except NotPresent as error:
            state = SourceState.off(Absent(str(error)))
        except Unreadable as error:
            state = SourceState.off(Failed(str(error)))
        except OSError as error:
            state = SourceState.off(Failed(error.strerror or str(error)))
        except Exception as error:
            if strict:
                raise
            state = SourceState.off(Bug(_where(error)))
        self.cost += time.thread_time_ns() - start
        if self.state is None or state.up != self.state.up:
            self.since = moment
        self.state = state


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name}, {frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"


def on_beat(began: int, every: int, earliest: int) -> int:
    """From `earliest` on, the next time that is a multiple of a rhythm: who is read every second and who is read every ten are
    read together, whenever each was read first, and nobody wakes in between. A rhythm of 0 is none."""
    return earliest if not every else began - (began - earliest) // every * every


class Steady(threading.Thread):
    """Reads everything once, then each in its rhythm, then everything once more."""

    def __init__(
        self, readers: list[Source], node: Node, now: Callable[[], int], strict: bool, end: threading.Event, share: float
    ) -> None:
        super().__init__(name="exhume-readers", daemon=True)
        self.done: queue.SimpleQueue[Recording] = queue.SimpleQueue()
        self.back: queue.SimpleQueue[Source] = queue.SimpleQueue()
        """Readers that came back after all, to be read again."""
        self.at: Source | None = None
        self.since = 0
        self._active = 0
        self.abandoned = False
        self.failure: BaseException | None = None
        self._sources = readers
        self._node = node
        self._now = now
        self._strict = strict
        self._end = end
        self._share = share
        self._began = 0
        self._schedstat = -1

    def held_ns(self) -> int:
        """How long the read under way has neither run nor waited for a core: a slow or busy machine is not its fault. What ran
        and waited before it since the thread woke is left out as well, so it may be longer."""
        return time.monotonic_ns() - self.since - (self._active_ns() - self._active)

    def run(self) -> None:
        with suppress(OSError):
            self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._schedstat)
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    def _active_ns(self) -> int:
        """How long this thread has run or waited for a core; 0 where the kernel does not say. Asked for at each waking, so the
        file is kept open."""
        with suppress(OSError):
            if (account := parse_schedstat(os.pread(self._schedstat, 256, 0))) is not None:
                return account[0] + account[1]
        return 0

    def _run(self) -> None:
        due = {}
        self._began, self._active = time.monotonic_ns(), self._active_ns()
        for source in self._sources:
            if source.state is None:
                self._read(source)
            if source.reader.every_ns:
                due[id(source)] = self._on_beat(source, time.monotonic_ns() + source.reader.every_ns // 2)
        while not self._end.is_set() and not self.abandoned:
            wait = min(due.values(), default=time.monotonic_ns() + ANCHOR_EVERY_NS) - time.monotonic_ns()
            if wait > 0 and self._end.wait(wait / 1e9):
                break
            woken, self._active = time.monotonic_ns(), self._active_ns()
            while not self.back.empty():
                source = self.back.get()
                self._sources.append(source)
                if source.reader.every_ns:
                    due[id(source)] = woken
            for source in self._sources:
                # What is due soon is read now as well: waking up costs more than most readings.
                if id(source) in due and due[id(source)] <= woken + TOGETHER_NS:
                    before = source.cost
                    self._read(source)
                    due[id(source)] = self._on_beat(
                        source, max(due[id(source)] + self._pause(source, source.cost - before), woken)
                    )
                    if not source.reader.every_ns and not self._share:  # too dear to be asked again before the end
                        del due[id(source)]
        self._active = self._active_ns()
        for source in self._sources:
            self._read(source)

    def _on_beat(self, source: Source, earliest: int) -> int:
        return on_beat(self._began, source.reader.every_ns or source.rhythm, earliest)

    def _pause(self, source: Source, cost: int) -> int:
        """Until the next reading: its rhythm, or longer if it would take more than its share of a core."""
        if not self._share:
            return source.reader.every_ns
        share = max(self._share, getattr(source.reader, "share", 0.0))
        return max(source.reader.every_ns or source.rhythm, round(cost / share))

    def _read(self, source: Source) -> None:
        off = source.state is not None and not source.state.up
        if self.abandoned or (off and source.reader.every_ns == 0):
            return  # what was not there three seconds ago need not be asked again
        self.since = time.monotonic_ns()
        self.at = source
        buffer = Recording(self._node)
        source.read(buffer, self._now, self._strict)
        if source.reader.name in sources.STREAMS or not self.abandoned:  # what a stream has said it does not say again
            self.done.put(buffer)
        self.at = None


class Crew:
    """The thread that reads, and its successor if it does not come back from a reader.

    On a node that starves, a reader may hang for seconds and be well again: where there are hours to go it is taken back.
    """

    def __init__(
        self, others: list[Source], node: Node, now: Callable[[], int], strict: bool = False, share: float = 0.0
    ) -> None:
        """A reader that takes more than this `share` of a core is read less often; 0 lets each have its rhythm."""
        self.stuck: list[Source] = []
        self._left: list[tuple[Steady, Source]] = []
        self._share = share
        self._others, self._node, self._now, self._strict = others, node, now, strict
        self._end = threading.Event()
        self._threads = [self._begin()]

    def _begin(self) -> Steady:
        sources = [source for source in self._others if source not in self.stuck]
        thread = Steady(sources, self._node, self._now, self._strict, self._end, self._share)
        thread.start()
        return thread

    def look_after(self) -> None:
        """A reader that has not come back for so long is left to itself, and the others go on without it."""
        thread = self._threads[-1]
        at = thread.at
        if at is not None and thread.held_ns() > STUCK_NS:
            thread.abandoned = True
            self.stuck.append(at)
            self._left.append((thread, at))
            self._threads.append(self._begin())
        if self._share:
            self._take_back()

    def _take_back(self) -> None:
        for thread, source in list(self._left):
            if not thread.is_alive() and thread.done.empty() and thread.failure is None:
                self._left.remove((thread, source))
                self._threads.remove(thread)
                self.stuck.remove(source)
                self._threads[-1].back.put(source)

    def collect(self, recording: Recording) -> None:
        """Take over what was read so far."""
        for thread in self._threads:
            while not thread.done.empty():
                recording.extend(thread.done.get())
            if thread.failure is not None:
                raise thread.failure

    def finish(self, recording: Recording) -> None:
        self._end.set()
        deadline = time.monotonic_ns() + GRACE_NS
        while self._threads[-1].is_alive() and time.monotonic_ns() < deadline:
            self._threads[-1].join(0.1)
            self.look_after()
        last = self._threads[-1]
        if last.is_alive():  # whatever it still reads is nobody's
            last.abandoned = True
            if (at := last.at) is not None:
                self.stuck.append(at)
        self.collect(recording)
        if self._share:
            self._take_back()


def record(
    root: Root,
    for_ns: int,
    progress: Callable[[float], None] | None = None,
    strict: bool = False,
    log: Root | None = None,
) -> Recording:
    """Read the node for so long. With `strict` a bug in a reader is raised instead of switching its source off. The kernel's
    log may be another root's: `exhume lab` has one."""
    tree = Tree(root)
    recording = Recording(facts(root, tree.layout))
    with Clock() as clock:
        fast = [Source(reader, clock.now()) for reader in sources.fast(root)]
        others = [Source(reader, clock.now()) for reader in sources.steady(root, tree, log)]
        crew = Crew(others, recording.node, clock.now, strict)
        latency = Latency(root, recording.node, LATENCY)
        latency.start()
        try:
            _keep_time(recording, clock, fast, for_ns, crew, progress, strict)
        finally:
            latency.finish()
        crew.finish(recording)
        recording.add_source(clock.now(), "clock", clock_state(clock))
        if root.same_kernel():  # this machine's wait says nothing about another's root
            _count_own_wait(recording, clock.now())
    for source in fast + others:
        recording.add_source(*said(source, crew))
    latency.collect(recording)
    for row in latency.sources():
        recording.add_source(*row)
    if strict and latency.failure is not None:
        raise latency.failure
    return recording


def said(source: Source, crew: Crew) -> SourceRow:
    state = source.state or SourceState.off(Failed("not asked: too late"))
    if source in crew.stuck:
        state = SourceState.off(Timeout(STUCK_NS // 1_000_000))
    return SourceRow(source.since, source.reader.name, state, source.cost)


def _keep_time(
    recording: Recording,
    clock: Clock,
    fast: list[Source],
    for_ns: int,
    crew: Crew,
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
        crew.look_after()
        if progress is not None:
            progress(min(1.0, (now - start) / for_ns))
        if now >= end:
            return
        # A reading that came late is not made up for: the rhythm goes on from now.
        due = max(due + min(source.reader.every_ns for source in fast), time.monotonic_ns())
        time.sleep(max(0, min(due, end) - time.monotonic_ns()) / 1e9)


def _count_own_wait(recording: Recording, now: int) -> None:
    """How long this thread was runnable and did not run, since it began."""
    with suppress(Unreadable):
        raw = Root().read(f"proc/self/task/{threading.get_native_id()}/schedstat", 256)
        if (account := parse_schedstat(raw)) is not None:
            recording.count(now, "own_wait_ns", account[1])


def clock_state(clock: Clock) -> SourceState:
    if clock.reason:
        return SourceState.off(Failed(f"{clock.reason}; kernel-log times may be off, by more the longer ago the node booted"))
    return SourceState("on")
