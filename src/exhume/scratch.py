"""Directories for the time that a command runs: private, and removed however it ends.

The process holds a lock on its directory. SIGKILL removes nothing, but releases the lock: the next command that makes such a
directory removes those of this user that nobody holds, and `exhume uninstall` lists and removes the rest.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal, get_args

Kind = Literal["import", "diagnose", "view", "bundle", "score", "fleet", "ray", "duckdb"]
_NAME: Final = re.compile(rf"exhume-({'|'.join(get_args(Kind))})-[0-9]+-[a-z0-9_]{{8}}")  # with the process id, for people
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch(kind: Kind, within: str | None = None) -> Iterator[str]:
    """A new directory, in TMPDIR unless another place is named. A child made by fork holds the lock as well."""
    within = within or tempfile.gettempdir()
    for path in left(within):
        with suppress(OSError):
            remove(path)
    place, lock = _made(f"exhume-{kind}-{os.getpid()}-", within)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def _made(prefix: str, within: str) -> tuple[str, int]:
    """Made anew when another command removed it before it was locked."""
    while True:
        place = tempfile.mkdtemp(prefix=prefix, dir=within)
        with suppress(FileNotFoundError):
            lock = os.open(place, _DIRECTORY)
            if _lock(lock) is not False and os.path.exists(place):
                return place, lock
            os.close(lock)


def left(within: str, everybody: bool = False) -> list[str]:
    """Directories of this user, or of everybody, that no process holds."""
    found = []
    try:
        with os.scandir(within) as entries:
            for entry in entries:
                if not _NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                    continue
                if everybody or entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    found.append(entry.path)
    except OSError:
        return []
    return sorted(path for path in found if not _held(path))


def remove(path: str) -> None:
    """One of those, unless a process holds it by now. Raises OSError where it cannot be removed whole."""
    lock = os.open(path, _DIRECTORY)
    try:
        if _lock(lock):
            shutil.rmtree(path)
    finally:
        os.close(lock)


def _held(path: str) -> bool:
    try:
        lock = os.open(path, _DIRECTORY)
    except OSError:
        return True
    try:
        return not _lock(lock)
    finally:
        os.close(lock)


def _lock(lock: int) -> bool | None:
    """Whether it is ours now; None where the file system has no locks, and nothing can be told."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
