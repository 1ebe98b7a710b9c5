"""reclaim: memory is short, on the node or inside a cgroup's limit, and somebody has to find some.

/proc/vmstat counts what is reclaimed for the node; reclaim inside a cgroup's limit is left out of it (cgroup_reclaim() in
mm/vmscan.c), and shows as time in which tasks waited for memory, and as time spent on it. Reclaim that somebody asked for, by
a write to memory.reclaim or memory.force_empty, is nobody's shortage.
"""

from dataclasses import dataclass

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.reclaim_time import WAITED, Place, direct, shares, where
from exhume.findings.stretches import SECOND_NS, Steps, Stretch, growth, ordered, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.node.owners import owner
from exhume.recording.recording import Recording, labels
from exhume.text import printable

KIND = "reclaim"
# Waiting for memory that comes from reclaim somebody asked for: it is explained if so much of it is that.
_EXPLAINS = 0.5
# Of what kswapd scans; less is a hunt for pages that are all in use.
_FREES = 0.5
# Share of all cores' time below which nobody reclaims or compacts: who waits for memory then waits for pages to be read again.
_NOBODY = 0.002
# Direct compactions a second from which somebody compacts, where no stacks were sampled.
_STALLS = 1.0
# The share from which reclaim that was asked for is told.
_TOLD = 0.01


@dataclass(frozen=True, slots=True)
class _Signs:
    """What shows reclaim, each None where it could not be seen."""

    scanned: Steps | None
    kswapd: Steps | None
    waited: Steps | None
    spent: Steps | None
    spent_source: str


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    spent = direct(recording)
    signs = _Signs(
        growth(recording, "vmstat_pgscan_direct"),
        growth(recording, "vmstat_pgscan_kswapd"),
        growth(recording, "pressure_us", labels(cgroup="", kind="some", resource="memory")),
        *(spent or (None, "")),
    )
    if signs.scanned is None and signs.waited is None and signs.spent is None:
        return Examined(KIND, unseen=recording.why_off("vmstat"))
    shortest = round(thresholds.stretch_s * SECOND_NS)
    found = {
        "waited": _above(signs.waited, thresholds.memory_wait_ratio * 1e6, shortest),
        "spent": _above(signs.spent, thresholds.direct_reclaim_ratio, shortest),
        "scanned": _above(signs.scanned, thresholds.direct_reclaim_pages, shortest),
    }
    if not any(found.values()):
        found["kswapd"] = _above(signs.kswapd, thresholds.kswapd_pages, shortest)
    if not any(found.values()):
        return Examined(KIND, ruled_out=_ruled_out(signs, shortest))
    return Examined(KIND, (_finding(recording, thresholds, signs, found),))


def _above(steps: Steps | None, ratio: float, shortest_ns: int) -> list[Stretch]:
    return steps.above(ratio, shortest_ns) if steps is not None else []


def _ruled_out(signs: _Signs, shortest_ns: int) -> str:
    """The worst of each that there was."""
    said = []
    if signs.scanned is not None:
        by_kswapd = signs.kswapd.most(shortest_ns) if signs.kswapd is not None else 0.0
        said.append(f"{signs.scanned.most(shortest_ns):,.0f} direct scans a second, {by_kswapd:,.0f} by kswapd")
    if signs.spent is not None:
        said.append(f"{signs.spent.most(shortest_ns):.1%} of all cores' time in direct reclaim")
    if signs.waited is not None:
        said.append(f"tasks waited for memory {signs.waited.most(shortest_ns) / 1e6:.0%} of the time")
    if signs.spent is None and signs.waited is None:
        return f"{said[0]}: node-wide reclaim; reclaim inside a cgroup's limit is not visible here"
    return ", ".join(said)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The same in numbers, while it lasted; each None where it could not be seen."""

    scanned: float | None
    kswapd: float | None
    freed: float | None
    waited: float | None
    spent: float | None
    apart: dict[str, float]
    """Of the samples: kswapd's share of all cores' time, that of reclaim that was asked for, that of compaction, and what only
    walked groups."""
    stalls: float | None
    """How often a task compacted memory itself, a second (/proc/vmstat compact_stall)."""

    @property
    def compacts(self) -> bool:
        """PSI counts direct compaction as waiting for memory (psi_memstall_enter in __alloc_pages_direct_compact)."""
        if "compaction" in self.apart:
            return self.apart["compaction"] >= _NOBODY
        return self.stalls is not None and self.stalls >= _STALLS

    @property
    def nobody(self) -> bool:
        """Whether it was seen that nobody reclaims, on the node or inside a limit, nor compacts."""
        asked = self.apart.get("asked", 0.0)
        quiet = not self.scanned and not self.kswapd and not self.compacts
        return self.spent is not None and max(self.spent, asked) < _NOBODY and quiet

    def quiet(self, least: float) -> bool:
        """Whether it was seen that the node reclaims next to nothing: who waits then waits inside a limit of its own."""
        return self.scanned is not None and self.scanned + (self.kswapd or 0.0) < least and not self.compacts


def _measured(recording: Recording, signs: _Signs, found: dict[str, list[Stretch]], parts: list[tuple[int, int]]) -> _Measured:
    def mean(name: str, steps: Steps | None) -> float | None:
        return steps.mean(times(found[name]) if found.get(name) else parts) if steps is not None else None

    waited_us = mean("waited", signs.waited)
    return _Measured(
        mean("scanned", signs.scanned),
        mean("kswapd", signs.kswapd),
        mean("kswapd", growth(recording, "vmstat_pgsteal_kswapd")),
        None if waited_us is None else waited_us / 1e6,
        mean("spent", signs.spent),
        shares(recording, parts),
        mean("waited", growth(recording, "vmstat_compact_stall")),
    )


def _finding(recording: Recording, thresholds: Thresholds, signs: _Signs, found: dict[str, list[Stretch]]) -> Finding:
    parts = times(stretch for stretches in found.values() for stretch in stretches)
    seen = _measured(recording, signs, found, parts)
    said = []
    if found["scanned"]:
        scans = f"{seen.scanned or 0:,.0f} direct scans a second, {seen.kswapd or 0:,.0f} by kswapd"
        said.append(f"processes reclaim memory themselves: {scans}")
    elif found.get("kswapd"):
        part = f" and frees {seen.freed / seen.kswapd:.0%} of them" if seen.freed is not None and seen.kswapd else ""
        said.append(f"kswapd scans {seen.kswapd or 0:,.0f} pages a second{part}")
    if found["spent"]:
        said.append(f"direct reclaim takes {seen.spent or 0:.0%} of all cores' time")
    if found["waited"]:
        said.append(f"tasks waited for memory {seen.waited or 0:.0%} of the time")
    summary = ", and ".join(said)
    if found["waited"] and seen.nobody:
        summary += ", but nothing was reclaimed meanwhile: they waited for pages to be read again"
    evidence = _evidence(recording, seen, signs.spent_source, parts)
    place = where(recording, parts, thresholds.memory_wait_ratio, seen.quiet(thresholds.direct_reclaim_pages))
    if place is not None:
        summary += _told(place)
        evidence.append(Evidence("cgroup" if place.limit else "waits most", place.cgroup, "", place.source))
        evidence.append(Evidence(place.what, round(place.share, 3), place.of, place.source))
    if seen.apart.get("asked", 0.0) >= _TOLD:
        summary += f"; {seen.apart['asked']:.0%} of all cores' time went into reclaim that a program asked for"
    if seen.apart.get("compaction", 0.0) >= _TOLD:
        summary += (
            f"; {seen.apart['compaction']:.0%} of all cores' time went into compaction: free memory is there, in small pieces"
        )
    if seen.apart.get("walk", 0.0) >= _EXPLAINS:
        summary += f"; {seen.apart['walk']:.0%} of it only goes from one memory cgroup to the next"
    severity = _severity(recording, found, seen)
    return Finding(KIND, "node", severity, parts[0][0], parts[-1][1], summary, tuple(evidence), spans(parts))


def _told(place: Place) -> str:
    whose = str(owner(place.cgroup))
    named = f"{whose}, {place.cgroup}" if whose and whose not in place.cgroup else place.cgroup
    if place.limit:
        return f", most in {printable(named)} ({place.share:.0%}), at its own limit"
    does = "waits most" if place.of == WAITED else "reclaims most"
    return f"; {printable(named)} {does} ({place.share:.0%}), which does not say who took the memory"


def _severity(recording: Recording, found: dict[str, list[Stretch]], seen: _Measured) -> Severity:
    """Somebody must pay for it: with a core's time, or by waiting. Where neither could be seen, scanning is sign enough."""
    if found["spent"]:
        return "warning"
    if found["waited"]:
        asked = seen.apart.get("asked", 0.0) * max(1, recording.node.cpus)
        return "info" if seen.nobody or asked >= _EXPLAINS * (seen.waited or 0.0) else "warning"
    if found["scanned"]:
        return "warning" if seen.waited is None and seen.spent is None else "info"
    # kswapd that frees what it scans only makes room for what is read: a stream through the page cache looks like that.
    return "info" if seen.freed is not None and seen.freed >= _FREES * (seen.kswapd or 0.0) else "warning"


def _evidence(recording: Recording, seen: _Measured, spent_source: str, parts: list[tuple[int, int]]) -> list[Evidence]:
    freed = growth(recording, "vmstat_pgsteal_direct")
    whole, samples, scanned, reclaimed = "of all cores' time", "stack samples", "pages scanned/s", "pages/s"
    rows: list[tuple[str, float | None, str, str]] = [
        ("direct", seen.scanned, scanned, "/proc/vmstat pgscan_direct"),
        ("kswapd", seen.kswapd, scanned, "/proc/vmstat pgscan_kswapd"),
        ("direct freed", freed.mean(parts) if freed is not None else None, reclaimed, "/proc/vmstat pgsteal_direct"),
        ("kswapd freed", seen.freed, reclaimed, "/proc/vmstat pgsteal_kswapd"),
        ("direct share", seen.spent, whole, spent_source),
        ("kswapd share", seen.apart.get("kswapd"), whole, samples),
        ("asked share", seen.apart.get("asked"), whole, samples),
        ("compaction share", seen.apart.get("compaction"), whole, samples),
        ("compaction stalls", seen.stalls, "per second", "/proc/vmstat compact_stall"),
        ("walk share", seen.apart.get("walk"), "of the samples in reclaim", samples),
        ("zombies", _zombies(recording), "memory cgroups", "memcg"),
        ("waited for memory", seen.waited, "of the time", "/proc/pressure/memory some"),
        ("available", _available(recording), "bytes", "/proc/meminfo MemAvailable"),
    ]
    return [
        Evidence(what, round(value, 3) if unit.startswith("of ") else round(value), unit, source)
        for what, value, unit, source in rows
        if value is not None
    ]


def _available(recording: Recording) -> int | None:
    available = recording.counter("meminfo_bytes", labels(field="MemAvailable"))
    return int(ordered(available)[1][-1]) if available is not None else None


def _zombies(recording: Recording) -> int | None:
    """As last counted for the whole node; None where nobody could."""
    table = recording["memcg"]
    rows = zip(
        table.texts("path"), table.texts("scope"), table.ints("time").tolist(), table.ints("dying").tolist(), strict=True
    )
    counted = [(time, dying) for path, scope, time, dying in rows if path == "/" and scope == "node" and dying >= 0]
    return max(counted)[1] if counted else None
