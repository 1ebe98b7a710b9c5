"""Major faults: whether what is read was in memory a moment ago, where it comes from, and whether anybody waits for it.

filemap_fault() counts every page that is not in the page cache (PGMAJFAULT), so a program that reads a file for the first time
has as many major faults as one that never gets to keep what it reads. do_swap_page() counts what comes out of swap, which may
be a disk, a disk that is compressed memory (zram), or compressed memory in front of one (zswap).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from exhume.diagnosis.findings.sampled_work import Sampled
from exhume.diagnosis.findings.stretches import gauge, growth
from exhume.recording.recording import Recording, labels

Parts = list[tuple[int, int]]
# The smallest page that a fault can bring in.
_PAGE = 4096
# Of the major faults, or of what they bring in: what so much of them is, they are.
_MOSTLY = 0.5
# Samples in reclaim, against those in faults, below which nobody reclaims what the faults bring in.
_HARDLY = 0.05


class Origin(Enum):
    """Where most of what major faults bring in comes from, and whether it was in memory a moment ago."""

    UNKNOWN = "unknown"
    """Whether it was in memory before is not known."""
    DISK_AGAIN = "disk-again"
    SWAP_AGAIN = "swap-again"
    ZSWAP_AGAIN = "zswap-again"
    DROPPED = "dropped"
    """The program that reads it drops it."""
    NEW = "new"


ORIGINS: Final[Mapping[Origin, str]] = {
    Origin.UNKNOWN: "memory is read from disk",
    Origin.DISK_AGAIN: "memory in use is read from disk again",
    Origin.SWAP_AGAIN: "memory in use is read from swap again",
    Origin.ZSWAP_AGAIN: "memory in use is read from compressed swap (zswap) again",
    Origin.DROPPED: "the same is read from disk again and again; nobody reclaims it and the page cache does not grow, "
    "so whoever reads it lets it go",
    Origin.NEW: "most of it is read for the first time, or was not in memory lately",
}


class _Refaults(NamedTuple):
    file: float
    anonymous: float
    source: str

    @property
    def pages(self) -> float:
        return self.file + self.anonymous


@dataclass(frozen=True, slots=True)
class Major:
    """What is known of the major faults of some time. Rates are per second, None where not known."""

    rate: float
    refaults: _Refaults | None
    swapped: float | None
    compressed: float
    """Of those, out of zswap (zswpin, since f6498b776d28, 5.19)."""
    grew: float | None
    """The page cache, bytes a second."""
    dropped: bool
    """What is read does not stay although it is not reclaimed: the program drops it (fadvise, madvise, truncate)."""
    waited: float | None
    """Share of the time in which some task waited for memory or I/O (PSI)."""

    @property
    def again(self) -> float | None:
        """How many of them bring in what was in memory a moment ago; None where nothing tells."""
        if self.refaults is None and self.swapped is None:
            return None
        file, anonymous = (self.refaults.file, self.refaults.anonymous) if self.refaults is not None else (0.0, 0.0)
        return file + max(anonymous, self.swapped or 0.0)

    @property
    def origin(self) -> Origin:
        if self.again is None:
            return Origin.UNKNOWN
        if self.again >= _MOSTLY * self.rate:
            swapped = self.swapped or 0.0
            if swapped < _MOSTLY * self.rate:
                return Origin.DISK_AGAIN
            return Origin.ZSWAP_AGAIN if 2 * self.compressed >= swapped else Origin.SWAP_AGAIN
        return Origin.DROPPED if self.dropped else Origin.NEW


def major_faults(recording: Recording, seen: Sampled | None, faulting: np.ndarray | None, parts: Parts) -> Major:
    """Of these times; `faulting` are the samples in page faults."""
    rate = _mean(recording, "pgmajfault", parts) or 0.0
    refaults = _refaults(recording, parts)
    out_of_swap, compressed = _mean(recording, "pswpin", parts), _mean(recording, "zswpin", parts)
    swapped = None if out_of_swap is None else out_of_swap + (compressed or 0.0)
    waits = []
    for resource in ("memory", "io"):
        waiting = growth(recording, "pressure_us", labels(cgroup="", kind="some", resource=resource))
        if waiting is not None:
            waits.append(waiting.mean(parts) / 1e6)
    grew = _grew(recording, parts)
    dropped = (
        grew is not None
        and grew < _MOSTLY * rate * _PAGE
        and not swapped
        and not _mean(recording, "drop_pagecache", parts)
        and _nobody_reclaims(recording, seen, faulting, rate, parts)
    )
    return Major(rate, refaults, swapped, compressed or 0.0, grew, dropped, max(waits, default=None))


def _mean(recording: Recording, name: str, parts: Parts) -> float | None:
    steps = growth(recording, f"vmstat_{name}")
    return steps.mean(parts) if steps is not None else None


def _refaults(recording: Recording, parts: Parts) -> _Refaults | None:
    file, anonymous = (_mean(recording, f"workingset_refault_{kind}", parts) for kind in ("file", "anon"))
    if file is not None:
        return _Refaults(file, anonymous or 0.0, "workingset_refault_file, _anon")
    before = _mean(recording, "workingset_refault", parts)  # of files alone, until 170b04b7ae49 (5.9)
    return _Refaults(before, 0.0, "workingset_refault") if before is not None else None


def _grew(recording: Recording, parts: Parts) -> float | None:
    """None where the page cache was not read often enough to tell."""
    read = gauge(recording, "meminfo_bytes", labels(field="Cached"))
    lasted = sum(end - start for start, end in parts)
    if read is None or lasted <= 0:
        return None
    times, values = read
    covered = sum(max(0, min(end, int(times[-1])) - max(start, int(times[0]))) for start, end in parts)
    if len(times) < 2 or covered < _MOSTLY * lasted:
        return None
    edges = np.interp(np.array(parts, dtype=np.float64), times.astype(np.float64), values.astype(np.float64))
    return float((edges[:, 1] - edges[:, 0]).sum()) / covered * 1e9


def _nobody_reclaims(
    recording: Recording, seen: Sampled | None, faulting: np.ndarray | None, rate: float, parts: Parts
) -> bool:
    """Neither for the node (vmstat) nor inside a limit, which only stacks show."""
    stolen = [_mean(recording, f"pgsteal_{whose}", parts) for whose in ("direct", "kswapd")]
    if seen is None or faulting is None or None in stolen:
        return False
    here = seen.during(parts)
    reclaiming, faults = int((here & (seen.reclaims > 0)).sum()), int((here & faulting).sum())
    return sum(each or 0.0 for each in stolen) < _HARDLY * rate and reclaiming < _HARDLY * faults
