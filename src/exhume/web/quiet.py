"""What works in the background lets those go first who wait for an answer: on a node with few cores both would be slow."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Quiet:
    """How many wait for an answer now."""

    def __init__(self) -> None:
        self._asking = 0
        self._changed = threading.Condition()

    @contextmanager
    def asking(self) -> Iterator[None]:
        with self._changed:
            self._asking += 1
        try:
            yield
        finally:
            with self._changed:
                self._asking -= 1
                self._changed.notify_all()

    def wait(self, most_s: float) -> bool:
        """Until nobody does; no longer than that, so that what is asked for all the time gets its answer in the end, too."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._asking, most_s)
