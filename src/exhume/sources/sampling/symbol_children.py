"""The two children that names come from, the opener and the reader, as the recorder sees them: started, heard, ended.

Neither may ever hold the recorder: sockets do not block, and a child that hangs in the kernel is left behind.
"""

import os
import select
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import exhume
from exhume.python import python
from exhume.sources.sampling.symbol_messages import LARGEST, Garbled, Reply, Request, Told, unpack_reply
from exhume.text import decode

OVERDUE_S: Final = 3.0
"""Children end themselves when a file takes two seconds; one that has not after three hangs in the kernel."""
_MOST_REPLIES: Final = 4096
START_S: Final = 30.0
"""How long a child may take to start on a node that starves."""


@dataclass(slots=True)
class Child:
    process: subprocess.Popen[bytes]
    socket: socket.socket
    ready: bool = False
    missing: str = ""
    """What of its sandbox it could not have."""
    refused: str = ""
    """Why it did not start."""
    alive: bool = True
    hung: bool = False
    """Whether it was given up while it still ran."""
    current: int | None = None
    """The key of the image it is busy with."""
    since: float = field(default_factory=time.monotonic)
    """When it last said something."""
    unheard_since: float | None = None
    """When it was sent something that nothing was heard after."""

    def send(self, request: Request) -> bool:
        """False when it has too much to do, or is no more."""
        try:
            self.socket.send(request.pack(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            self.alive = False
            return False
        if self.unheard_since is None:
            self.unheard_since = time.monotonic()
        return True

    def hear(self) -> list[Reply]:
        replies: list[Reply] = []
        for _ in range(_MOST_REPLIES):
            if not self.alive:
                break
            try:
                packet = self.socket.recv(LARGEST, socket.MSG_DONTWAIT)
                if not packet:
                    self.alive = False
                    break
                reply = unpack_reply(packet)
            except BlockingIOError:
                break
            except (OSError, Garbled):
                self.alive = False
                break
            self.since, self.unheard_since = time.monotonic(), None
            if reply.told is Told.READY:
                self.ready, self.missing = True, decode(reply.body)
            elif not self.ready and reply.told is Told.FAILED:
                self.refused, self.alive = decode(reply.body), False
            elif reply.told is Told.BEGIN:
                self.current = reply.key
            else:
                if reply.told is not Told.FUNCTIONS:
                    self.current = None
                replies.append(reply)
        return replies

    def overdue(self) -> bool:
        """Whether it has had all the time that a file may take, or its own start, or that somebody may have stopped it for."""
        now = time.monotonic()
        if self.current is not None:
            return now - self.since > OVERDUE_S
        return now - (self.since if not self.ready else self.unheard_since or now) > START_S

    def kill(self) -> None:
        """A child ends when its socket is closed. The signal is for one that is busy or hangs; without CAP_KILL it is not
        allowed to reach one that became another user, which its own alarm ends then."""
        self.socket.close()
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.process.pid, signal.SIGKILL)  # its own send_signal would reap it, and with it what it cost

    def cpu_ns(self) -> int:
        """/proc/PID/schedstat: time on a CPU, of its only thread."""
        try:
            with open(f"/proc/{self.process.pid}/schedstat", "rb") as file:
                return int(file.read(64).split()[0])
        except (OSError, ValueError, IndexError):
            return 0

    def memory_bytes(self) -> int:
        """What it shares with nobody: /proc/PID/statm, resident less shared."""
        try:
            with open(f"/proc/{self.process.pid}/statm", "rb") as file:
                words = file.read(128).split()
            return max(0, int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0


class Children:
    """An opener and a reader, which have a socket to each other that is closed to us. When one ends, both are replaced."""

    def __init__(self, root: str, cache: str = "") -> None:
        control, theirs = _pair()
        link, far_link = _pair()
        far_control, far_theirs = _pair()
        try:
            self.opener = Child(_start("symbol_opener", theirs, link, root, cache), control)
            try:
                self.reader = Child(_start("symbol_reader", far_theirs, far_link), far_control)
            except BaseException:
                self.opener.kill()
                self.opener.process.wait()
                raise
        except BaseException:
            far_control.close()
            control.close()
            raise
        finally:
            for end in (theirs, link, far_link, far_theirs):
                end.close()

    @property
    def both(self) -> tuple[Child, Child]:
        return self.opener, self.reader

    def wait(self, seconds: float) -> None:
        """Until one of them has something to say."""
        poll = select.poll()
        for child in self.both:
            if child.alive:
                poll.register(child.socket, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)

    def cpu_ns(self) -> int:
        return sum(child.cpu_ns() for child in self.both)


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _start(module: str, control: socket.socket, link: socket.socket, *more: str) -> subprocess.Popen[bytes]:
    """Our own Python and our own package, and nothing from the directory we happen to be in.

    A session of its own keeps it from the terminal's ^C, which is for the recorder: there is still something to ask then.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(exhume.__file__)))
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if os.path.basename(package) not in ("site-packages", "dist-packages"):  # Python finds those by itself, after its own
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    numbers = map(str, (os.getpid(), control.fileno(), link.fileno()))
    return subprocess.Popen(
        python("-m", f"exhume.sources.sampling.{module}", *numbers, *more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(control.fileno(), link.fileno()),
        env=environment,
        start_new_session=True,
    )
