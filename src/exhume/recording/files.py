"""Files of a recording: made for root alone, never through a symbolic link, whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from exhume.recording.layout import CHAPTER_FILES, SEGMENT_FILES, TEMPORARY

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def directory(path: str, at: int | None = None) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)


def opened(name: str, at: int | None = None) -> FileIO | None:
    """None: not there. Whatever lies there under our names, a FIFO too, does not hold us up."""
    try:
        return FileIO(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=at), "rb")
    except FileNotFoundError:
        return None


def read(name: str, at: int | None = None) -> bytes | None:
    """None: not there."""
    file = opened(name, at)
    if file is None:
        return None
    with file:
        return file.read() or b""


def write(name: str, data: "bytes | memoryview", at: int | None = None) -> None:
    """A new file, on the disk when this returns."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(name: str, data: "bytes | memoryview", at: int) -> None:
    """A file that is always either the old or the new one."""
    try:
        write(TEMPORARY + name, data, at)
    except OSError:
        with suppress(OSError):
            os.unlink(TEMPORARY + name, dir_fd=at)
        raise
    os.rename(TEMPORARY + name, name, src_dir_fd=at, dst_dir_fd=at)


def size(at: int) -> int:
    """Of all files in a directory, as their lengths."""
    total = 0
    with os.scandir(at) as entries:
        for entry in entries:
            try:
                if entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return total


def remove_segment(name: str, at: int) -> None:
    """Files that we know by name, then the directory; what else is in it stays, and the directory with it."""
    _remove(name, at, SEGMENT_FILES)


def remove_chapter(name: str, at: int) -> None:
    _remove(name, at, CHAPTER_FILES)


def _remove(name: str, at: int, known: frozenset[str]) -> None:
    try:
        with directory(name, at) as fd:
            for file in sorted(known.intersection(os.listdir(fd))):
                os.unlink(file, dir_fd=fd)
        os.rmdir(name, dir_fd=at)
    except FileNotFoundError:
        pass
