"""The recorder: drives readers into a recording, by a profile (profiles.py), for seconds or for hours.

Once a batch this thread collects what the readers saw, makes rows of the cores' counters and of the stack samples, and hands it
all to the store. In between it wakes only to read the cores, where no other thread is awake for them, and when a ring of
samples is half full.
"""

import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree
from exhume.host.quantities import duration
from exhume.host.root import Root
from exhume.kernel.clock import Anchor, Clock
from exhume.recorder import own
from exhume.recorder.cores import Cores
from exhume.recorder.latency import SOURCES as LATENCY_SOURCES
from exhume.recorder.latency import Latency
from exhume.recorder.latency_told import Told
from exhume.recorder.memory import Memory
from exhume.recorder.policy import DEFAULT as DEFAULT_POLICY
from exhume.recorder.policy import Policy
from exhume.recorder.profiles import FOLLOW, STREAMS, ZOMBIES, Profile
from exhume.recorder.readers import Readers, Source
from exhume.recording.recording import Node, Recording, Table, labels
from exhume.recording.source_state import Failed, NotRequested, Reason, SourceRow, SourceState, sentence
from exhume.sources.cgroup_events import SETTLE_NS
from exhume.sources.facts import facts
from exhume.sources.latency.weak import parse_schedstat
from exhume.sources.reader import Reader

if TYPE_CHECKING:  # a check samples no stacks and need not load what does
    from exhume.recorder.samples import Options as SampleOptions
    from exhume.recorder.samples import Samples

# If the latency thread has not read the cores for so many intervals, they are read here.
LATE_INTERVALS = 3
# Recordings of hours are written in chapters: numbers of stacks and threads begin anew with each.
CHAPTER_NS = 3_600_000_000_000
# Wall time that jumps by more than that against the kernel's clock was set by somebody.
STEP_NS = 200_000_000
# Batches after which memory is given back to the kernel.
TIDY_BATCHES = 100
_READY_S = 10.0


class Store(Protocol):
    """Where a recording goes: recording/writer.py on disk, recorder/memory.py in memory."""

    chapter: int
    lost: dict[str, int]
    next_ids: dict[str, int]

    @property
    def size_bytes(self) -> int: ...

    def append(self, rows: Recording) -> None: ...
    def turn(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Options:
    samples: "SampleOptions | None" = None
    """Whether and how stacks are sampled."""
    strict: bool = False
    """Whether a bug in a reader is raised instead of switching its source off."""
    log: Root | None = None
    """Where the kernel's log is, if not below the root."""
    events_after: int = 0
    """A time of the recording: earlier events are in it already, by the recorder that this one goes on from. Where a reader of
    that one did not come back, its successor reads the kernel's log or the journal anew, and so what was."""
    policy: Policy = DEFAULT_POLICY
    on_stall: Callable[[Told], None] | None = None
    """Called in the latency thread, when a stall is announced and when it is over."""


_PLAIN = Options()


class Status(NamedTuple):
    """How it goes, once a batch."""

    elapsed_ns: int
    samples: int
    lost_samples: int
    """That found no place in a ring."""
    lost_rows: int
    """Of all tables: that could not be written."""
    rows: Recording
    """What was seen in it."""
    own_cpu_ns: int
    own_memory_bytes: int
    size_bytes: int


def node_of(root: Root) -> Node:
    return facts(root, Tree(root).layout)


def record(
    root: Root,
    profile: Profile,
    for_ns: int,
    progress: Callable[[float], None] | None = None,
    strict: bool = False,
    log: Root | None = None,
) -> Recording:
    """Read the node for so long, into memory."""
    with Recorder(root, profile, Options(strict=strict, log=log)) as recorder:
        store = Memory(recorder.node)
        recorder.run(store, for_ns, progress=progress)
    return store.recording


def record_zombies(root: Root, follow_ns: int = 0, progress: Callable[[float], None] | None = None) -> Recording:
    """One walk, or two with the cgroup events in between. Raises Unreadable when not even a count can be had; without cgroup
    events the rate comes from two counts alone."""
    recording = record(root, FOLLOW, follow_ns + SETTLE_NS, progress) if follow_ns else record(root, ZOMBIES, 0)
    if not recording.on("zombies"):
        raise Unreadable(recording.reason("zombies"))
    return recording


class Recorder:
    """A context manager; `run` blocks until the time is over or `stop` says so, and may be called again for another window.

    Clocks, the watch for stalls and stack samples go on between windows, so that nothing falls between them.
    """

    def __init__(
        self, root: Root, profile: Profile, options: Options = _PLAIN, streams: Mapping[str, Reader] = MappingProxyType({})
    ) -> None:
        """`streams` are those of the recorder that this one goes on from."""
        self.streams = dict(streams)
        """Readers that know how far they have come, by name; when it has run, those that came back."""
        wanted = options.samples
        kernel_only = wanted is not None and wanted.kernel_only
        self.about: dict[str, str | int | bool] = {"hz": 0, "event": "", "kernel_only": kernel_only}
        """What the recording says of itself."""
        self._root, self._profile, self._options = root, profile, options
        self._tree = Tree(root, again_ns=10_000_000_000)
        self.node = facts(root, self._tree.layout)
        self._samples: Samples | None = None
        self._unsampled: Reason = NotRequested()
        """Why there are no stack samples."""
        if wanted is not None:
            from exhume.recorder import samples

            try:
                self._samples = samples.Samples(root, self._tree.layout.version == "v2", wanted)
                self.about |= {"hz": wanted.hz, "event": self._samples.event}
            except Unreadable as error:
                self._unsampled = Failed(str(error))
        self._readers: list[Reader] = []
        """Those of the window before."""
        self._hung: list[Reader] = []
        """Those of them that did not come back."""
        self._cores: Cores | None = None
        self._stop: Callable[[], bool] = lambda: False
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._register()
        self._ticking: Anchors | None = None
        self._latency: Latency | None = None
        self._cores_read_at = 0
        """When the latency thread last read the cores for us."""
        self._told: dict[str, SourceState] = {}
        self._told_at = 0
        self._own_memory = 0
        self._batches = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        for reader in self.streams.values():
            if close := getattr(reader, "close", None):
                close()

    @property
    def off(self) -> str:
        """Why there are no stack samples, for people; "" if there are."""
        return sentence(self._unsampled) if self._samples is None else ""

    def close(self) -> None:
        """Its streams stay open, for whoever goes on with them."""
        if self._latency is not None:
            self._latency.finish()
        self._poll.close()
        wake, self._wake = self._wake, -1
        if wake >= 0:
            os.close(wake)
        if self._samples is not None:
            self._samples.close()
        if self._ticking is not None:
            self._ticking.clock.close()

    def run(
        self,
        store: Store,
        for_ns: int = 0,
        stop: Callable[[], bool] = lambda: False,
        status: Callable[[Status], None] | None = None,
        progress: Callable[[float], None] | None = None,
        last: bool = True,
    ) -> None:
        """One window: so long, or until stopped if that is 0. The watch for stalls is over after the `last` one."""
        if self._ticking is None:
            self._ticking = Anchors(Clock())  # a clock is read in the thread that made it
        profile, now, strict = self._profile, self._clock.now, self._options.strict
        self._stop, self._cores = stop, None
        if profile.cores_ns:
            self._cores = Cores(self._root, self.node, now, profile.cores_ns, strict, self._options.policy)
        if self._latency is None and profile.latency is not None:
            self._watch(self._cores)
        # A reader of the window before knows what it asked for in vain: a new one would ask again, and hang beside it.
        made = self._readers or profile.readers(self._root, self._tree, self._options.log or self._root)
        anew = any(reader.name in STREAMS and reader.name not in self.streams for reader in made)
        sources = []
        for reader in made:
            reader = self.streams.get(reader.name, reader)
            reader.every_ns = profile.intervals.get(reader.name, reader.every_ns)
            sources.append(Source(reader, now()))
        hung = [source for source in sources if source.reader in self._hung]
        readers = Readers(sources, self.node, now, profile, strict, hung)
        watch = self._latency if profile.needs_latency else None
        window = _Window(store, self._cores, readers, self._options.events_after if anew else 0)
        self._loop(window, for_ns, lambda: stop() or (watch is not None and not watch.is_alive()), status, progress, last)
        self._readers, self._hung = [source.reader for source in sources], [source.reader for source in readers.stuck]
        came_back = [reader for reader in self._readers if reader not in self._hung]
        self.streams = {reader.name: reader for reader in came_back if reader.name in STREAMS}
        if (strict or profile.needs_latency) and self._latency is not None and self._latency.failure is not None:
            raise self._latency.failure

    @property
    def _anchors(self) -> "Anchors":
        assert self._ticking is not None
        return self._ticking

    @property
    def _clock(self) -> Clock:
        return self._anchors.clock

    def _watch(self, cores: Cores | None) -> None:
        """Watch for stalls. Where that looks as often as the cores are read, it reads them as well, and wakes us when it is
        time to stop."""
        assert self._profile.latency is not None

        def beat() -> int:
            if (of_window := self._cores) is None:
                return 0
            of_window.take()
            self._cores_read_at = time.monotonic_ns()
            if self._stop():
                with suppress(OSError):  # it is closed: we are awake
                    os.eventfd_write(self._wake, 1)
            return of_window.cost_ns

        options = replace(self._profile.latency, sample=self._profile.latency.sample and self._samples is None)
        together = cores is not None and cores.interval_ns == options.look_ns
        self._latency = Latency(self._root, self.node, options, self._options.on_stall, beat if together else None)
        self._latency.start()
        if self._profile.needs_latency:
            self._latency.ready.wait(_READY_S)

    def _loop(
        self,
        window: "_Window",
        for_ns: int,
        stop: Callable[[], bool],
        status: Callable[[Status], None] | None,
        progress: Callable[[float], None] | None,
        last: bool,
    ) -> None:
        profile, store, cores = self._profile, window.store, window.cores
        if self._samples is not None:
            self._samples.profiler.number_from(store.next_ids)
        begin = turned = time.monotonic_ns()
        end = begin + for_ns if for_ns or profile.once else 1 << 63
        due = begin + (profile.first_ns or profile.batch_ns) - profile.batch_ns
        """When the last batch was due."""
        lengths = (profile.batch_ns, profile.quiet_batch_ns) if profile.quiet_batch_ns else (profile.batch_ns,)
        chapter = store.chapter
        rows = Recording(self.node)
        self._anchors.add(rows)

        def tell(now: int) -> None:
            if progress is not None and for_ns:
                progress(min(1.0, (now - begin) / for_ns))

        done = False
        while not done:
            for length in lengths:
                now = self._sleep(min(due + length, end), window, stop, tell)
                done = now >= end or stop()
                if done or cores is None or not cores.quiet():
                    break
            due = max(due + length, now - length)
            window.readers.look_after()
            if done:
                if cores is not None:
                    cores.take()
                if self._latency is not None and (last or stop()):
                    self._latency.finish()
                window.readers.finish(rows)
                self._anchors.add(rows)
                tell(end)
            self._batch(rows, window, done)
            store.append(rows)
            if now - turned > CHAPTER_NS or (self._samples is not None and self._samples.profiler.full):
                turned = now
                store.turn()
            if store.chapter != chapter:
                chapter = store.chapter
                if self._samples is not None:
                    self._samples.profiler.forget()
            if status is not None:
                status(self._status(now - begin, rows, store))
            self._tidy()
            if not done:
                rows = Recording(self.node)
                self._anchors.add(rows)
        if self._samples is not None:
            store.next_ids = self._samples.profiler.next_ids  # for the recorder that goes on with this store

    def _batch(self, rows: Recording, window: "_Window", done: bool) -> None:
        """What was seen since the last one; `done`: the window is over."""
        now = self._clock.now()
        if window.cores is not None:
            window.cores.collect(rows)
        window.readers.collect(rows)
        if window.events_after:
            _leave_out(rows, window.events_after)
        if self._latency is not None:
            self._latency.collect(rows)
        if self._samples is not None and self._samples.collect(rows, now, self._anchors.boot_offset_ns):
            self._register()
        again = done or (self._profile.tell_ns > 0 and now - self._told_at > self._profile.tell_ns)
        for row in self._sources(now, window, done):
            if again or self._told.get(row.name) != row.state:
                self._told[row.name] = row.state
                rows.add_source(*row)
        if again:
            self._told_at = now
            self._count_own(rows, now, window.store)
        if done and self._profile.own_wait and self._root.same_kernel():  # our wait says nothing about another node
            _count_own_wait(rows, now)

    def _sources(self, now: int, window: "_Window", done: bool) -> list[SourceRow]:
        told = [window.readers.row(window.cores.source)] if window.cores is not None else []
        told += window.readers.rows(done and not self._profile.tell_ns)
        told.append(SourceRow(now, "clock", clock_state(self._clock)))
        kept = self._profile.tell_ns > 0  # a recording that is kept says what was not asked for
        if self._latency is not None:
            told += self._latency.sources()
        elif kept:
            told += [SourceRow(now, name, SourceState.off(NotRequested())) for name in LATENCY_SOURCES]
        if self._samples is not None:
            told.append(SourceRow(now, "samples", self._samples.state(), self._samples.cost_ns))
        elif kept:
            told.append(SourceRow(now, "samples", SourceState.off(self._unsampled)))
        return told

    def _count_own(self, rows: Recording, now: int, store: Store) -> None:
        if not self._profile.tell_ns:
            return
        children = self._samples.children_memory_bytes() if self._samples is not None else 0
        self._own_memory = own.memory_bytes() + children
        rows.count(now, "own_cpu_ns", self._own_cpu_ns())
        rows.count(now, "own_rss_bytes", self._own_memory)
        rows.count(now, "own_disk_bytes", store.size_bytes)
        for reason, lost in store.lost.items():
            rows.count(now, "rows_lost", lost, labels(reason=reason))
        if self._samples is not None:
            self._samples.count(rows, now)

    def _own_cpu_ns(self) -> int:
        return own.cpu_ns() + (self._samples.children_cost_ns() if self._samples is not None else 0)

    def _status(self, elapsed: int, rows: Recording, store: Store) -> Status:
        lost = self._samples.profiler.lost if self._samples is not None else 0
        unwritten = sum(store.lost.values())
        return Status(
            elapsed, len(rows["samples"]), lost, unwritten, rows, self._own_cpu_ns(), self._own_memory, store.size_bytes
        )

    def _sleep(self, until: int, window: "_Window", stop: Callable[[], bool], tell: Callable[[int], None]) -> int:
        """Until then, or until it is time to stop. The cores are read meanwhile: by the latency thread where it does so, by us
        where it is late. What time it is then."""
        cores = window.cores
        while (now := time.monotonic_ns()) < until and not stop():
            tell(now)
            window.readers.look_after()
            if cores is None:
                wake = now + self._profile.wake_ns
            elif (
                self._latency is not None
                and self._latency.beats
                and now - self._cores_read_at < LATE_INTERVALS * cores.interval_ns
            ):
                wake = until
            else:
                wake = cores.keep_time(now)
            self._wait(min(until, wake) - now)
        return now

    def _wait(self, left: int) -> None:
        """So long, or until rings are half full or the latency thread wakes us."""
        if left <= 0:
            return
        ready = self._poll.poll(left / 1e9, 1)
        if not ready:
            return
        if ready[0][0] == self._wake:
            os.eventfd_read(self._wake)
            return
        assert self._samples is not None
        if ready[0][1] & select.EPOLLIN:
            self._samples.take()
        else:  # a CPU that is going: its descriptors say so all the time until they are closed
            self._samples.cpu_gone = True
            time.sleep(min(left, 100_000_000) / 1e9)

    def _register(self) -> None:
        self._poll.close()
        self._poll = select.epoll()
        self._poll.register(self._wake, select.EPOLLIN)
        if self._samples is not None:
            for fd in self._samples.descriptors():
                self._poll.register(fd, select.EPOLLIN)

    def _tidy(self) -> None:
        """Arrow and the C library keep what sealing needs once a minute; now and then it is given back."""
        self._batches += 1
        if self._batches % TIDY_BATCHES == 0:
            import gc

            from exhume.sources.sampling.memory import give_back

            gc.collect()
            give_back()


class _Window(NamedTuple):
    """What one window is read by and goes to."""

    store: Store
    cores: Cores | None
    readers: Readers
    events_after: int


class Anchors:
    """The one place where the recording's clock is tied to the others."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.boot_offset_ns = 0
        self._real_offset: int | None = None

    def add(self, rows: Recording) -> None:
        anchor = self.clock.anchor()
        rows.add_anchor(anchor.perf_ns, anchor.monotonic_ns, anchor.boot_ns, anchor.real_ns, anchor.error_ns)
        if (step := self.step(anchor)) is not None:
            message = f"the wall clock was set {'forward' if step > 0 else 'back'} by {duration(abs(step))}"
            rows["events"].add(anchor.perf_ns, "clock-step", "clock", "info", message, labels(step_ns=step))

    def step(self, anchor: Anchor) -> int | None:
        """By how much the wall clock was set since the last anchor, if it was. Time asleep shows in CLOCK_BOOTTIME, and is not
        a step."""
        self.boot_offset_ns = anchor.boot_ns - anchor.perf_ns
        offset = anchor.real_ns - anchor.boot_ns
        before, self._real_offset = self._real_offset, offset
        if before is None or abs(offset - before) < STEP_NS:
            return None
        return offset - before


def _leave_out(rows: Recording, until: int) -> None:
    """Events up to that time."""
    events = rows["events"]
    if len(events) and int(events.ints("time").min()) <= until:
        later = Table(events.schema)
        later.add_rows([tuple(row.values()) for row in events.rows() if row["time"] > until])
        rows.tables["events"] = later


def _count_own_wait(rows: Recording, now: int) -> None:
    """How long this thread was runnable and did not run, since it began."""
    with suppress(Unreadable):
        raw = Root().read(f"proc/self/task/{threading.get_native_id()}/schedstat", 256)
        if (account := parse_schedstat(raw)) is not None:
            rows.count(now, "own_wait_ns", account[1])


def clock_state(clock: Clock) -> SourceState:
    if clock.reason:
        return SourceState.off(Failed(f"{clock.reason}; kernel-log times may be off, by more the longer ago the node booted"))
    return SourceState("on")
