"""A child process for system calls that may not return in time, and a parent that never waits for longer than it wants to.

Some calls wait in the kernel until every CPU has run a worker (lru_add_drain_all). Behind a starved core that takes as long as
the starvation does, and no signal ends it. Such calls are made here: the parent sees that nothing comes any more, and goes on.
"""

import os
import pickle
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from exhume.errors import ExhumeError, Unreadable
from exhume.host.children import die_with_parent

Sent = TypeVar("Sent")
_FRAME = struct.Struct("=I")
_END_S = 0.5


class Stuck(ExhumeError):
    """The kernel does not let a call of the child return."""


class Child(Generic[Sent]):
    """Runs `work(send)` in a forked process. A context manager: the child is ended afterwards, or left to end by itself if it
    is stuck in the kernel. It dies with its parent."""

    def __init__(self, work: Callable[[Callable[[Sent], None]], None]) -> None:
        self._work = work
        self._raw = b""

    def __enter__(self) -> Self:
        self._allowed = os.sched_getaffinity(0)
        self._read, write = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            _run(self._work, write, parent)
        os.close(write)
        self._ended = False
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._read)
        if self._ended:
            return
        os.kill(self.pid, signal.SIGKILL)
        self.rescue()
        deadline = time.monotonic() + _END_S
        while not os.waitpid(self.pid, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                return  # in the kernel: it dies when that call returns
            time.sleep(0.005)

    def receive(self, timeout_s: float) -> Sent | None:
        """What the child sent next; None if nothing came in time. Raises what the child raised, EOFError after its end."""
        deadline = time.monotonic() + timeout_s
        while (sent := self._frame()) is None:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            more = os.read(self._read, 1 << 16)
            if not more:
                os.waitpid(self.pid, 0)
                self._ended = True
                raise EOFError
            self._raw += more
        kind, value = pickle.loads(sent)
        if kind == "raised":
            raise value
        message: Sent = value
        return message

    def waits_in_kernel(self) -> str:
        """The kernel's function that it waits in and that no signal ends (state D); empty if it does not."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                state = file.read(4096).rpartition(b") ")[2][:1]
            with open(f"/proc/{self.pid}/wchan", "rb") as file:
                place = file.read(128).decode("ascii", "replace")
        except OSError:
            return ""
        return (place.strip("0") or "an unknown function") if state == b"D" else ""

    def rescue(self) -> None:
        """Let it run on any core: one that waits for a starved core is moved at once (move_queued_task)."""
        try:
            os.sched_setaffinity(self.pid, self._allowed)
        except OSError:
            return

    def _frame(self) -> bytes | None:
        if len(self._raw) < _FRAME.size:
            return None
        end = _FRAME.size + _FRAME.unpack_from(self._raw)[0]
        if len(self._raw) < end:
            return None
        frame, self._raw = self._raw[_FRAME.size : end], self._raw[end:]
        return frame


def _run(work: Callable[[Callable[[Sent], None]], None], pipe: int, parent: int) -> None:
    """Never returns."""

    def send(kind: str, value: object) -> None:
        raw = pickle.dumps((kind, value))
        os.write(pipe, _FRAME.pack(len(raw)) + raw)

    code = 0
    try:
        die_with_parent(parent)
        # Who reads our output waits for its end, and must not wait for a child that is stuck.
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in range(3):
            os.dup2(nothing, fd)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work(lambda value: send("sent", value))
    except ExhumeError as error:
        send("raised", error)
    except BaseException as error:
        send("raised", Unreadable(f"{type(error).__name__}: {error}"))
        code = 1
    finally:
        os._exit(code)
