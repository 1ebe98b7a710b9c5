"""How many stack samples a second were taken, and from when on: an agent under load takes fewer, from a new chapter on."""

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.errors import ExhumeError
from exhume.recording.chapters import ChapterReader
from exhume.recording.layout import is_chapter
from exhume.recording.readable import Readable
from exhume.recording.recording import Ints


class Rates(NamedTuple):
    begins: Ints
    """Of chapters, sorted."""
    hz: NDArray[np.float64]
    """0 where that is not known."""

    def scaled(self, times: Ints, a_second: float, length: int = 1) -> NDArray[np.float64] | None:
        """By what counts from these times on, `length` of it, are multiplied to be those at another rate; None: by nothing.

        Where a rate changes in between it is the lower one: counts too large are cut later, those too small would look idle.
        """
        if not ((self.hz > 0) & (self.hz != a_second)).any():
            return None
        hz = np.minimum(self._at(times, a_second), self._at(times + length - 1, a_second))
        return None if (hz == a_second).all() else a_second / hz

    def _at(self, times: Ints, otherwise: float) -> NDArray[np.float64]:
        found = self.hz[np.maximum(np.searchsorted(self.begins, times, "right") - 1, 0)]
        return np.where(found > 0, found, otherwise)


NONE = Rates(np.empty(0, dtype=np.int64), np.empty(0))


def rates(folder: Readable) -> Rates:
    """Of the boot that is shown. Of a file that was only looked at there are none."""
    found = []
    for path in _chapters(folder.path):
        try:
            reader = ChapterReader(path, [])
        except (OSError, ValueError, ExhumeError):  # the folder's notes tell of it
            continue
        if reader.spans and reader.chapter.node.boot_id == folder.boot_id:
            hz = reader.chapter.about.get("hz")
            found.append((reader.spans[0].start, hz if isinstance(hz, int) and hz > 0 else 0))
    found.sort()
    return Rates(np.array([begin for begin, _ in found], dtype=np.int64), np.array([hz for _, hz in found], dtype=np.float64))


def _chapters(path: str) -> list[str]:
    try:
        return [os.path.join(path, name) for name in os.listdir(path) if is_chapter(name)]
    except OSError:
        return []
