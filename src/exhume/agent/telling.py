"""What is said once while it lasts, and again when it comes back: a full disk in spring is no reason for silence in autumn."""

import threading
import time
from collections.abc import Callable

# What was not heard of for so long is news again.
OVER_S = 3600.0
# So many sentences within that time; a trouble that is told in other words each time is not to fill the journal.
MOST = 200


class Telling:
    """Called in several threads."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._heard: dict[str, float] = {}
        """When each was heard last; the one that was not for longest is the first."""
        self._lock = threading.Lock()

    def __call__(self, trouble: str) -> None:
        with self._lock:
            now = self._clock()
            while self._heard and now - next(iter(self._heard.values())) >= OVER_S:
                del self._heard[next(iter(self._heard))]
            known = self._heard.pop(trouble, None) is not None
            if not known and len(self._heard) >= MOST:
                return
            self._heard[trouble] = now
        if not known:
            self._say(trouble)
