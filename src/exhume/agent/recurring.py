"""What is done every so many hours by a child at the lowest priority, and whose JSON is handed over when it is done."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from exhume.host.children import Result, Run
from exhume.text import from_json

TIMEOUT_S = 600.0
# Not at once: a node that boots has other things to do.
FIRST_S = 60.0

Hand = Callable[[dict[str, Any] | None, str], None]
"""What was printed; or None and why there is nothing."""


class Recurring:
    """`look` is called often and returns at once; `hand` is called in the thread that waits for the child."""

    def __init__(self, command: Sequence[str], every_s: float, hand: Hand, first_s: float = FIRST_S) -> None:
        self._command, self._every_s, self._hand = command, every_s, hand
        self._due = time.monotonic() + first_s
        self._child: Run | None = None
        self._ends = False
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        if not self._command or time.monotonic() < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = time.monotonic() + self._every_s
        self._thread = threading.Thread(target=self._run, name="recurring", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What is under way is nobody's any more."""
        self._ends = True
        if (child := self._child) is not None:
            child.end()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        self._child = Run(self._command, TIMEOUT_S, 19)
        try:
            report = _read(self._child.wait())
            if not self._ends:
                self._hand(report, "")
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not self._ends:
                self._hand(None, str(error))


def _read(result: Result) -> dict[str, Any]:
    if not result.output:
        raise ValueError(result.complaint or f"it printed nothing and ended with {result.code}")
    report = from_json(result.output)
    if not isinstance(report, dict):
        raise ValueError("what it printed is no report")
    return report
