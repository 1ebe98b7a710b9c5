"""Threads that read a file again and again in no order: a working set that is larger than the memory it may have.

What is read twice in a row counts as in use (mark_page_accessed in mm/swap.c). When it is reclaimed all the same and read
again, whoever waits for it waits for memory (psi_memstall_enter in mm/filemap.c), not only for the disk.
"""

import os
import random
import threading
import time

from exhume.lab.work import call, say

PIECE_BYTES = 16 << 10
"""Large pieces are more work for a core than waiting for a disk."""


def main(file: str, threads: str, name: str) -> None:
    call(name)
    fd = os.open(file, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    pieces = os.fstat(fd).st_size // PIECE_BYTES
    read = [0] * int(threads)
    for number in range(int(threads)):
        threading.Thread(target=_read, args=(fd, pieces, read, number), daemon=True).start()
    while True:
        time.sleep(0.5)
        say(read_bytes=sum(read))


def _read(fd: int, pieces: int, read: list[int], number: int) -> None:
    room = [bytearray(PIECE_BYTES)]
    while True:
        at = random.randrange(pieces) * PIECE_BYTES
        for _ in range(2):
            read[number] += os.preadv(fd, room, at)
