"""Where kernels and the root file system are kept between runs: outside the repository, whole or not at all, bounded.

Everything is made in a scratch directory and renamed into place, so that a killed run leaves only scratch, which the next one
removes. One lock covers making and using: what is in use is never replaced, and one machine runs at a time.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.vm.tools import Unavailable

_SCRATCH = "scratch-"


def directory() -> Path:
    """`$XDG_CACHE_HOME/exhume-vm`. The base directory specification says to ignore a relative one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "exhume-vm"


@contextlib.contextmanager
def alone() -> Iterator[Path]:
    """The cache, for us alone until the block ends. Others wait; not to be nested."""
    here = directory()
    try:
        here.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open(here / "lock", "w")  # noqa: SIM115
    except OSError as error:
        raise Unavailable(f"the cache {here} cannot be written: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # We hold the lock, so whoever made this scratch is gone.
        for left in here.glob(_SCRATCH + "*"):
            discard(left)
        yield here


@contextlib.contextmanager
def scratch(here: Path) -> Iterator[Path]:
    """A directory on the file system of the cache, so that what is made in it can be renamed into place."""
    made = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=here))
    try:
        yield made
    finally:
        discard(made)


def discard(path: Path) -> None:
    """Remove a file or a tree of ours, and never cross a mount: a tree that something is mounted in is left alone."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    elif not _mounted_below(path):
        shutil.rmtree(path, ignore_errors=True)


def _mounted_below(path: Path) -> bool:
    inside = f"{path.resolve()}/"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        return any(line.split()[4].startswith(inside) for line in mounts)
