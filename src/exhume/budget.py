"""What one command may use for the files it reads: bytes unpacked, memory and CPU time, children included.

All three grow with the size of the input, so that a real image of 4 GiB passes and 10 MB that were made to hurt do not.
The limits hold for a whole command: every reader of files draws on the same budget. docs/limits.md lists them.
"""

import os
import resource
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from exhume.errors import EXIT_CANNOT_JUDGE, UsageError
from exhume.host.quantities import SECOND, duration, size
from exhume.text import from_path, printable

VARIABLE: Final = "EXHUME_BUDGET"

_MEGABYTE: Final = 1 << 20
# Layers of images unpack to 3 to 5 times their size, journals to 10, logs to 20 and more; an archive is read up to three times.
_UNPACKED, _UNPACKED_RATIO = 1 << 30, 200
# Of no file, beside the interpreter: 320 MiB for 10 MB of input. Mapped libraries add up to 90 MB.
_MEMORY_OF_CODE, _MEMORY, _MEMORY_RATIO = 96 * _MEGABYTE, 144 * _MEGABYTE, 8
_CPU_S, _CPU_S_PER_MEGABYTE = 14.0, 1.0

_UNLIMITED: Final = 1e6
_MOST_INPUTS: Final = 1 << 18
_INTERVAL_S: Final = 0.02
_GRACE_S: Final = 1.0
# RLIMIT_DATA counts address space: stacks of new threads (8 MiB each), and what libraries reserve.
_RESERVED: Final = 96 * _MEGABYTE


class Exhausted(BaseException):
    """A file needs more than its budget. No Exception: a reader that passes over damaged files must not pass over this."""

    exit_code = EXIT_CANNOT_JUDGE


class Budget:
    def __init__(self, factor: float = 1.0) -> None:
        self.input_bytes = 0
        self._unpacked_bytes = 0
        self._name = ""
        self._made: tuple[str, ...] = ()
        self._seen: set[tuple[int, int]] = set()
        self._factor = factor

    def opened(self, fd: int, name: str = "") -> None:
        """An input. The same file counts once, a hole in it does not count."""
        if name and name.startswith(self._made):
            return
        status = os.fstat(fd)
        self._name = name or self._name
        key = status.st_dev, status.st_ino
        if stat.S_ISREG(status.st_mode) and key not in self._seen and len(self._seen) < _MOST_INPUTS:
            self._seen.add(key)
            # Some file systems report no blocks.
            self.input_bytes += min(status.st_size, status.st_blocks * 512 or status.st_size)

    def made(self, directory: str) -> None:
        """What the command itself writes there, and reads again, is no input."""
        self._made = (*self._made, os.path.join(directory, ""))

    def lift(self) -> None:
        """The work is done by others, who have limits of their own: a cluster of Ray, whose processes may be our children."""
        self._factor = _UNLIMITED

    def received(self, more: int) -> None:
        """Bytes of an input that is no regular file."""
        self.input_bytes += more

    def unpacked(self, more: int) -> None:
        self._unpacked_bytes += more
        most = int((_UNPACKED + _UNPACKED_RATIO * self.input_bytes) * self._factor)
        if self._unpacked_bytes > most:
            raise Exhausted(self._sentence(f"unpacks to more than {size(most)}"))

    @property
    def memory_bytes(self) -> int:
        return _MEMORY_OF_CODE + int((_MEMORY + _MEMORY_RATIO * self.input_bytes) * self._factor)

    @property
    def cpu_s(self) -> float:
        return (_CPU_S + _CPU_S_PER_MEGABYTE * self.input_bytes / _MEGABYTE) * self._factor

    def out_of_memory(self) -> str:
        return self._sentence(f"needs more than {size(self.memory_bytes)} of memory")

    def out_of_time(self) -> str:
        return self._sentence(f"needs more than {duration(self.cpu_s * SECOND)} of CPU time")

    def _sentence(self, what: str) -> str:
        return (
            f"{printable(from_path(self._name)) or 'the input'} {what}, the limit for {size(self.input_bytes)} of input. "
            f"If you trust it, {VARIABLE}={self._factor * 10:g} allows ten times as much"
        )


def _factor() -> float:
    text = os.environ.get(VARIABLE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0.001 <= factor <= _UNLIMITED:
        raise UsageError(f"{VARIABLE} must be a number from 0.001 to 1000000, the multiple of the usual limits, not {text!r}")
    return factor


_current = Budget()


def current() -> Budget:
    return _current


def begin() -> None:
    """A new budget, for a new command."""
    global _current
    _current = Budget(_factor())


def read(path: str, largest: int, regular: bool = False) -> bytes:
    """A small file; up to `largest` + 1 bytes, so that the caller sees that it is larger.

    `regular`: a FIFO or a device is an OSError, for names that a person did not type.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | (os.O_NONBLOCK if regular else 0))
    with open(fd, "rb", buffering=0) as file:
        if regular:
            refuse_special(fd, path)
        _current.opened(fd, path)
        parts, left = [], largest + 1
        while left > 0 and (part := file.read(min(left, _MEGABYTE))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def opened(path: str) -> None:
    """An input that a library opens by its name."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _current.opened(fd, path)
        finally:
            os.close(fd)


def refuse_special(fd: int, path: str) -> None:
    """OSError for what is no regular file."""
    import errno

    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)


@contextmanager
def enforced(last: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold what runs inside to the memory and the CPU time of the budget, from the first input on; Exhausted otherwise.

    RLIMIT_DATA stops one large allocation, a thread watches the sum. Where Python does not run for a while (a library is at
    work), the thread ends the process itself, after `last`. Signals and limits belong to the main thread: others are not held.
    """
    if threading.current_thread() is not threading.main_thread() or _Watch.active:
        yield
        return
    # Arrow's default allocator reserves a gigabyte of address space, if it may.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    watch = _Watch(last)
    handler = signal.signal(signal.SIGXCPU, watch.interrupt)
    watch.start()
    try:
        yield
    except MemoryError:
        raise Exhausted(_current.out_of_memory()) from None
    except Exception as error:
        # Libraries turn our exception into theirs, and what is out of memory fails in many ways.
        sentence = watch.sentence or (_current.out_of_memory() if watch.is_full(error) else "")
        if not sentence:
            raise
        error.__traceback__ = None
        raise Exhausted(sentence) from None
    finally:
        watch.stop()
        signal.signal(signal.SIGXCPU, handler)


class _Watch:
    active = False

    def __init__(self, last: Callable[[], None]) -> None:
        self._last = last
        self._stopped = threading.Event()
        self._main = threading.get_ident()
        self.sentence = ""
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")
        there = list(_children())
        self._memory = self._used_memory(there)
        self._cpu = self._used_cpu(there)
        self._limit = resource.getrlimit(resource.RLIMIT_DATA)

    def start(self) -> None:
        _Watch.active = True
        before = threading.stack_size(256 * 1024)
        try:
            self._thread = threading.Thread(target=self._run, name="budget", daemon=True)
            self._thread.start()
        finally:
            threading.stack_size(before)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        os.close(self._statm)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, self._limit)
        _Watch.active = False

    def interrupt(self, *_: object) -> None:
        """SIGXCPU, in the main thread."""
        if self.sentence and not self._stopped.is_set():
            raise Exhausted(self.sentence)

    def is_full(self, error: Exception) -> bool:
        """Whether an error may be that of a full memory: a library that cannot be loaded, a thread that cannot be started."""
        full = self._used_memory([]) - self._memory > _current.memory_bytes // 2
        return full and isinstance(error, ImportError | OSError | RuntimeError)

    def _run(self) -> None:
        since = 0.0
        rounds = 0
        children: list[int] = []
        listed: list[int] = []
        while not self._stopped.wait(_INTERVAL_S):
            rounds += 1
            if rounds % 5 == 1:
                # Not those of a moment ago: until it has its own program, a new process has the memory of its parent (vfork).
                listed, before = list(_children()), listed
                children = [child for child in listed if child in before]
            if not _current.input_bytes:
                continue
            self._limit_data()
            if self._used_memory(children) - self._memory > _current.memory_bytes:
                self.sentence = _current.out_of_memory()
            elif self._used_cpu(children) - self._cpu > _current.cpu_s:
                self.sentence = _current.out_of_time()
            else:
                continue
            now = time.monotonic()
            since = since or now
            signal.pthread_kill(self._main, signal.SIGXCPU)
            if now - since > _GRACE_S or self._used_memory([]) - self._memory > _current.memory_bytes * 9 // 8:
                self._end()

    def _end(self) -> None:
        """The main thread does not come back from a library: end for it."""
        for child in _children():
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with suppress(Exception):
            self._last()
        os.write(2, f"exhume: {self.sentence}\n".encode("utf-8", "backslashreplace"))
        os._exit(EXIT_CANNOT_JUDGE)

    def _limit_data(self) -> None:
        """Address space that is reserved and not used does not count: allocators reserve gigabytes."""
        statm = os.pread(self._statm, 200, 0)
        left = self._memory + _current.memory_bytes - _anonymous(statm) * self._page
        most = int(statm.split()[5]) * self._page + max(left, 0) + _RESERVED
        soft, hard = self._limit
        ceiling = min((one for one in (soft, hard) if one != resource.RLIM_INFINITY), default=most)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (min(most, ceiling), hard))

    def _used_memory(self, children: list[int]) -> int:
        total = _anonymous(os.pread(self._statm, 200, 0))
        for child in children:
            with suppress(OSError), open(f"/proc/{child}/statm", "rb") as file:
                total += _anonymous(file.read())
        return total * self._page

    def _used_cpu(self, children: list[int]) -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = time.process_time() + ended.ru_utime + ended.ru_stime
        tick = os.sysconf("SC_CLK_TCK")
        for child in children:
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{child}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                total += sum(map(int, fields[11:15])) / tick  # utime, stime, cutime, cstime
        return total


def _anonymous(statm: bytes) -> int:
    """Pages that are of no file."""
    _, resident, shared, *_ = map(int, statm.split())
    return resident - shared


def _children(pid: str = "self") -> Iterator[int]:
    """All descendants that are alive. Needs CONFIG_PROC_CHILDREN, which distributions set; none without."""
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                for child in file.read().split():
                    yield int(child)
                    yield from _children(child.decode())
