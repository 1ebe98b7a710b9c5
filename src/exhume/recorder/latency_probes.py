"""The probes on events, in a thread of their own: windows in which they are attached, and each second what was counted.

To attach and to detach, the kernel patches its code and has every core answer an interrupt (text_poke_bp_batch): 0.2 ms when
all is well, and as long as the slowest core takes when not. So windows are few; whoever looks for stalls does not wait for
them; and none is opened or closed while a core is stuck.
"""

import threading
import time
from collections.abc import Callable

from exhume.errors import Unreadable
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.recorder.latency_rows import Counted, Totals, add_rows, add_timeouts, collected, of_rare, of_windows
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Bug, Failed, Limit, Note, Reasons, SourceState
from exhume.sources.latency.cgroup_paths import CgroupPaths
from exhume.sources.latency.hot import Hot
from exhume.sources.latency.rare import Rare

WINDOWS, RARE = "latency-windows", "latency-reclaim"
SHORTEST = 20_000_000
# Two looks at least come before the first probe.
FIRST_NS = 150_000_000
# So much of a window is enough for the run queue, of which a busy core has tens of thousands of events in that time.
RUN_QUEUE_NS = 200_000_000

Say = Callable[[str, SourceState], None]


class LatencyProbes(threading.Thread):
    """What cannot be loaded is off, and said; the rest goes on."""

    def __init__(
        self,
        root: Root,
        node: Node,
        window_ns: int,
        every_ns: int,
        each_core: bool,
        say: Say,
        give: Callable[[Recording], None],
    ) -> None:
        """A window of `window_ns` in each `every_ns`; as long as that, it is always open. 0 for none."""
        super().__init__(name="exhume-probes", daemon=True)
        self._root, self._node, self._say, self._give = root, node, say, give
        self._window_ns, self._every_ns, self._each_core = window_ns, every_ns, each_core
        self._totals = Totals()
        self._end = threading.Event()
        self._hot: Hot | None = None
        self._rare: Rare | None = None
        self._paths: CgroupPaths | None = None
        self.offset_ns = 0
        """From BPF's clock to the recording's; whoever has the clock sets it."""
        self.stuck: Callable[[], bool] = lambda: False
        """Whether a core does not get round to things now."""
        self.threads_poll: Callable[[], bool] = lambda: False
        """Whether devices are polled by threads: how long they wait is known by the run queue."""
        self._first_ns = FIRST_NS
        self._part: Reasons = ()
        """For how much of the time there is a window."""
        self._without: Reasons = ()
        self._unkept = 0
        self.cost_ns = 0
        self.failure: BaseException | None = None

    def finish(self) -> None:
        self._end.set()
        self.join(5)

    def run(self) -> None:
        try:
            self._open()
            if self._hot is not None or self._rare is not None:
                self._loop()
        except Unreadable as error:
            self._say(WINDOWS, SourceState.off(Failed(str(error))))
        except BaseException as error:
            self.failure = error
            self._say(WINDOWS, SourceState.off(Bug(f"{type(error).__name__}: {error}")))
        finally:
            for part in (self._hot, self._rare):
                if part is not None:
                    part.close()

    def _open(self) -> None:
        try:
            self._hot = Hot() if self._window_ns else None
            always = self._window_ns >= self._every_ns
            shorter = f", the run queue {duration(RUN_QUEUE_NS)}" if self._window_ns > RUN_QUEUE_NS else ""
            part = "always" if always else f"{duration(self._window_ns)} of each {duration(self._every_ns)}{shorter}"
            if self._hot is not None:
                self._part = (Note(part),)
        except Unreadable as error:
            self._say(WINDOWS, SourceState.off(Failed(str(error))))
        try:
            self._rare = Rare(attach=False)
        except Unreadable as error:
            self._say(RARE, SourceState.off(Failed(str(error))))
            return
        try:
            self._paths = CgroupPaths(self._root)
        except Unreadable as error:
            self._without = (Limit(str(error)),)

    def _loop(self) -> None:
        """A window first, so that even a short watch has one; but not before it is known whether a core is stuck."""
        counted = opened = time.monotonic_ns()
        due = opened + self._first_ns
        is_open = attached = False
        while not self._end.is_set():
            now = time.monotonic_ns()
            if self._rare is not None and not attached and now >= due and not self.stuck():
                attached = True
                self._attach_rare(self._rare)
            if self._hot is not None and not self.stuck():
                if not is_open and now >= due:
                    self._attach_hot(self._hot)
                    opened, due, is_open = time.monotonic_ns(), now + self._every_ns, True
                elif is_open and self._window_ns < self._every_ns:
                    if now - opened >= self._window_ns:
                        self._hot.detach()
                        is_open = False
                    elif now - opened >= RUN_QUEUE_NS and self._run_queue_closes():
                        self._hot.detach_run_queue()
            if now - counted >= SECOND:
                self._give(self._counted(now, now - counted))
                counted = now
            self.cost_ns = time.thread_time_ns()
            open_ns = RUN_QUEUE_NS if self._run_queue_closes() else self._window_ns
            ahead = min(counted + SECOND, opened + open_ns if is_open else due)
            self._end.wait(max(SHORTEST, ahead - time.monotonic_ns()) / 1e9)
        now = time.monotonic_ns()
        self._give(self._counted(now, now - counted))

    def _run_queue_closes(self) -> bool:
        """Whether the run queue's part of the window ends before the rest."""
        return self._hot is not None and self._hot.sees_run_queue and not self.threads_poll()

    def _attach_rare(self, rare: Rare) -> None:
        try:
            rare.attach()
            self._say(RARE, SourceState.read(self._without + _missing(rare.off)))
        except Unreadable as error:
            self._say(RARE, SourceState.off(Failed(str(error))))
            rare.close()
            self._rare = None

    def _attach_hot(self, hot: Hot) -> None:
        try:
            hot.attach()
            self._say(WINDOWS, SourceState.read(self._part + _missing(hot.off)))
        except Unreadable as error:
            self._say(WINDOWS, SourceState.off(Failed(str(error))))
            hot.close()
            self._hot = None

    def _counted(self, monotonic_ns: int, elapsed_ns: int) -> Recording:
        rows = Recording(self._node)
        now, offset = monotonic_ns + self.offset_ns, self.offset_ns
        counted: Counted = {}
        share = {}
        if self._hot is not None:
            taken = self._hot.take()
            open_ns = {"napi": taken.attached_ns, "softirq": taken.attached_ns, "runqueue": taken.run_queue_ns}
            share = {what: min(1000, round(1000 * ns / max(1, elapsed_ns))) for what, ns in open_ns.items()}
            counted |= collected(of_windows(taken), offset, self._each_core)
            self._totals.add_windows(rows, now, taken)
            self._unkept += taken.unkept
        if self._rare is not None:
            rare = self._rare.take()
            counted |= collected(of_rare(rare, self._path), offset, self._each_core)
            self._totals.add_rare(rows, now, rare)
            self._unkept += rare.unkept
            add_timeouts(rows, rare, offset)
        if self._unkept:
            rows.count(now, "latency_events_unkept", self._unkept)
        add_rows(rows, now, counted, share)
        return rows

    def _path(self, number: int) -> str:
        return self._paths.path(number) if self._paths is not None else ""


def _missing(off: dict[str, str]) -> Reasons:
    return (Limit("without " + "; ".join(f"{name}: {reason}" for name, reason in off.items())),) if off else ()
