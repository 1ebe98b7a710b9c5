"""Reads the sources in a thread of their own, each at its interval.

A slow answer (a hung PID 1, a process table of thousands) must cost no reading of the cores. Each read fills a buffer that is
handed over whole: a reader that never comes back leaves nothing half-written. Only its own source is off, and a new thread goes
on with the others.
"""

import os
import queue
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from exhume.errors import NotPresent, Unreadable
from exhume.recorder.profiles import STREAMS, Profile
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Absent, Bug, Failed, SourceRow, SourceState, Timeout
from exhume.sources.latency.weak import parse_schedstat
from exhume.sources.reader import Reader

# Readings that are due within this time of each other are done together: waking up costs more than most readings.
TOGETHER_NS = 50_000_000
_IDLE_NS = 1_000_000_000


@dataclass(slots=True, eq=False)
class Source:
    """A reader and how it fared."""

    reader: Reader
    since: int
    state: SourceState | None = None
    """None: it was not read yet."""
    cost: int = 0
    interval: int = 0
    """How often it wanted to be read at first."""

    def __post_init__(self) -> None:
        self.interval = self.reader.every_ns

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


def next_multiple(began: int, interval: int, earliest: int) -> int:
    """The next multiple of an interval from `earliest` on: what is read every second and what is read every ten seconds are
    read together, whenever each was read first. An interval of 0 is none."""
    return earliest if not interval else began - (began - earliest) // interval * interval


class ReaderThread(threading.Thread):
    """Reads everything once, then each at its interval, then everything once more."""

    def __init__(
        self,
        sources: list[Source],
        node: Node,
        now: Callable[[], int],
        profile: Profile,
        end: threading.Event,
        strict: bool = False,
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
        self._sources, self._node, self._now = sources, node, now
        self._profile, self._strict = profile, strict
        self._end = end
        self._began = 0
        self._schedstat = -1

    def blocked_ns(self) -> int:
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
                due[id(source)] = self._next(source, time.monotonic_ns() + source.reader.every_ns // 2)
        while not self._end.is_set() and not self.abandoned:
            wait = min(due.values(), default=time.monotonic_ns() + _IDLE_NS) - time.monotonic_ns()
            if wait > 0 and self._end.wait(wait / 1e9):
                break
            woken, self._active = time.monotonic_ns(), self._active_ns()
            while not self.back.empty():
                source = self.back.get()
                self._sources.append(source)
                if source.reader.every_ns:
                    due[id(source)] = woken
            for source in self._sources:
                if id(source) in due and due[id(source)] <= woken + TOGETHER_NS:
                    before = source.cost
                    self._read(source)
                    due[id(source)] = self._next(source, max(due[id(source)] + self.pause(source, source.cost - before), woken))
                    if not source.reader.every_ns and not self._profile.share:  # too dear to be asked again before the end
                        del due[id(source)]
        self._active = self._active_ns()
        if not self._profile.once:
            for source in self._sources:
                self._read(source)

    def _next(self, source: Source, earliest: int) -> int:
        return next_multiple(self._began, source.reader.every_ns or source.interval, earliest)

    def pause(self, source: Source, cost: int) -> int:
        """Until the next reading: its interval, or longer if it would take more than its share of a core."""
        if not self._profile.share:
            return source.reader.every_ns
        share = max(self._profile.share, getattr(source.reader, "share", 0.0))
        return max(source.reader.every_ns or source.interval, round(cost / share))

    def _read(self, source: Source) -> None:
        off = source.state is not None and not source.state.up
        if self.abandoned or (off and source.reader.every_ns == 0):
            return  # what was not there three seconds ago need not be asked again
        self.since = time.monotonic_ns()
        self.at = source
        buffer = Recording(self._node)
        source.read(buffer, self._now, self._strict)
        if source.reader.name in STREAMS or not self.abandoned:  # what a stream has said it does not say again
            self.done.put(buffer)
        self.at = None


class Readers:
    """The thread that reads, and its successor if it does not come back from a reader.

    On a node that starves, a reader may hang for seconds and be well again: where there are hours to go it is taken back.
    """

    def __init__(
        self,
        sources: list[Source],
        node: Node,
        now: Callable[[], int],
        profile: Profile,
        strict: bool = False,
        stuck: Collection[Source] = (),
    ) -> None:
        """Those that are `stuck` are among the sources: another thread has not come back from them."""
        self.sources = sources
        self.stuck = list(stuck)
        self._left: list[tuple[ReaderThread, Source]] = []
        self._node, self._now, self._profile, self._strict = node, now, profile, strict
        self._end = threading.Event()
        self._threads = [self._begin()]

    def _begin(self) -> ReaderThread:
        sources = [source for source in self.sources if source not in self.stuck]
        thread = ReaderThread(sources, self._node, self._now, self._profile, self._end, self._strict)
        thread.start()
        return thread

    def look_after(self) -> None:
        """A reader that is blocked for too long is left to itself, and the others go on without it."""
        thread = self._threads[-1]
        at = thread.at
        if at is not None and thread.blocked_ns() > self._profile.stuck_ns:
            thread.abandoned = True
            self.stuck.append(at)
            self._left.append((thread, at))
            self._threads.append(self._begin())
        if self._profile.share:
            self._take_back()

    def _take_back(self) -> None:
        for thread, source in list(self._left):
            if not thread.is_alive() and thread.done.empty() and thread.failure is None:
                self._left.remove((thread, source))
                self._threads.remove(thread)
                self.stuck.remove(source)
                self._threads[-1].back.put(source)

    def collect(self, into: Recording) -> None:
        """Take over what was read so far."""
        for thread in self._threads:
            while not thread.done.empty():
                into.extend(thread.done.get())
            if thread.failure is not None:
                raise thread.failure

    def finish(self, into: Recording) -> None:
        self._end.set()
        deadline = time.monotonic_ns() + self._profile.grace_ns
        while self._threads[-1].is_alive() and time.monotonic_ns() < deadline:
            self._threads[-1].join(0.1)
            self.look_after()
        last = self._threads[-1]
        if last.is_alive():  # what it still reads goes nowhere
            last.abandoned = True
            if (at := last.at) is not None:
                self.stuck.append(at)
        self.collect(into)
        if self._profile.share:
            self._take_back()

    def row(self, source: Source) -> SourceRow:
        """How a source stands."""
        state = source.state or SourceState.off(Failed("not asked: too late"))
        if source in self.stuck:
            state = SourceState.off(Timeout(self._profile.stuck_ns // 1_000_000))
        return SourceRow(source.since, source.reader.name, state, source.cost)

    def rows(self, at_the_end: bool) -> list[SourceRow]:
        """Of those that were asked; `at_the_end` of all."""
        asked = (one for one in self.sources if at_the_end or one.state is not None or one in self.stuck)
        return [self.row(source) for source in asked]
