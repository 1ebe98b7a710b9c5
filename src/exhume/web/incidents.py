"""The incidents of the whole recording: looked for in the background, and again while it grows."""

import threading
import time
from collections.abc import Callable
from typing import Any

from exhume.errors import ExhumeError
from exhume.web import judging
from exhume.web.judging import Judges
from exhume.web.store import SECOND, Store

_LOOK_AGAIN_S = 30.0
_STEP_S = 0.5
# What is seen first goes first: a process for this would compete with the page for the cores.
_FIRST_S = 1.5
# No more than a fifth of the time is spent on it.
_SPARE = 5.0


class Incidents:
    """`judge` is for tests: what finds them, of a store and a window."""

    def __init__(self, store: Store, judge: "Callable[[Store, int, int], list[dict[str, Any]]] | None" = None) -> None:
        self._store = store
        self._judge = judge
        self._judges = Judges()
        self._found: list[dict[str, Any]] = []
        self._ready = False
        self._until = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="exhume-incidents", daemon=True)

    @property
    def ready(self) -> bool:
        return self._ready

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
            start, end = self._store.window(self._store.folder)
            if end - self._until > _LOOK_AGAIN_S * SECOND or not self._ready:
                found = (self._judge or self._in_child)(self._store, start, end)
                if found is not None and not self._stop.is_set():
                    self._found, self._until = found, end
                self._ready = True
            if self._stop.wait(max(_LOOK_AGAIN_S, _SPARE * (time.monotonic() - began))):
                return

    def _in_child(self, store: Store, start: int, end: int) -> list[dict[str, Any]] | None:
        """None where it could not be judged: what was known stays."""
        try:
            folder = store.whole
        except ExhumeError:
            return None
        document = self._judges.verdict(folder, store.thresholds, store.origin, start, end)
        return None if document is None else judging.incidents(document)
