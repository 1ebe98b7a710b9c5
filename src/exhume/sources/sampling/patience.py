"""Reading what may never answer. /proc/PID/maps waits for the process's own locks, /proc/PID/cgroup for the one of all cgroups:
on a sick node either may take minutes, and whoever asks is stuck in the kernel until then. So another thread asks.
"""

import queue
import threading
import time

from exhume.errors import Unreadable
from exhume.host.quantities import SECOND, duration
from exhume.host.root import LARGEST, Root

WITHIN_S = 0.05
# Threads that may be stuck at a time; then nothing is asked until one comes back.
MOST_STUCK = 8
# After so many in a row that did not answer, nobody is asked for a while.
IN_A_ROW = 3
PAUSE_S = 30.0

_Asked = queue.SimpleQueue["tuple[str, int] | None"]
_Answers = queue.SimpleQueue["bytes | Unreadable"]


class PatientRoot(Root):
    """A root that reads files in a thread, and goes on without those that take too long."""

    def __init__(self, root: Root) -> None:
        super().__init__(root.path)
        self.late = 0
        """How many files did not come in time."""
        self._asked: _Asked | None = None
        self._answers: _Answers = queue.SimpleQueue()
        self._stuck: list[threading.Thread] = []
        self._thread: threading.Thread | None = None
        self._row = 0
        self._until = 0.0

    def read(self, name: str, largest: int = LARGEST) -> bytes:
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= MOST_STUCK or time.monotonic() < self._until:
            raise Unreadable(f"/{name} is not asked for: others did not answer")
        if self._asked is None:
            self._begin()
        assert self._asked is not None
        self._asked.put((name, largest))
        try:
            answer = self._answers.get(timeout=WITHIN_S)
        except queue.Empty:
            self._give_up()
            raise Unreadable(f"/{name} did not answer within {duration(WITHIN_S * SECOND)}") from None
        self._row = 0
        if isinstance(answer, Unreadable):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing more is asked for: the thread that waits for it need not."""
        if self._asked is not None:
            self._asked.put(None)
        self._asked = self._thread = None

    def _give_up(self) -> None:
        """The thread is left behind with what it was asked; it ends when it comes back."""
        self.late += 1
        self._row += 1
        if self._row >= IN_A_ROW:
            self._until, self._row = time.monotonic() + PAUSE_S, 0
        if self._thread is not None:
            self._stuck.append(self._thread)
        self._asked = self._thread = None

    def _begin(self) -> None:
        self._asked, self._answers = queue.SimpleQueue(), queue.SimpleQueue()
        arguments = (self._asked, self._answers)
        self._thread = threading.Thread(target=self._serve, args=arguments, name="exhume-asks", daemon=True)
        self._thread.start()

    def _serve(self, asked: _Asked, answers: _Answers) -> None:
        while (wanted := asked.get()) is not None:
            try:
                answers.put(super().read(*wanted))
            except Unreadable as error:
                answers.put(error)
            if self._asked is not asked:
                return
