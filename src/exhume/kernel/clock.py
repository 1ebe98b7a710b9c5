"""The kernel's perf/printk clock, read without privilege.

Stack samples, tracepoints and `dmesg` are all stamped with local_clock(), which no clock_gettime() id gives out. But the
kernel stamps a record for us on demand: renaming a thread emits PERF_RECORD_COMM into a ring of our own, so a rename to
the very same name tells the time. The reading is bracketed by CLOCK_MONOTONIC, typically to 2 us.
"""

import ctypes
import mmap
import os
import platform
import struct
import time
from dataclasses import dataclass
from types import TracebackType

from exhume.errors import Unreadable

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}  # asm/unistd_64.h, asm-generic/unistd.h
_TYPE_SOFTWARE, _COUNT_SW_DUMMY = 1, 9
_SAMPLE_TIME = 1 << 2
# Bits of the flag word of struct perf_event_attr.
_EXCLUDE_KERNEL, _EXCLUDE_HV, _COMM, _SAMPLE_ID_ALL = 1 << 5, 1 << 6, 1 << 9, 1 << 18
_ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5: known to every kernel since 4.1
_DATA_HEAD, _DATA_TAIL = 1024, 1032  # offsets in struct perf_event_mmap_page
_RECORD_COMM = 3
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_FLAG_FD_CLOEXEC = 8

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
        self._ring: mmap.mmap | None = None
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
        number = _PERF_EVENT_OPEN.get(platform.machine())
        if number is None:
            raise Unreadable(f"perf events are not known on {platform.machine()}")
        attr = bytearray(_ATTR_SIZE)
        flags = _EXCLUDE_KERNEL | _EXCLUDE_HV | _COMM | _SAMPLE_ID_ALL
        struct.pack_into("=IIQQQQQ", attr, 0, _TYPE_SOFTWARE, _ATTR_SIZE, _COUNT_SW_DUMMY, 0, _SAMPLE_TIME, 0, flags)
        buffer = (ctypes.c_char * _ATTR_SIZE).from_buffer(attr)
        self._fd = self._libc.syscall(number, buffer, 0, -1, -1, _FLAG_FD_CLOEXEC)
        if self._fd < 0:
            raise Unreadable(f"perf_event_open: {os.strerror(ctypes.get_errno())} (kernel.perf_event_paranoid, seccomp)")
        page = mmap.PAGESIZE
        self._ring = mmap.mmap(self._fd, 2 * page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

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
        head = struct.unpack_from("=Q", self._ring, _DATA_HEAD)[0]
        tail = struct.unpack_from("=Q", self._ring, _DATA_TAIL)[0]
        stamp = None
        page = mmap.PAGESIZE
        data = self._ring[page : 2 * page]
        while tail < head:
            at = tail % page
            kind, _, size = struct.unpack("=IHH", (data + data)[at : at + 8])
            if size < 16 or tail + size > head:
                break
            if kind == _RECORD_COMM:
                stamp = struct.unpack("=Q", (data + data)[at + size - 8 : at + size])[0]
            tail += size
        struct.pack_into("=Q", self._ring, _DATA_TAIL, head)
        return stamp
