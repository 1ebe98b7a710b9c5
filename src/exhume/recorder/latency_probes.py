"""The probes on events, in a thread of their own: a window in each second, then what was counted goes into the recording.

To attach and detach the kernel waits for all cores to have passed a quiet state, which takes tens of milliseconds on a busy
machine. Whoever looks for stalls must not wait for that.
"""

import threading
import time
from collections.abc import Callable

from exhume.errors import Unreadable
from exhume.node.latency.cgroup_paths import CgroupPaths
from exhume.node.latency.hot import Hot
from exhume.node.latency.rare import Rare
from exhume.node.root import Root
from exhume.recorder.latency_rows import Counted, Totals, add_rows, add_timeouts, collected, of_rare, of_windows
from exhume.recording.recording import Node, Recording

WINDOWS, RARE = "latency-windows", "latency-reclaim"
_IN_WINDOWS = ("napi", "softirq", "runqueue")

Say = Callable[[str, str, str], None]
"""A source, on or off, and why."""


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
            self._say(WINDOWS, "off", str(error))
        except BaseException as error:
            self.failure = error
            self._say(WINDOWS, "off", f"a bug in exhume, please report it: {type(error).__name__}: {error}")
        finally:
            for part in (self._hot, self._rare, self._paths):
                if part is not None:
                    part.close()

    def _open(self) -> None:
        try:
            self._hot = Hot() if self._window_ns else None
            always = self._window_ns >= self._every_ns
            part = "always" if always else f"{self._window_ns / 1e6:g} ms of each {self._every_ns / 1e9:g} s"
            self._say(WINDOWS, "on" if self._hot else "off", _note(part, self._hot.off) if self._hot else "not asked for")
        except Unreadable as error:
            self._say(WINDOWS, "off", str(error))
        try:
            self._rare = Rare()
            self._say(RARE, "on", _note("", self._rare.off))
        except Unreadable as error:
            self._say(RARE, "off", str(error))
            return
        try:
            self._paths = CgroupPaths(self._root)
        except Unreadable as error:
            self._say(RARE, "on", _note(str(error), self._rare.off))

    def _loop(self) -> None:
        counted = time.monotonic_ns()
        always = self._window_ns >= self._every_ns
        if self._hot is not None and always:
            self._hot.attach()
        while not self._end.is_set():
            began = time.monotonic_ns()
            if self._hot is not None and not always:
                self._hot.attach()
                self._end.wait(self._window_ns / 1e9)
                self._hot.detach()
            left = self._every_ns - (time.monotonic_ns() - began)
            self._end.wait(max(0, left) / 1e9)
            now = time.monotonic_ns()
            self._give(self._counted(now, now - counted))
            self.cost_ns = time.thread_time_ns()
            counted = now

    def _counted(self, monotonic_ns: int, elapsed_ns: int) -> Recording:
        rows = Recording(self._node)
        now, offset = monotonic_ns + self.offset_ns, self.offset_ns
        counted: Counted = {}
        share = {}
        if self._hot is not None:
            taken = self._hot.take()
            share = dict.fromkeys(_IN_WINDOWS, min(1000, round(1000 * taken.attached_ns / max(1, elapsed_ns))))
            counted |= collected(of_windows(taken), offset, self._each_core)
            self._totals.add_windows(rows, now, taken)
        if self._rare is not None:
            rare = self._rare.take()
            counted |= collected(of_rare(rare, self._path), offset, self._each_core)
            self._totals.add_rare(rows, now, rare)
            add_timeouts(rows, rare, offset)
        add_rows(rows, now, counted, share)
        return rows

    def _path(self, number: int) -> str:
        return self._paths.path(number) if self._paths is not None else ""


def _note(text: str, off: dict[str, str]) -> str:
    missing = "; ".join(f"{name}: {reason}" for name, reason in off.items())
    return "; ".join(filter(None, (text, f"without {missing}" if missing else "")))
