"""cgroups that come and go in one place, counted by inotify: the kernel's own word for every mkdir and rmdir. And whether
anything is left of them."""

import ctypes
import os
import statistics
import struct
from contextlib import suppress
from itertools import pairwise

from exhume.lab.cgroup import Cgroup
from exhume.lab.measure import Sampled, memory_cgroups

# include/uapi/linux/inotify.h
_IN_CREATE, _IN_DELETE, _IN_ISDIR = 0x100, 0x200, 0x40000000
_HEAD = struct.Struct("=iIII")


class Churn:
    def __init__(self, top: Cgroup) -> None:
        self.made = self.removed = 0
        self._counts: list[tuple[int, int]] = []
        """Removed so far, and memory cgroups that the kernel has."""
        directory = top.directory
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, os.fsencode(directory), _IN_CREATE | _IN_DELETE) < 0:
            raise OSError(ctypes.get_errno(), f"inotify on {directory}")
        self._sampled = Sampled(0.1, lambda now: self._read())
        self._counted = Sampled(1.0, lambda now: self._counts.append((self.removed, memory_cgroups(top))))

    def left_each(self) -> float:
        """How many memory cgroups the kernel kept of each that was removed."""
        return kept(self._counts)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                made, removed = count(data)
                self.made += made
                self.removed += removed

    def close(self) -> None:
        self._counted.close()
        self._sampled.close()
        os.close(self._fd)


def kept(counts: list[tuple[int, int]]) -> float:
    """By the second that is in the middle of all: what others make or lose, many at once and now and then, does not count."""
    grown = [
        (after - before) / (removed - earlier) for (earlier, before), (removed, after) in pairwise(counts) if removed > earlier
    ]
    return statistics.median(grown) if grown else 0.0


def count(data: bytes) -> tuple[int, int]:
    """Directories made and removed, by a buffer of struct inotify_event."""
    made = removed = at = 0
    while at + _HEAD.size <= len(data):
        _, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        if mask & _IN_ISDIR:
            made += bool(mask & _IN_CREATE)
            removed += bool(mask & _IN_DELETE)
    return made, removed
