"""Watches for stalls in a thread of its own, and once a second writes down how late everything was.

Every 25 ms it looks at who waits (sources/latency/look.py) and tells of a stall while it lasts. What comes too often to be
measured all the time is measured in windows (sources/latency/hot.py), what is rare always (rare.py). Who holds a core on which
something waits is known by stack samples (sources/sampling/offenders.py).
"""

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from exhume.errors import Unreadable
from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.kernel.bpf import Btf, unavailable
from exhume.kernel.clock import Clock
from exhume.recorder.latency_rows import Counted, add_rows, add_stall
from exhume.recorder.latency_told import Told, fields, message, parse_policy
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import Bug, Failed, Gap, Limit, Reason, SourceRow, SourceState, Weaker
from exhume.sources.facts import isolated_cpus, online_cpus
from exhume.sources.latency.discover import Discover, Found, Thread, polls
from exhume.sources.latency.look import Look, Looker
from exhume.sources.latency.stalls import Change, Holder, Stall, Stalls
from exhume.sources.latency.weak import WeakDiscover, WeakLooker
from exhume.sources.processes import parse_cgroup
from exhume.sources.sampling.patience import PatientRoot
from exhume.text import decode

if TYPE_CHECKING:  # imported where they are used: a check that finds nothing needs neither
    from exhume.recorder.latency_probes import LatencyProbes
    from exhume.sources.sampling.offenders import Offenders

DISCOVER_NS: Final = 2 * SECOND
NICE: Final = -15
# The sources that it tells of.
SOURCES: Final = ("latency", "latency-stacks", "latency-windows", "latency-reclaim")


@dataclass(frozen=True, slots=True)
class Options:
    threshold_ns: int = 50_000_000
    """From when on a wait is a stall."""
    look_ns: int = 25_000_000
    names: str = ""
    """A regular expression: threads of these names are watched, too."""
    window_ns: int = 500_000_000
    """How much of each `every_ns` the events are measured that come too often to be measured always; 0 for never. Windows are
    few and long rather than many and short: to open one the kernel patches its code, and interrupts every core for that."""
    every_ns: int = 10 * SECOND
    each_core: bool = True
    """Whether cores on which nothing was late have rows of their own."""
    sample: bool = True
    """Whether to sample stacks; a recorder that does so anyway has no need to."""
    brief: bool = False
    """Only for seconds: looks and samples are all there is time for, and the kernel's names are read only when needed."""


class _Looks(Protocol):
    def watch(self, threads: list[Thread], ksoftirqd: list[Thread]) -> None: ...
    def glance(self) -> bool: ...
    def seen(self, time: int) -> Look: ...
    def close(self) -> None: ...

    @property
    def threads(self) -> list[Thread]: ...
    @property
    def cores(self) -> list[Thread]: ...
    @property
    def sees_softirqs(self) -> bool: ...


class _Finds(Protocol):
    left_out: int

    def find(self) -> Found: ...
    def close(self) -> None: ...


class Latency(threading.Thread):
    """Start it, collect from it, stop it. It stops by itself where nothing can be watched; `sources` says why."""

    def __init__(
        self,
        root: Root,
        node: Node,
        options: Options,
        on_stall: Callable[[Told], None] | None = None,
        beat: Callable[[], int] | None = None,
    ) -> None:
        """`on_stall` is called in this thread, when a stall is announced and when it is over; `beat` with each look, for what
        is to be done as often: it says how many nanoseconds of CPU that took, which are not the watch's."""
        super().__init__(name="exhume-latency", daemon=True)
        self._root, self._node, self._options, self._on_stall = root, node, options, on_stall
        # Of whoever holds a core: /proc/PID/cgroup waits for a lock that is held for long on just the nodes that stall.
        self._patient = PatientRoot(root)
        self._names = re.compile(options.names) if options.names else None
        self._beat = beat
        self.beats = False
        """Whether it does that now."""
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._rows = Recording(node)
        self._sources: dict[str, SourceState] = {}
        self._cost = 0
        self._since = 0
        self._counted = 0
        self._over: list[Stall] = []
        """Stalls that ended in this second."""
        self._stuck = False
        self._threads_poll = False
        self._watched: dict[str, int] = {}
        self._left_out = 0
        self._base: Reason | None = None
        """What is missing from every look."""
        self._gap_ns = 0
        """The longest time between two looks, if that is longer than the threshold."""
        self._weak = ""
        """Why there is no BPF."""
        self._cgroups: dict[int, str] = {}
        self._policies: dict[int, str] = {}
        self.ready = threading.Event()
        """It watches, or never will."""
        self.failure: BaseException | None = None

    # For whoever started it

    def collect(self, into: Recording) -> None:
        """Hand over what was seen so far."""
        with self._lock:
            rows, self._rows = self._rows, Recording(self._node)
        into.extend(rows)

    def sources(self) -> list[SourceRow]:
        with self._lock:
            states = dict(self._sources)
        return [SourceRow(self._since, name, state, self._cost if name == "latency" else 0) for name, state in states.items()]

    def finish(self) -> None:
        self._end.set()
        self.join(5)

    # In the thread

    def run(self) -> None:
        try:
            with Clock() as clock:
                self._since = clock.now()
                self._watch(clock)
        except Unreadable as error:
            self._say("latency", SourceState.off(Failed(str(error))))
        except BaseException as error:
            self.failure = error
            self._say("latency", SourceState.off(Bug(f"{type(error).__name__}: {error}")))
        finally:
            self.beats = False
            self.ready.set()

    def _watch(self, clock: Clock) -> None:
        try:
            looker, finder = self._open()
        except Unreadable as error:
            self._say("latency", SourceState.off(Failed(str(error))))
            return
        offenders = self._offenders()
        stalls = Stalls(self._options.threshold_ns)
        probes = self._probes()
        try:
            self._loop(clock, looker, finder, stalls, offenders, probes)
            for change in stalls.finish():
                self._tell(change, clock.now(), offenders)
            self._second(clock)
            self._count_watched(clock.now(), looker)
        finally:
            if probes is not None:
                probes.finish()
                self.failure = self.failure or probes.failure
            if offenders is not None:
                offenders.close()
            looker.close()
            finder.close()
            self._patient.close()

    def _open(self) -> tuple[_Looks, _Finds]:
        if not self._root.same_kernel():
            raise Unreadable("only the running kernel can be watched, and this root is another's")
        reason = unavailable()
        if not reason:
            try:
                btf = Btf.vmlinux()
                finder = Discover(btf, self._names)
                try:
                    looker = Looker(btf, self._options.threshold_ns)
                except BaseException:
                    finder.close()
                    raise
                if not looker.sees_softirqs:
                    self._base = Limit("softirqs that are due cannot be seen: BTF does not say where they are")
                self._say_watch()
                return looker, finder
            except Unreadable as error:
                reason = str(error)
        self._weak = reason
        weak = WeakLooker(self._root)
        self._base = Weaker("/proc/PID/schedstat", reason)
        self._say_watch()
        return weak, WeakDiscover(self._root, self._names)

    def _offenders(self) -> "Offenders | None":
        if not self._options.sample or not self._root.same_kernel():
            return None
        from exhume.sources.sampling.offenders import Offenders

        cpus = online_cpus(Root())
        isolated = isolated_cpus(Root())
        offenders = Offenders(self._root, [cpu for cpu in cpus if cpu not in isolated])
        if not self._options.brief:
            offenders.prepare()
        left = (Limit(f"not on {len(isolated)} isolated cores, which it would disturb"),) if isolated else ()
        off = SourceState.off(Failed(offenders.reason)) if offenders.reason else None
        self._say("latency-stacks", off or SourceState.read(left))
        return offenders

    def _probes(self) -> "LatencyProbes | None":
        if self._options.brief:
            return None
        from exhume.recorder.latency_probes import RARE, WINDOWS, LatencyProbes

        if self._weak:
            self._say(WINDOWS, SourceState.off(Failed(self._weak)))
            self._say(RARE, SourceState.off(Failed(self._weak)))
            return None
        options = self._options
        probes = LatencyProbes(
            self._root, self._node, options.window_ns, options.every_ns, options.each_core, self._say, self._give
        )
        probes.stuck = lambda: self._stuck
        probes.threads_poll = lambda: self._threads_poll
        probes.start()
        return probes

    def _loop(
        self,
        clock: Clock,
        looker: _Looks,
        finder: _Finds,
        stalls: Stalls,
        offenders: "Offenders | None",
        probes: "LatencyProbes | None",
    ) -> None:
        # A tenth of a millisecond in each 25, and what it is there to see is a machine that does not get round to things.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        discovered = others = 0
        began = time.thread_time_ns()
        self.beats = self._beat is not None
        due = self._counted = time.monotonic_ns()
        looked = 0
        while not self._end.is_set():
            now = time.monotonic_ns()
            if now - discovered >= DISCOVER_NS:
                discovered = now
                anchor = clock.anchor()
                if probes is not None:
                    probes.offset_ns = anchor.perf_ns - anchor.monotonic_ns
                self._discover(looker, finder)
            self._look(clock, looker, stalls, offenders)
            self._note_gap(now - looked if looked else 0)
            looked = now
            if self._beat is not None:
                others += self._beat()
            if not self.ready.is_set() or now - self._counted >= SECOND:
                self._second(clock)
                self._count_watched(clock.now(), looker)
                self._cost = time.thread_time_ns() - began - others
                self.ready.set()
            due = max(due + self._options.look_ns, time.monotonic_ns())
            time.sleep(max(0, due - time.monotonic_ns()) / 1e9)  # half of what it costs to wait for an event as well

    def _second(self, clock: Clock) -> None:
        """The stalls of the second that is over, as rows."""
        self._counted = time.monotonic_ns()
        if not self._over:
            return
        over, self._over = self._over, []
        counted: Counted = {}
        for stall in over:
            add_stall(counted, stall)
        rows = Recording(self._node)
        add_rows(rows, clock.now(), counted, {})
        self._give(rows)

    def _count_watched(self, now: int, looker: _Looks) -> None:
        """How much is watched, when that is not what it was; of the threads that were asked for by name, how often and how
        long they waited in all."""
        rows = Recording(self._node)
        pollers = sum(map(polls, looker.threads))
        watched = {"napi": pollers, "cores": len(looker.cores), "threads": len(looker.threads) - pollers}
        if watched == self._watched and self._names is None:
            return
        self._watched = watched
        for kind, value in watched.items():
            rows.count(now, "latency_watched", value, labels(kind=kind))
        if self._names is not None:
            for thread, row in zip(looker.threads, looker.seen(now).threads, strict=True):
                if not polls(thread) and row["there"]:
                    at = labels(thread=thread.comm, tid=thread.tid)
                    rows.count(now, "thread_waits", int(row["pcount"]), at)
                    rows.count(now, "thread_wait_ns", int(row["run_delay"]), at)
        self._give(rows)

    def _give(self, rows: Recording) -> None:
        with self._lock:
            self._rows.extend(rows)

    def _discover(self, looker: _Looks, finder: _Finds) -> None:
        found = finder.find()
        if finder.left_out != self._left_out:
            self._left_out = finder.left_out
            self._say_watch()
        if looker.threads != found.threads or looker.cores != found.ksoftirqd:
            looker.watch(found.threads, found.ksoftirqd)
            self._threads_poll = any(map(polls, found.threads))

    def _look(self, clock: Clock, looker: _Looks, stalls: Stalls, offenders: "Offenders | None") -> None:
        if offenders is not None:
            offenders.follow(clock.now(), {stall.core for stall in stalls.open})
        begun = clock.now()
        telling = looker.glance()
        now = clock.now()  # behind the glance: what waits in it has not waited longer than until now
        if not telling and stalls.quiet:
            stalls.skip(now, begun)
            return
        for change in stalls.add(replace(looker.seen(now), begun=begun), looker.threads, looker.cores):
            self._tell(change, now, offenders)
        self._stuck = any(stall.what != "runqueue" for stall in stalls.open)

    def _tell(self, change: Change, now: int, offenders: "Offenders | None") -> None:
        stall = change.stall
        waiting = stall.thread.tid if stall.thread is not None else 0
        offender = None
        if change.over and offenders is not None:
            offender = offenders.who(now, stall.core, stall.start, stall.end, waiting)
        holder = stall.holder
        if offender is not None and (holder is None or holder.tid != offender.tid):
            holder = Holder(offender.pid, offender.tid, self._comm(offender.tid))
        cgroup = self._cgroup(holder.pid) if holder is not None and holder.pid else ""
        policy = self._policy(holder.tid) if holder is not None and holder.tid else ""
        told = Told(stall, change.over, now, stall.length_ns(now), holder, policy, cgroup, offender)
        with self._lock:
            self._rows["events"].add(
                stall.end or now,
                "stall" if change.over else "stall-begins",
                stall.subject,
                "warning",
                message(told),
                fields(told),
            )
        if change.over:
            self._over.append(stall)
        if self._on_stall is not None:
            self._on_stall(told)

    def _note_gap(self, gap_ns: int) -> None:
        """Our own looks come late on a machine that starves. A stall that fits between two of them may not be seen."""
        if gap_ns > max(self._gap_ns, self._options.threshold_ns):
            self._gap_ns = gap_ns
            self._say_watch()

    def _say_watch(self) -> None:
        threads = Limit(f"{self._left_out:,} more threads are not watched") if self._left_out else None
        gap = Gap(round(self._gap_ns / 1e6)) if self._gap_ns else None
        self._say("latency", SourceState.read(tuple(reason for reason in (self._base, threads, gap) if reason is not None)))

    def _say(self, name: str, state: SourceState) -> None:
        with self._lock:
            self._sources[name] = state

    def _cgroup(self, pid: int) -> str:
        """Remembered: when a stall is over, who caused it may be gone."""
        with suppress(Unreadable):
            path = parse_cgroup(self._patient.read(f"proc/{pid}/cgroup", 1 << 16))
            if path != "/" or pid not in self._cgroups:  # a process that exits has been put there
                self._cgroups[pid] = path
        if len(self._cgroups) > 1024:
            del self._cgroups[next(iter(self._cgroups))]
        return self._cgroups.get(pid, "")

    def _policy(self, tid: int) -> str:
        """Remembered, too."""
        with suppress(Unreadable):
            policy = parse_policy(self._patient.read(f"proc/{tid}/stat", 4096))
            if policy is not None:
                self._policies[tid] = policy
        if len(self._policies) > 1024:
            del self._policies[next(iter(self._policies))]
        return self._policies.get(tid, "")

    def _comm(self, tid: int) -> str:
        try:
            return decode(self._patient.read(f"proc/{tid}/comm", 64).rstrip(b"\n"))
        except Unreadable:
            return ""
