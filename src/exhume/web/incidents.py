"""The incidents of the whole recording: looked for in the background, and again while it grows."""

import threading
import time
from collections.abc import Callable
from typing import Any

from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND
from exhume.web import judging
from exhume.web.judging import Judges
from exhume.web.store import Store

_LOOK_AGAIN_S = 30.0
_STEP_S = 0.5
# What is seen first goes first: a process for this would compete with the page for the cores.
_FIRST_S = 1.5
# No more than a fifth of the time is spent on it.
_SPARE = 5.0
# What fails is tried again, each time after twice as long: what takes too much memory would take it again.
_MOST_DOUBLED = 5

Judge = Callable[[Store, int, int], "list[dict[str, Any]] | None"]


class Incidents:
    """`judge` is for tests: what finds them, of a store and a window; None where it could not."""

    def __init__(self, store: Store, judge: Judge | None = None) -> None:
        self._store = store
        self._judge = judge
        self._judges = Judges()
        self._found: list[dict[str, Any]] = []
        self.more = 0
        """Further ones that are not listed."""
        self._ready = False
        self._failures = 0
        self._until = 0
        self._was_live = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="exhume-incidents", daemon=True)

    @property
    def ready(self) -> bool:
        """Whether they are known, at least those of a while ago."""
        return self._ready

    @property
    def failed(self) -> bool:
        """The last attempt to find them was none."""
        return self._failures > 0

    def found(self) -> list[dict[str, Any]]:
        return self._found

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._judges.end()

    def _run(self) -> None:
        while not self._store.wait(_STEP_S):
            if self._stop.is_set():
                return
        if self._judge is None and self._stop.wait(_FIRST_S):
            return
        while not self._stop.is_set():
            began = time.monotonic()
            self.look()
            pause = _LOOK_AGAIN_S * 2 ** min(self._failures, _MOST_DOUBLED)
            if self._stop.wait(max(pause, _SPARE * (time.monotonic() - began))):
                return

    def look(self) -> None:
        """If there is enough that is new. What a recording got last is not new for long: it is looked at when it ends."""
        start, end = self._store.window(self._store.folder)
        live = self._store.live
        ended = self._was_live and not live and end > self._until
        if end - self._until <= _LOOK_AGAIN_S * SECOND and self._ready and not self._failures and not ended:
            return
        found = (self._judge or self._in_child)(self._store, start, end)
        if self._stop.is_set():
            return
        if found is None:  # what was known stays
            self._failures += 1
            return
        self._found, self._until, self._was_live, self._failures, self._ready = found, end, live, 0, True

    def _in_child(self, store: Store, start: int, end: int) -> list[dict[str, Any]] | None:
        """None where it could not be judged."""

        def judge() -> dict[str, Any]:
            document = self._judges.verdict(folder, store.thresholds, store.origin, start, end)
            if document is None:
                raise ExhumeError("the recording could not be judged")
            return document

        try:
            folder = store.whole
            document = judging.kept(store, folder, start, end, judge)
        except (ExhumeError, OSError, ValueError):  # what it said may be cut off
            return None
        self.more = document.get("incidents_more", 0)
        return judging.incidents(document)
