"""The kernel's log by syslog(2), as the records that /dev/kmsg would have: in a container that device cannot be opened.

Runtimes allow a container a short list of devices, and /dev/kmsg is none of them, whatever is mounted; only privileged ones may
have it. syslog(2) asks for CAP_SYSLOG alone. It always gives the whole buffer, so that what is new is what follows the last
lines of the time before.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from exhume.errors import Unreadable
from exhume.kernel.klog import read_all

# info_print_prefix in kernel/printk/printk.c: the priority, the time (printk.time), and who called (CONFIG_PRINTK_CALLER).
_LINE: Final = re.compile(rb"<(\d{1,10})>\[ *(\d{1,10})\.(\d{6})\](?:\[ *[TC]\d+\])? ?(.*)")
_TAIL: Final = 2048
"""Bytes that are looked for again. They hold times to the microsecond, so that they are not there twice."""


class TextLog:
    """`new` gives the records that were not there before, as kmsg has them: `PRIORITY,NUMBER,MICROSECONDS,-;TEXT`."""

    def __init__(self, read: Callable[[], bytes] = read_all) -> None:
        self._read = read
        self._tail = b""
        self._number = 0

    def new(self) -> Iterator[bytes]:
        raw = self._read()
        raw = raw[: raw.rfind(b"\n") + 1]
        begin = raw.rfind(self._tail) if self._tail else 0
        if begin < 0:  # overwritten meanwhile, nobody knows how many: one number is left out for them
            self._number += 1
            begin = raw.find(b"\n") + 1
        else:
            begin += len(self._tail)
        self._tail = raw[-_TAIL:] or self._tail
        lines = raw[begin:].split(b"\n")[:-1]
        if lines and not any(map(_LINE.fullmatch, lines)):
            raise Unreadable("the kernel's log has no times (printk.time is 0)")
        return self._records(lines)

    def _records(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is None:
                yield line  # not to be understood, and counted as that
                continue
            priority, seconds, microseconds, text = found.groups()
            usec = int(seconds) * 1_000_000 + int(microseconds)
            self._number += 1
            yield b"%s,%d,%d,-;%s" % (priority, self._number, usec, text.replace(b"\\", b"\\x5c"))
