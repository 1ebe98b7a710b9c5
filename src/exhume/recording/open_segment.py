"""The open segment: Arrow streams that are appended each second and are whole after every write, whatever happens next."""

import errno
import os
from collections.abc import Sequence
from typing import Any

from exhume.host.quantities import MILLISECOND
from exhume.recording import arrow, files, layout


class OpenSegment:
    """Raises OSError where the disk does not take it; what was written before stays readable."""

    def __init__(self, chapter: str, begin_ms: int) -> None:
        self.chapter = os.path.basename(chapter)
        self.name = layout.open_name(begin_ms)
        self.begin = begin_ms * MILLISECOND
        self.size = 0
        self._pinned = False
        self._path = os.path.join(chapter, self.name)
        self._streams: dict[str, tuple[int, int]] = {}
        os.mkdir(self._path, 0o700)
        with files.directory(self._path) as fd:
            self._fd = os.dup(fd)
        made = os.fstat(self._fd)
        self._identity = (made.st_dev, made.st_ino)

    def there(self) -> bool:
        """Whether it is still where it was made."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def write(self, table: str, batch: Any) -> None:
        """A serialized batch, by one write to the end of the table's stream."""
        fd, end = self._streams.get(table, (-1, 0))
        if fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(f"{table}.arrows", flags, 0o600, dir_fd=self._fd)
            self._streams[table] = (fd, 0)
        data = [batch] if end else [arrow.stream_schema(table).serialize(), batch]
        wanted = sum(len(part) for part in data)
        self._pwrite(fd, data, end, wanted)
        self._streams[table] = (fd, end + wanted)
        self.size += wanted

    def _pwrite(self, fd: int, data: Sequence[Any], end: int, wanted: int) -> None:
        """All or nothing: a part is cut off, and even if that fails the next write begins where this one did."""
        try:
            written = os.pwritev(fd, data, end)
            if written < wanted:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(fd, end)
            raise

    def pin(self, reason: str) -> None:
        if self._pinned:
            return
        self._pinned = True
        files.write(layout.PINNED, reason.encode("utf-8", "backslashreplace"), self._fd)
        self.size += len(reason.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        for fd, _ in self._streams.values():
            os.close(fd)
        os.close(self._fd)
        self._streams.clear()
