"""The flight recorder: the one loop, for hours. Every 1.4 s what was seen goes to disk and is forgotten here.

In each batch this thread takes the stack samples out of the kernel's rings, collects what the other readers saw, and hands it
all to the store. It wakes in between only when a ring is half full, and ten times a second for the counters of the cores
where no other thread is awake for them. While all cores are quiet, a batch is 1.8 s.
"""

import os
import select
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, Protocol

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree
from exhume.host.quantities import duration
from exhume.host.root import Root
from exhume.kernel.clock import Anchor, Clock
from exhume.recorder import own, sources
from exhume.recorder.flight_cores import TICK_NS, Cores
from exhume.recorder.latency import SOURCES as LATENCY_SOURCES
from exhume.recorder.latency import Latency
from exhume.recorder.latency import Options as LatencyOptions
from exhume.recorder.loop import Crew, Source, clock_state, said
from exhume.recording.recording import Node, Recording, Table, labels
from exhume.recording.source_state import Failed, Limit, NotRequested, Reason, SourceRow, SourceState, sentence
from exhume.sources.facts import facts, online_cpus
from exhume.sources.reader import Reader
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.patience import PatientRoot
from exhume.sources.sampling.profiler import Profiler
from exhume.sources.sampling.sampler import Sampler, Taken
from exhume.sources.sampling.user_symbols import UserSymbols

# What a kill may cost is at most two seconds; every batch finds cold caches, so that fewer of them cost less.
BATCH_NS, QUIET_BATCH_NS = 1_400_000_000, 1_800_000_000
# The first one comes sooner, so that there is something to open.
FIRST_NS = 200_000_000
# What one source may take of a core; dearer ones are read less often.
SHARE = 0.005
# Sources tell of themselves when they change, and again after so long; our own cost is noted as often.
TELL_NS = 10_000_000_000
# Who reads the cores for us and has not done so for so long does not get round to it.
HANGS_NS = 3 * TICK_NS
# How often CPUs are looked for that came or went; at once where a descriptor says that its CPU is gone.
CPUS_NS = 2_500_000_000
CHAPTER_NS = 3_600_000_000_000
# Wall time that jumps by more than that against the kernel's clock was set by somebody.
STEP_NS = 200_000_000
# Bytes that are held back for the batch; more is worked on at once.
LARGEST_HELD = 32 << 20
# Stalls are looked for ten times a second, and events measured in half a second of each half minute.
LATENCY = LatencyOptions(look_ns=TICK_NS, window_ns=500_000_000, every_ns=30_000_000_000, each_core=False)


class Store(Protocol):
    """Where a recording goes: recording/writer.py."""

    chapter: int
    lost: dict[str, int]
    next_ids: dict[str, int]

    @property
    def size_bytes(self) -> int: ...

    def append(self, rows: Recording) -> None: ...
    def turn(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Options:
    hz: int = 97
    kernel_only: bool = False
    for_ns: int = 0
    """0: until stopped."""
    strict: bool = False
    latency: bool = True
    """Whether to watch for stalls."""
    log: Root | None = None
    """Where the kernel's log is, if not below the root."""
    events_after: int = 0
    """A time of the recording: earlier events are in it already, by the recorder that this one goes on from. Where a reader of
    that one did not come back, its successor reads the kernel's log or the journal anew, and so what was."""
    hide_tenants: bool = False
    """Of what runs in containers and pods only the kernel's frames are kept."""


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


class Flight:
    """Set up once; `run` blocks until the time is over or `stop` says so. `about` is what the recording says of itself."""

    def __init__(self, root: Root, options: Options, streams: Mapping[str, Reader] = MappingProxyType({})) -> None:
        """`streams` are those of the recorder that this one goes on from."""
        self.streams = dict(streams)
        """Readers that know how far they have come, by name; when it has run, those that came back."""
        self.about: dict[str, str | int | bool] = {"hz": 0, "event": "", "kernel_only": options.kernel_only}
        self._root = root
        self._options = options
        self._tree = Tree(root, again_ns=10_000_000_000)
        self.node = facts(root, self._tree.layout)
        self._sampler: Sampler | None = None
        self._unsampled: Reason = NotRequested()
        """Why there are no stack samples."""
        try:
            if options.hz:
                if not root.same_kernel():
                    raise Unreadable("stack samples are of the running kernel, and this root is not")
                self._sampler = Sampler(online_cpus(Root()), options.hz, options.kernel_only)
                self.about |= {"hz": options.hz, "event": self._sampler.event}
        except Unreadable as error:
            self._unsampled = Failed(str(error))
        self._symbols = None if options.kernel_only or self._sampler is None else UserSymbols(root)
        unified = self._tree.layout.version == "v2"
        self._profiler = None
        self._patient = PatientRoot(root)
        if self._sampler is not None:
            kernel = KernelSymbols(root)
            self._profiler = Profiler(
                self._patient, self._sampler.cgroups, unified, self._symbols, kernel, hide_tenants=options.hide_tenants
            )
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._held: list[Taken] = []
        self._held_bytes = 0
        self._cpu_gone = False
        self._anew = True
        """Whether one of those that follow a stream begins at its beginning."""
        self._latency: Latency | None = None
        self._beaten = 0
        """When it last read the cores for us."""
        self._register()

    @property
    def off(self) -> str:
        """Why there are no stack samples, for people; "" if there are."""
        return sentence(self._unsampled) if self._sampler is None else ""

    def close(self) -> None:
        if self._latency is not None:
            self._latency.finish()
        self._poll.close()
        wake, self._wake = self._wake, -1
        if wake >= 0:
            os.close(wake)
        if self._sampler is not None:
            self._sampler.close()
        if self._profiler is not None:
            self._profiler.close()
        self._patient.close()

    def run(self, store: Store, stop: Callable[[], bool], status: Callable[[Status], None] | None = None) -> None:
        with Clock() as clock:
            cores = Cores(self._root, self.node, clock.now, self._options.strict)
            readers = sources.flight(self._root, self._tree, self._options.log)
            self._anew = any(reader.name in sources.STREAMS and reader.name not in self.streams for reader in readers)
            others = [Source(self.streams.get(reader.name, reader), clock.now()) for reader in readers]
            crew = Crew(others, self.node, clock.now, self._options.strict, SHARE)
            if self._options.latency:
                options = replace(LATENCY, sample=self._sampler is None)
                beat = self._beat(cores, stop) if cores.rhythm_ns == LATENCY.look_ns else None
                self._latency = Latency(self._root, self.node, options, beat=beat)
                self._latency.start()
            self._loop(store, stop, status, clock, cores, others, crew)
            came_back = [source.reader for source in others if source not in crew.stuck]
            self.streams = {reader.name: reader for reader in came_back if reader.name in sources.STREAMS}

    def _beat(self, cores: Cores, stop: Callable[[], bool]) -> Callable[[], int]:
        """What whoever looks for stalls does for us each time: to read the cores, and to wake us when it is time to stop."""

        def beat() -> int:
            cores.take()
            self._beaten = time.monotonic_ns()
            if stop():
                self._rouse()
            return cores.cost_ns

        return beat

    def _loop(
        self,
        store: Store,
        stop: Callable[[], bool],
        status: Callable[[Status], None] | None,
        clock: Clock,
        cores: Cores,
        others: list[Source],
        crew: Crew,
    ) -> None:
        if self._profiler is not None:
            self._profiler.number_from(store.next_ids)
        begin = time.monotonic_ns()
        end = begin + self._options.for_ns if self._options.for_ns else 1 << 63
        # When the last batch was due.
        last = begin + FIRST_NS - BATCH_NS
        turned = begin
        state = _Told()
        chapter = store.chapter
        rows = Recording(self.node)
        self._anchor(rows, clock, state)
        done = False
        while not done:
            for longest in (BATCH_NS, QUIET_BATCH_NS):
                now = self._sleep(min(last + longest, end), cores, stop)
                done = now >= end or stop()
                if done or not cores.quiet():
                    break
            last = max(last + longest, now - longest)
            crew.look_after()
            if done:
                if self._latency is not None:
                    self._latency.finish()
                crew.finish(rows)
                state.told = 0  # what was lost and what it cost is told to the end
            self._batch(rows, clock, cores, others, crew, state, store)
            store.append(rows)
            if now - turned > CHAPTER_NS or (self._profiler is not None and self._profiler.full):
                turned = now
                store.turn()
            if store.chapter != chapter:
                chapter = store.chapter
                self._forget()
            if status is not None:
                status(self._status(now - begin, rows, state, store))
            rows = Recording(self.node)
            self._anchor(rows, clock, state)
        if self._profiler is not None:
            store.next_ids = self._profiler.next_ids  # for whoever goes on with this store

    def _batch(
        self,
        rows: Recording,
        clock: Clock,
        cores: Cores,
        others: list[Source],
        crew: Crew,
        state: "_Told",
        store: Store,
    ) -> None:
        now = clock.now()
        cores.give(rows)
        crew.collect(rows)
        if self._options.events_after and self._anew:
            _leave_out(rows, self._options.events_after)
        if self._latency is not None:
            self._latency.collect(rows)
        start = time.thread_time_ns()
        if self._profiler is not None and self._sampler is not None:
            if self._cpu_gone or now - state.cpus > CPUS_NS:
                state.cpus = now
                self._follow(rows, now)
            self._take()
            held, self._held, self._held_bytes = self._held, [], 0
            self._profiler.tasks.boot_offset_ns = state.boot_offset_ns
            self._profiler.add(held, rows)
        state.sampling += time.thread_time_ns() - start
        tell = now - state.told > TELL_NS
        for row in self._sources(now, clock, cores.source, others, crew, state):
            if tell or state.said.get(row.name) != row.state:
                state.said[row.name] = row.state
                rows.add_source(*row)
        if tell:
            state.told = now
            self._count_own(rows, now, state, store)

    def _sources(
        self, now: int, clock: Clock, cpu: Source, others: list[Source], crew: Crew, state: "_Told"
    ) -> list[SourceRow]:
        told = [said(source, crew) for source in (cpu, *others) if source.state is not None or source in crew.stuck]
        told.append(SourceRow(now, "clock", clock_state(clock)))
        if self._latency is not None:
            told += self._latency.sources()
        else:  # the one that this recorder goes on from may have said that they are on
            told += [SourceRow(now, name, SourceState.off(NotRequested())) for name in LATENCY_SOURCES]
        if self._profiler is None or self._sampler is None:
            told.append(SourceRow(now, "samples", SourceState.off(self._unsampled)))
        else:
            names = self._symbols.reasons if self._symbols is not None else ()
            limits = (Limit(reason) for reason in (self._profiler.kernel.reason, self._sampler.reason) if reason)
            told.append(SourceRow(now, "samples", SourceState.read((*names, *limits)), state.sampling))
        return told

    def _count_own(self, rows: Recording, now: int, state: "_Told", store: Store) -> None:
        state.children_ns = self._symbols.cpu_ns() if self._symbols is not None else 0
        state.own_memory = own.memory_bytes() + (self._symbols.memory_bytes() if self._symbols is not None else 0)
        rows.count(now, "own_cpu_ns", own.cpu_ns() + state.children_ns)
        rows.count(now, "own_rss_bytes", state.own_memory)
        rows.count(now, "own_disk_bytes", store.size_bytes)
        for reason, lost in store.lost.items():
            rows.count(now, "rows_lost", lost, labels(reason=reason))
        if self._profiler is not None:
            rows.count(now, "samples_taken", self._profiler.taken)
            rows.count(now, "samples_lost", self._profiler.lost)
            rows.count(now, "samples_throttled", self._profiler.throttled)
            rows.count(now, "side_band_lost", self._profiler.side_band_lost)

    def _status(self, elapsed: int, rows: Recording, state: "_Told", store: Store) -> Status:
        samples, lost = len(rows["samples"]), self._profiler.lost if self._profiler is not None else 0
        unwritten = sum(store.lost.values())
        return Status(
            elapsed, samples, lost, unwritten, rows, own.cpu_ns() + state.children_ns, state.own_memory, store.size_bytes
        )

    def _sleep(self, until: int, cores: Cores, stop: Callable[[], bool]) -> int:
        """Until then, or until it is time to stop; the cores are read meanwhile, by whoever is awake for it: by us where the
        one that did so hangs. What time it is then."""
        while (now := time.monotonic_ns()) < until and not stop():
            elsewhere = self._latency is not None and self._latency.beats and now - self._beaten < HANGS_NS
            self._wait(min(until, until if elsewhere else cores.keep_time(now)) - now)
        return now

    def _take(self) -> None:
        assert self._sampler is not None
        for taken in self._sampler.take():
            self._held.append(taken)
            self._held_bytes += len(taken.samples) + len(taken.tasks)

    def _follow(self, rows: Recording, now: int) -> None:
        assert self._sampler is not None
        self._cpu_gone = False
        self._take()
        changed = self._sampler.follow(online_cpus(Root()))
        for what in changed:
            rows["events"].add(now, "cpu-hotplug", "cpu", "info", what, ())
        if changed:
            self._register()

    def _register(self) -> None:
        self._poll.close()
        self._poll = select.epoll()
        self._poll.register(self._wake, select.EPOLLIN)
        if self._sampler is not None:
            for fd in self._sampler.descriptors():
                self._poll.register(fd, select.EPOLLIN)

    def _wait(self, left: int) -> None:
        """So long, or until rings are half full or somebody wakes us."""
        if left <= 0:
            return
        ready = self._poll.poll(left / 1e9, 1)
        if not ready:
            return
        if ready[0][0] == self._wake:
            os.eventfd_read(self._wake)
        elif ready[0][1] & select.EPOLLIN:
            self._take()
            if self._held_bytes > LARGEST_HELD:
                self._shed()
        else:  # a CPU that is going: its descriptors say so all the time until they are closed
            self._cpu_gone = True
            time.sleep(min(left, TICK_NS) / 1e9)

    def _rouse(self) -> None:
        """Called in other threads."""
        with suppress(OSError):  # it is closed: we are awake
            os.eventfd_write(self._wake, 1)

    def _shed(self) -> None:
        """A storm of short processes: their side-band is let go, so that their samples and our memory are not."""
        shed = sum(len(taken.tasks) for taken in self._held)
        self._held = [Taken(taken.samples, b"") for taken in self._held]
        self._held_bytes = sum(len(taken.samples) for taken in self._held)
        if self._profiler is not None:
            self._profiler.tasks.lost += shed // 128  # about so many records

    def _forget(self) -> None:
        if self._profiler is not None:
            self._profiler.forget()

    def _anchor(self, rows: Recording, clock: Clock, state: "_Told") -> None:
        anchor = clock.anchor()
        rows["anchors"].add(anchor.perf_ns, anchor.monotonic_ns, anchor.boot_ns, anchor.real_ns, anchor.error_ns)
        if (step := state.step(anchor)) is not None:
            message = f"the wall clock was set {'forward' if step > 0 else 'back'} by {duration(abs(step))}"
            rows["events"].add(anchor.perf_ns, "clock-step", "clock", "info", message, labels(step_ns=step))


def _leave_out(rows: Recording, until: int) -> None:
    """Events up to that time."""
    events = rows["events"]
    if len(events) and int(events.ints("time").min()) <= until:
        later = Table(events.schema)
        later.add_rows([tuple(row.values()) for row in events.rows() if row["time"] > until])
        rows.tables["events"] = later


class _Told:
    """What was told already, and when."""

    def __init__(self) -> None:
        self.said: dict[str, SourceState] = {}
        self.told = 0
        self.cpus = 0
        self.sampling = 0
        self.children_ns = 0
        self.own_memory = 0
        self.boot_offset_ns = 0
        self._real_offset: int | None = None

    def step(self, anchor: Anchor) -> int | None:
        """By how much the wall clock was set since the last anchor, if it was. Both clocks stand still in suspend or do not,
        so time asleep shows in CLOCK_BOOTTIME, and is not a step."""
        self.boot_offset_ns = anchor.boot_ns - anchor.perf_ns
        offset = anchor.real_ns - anchor.boot_ns
        before, self._real_offset = self._real_offset, offset
        if before is None or abs(offset - before) < STEP_NS:
            return None
        return offset - before
