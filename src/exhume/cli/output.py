"""Files that commands write for people and other tools. They show what a recording shows, so they are private as well."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from exhume.errors import ExhumeError
from exhume.text import from_path, printable

Out = Callable[[bytes], object]
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def output(path: str | None, shared: bool = False) -> Iterator[Out]:
    """A file that only its owner can read (0600) and that gets its name when it is whole; None or `-` is stdout.

    An existing file is replaced, a link as well. A device, FIFO or socket is written into. `shared`: readable as the umask
    says, for results that another user's program collects.
    """
    if path is None or path == "-":
        sys.stdout.flush()
        yield _whole(sys.stdout.buffer.write)
        sys.stdout.buffer.flush()
        return
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                yield _whole(file.write)
            return
        temporary = f"{path}.part-{os.getpid()}"
        with open(os.open(temporary, _NEW, 0o666 if shared else 0o600), "wb") as file:
            try:
                yield _whole(file.write)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
    except OSError as error:
        shown = printable(from_path(path))
        raise ExhumeError(f"{shown} could not be written: {error.strerror}; name another place") from error


def _whole(write: Callable[[bytes], int | None]) -> Out:
    """All of it: an unbuffered stream (python -u) may take less at a time, and a full disk is told only then."""

    def out(data: bytes) -> None:
        left = memoryview(data)
        while len(left):
            left = left[write(left) or 0 :]  # type: ignore[arg-type]

    return out
