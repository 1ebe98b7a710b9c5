"""Everything that answers are made of: the recording, its outline, its incidents."""

import threading
import time

from exhume.recording.readable import Readable
from exhume.web.building import Builder
from exhume.web.clock import Clock
from exhume.web.incidents import Incidents
from exhume.web.judging import Judges
from exhume.web.quiet import Quiet
from exhume.web.store import Store

_COUNT_AGAIN_S = 20.0


class View:
    """`initial` is the window that was asked for on the command line."""

    def __init__(self, store: Store, initial: tuple[int, int] | None = None, incidents: Incidents | None = None) -> None:
        self.store = store
        self.initial = initial
        self.quiet = Quiet()
        self.builder = Builder(store, self.quiet)
        self.incidents = incidents or Incidents(store)
        self.judges = Judges()
        self.clock = Clock()
        self.ended = False
        """Long work looks at this: nobody waits for it any more."""
        self._lock = threading.Lock()
        self._samples: int | None = None
        self._counted = 0.0

    def start(self) -> None:
        self.store.start()
        self.builder.start()
        self.incidents.start()

    def stop(self) -> None:
        self.ended = True
        self.store.stop()
        self.builder.stop()
        self.incidents.stop()
        self.judges.end()

    def samples(self, folder: Readable) -> int:
        """How many there are. Counting opens every segment, so that of a live recording it is not done each time."""
        with self._lock:
            old = time.monotonic() - self._counted > _COUNT_AGAIN_S
            if self._samples is None or (old and self.store.live):
                self._samples = folder.count("samples")
                self._counted = time.monotonic()
            return self._samples
