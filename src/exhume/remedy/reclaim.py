"""The hand of the purge: a child process that reclaims in short bites, on a core that serves no network queue, and rests.

cgroup v1 has `memory.force_empty`, which takes no size and goes on until nothing is left: a timer interrupts it (it returns
EINTR, and what was freed stays freed). v2 has `memory.reclaim`, which takes a size. Bites begin small, because the first
look at a dead group takes all it has, and grow while nothing goes; before each it is asked whether one more like the dearest
so far would take more from the living than was agreed to. After each three times as long is rested, so that no core is kept
in the kernel. If we die, the child does.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.node.root import Root

# How long a bite of memory.force_empty may last, and how much one of memory.reclaim may ask for; each doubling is a size.
SMALLEST_S = 0.001
SMALLEST_BYTES = 256 << 10
LARGEST = 4
REST = 3.0
SHORTEST_REST_S = 0.01
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Bite:
    """How one went: how long it took, and what the kernel said."""

    seconds: float
    said: str


class _Time(Exception):
    """The timer went off."""


class Reclaimer:
    """A child that takes a bite whenever it is asked to. A context manager: the child is gone afterwards."""

    def __init__(self, root: Root, directory: str, version: int, core: int | None) -> None:
        self._file = root.at(f"{directory}/{'memory.force_empty' if version == 1 else 'memory.reclaim'}")
        self._version = version
        self._core = core

    def __enter__(self) -> "Reclaimer":
        try:
            fd = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"{self._file} cannot be written: {os.strerror(error.errno or 0)}") from None
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(ask)
            os.close(answered)
            _child(fd, asked, answer, self._version, self._core)
        os.close(fd)
        os.close(asked)
        os.close(answer)
        self._ask, self._answered = ask, answered
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ask)  # the child reads the end of the pipe and leaves
        os.close(self._answered)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                return
            time.sleep(0.01)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def bite(self, size: int) -> Bite:
        """One bite, then the rest after it."""
        os.write(self._ask, bytes([size]))
        raw = os.read(self._answered, 200)
        if not raw:
            raise Unreadable("the reclaiming process died")
        seconds, _, said = raw.decode().partition(" ")
        time.sleep(max(SHORTEST_REST_S, REST * float(seconds)))
        return Bite(float(seconds), said)


def _child(fd: int, asked: int, answer: int, version: int, core: int | None) -> None:
    """Never returns."""
    code = 0
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
        signal.signal(signal.SIGALRM, _alarm)
        if core is not None:
            os.sched_setaffinity(0, {core})
        os.nice(10)
        write = _force_empty if version == 1 else _reclaim
        while size := os.read(asked, 1):
            start = time.monotonic()
            said = write(fd, size[0])
            os.write(answer, f"{time.monotonic() - start:.4f} {said}".encode())
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def _alarm(*_: object) -> None:
    raise _Time  # otherwise Python would take the write up again after EINTR (PEP 475)


def _force_empty(fd: int, size: int) -> str:
    try:
        signal.setitimer(signal.ITIMER_REAL, SMALLEST_S * 2**size)
        try:
            os.write(fd, b"0")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return "empty"
    except _Time:
        return ""
    except OSError as error:
        return os.strerror(error.errno or 0)


def _reclaim(fd: int, size: int) -> str:
    """swappiness=0 (6.11) keeps anonymous memory where it is; an older kernel refuses the word, and is asked without."""
    wanted = SMALLEST_BYTES << size
    for wish in (f"{wanted} swappiness=0", str(wanted)):
        try:
            os.write(fd, wish.encode())
            return ""
        except BlockingIOError:
            return ""  # EAGAIN: less than asked was reclaimed
        except OSError as error:
            if error.errno != 22:
                return os.strerror(error.errno or 0)
    return "Invalid argument"


def bites(
    reclaimer: Reclaimer, zombies: Callable[[], int], lost: Callable[[], int], most_lost: int, most: int = 2000
) -> Iterator[tuple[int, str]]:
    """Bite until the zombies are gone, the live ones have lost too much, or nothing moves any more.

    Yields (how many are left, "") after each bite, and at the end (left, why it ended).
    """
    left = zombies()
    taken = dearest = still = size = 0
    for _ in range(most):
        said = reclaimer.bite(size).said
        before, left = left, zombies()
        dearest, taken = max(dearest, lost() - taken), lost()
        if left <= 0:
            yield left, "all gone"
            return
        if taken + dearest > most_lost:
            yield left, "one bite more could have taken more from the live groups than was agreed to"
            return
        if left < before:
            still = 0
        else:
            still += 1
            size = min(size + 1, LARGEST)
        if said == "empty" or (said and still >= 3):
            yield left, f"the kernel had nothing more to reclaim ({said})"
            return
        if still >= 25:
            yield left, "nothing went any more"
            return
        yield left, ""
    yield left, "it took too long"


def quiet_core(root: Root) -> int | None:
    """A core that we may run on and that serves no network queue; None if there is no choice."""
    from exhume.node.interrupts import Interrupts, queue_cores
    from exhume.recording.recording import Node, Recording

    allowed = os.sched_getaffinity(0)
    seen = Recording(Node("", "", "", "", len(allowed)))
    try:
        Interrupts(root).read(seen, 0)
    except Unreadable:
        return None
    serving = {*queue_cores(seen, "tx").values(), *queue_cores(seen, "rx").values()}
    return max(allowed - serving, default=None)
