"""A kernel that does not stop talking, without this machine's own log: a FIFO in place of /dev/kmsg that forgets like a ring.

/dev/kmsg is everybody's and slows its writers down. A FIFO holds as much as a ring buffer usually does, and what is written
to a full one takes the place of the oldest, as vprintk_store in kernel/printk/printk.c does it: nobody waits for a reader.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from exhume.kernel.clock import Clock

LINES_A_SECOND = 50_000
RING_BYTES = 1 << 20
BLOCK_BYTES = 64 << 10
# A pipe is made of pages: what fills one wholly is written, read and forgotten as one.
_PAGE = 4096
_RESET = b"ena 0000:20:03.0 eth0: Keep alive watchdog timeout."
_DONE = b"ena 0000:20:03.0: Device reset completed successfully"


class Flood:
    """Lines of no meaning, and now and then a reset, of which every one that was not forgotten unread counts."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
        self._fd, self._clock = os.open(path, os.O_RDWR | os.O_NONBLOCK), Clock()
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, RING_BYTES)
        self._number = 0
        self.lines = self.forgotten = self.resets = 0
        self.took_s = 0.0

    def seconds(self, count: int) -> None:
        """So many seconds of it, in tenths: as many lines as that is, however long it takes."""
        begun = time.monotonic()
        for tenth in range(1, 10 * count + 1):
            many = LINES_A_SECOND // 10
            self._say(b"eth%d: link %d" % (number % 7, number) for number in range(self._number, self._number + many))
            self.lines += many
            time.sleep(max(0.0, begun + tenth / 10 - time.monotonic()))
        self.took_s += time.monotonic() - begun

    def reset(self) -> None:
        self.resets += 1
        self._say([_RESET, _DONE])

    def _say(self, lines: Iterable[bytes]) -> None:
        pages = b"".join(self._pages(lines))
        for begin in range(0, len(pages), BLOCK_BYTES):
            self._put(pages[begin : begin + BLOCK_BYTES])

    def _pages(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Records of /dev/kmsg, each in one page; empty lines, which nobody reads, fill it up."""
        now, page = self._clock.now() // 1000, b""
        for place, line in enumerate(lines):
            record = b"6,%d,%d,-;%s\n" % (self._number, now + place, line)
            self._number += 1
            if len(page) + len(record) > _PAGE:
                yield page.ljust(_PAGE, b"\n")
                page = b""
            page += record
        yield page.ljust(_PAGE, b"\n")

    def _put(self, pages: bytes) -> None:
        while pages:
            try:
                pages = pages[os.write(self._fd, pages) :]
            except BlockingIOError:
                with suppress(BlockingIOError):  # somebody read it all at this moment
                    oldest = os.read(self._fd, BLOCK_BYTES)
                    self.forgotten += oldest.count(b";")
                    self.resets -= oldest.count(_RESET)

    def close(self) -> None:
        os.close(self._fd)
        self._clock.close()
