"""Uses a file through a mapping, a page at a time and none read ahead, while its pages are dropped from the page cache again
and again: each touch is a major fault.

On tmpfs there would be none without swap: its pages have nowhere else to be.
"""

import mmap
import os
import time

from exhume.lab.work import call, say

PAGE = mmap.PAGESIZE
AT_ONCE, PAUSE_S = 128, 0.02
"""Pages, and then a rest: it is about faults, not about a core that is full of them."""


def main(file: str, first_byte: str, size: str, name: str) -> None:
    call(name)
    fd = os.open(file, os.O_RDONLY)
    begin, length = int(first_byte), int(size)
    mapping = mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
    mapping.madvise(mmap.MADV_RANDOM)
    touched = 0
    while True:
        # Only pages that nobody has mapped can be dropped (mapping_try_invalidate in mm/truncate.c).
        mapping.madvise(mmap.MADV_DONTNEED, begin, length)
        os.posix_fadvise(fd, begin, length, os.POSIX_FADV_DONTNEED)
        for at in range(begin, begin + length, PAGE):
            mapping[at]
            if at // PAGE % AT_ONCE == 0:
                time.sleep(PAUSE_S)
        touched += length // PAGE
        say(touched=touched)
