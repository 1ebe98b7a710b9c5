"""Files of a recording: made for root alone, never through a symbolic link, whole or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from exhume import budget
from exhume.errors import Refused
from exhume.recording.layout import CHAPTER_FILES, SEGMENT_FILES, TEMPORARY
from exhume.text import from_path, printable

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # MAXSYMLINKS of the kernel


def without_links(path: str) -> str:
    """The same place with no symbolic link in its path, whether it is there yet or not.

    Only links of root, of this user and of the user of sudo are followed: any other user's could lead root anywhere.
    """
    trusted = {0, os.geteuid()} | ({int(uid)} if (uid := os.environ.get("SUDO_UID", "")).isdecimal() else set())
    done, left, links = "/", os.path.abspath(path).split("/")[::-1], 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = os.path.dirname(done)
            continue
        here = os.path.join(done, part)
        try:
            found = os.lstat(here)
        except OSError:  # not there, or not to be seen: making it says why
            return os.path.join(here, *(each for each in reversed(left) if each))
        if not stat.S_ISLNK(found.st_mode):
            done = here
            continue
        links += 1
        if found.st_uid not in trusted or links > _MOST_LINKS:
            why = f"of user {found.st_uid}" if found.st_uid not in trusted else "that leads in circles"
            raise Refused(f"{printable(from_path(here))} is a symbolic link {why}: name the directory itself")
        target = os.readlink(here)
        done = "/" if target.startswith("/") else done
        left += target.split("/")[::-1]
    return done


@contextmanager
def directory(path: str, at: int | None = None) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)


def opened(name: str, at: int | None = None) -> FileIO | None:
    """None: not there. OSError for a FIFO or a device, which is not read. Below `at` are the recorder's own files."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=at)
    except FileNotFoundError:
        return None
    file = FileIO(fd, "rb")
    try:
        budget.refuse_special(fd, name)
    except OSError:
        file.close()
        raise
    if at is None:
        budget.current().opened(fd, name)
    return file


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
