"""The kernel's perf/printk clock, read without privilege.

Stack samples, tracepoints and `dmesg` are all stamped with local_clock(), which no clock_gettime() id gives out. But the
kernel stamps a record for us on demand: renaming a thread emits PERF_RECORD_COMM into a ring of our own, so a rename to
the very same name tells the time. The reading is bracketed by CLOCK_MONOTONIC, typically to 2 us.
"""

import ctypes
import os
import struct
import time
from dataclasses import dataclass
from types import TracebackType

from exhume.errors import Unreadable
from exhume.kernel.perf import DUMMY, Attributes, Flag, Kind, Record, Ring, Sample, open_event, records

_RENAMES = Attributes(Kind.SOFTWARE, DUMMY, Sample.TIME, Flag.EXCLUDE_KERNEL | Flag.EXCLUDE_HV | Flag.COMM | Flag.SAMPLE_ID_ALL)
_PR_SET_NAME, _PR_GET_NAME = 15, 16

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on four clocks. `error_ns` is -1 when the perf clock could only be guessed from CLOCK_MONOTONIC."""

    perf_ns: int
    monotonic_ns: int
    boot_ns: int
    real_ns: int
    error_ns: int


class Clock:
    """Now, on the recording's clock. Use it in the thread that made it: the rename stamps the calling thread."""

    def __init__(self) -> None:
        self.reason = ""
        """Why the perf clock could not be read; times are then CLOCK_MONOTONIC, some milliseconds off from dmesg."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._ring: Ring | None = None
        try:
            self._open()
        except (OSError, ValueError, Unreadable) as error:
            self.close()
            self.reason = str(error)
        self._offset = 0
        self.anchor()

    def __enter__(self) -> "Clock":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _open(self) -> None:
        try:
            self._fd = open_event(_RENAMES, pid=0)
        except OSError as error:
            raise Unreadable(f"perf_event_open: {error.strerror} (kernel.perf_event_paranoid, seccomp)") from None
        self._ring = Ring(self._fd)

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def now(self) -> int:
        """The perf clock by the last anchor: no system call beyond the vDSO."""
        return time.monotonic_ns() + self._offset

    def anchor(self) -> Anchor:
        """All clocks read together; call it about once a second, since the clocks drift against each other."""
        before = time.monotonic_ns()
        perf, error = before, -1
        for _ in range(_TRIES if self._ring is not None else 0):
            start = time.monotonic_ns()
            stamp = self._stamp()
            end = time.monotonic_ns()
            if stamp is not None and (error < 0 or end - start < 2 * error):
                before, perf, error = (start + end) // 2, stamp, (end - start + 1) // 2
        self._offset = perf - before
        here = time.monotonic_ns()
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - here + before
        real = time.clock_gettime_ns(time.CLOCK_REALTIME) - here + before
        return Anchor(perf, before, boot, real, error)

    def _stamp(self) -> int | None:
        assert self._ring is not None
        name = ctypes.create_string_buffer(16)
        self._libc.prctl(_PR_GET_NAME, name, 0, 0, 0)
        self._libc.prctl(_PR_SET_NAME, name, 0, 0, 0)
        stamp = None
        for kind, body in records(self._ring.take()):
            if kind == Record.COMM and len(body) >= 8:
                stamp = struct.unpack_from("=Q", body, len(body) - 8)[0]
        return stamp
