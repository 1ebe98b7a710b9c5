"""Child processes that end with us, whatever ends us (SIGKILL and the OOM killer, too), and in time.

| the child is | how it ends with us |
|---|---|
| a command, run to its end | `Run`, in a thread that waits for it |
| a command with pipes of its own | `leashed(command)`, started by a thread that outlives it |
| forked, or a Python program of ours | `die_with_parent(parent)`, first thing |
| started by a thread that may end before it | `end_with(pipe)`, of which we hold the other end |

The kernel sends the child SIGKILL when the thread that started it is gone (PR_SET_PDEATHSIG, prctl(2)), so that thread must
wait for it. A command asks for it itself, before it becomes the command: nothing of ours runs between fork and exec, which in
a process with threads may hang for ever.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from exhume.host.quantities import SECOND, duration, size
from exhume.python import python
from exhume.text import decode, printable

if TYPE_CHECKING:  # what is started as a child imports this module, and starts none
    import subprocess

LARGEST: Final = 64 << 20
_KEPT: Final = 16 << 10  # of what it complains about, the end
_PR_SET_PDEATHSIG: Final = 1  # include/uapi/linux/prctl.h
_BECOME = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]): sys.exit("whoever asked has gone")
try: os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error: sys.exit(f"{sys.argv[2]} cannot be run: {error.strerror}")
"""


class ChildFailed(ValueError):
    """Says what the child did wrong, as the end of a sentence: "it took more than 60 s"."""


class Result(NamedTuple):
    output: bytes
    complaint: str
    """The last line of its standard error, printable."""
    code: int
    """The exit code; of a child that a signal ended its number, negative."""


class Run:
    """One command, run to its end by `wait` and ended early, from any thread, by `end`."""

    def __init__(self, command: Sequence[str], timeout_s: float, nice: int = 0, largest: int = LARGEST) -> None:
        self._command, self._timeout_s, self._nice, self._largest = command, timeout_s, nice, largest
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = False

    def wait(self) -> Result:
        """ChildFailed if it takes too long, prints too much or is ended; OSError if it cannot be started."""
        import subprocess

        quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
        with self._lock:
            if self._ended:
                raise ChildFailed("it was ended")
            self._child = child = subprocess.Popen(leashed(self._command), stdin=quiet, stdout=pipe, stderr=pipe)
        with child:
            try:
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, child.pid, self._nice)
                output, said = self._communicate(child)
            except BaseException:
                child.kill()
                raise
        if self._ended:
            raise ChildFailed("it was ended")
        return Result(output, printable(decode(said.strip().rpartition(b"\n")[2]), 200), child.returncode)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._child is not None and self._child.poll() is None:
                self._child.kill()

    def _communicate(self, child: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
        import selectors
        import subprocess

        deadline = time.monotonic() + self._timeout_s
        output, said = bytearray(), bytearray()
        assert child.stdout is not None
        assert child.stderr is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(child.stdout, selectors.EVENT_READ, output)
            waiting.register(child.stderr, selectors.EVENT_READ, said)
            while waiting.get_map():
                left = deadline - time.monotonic()
                for key, _ in waiting.select(max(0.0, left)):
                    chunk = os.read(key.fd, 1 << 16)
                    key.data.extend(chunk)
                    if not chunk:
                        waiting.unregister(key.fileobj)
                if len(output) > self._largest:
                    raise ChildFailed(f"it printed more than {size(self._largest)}")
                del said[:-_KEPT]
                if left <= 0:
                    raise ChildFailed(f"it took more than {duration(self._timeout_s * SECOND)}")
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"it took more than {duration(self._timeout_s * SECOND)}") from None
        return bytes(output), bytes(said)


def leashed(command: Sequence[str]) -> list[str]:
    """The same command, as a child that does not outlive the thread that starts it. Its process id stays the same."""
    return python("-I", "-S", "-c", _BECOME, str(os.getpid()), *command)


def die_with_parent(parent: int) -> None:
    """`parent` is the process that started this one, as that one knew it: asked from here, it may be another by now."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def end_with(pipe: int) -> None:
    """End when whoever holds the other end of the pipe does."""

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="exhume-parent-ends", daemon=True).start()
