"""What is done every so many hours by a child at the lowest priority, and whose JSON is handed over when it is done."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from exhume.host.children import leashed
from exhume.host.quantities import SECOND, duration, size
from exhume.text import decode, from_json, printable

PATIENCE_S = 600.0
# Not at once: a node that boots has other things to do.
FIRST_S = 60.0
LARGEST = 64 << 20

Hand = Callable[[dict[str, Any] | None, str], None]
"""What was printed; or None and why there is nothing."""


class Recurring:
    """`look` is called often and returns at once; `hand` is called in the thread that waits for the child."""

    def __init__(self, command: Sequence[str], every_s: float, hand: Hand, first_s: float = FIRST_S) -> None:
        self._command, self._every_s, self._hand = command, every_s, hand
        self._due = time.monotonic() + first_s
        self._child: subprocess.Popen[bytes] | None = None
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
        if (child := self._child) is not None and child.poll() is None:
            child.kill()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
        try:
            with subprocess.Popen(leashed(self._command), stdin=quiet, stdout=pipe, stderr=pipe) as child:
                self._child = child
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, child.pid, 19)
                try:
                    printed, said = child.communicate(timeout=PATIENCE_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    raise ValueError(f"it took more than {duration(PATIENCE_S * SECOND)}") from None
            if not self._ends:
                self._hand(_read(printed, said, child.returncode), "")
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not self._ends:
                self._hand(None, str(error))


def _read(printed: bytes, said: bytes, code: int) -> dict[str, Any]:
    if not printed:
        last = printable(decode(said.strip().rpartition(b"\n")[2]), 200)
        raise ValueError(last or f"it printed nothing and ended with {code}")
    if len(printed) > LARGEST:
        raise ValueError(f"it printed {size(len(printed))}")
    report = from_json(printed)
    if not isinstance(report, dict):
        raise ValueError("what it printed is no report")
    return report
