"""When somebody really looked: the time between readings. A recorder that was started anew and sampling that ended leave holes,
and of a hole nobody knows whether it was quiet."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.recording.recording import Ints, Recording

# A recorder reads the cores ten times a second; without a reading for so long it did not run.
_RECORDER_NS = 5_000_000_000
# An idle machine has few samples, but some daemon or other always wakes.
_SAMPLES_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Looked:
    """Pieces of time without holes, in order: where each begins and ends, on the recording's clock."""

    starts: Ints
    ends: Ints

    @property
    def ns(self) -> int:
        return int((self.ends - self.starts).sum())

    def without(self, tail_ns: int) -> int:
        """How much it is if the end of each piece does not count."""
        return int((self.ends - self.starts - tail_ns).clip(0).sum())

    def before(self, moments: Ints) -> Ints:
        """How much of it lies before each of these moments: a clock that stands still in holes."""
        if not len(self.starts):
            return np.zeros(len(moments), dtype=np.int64)
        lengths = self.ends - self.starts
        passed = np.cumsum(lengths) - lengths
        at = np.searchsorted(self.starts, moments, "right") - 1
        inside = np.minimum(moments - self.starts[at], lengths[at])
        return np.where(at >= 0, passed[at] + inside, 0).astype(np.int64)

    def mostly(self, edges: Ints) -> NDArray[np.bool_]:
        """Of each window between two edges, whether at least half of it was looked at."""
        return np.diff(self.before(edges)) * 2 >= np.diff(edges)


def recorded(recording: Recording) -> Looked:
    """When the recorder ran: by the readings of the cores, else by samples; the whole window where there are neither."""
    if len(recording["cpu"]) > 1:
        return recording.derived("cpu", _by_cores)
    return sampled(recording) if len(recording["samples"]) else Looked(*np.array(recording.window, dtype=np.int64)[:, None])


def _by_cores(recording: Recording) -> Looked:
    return _pieces(recording["cpu"].ints("time"), recording.window, _RECORDER_NS)


def sampled(recording: Recording) -> Looked:
    """When stack samples were taken."""
    return _pieces(recording["samples"].ints("time"), recording.window, _SAMPLES_NS)


def _pieces(times: Ints, window: tuple[int, int], longest_ns: int) -> Looked:
    """The window without what lies for too long between two of these times, or between them and its ends."""
    inside = times[(times >= window[0]) & (times <= window[1])]
    if not len(inside):
        return Looked(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    marks = np.concatenate((window[:1], np.sort(inside), window[1:])).astype(np.int64)
    holes = np.flatnonzero(np.diff(marks) > longest_ns)
    return Looked(np.concatenate((marks[:1], marks[holes + 1])), np.concatenate((marks[holes], marks[-1:])))
