"""A process that watches when it is told to, so that a load can be measured without and with it, in many short turns: to start
`exhume latency` anew each time would take longer than a turn.

Takes a word a line, and answers with the same word when it is so: `off`, `looks` (all that is always on), `window` (that, and a
window of the probes is about to open, half a second long), `nothing` (wakes as often as the watch and uses a core as much).
"""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from exhume.host.root import Root
from exhume.recorder.latency import NICE, Latency, Options
from exhume.recorder.recorder import node_of

NOTHING_NS = 250_000


class _Nothing(threading.Thread):
    """What any watcher would cost here."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()

    def run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while not self._end.is_set():
            begin = time.thread_time_ns()
            while time.thread_time_ns() - begin < NOTHING_NS:
                pass
            time.sleep(Options().look_ns / 1e9)

    def finish(self) -> None:
        self._end.set()
        self.join()


def _start(what: str) -> "Latency | _Nothing | None":
    if what == "off":
        return None
    if what == "nothing":
        nothing = _Nothing()
        nothing.start()
        return nothing
    options = Options() if what == "window" else Options(window_ns=0)
    watch = Latency(Root(), node_of(Root()), options)
    watch.start()
    watch.ready.wait(10)
    return watch


def main() -> None:
    with suppress(OSError):  # sched(7), the autogroup feature: our session comes before others that have work to do just now
        Path("/proc/self/autogroup").write_text("-20")
    running: Latency | _Nothing | None = None
    for line in sys.stdin:
        if running is not None:
            running.finish()
        running = _start(line.strip())
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
