"""What is shown, as GET /api/about tells of it: of a recording, and of a file that was only looked at."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from exhume import __version__
from exhume.recording.recording import Node

# A recording that was imported from files without a time of day has seconds since boot for it: no machine runs so long.
_UNKNOWN_NS = 20 * 365 * 86_400 * 1_000_000_000
# As many as any kernel can have (CONFIG_NR_CPUS): what a file says may be anything.
_MOST_CORES = 8_192


def has_wall(real_ns: int) -> bool:
    """Whether that is a time of day."""
    return real_ns >= _UNKNOWN_NS


class Shown(NamedTuple):
    name: str
    node: Node
    cores: Iterable[int]
    """Those that were met; all that the node has are shown."""
    origin: int
    kept_from: int
    end: int
    real_ns: int
    """At the origin."""
    live: bool
    hz: int
    samples: int | None
    """None where they were not counted."""
    sampled: bool
    boots: list[str]
    notes: list[str]
    clock: Sequence[tuple[int, int]] = ()
    """Moments, and how much later than that it is by the clock on the wall: more than one where that was set meanwhile."""


def described(shown: Shown) -> dict[str, Any]:
    node, wall = shown.node, has_wall(shown.real_ns)
    return {
        "name": shown.name,
        "node": {"hostname": node.hostname, "boot_id": node.boot_id, "cgroups": node.cgroups, "cpus": node.cpus},
        "kernel": node.kernel,
        "cores": sorted({*range(min(node.cpus, _MOST_CORES)), *shown.cores}),
        "start_ns": str(shown.origin),
        "duration_us": (shown.end - shown.origin) // 1_000,
        "kept_us": max(0, (shown.kept_from - shown.origin) // 1_000),
        "real_start_ms": shown.real_ns / 1e6 if wall else 0,
        "clock": _clock(shown) if wall else [[0, 0]],
        "has_wall": wall,
        "live": shown.live,
        "hz": shown.hz,
        "samples": shown.samples,
        "sampled": shown.sampled,
        "boots": shown.boots,
        "version": __version__,
        "notes": shown.notes[:20],
    }


def _clock(shown: Shown) -> list[list[float]]:
    """The begin first."""
    known = shown.clock or [(shown.origin, shown.real_ns - shown.origin)]
    return [[(time - shown.origin) // 1_000, (time + shift) / 1e6] for time, shift in known]
