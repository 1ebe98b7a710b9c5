"""Ordinary file I/O: writes a file, makes sure that it is on the disk, reads it again, and rests."""

import os
import time

from exhume.lab.work import call, say

PIECE = b"\1" * (256 << 10)


def main(file: str, megabytes: str, pause_s: str) -> None:
    call("lab-files")
    pieces = (int(megabytes) << 20) // len(PIECE)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    written = read = 0
    while True:
        for piece in range(pieces):
            written += os.pwrite(fd, PIECE, piece * len(PIECE))
        os.fdatasync(fd)
        for piece in range(pieces):
            read += len(os.pread(fd, len(PIECE), piece * len(PIECE)))
        say(written_bytes=written, read_bytes=read)
        time.sleep(float(pause_s))
