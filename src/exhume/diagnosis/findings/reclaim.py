"""reclaim: memory is short, on the node or inside a cgroup's limit, and somebody has to find some.

/proc/vmstat counts what is reclaimed for the node; reclaim inside a cgroup's limit is left out of it (cgroup_reclaim() in
mm/vmscan.c), and shows as time in which tasks waited for memory, and as time spent on it. Reclaim that somebody asked for, by
a write to memory.reclaim or memory.force_empty, is nobody's shortage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from exhume.diagnosis.findings.core_facts import CoreSaturated, seen_there
from exhume.diagnosis.findings.cpu_throttled import CpuThrottled
from exhume.diagnosis.findings.kind import MOSTLY, Advice, Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.offender import ROOT
from exhume.diagnosis.findings.page_fault_storm import PageFaultStorm
from exhume.diagnosis.findings.reclaim_time import Place, Shares, direct, shares, where
from exhume.diagnosis.findings.soft_lockup import SoftLockup, in_the_trace
from exhume.diagnosis.findings.stretches import Steps, Stretch, growth, ordered, spans, times
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.owners import owner
from exhume.host.quantities import GIB, SECOND, size
from exhume.record import record
from exhume.recording.recording import Recording, labels
from exhume.text import printable

# Waiting for memory that comes from reclaim somebody asked for: it is explained if so much of it is that.
_EXPLAINS = 0.5
# Of what kswapd scans; less is a hunt for pages that are all in use.
_FREES = 0.5
# Share of all cores' time below which nobody reclaims or compacts: who waits for memory then waits for pages to be read again.
_NOBODY = 0.002
# Direct compactions a second from which somebody compacts, where no stacks were sampled.
_STALLS = 1.0
# The share from which reclaim that was asked for, and compaction, are in the summary.
_TOLD = 0.01
# Direct reclaim as a share of all cores' time from which its source is to be removed first.
_DEAR = 0.15
# Waiting for memory, as a share of the time, from which pages that are read again are those that were reclaimed.
_WAITED = 0.1
_OF_ALL: Final = "of all cores' time"
_SAMPLES: Final = "stack samples"
_PSI: Final = "/proc/pressure/memory some"
_STALLS_SOURCE: Final = "/proc/vmstat compact_stall"
_PRESSURE: Final = "memory.pressure some, the most of all groups"
_PROBES: Final = "latency probes, by cgroup"

Sign = Literal["waited", "spent", "scanned", "kswapd"]


def _share(label: str) -> Shown:
    return Shown(label, _OF_ALL, _SAMPLES, digits=3)


@record(frozen=True, slots=True, kw_only=True)
class Reclaim(Facts):
    """Numbers are of the time it lasted, and None where they could not be seen."""

    kind: ClassVar[str] = "reclaim"
    signs: tuple[Sign, ...]
    """Which numbers are above their thresholds: waiting for memory, direct reclaim's time, direct scans, kswapd's scans."""
    direct_scans_per_s: Annotated[int | None, Shown("direct", "pages scanned/s", "/proc/vmstat pgscan_direct")] = None
    kswapd_scans_per_s: Annotated[int | None, Shown("kswapd", "pages scanned/s", "/proc/vmstat pgscan_kswapd")] = None
    direct_freed_per_s: Annotated[int | None, Shown("direct freed", "pages/s", "/proc/vmstat pgsteal_direct")] = None
    kswapd_freed_per_s: Annotated[int | None, Shown("kswapd freed", "pages/s", "/proc/vmstat pgsteal_kswapd")] = None
    kswapd_freed_ratio: float | None = None
    """Of what kswapd scans."""
    direct_source: str = ""
    direct_ratio: Annotated[float | None, Shown("direct share", _OF_ALL, ".direct_source", digits=3)] = None
    kswapd_ratio: Annotated[float | None, _share("kswapd share")] = None
    asked_ratio: Annotated[float | None, _share("asked share")] = None
    """Reclaim that a program asked for by a write to a file."""
    compaction_ratio: Annotated[float | None, _share("compaction share")] = None
    compaction_stalls_per_s: Annotated[int | None, Shown("compaction stalls", "per second", _STALLS_SOURCE)] = None
    walk_ratio: Annotated[float | None, Shown("walk share", "of the samples in reclaim", _SAMPLES, digits=3)] = None
    """Only goes from one memory cgroup to the next."""
    zombies: Annotated[int | None, Shown("zombies", "memory cgroups", "memcg")] = None
    waited_ratio: Annotated[float | None, Shown("waited for memory", "of the time", _PSI, digits=3)] = None
    available_bytes: Annotated[int | None, Shown("available", "bytes", "/proc/meminfo MemAvailable")] = None
    nothing_reclaimed: bool = False
    """It was seen that there was no reclaim, on the node or inside a limit, and no compaction."""
    cgroup_source: str = ""
    limit_cgroup: Annotated[str, Shown("cgroup", source=".cgroup_source")] = ""
    """The cgroup that waits or reclaims most, if it is at its own limit."""
    waiting_cgroup: Annotated[str, Shown("waits most", source=".cgroup_source")] = ""
    """The cgroup that waits or reclaims most, if it is not: others may have taken the memory."""
    cgroup_waited_ratio: Annotated[float | None, Shown("waited there", "of the time", _PRESSURE, digits=3)] = None
    cgroup_probed_ratio: Annotated[float | None, Shown("its share", "of the time spent on reclaim", _PROBES, digits=3)] = None
    cgroup_sampled_ratio: Annotated[float | None, Shown("its share", "of the samples in reclaim", _SAMPLES, digits=3)] = None

    @property
    def cgroup(self) -> str:
        """The one that waits or reclaims most."""
        return self.limit_cgroup or self.waiting_cgroup

    @property
    def cgroup_ratio(self) -> float:
        """Its share: of the time, of the time spent on reclaim, or of the samples in reclaim."""
        every = (self.cgroup_waited_ratio, self.cgroup_probed_ratio, self.cgroup_sampled_ratio)
        return next((ratio for ratio in every if ratio is not None), 0.0)

    @property
    def cgroup_paths(self) -> tuple[str, ...]:
        return (self.limit_cgroup,) if self.limit_cgroup else ()

    def summary(self) -> str:
        said = ", and ".join(self._above())
        if "waited" in self.signs and self.nothing_reclaimed:
            said += ", but nothing was reclaimed meanwhile: they waited for pages to be read again"
        said += self._where()
        if (self.asked_ratio or 0.0) >= _TOLD:
            said += f"; {self.asked_ratio:.0%} of all cores' time went into reclaim that a program asked for"
        if (self.compaction_ratio or 0.0) >= _TOLD:
            said += f"; {self.compaction_ratio:.0%} of all cores' time went into compaction: "
            said += "free memory is there, in small pieces"
        if (self.walk_ratio or 0.0) >= _EXPLAINS:
            said += f"; {self.walk_ratio:.0%} of it only goes from one memory cgroup to the next"
        return said

    def _above(self) -> list[str]:
        """The numbers that are above their thresholds."""
        said = []
        kswapd = self.kswapd_scans_per_s or 0
        if "scanned" in self.signs:
            scans = f"{self.direct_scans_per_s or 0:,} direct scans a second, {kswapd:,} by kswapd"
            said.append(f"processes reclaim memory themselves: {scans}")
        elif "kswapd" in self.signs:
            part = f" and frees {self.kswapd_freed_ratio:.0%} of them" if self.kswapd_freed_ratio is not None else ""
            said.append(f"kswapd scans {kswapd:,} pages a second{part}")
        if "spent" in self.signs:
            said.append(f"direct reclaim takes {self.direct_ratio or 0:.0%} of all cores' time")
        if "waited" in self.signs:
            said.append(f"tasks waited for memory {self.waited_ratio or 0:.0%} of the time")
        return said

    def _where(self) -> str:
        if not self.cgroup:
            return ""
        whose = str(owner(self.cgroup))
        named = printable(f"{whose}, {self.cgroup}" if whose and whose not in self.cgroup else self.cgroup)
        if self.limit_cgroup:
            return f", most in {named} ({self.cgroup_ratio:.0%}), at its own limit"
        does = "waits most" if self.cgroup_waited_ratio is not None else "reclaims most"
        return f"; {named} {does} ({self.cgroup_ratio:.0%}), which does not say who took the memory"

    def short(self) -> tuple[str, str]:
        numbers = []
        if "scanned" in self.signs:
            numbers.append(f"{self.direct_scans_per_s or 0:,} direct scans/s")
        elif "kswapd" in self.signs:
            numbers.append(f"kswapd scans {self.kswapd_scans_per_s or 0:,} pages/s")
        if "spent" in self.signs:
            numbers.append(f"{self.direct_ratio or 0:.0%} of all cores' time")
        if "waited" in self.signs:
            numbers.append(f"tasks waited {self.waited_ratio or 0:.0%} of the time")
        return f"memory reclaim in {self.limit_cgroup}" if self.limit_cgroup else "memory reclaim", " · ".join(numbers)


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
        return Examined(Reclaim.kind, unseen=recording.why_off("vmstat"))
    shortest = round(thresholds.stretch_s * SECOND)
    found: dict[Sign, list[Stretch]] = {
        "waited": _above(signs.waited, thresholds.memory_wait_ratio * 1e6, shortest),
        "spent": _above(signs.spent, thresholds.direct_reclaim_ratio, shortest),
        "scanned": _above(signs.scanned, thresholds.direct_reclaim_pages, shortest),
    }
    if not any(found.values()):
        found["kswapd"] = _above(signs.kswapd, thresholds.kswapd_pages, shortest)
    if not any(found.values()):
        return Examined(Reclaim.kind, ruled_out=_ruled_out(signs, shortest))
    return Examined(Reclaim.kind, (_finding(recording, thresholds, signs, found),))


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
    sampled: Shares | None
    stalls: float | None
    """How often a task compacted memory itself, a second (/proc/vmstat compact_stall)."""

    @property
    def asked(self) -> float:
        return self.sampled.asked_ratio if self.sampled is not None else 0.0

    @property
    def compacts(self) -> bool:
        """PSI counts direct compaction as waiting for memory (psi_memstall_enter in __alloc_pages_direct_compact)."""
        if self.sampled is not None:
            return self.sampled.compaction_ratio >= _NOBODY
        return self.stalls is not None and self.stalls >= _STALLS

    @property
    def nothing(self) -> bool:
        """Whether it was seen that there is no reclaim, on the node or inside a limit, and no compaction."""
        quiet = not self.scanned and not self.kswapd and not self.compacts
        return self.spent is not None and max(self.spent, self.asked) < _NOBODY and quiet

    def quiet(self, least: float) -> bool:
        """Whether it was seen that the node reclaims next to nothing: who waits then waits inside a limit of its own."""
        return self.scanned is not None and self.scanned + (self.kswapd or 0.0) < least and not self.compacts


def _measured(recording: Recording, signs: _Signs, found: dict[Sign, list[Stretch]], parts: list[tuple[int, int]]) -> _Measured:
    def mean(sign: Sign, steps: Steps | None) -> float | None:
        return steps.mean(times(found[sign]) if found.get(sign) else parts) if steps is not None else None

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


def _finding(recording: Recording, thresholds: Thresholds, signs: _Signs, found: dict[Sign, list[Stretch]]) -> Finding[Reclaim]:
    parts = times(stretch for stretches in found.values() for stretch in stretches)
    seen = _measured(recording, signs, found, parts)
    place = where(recording, parts, thresholds.memory_wait_ratio, seen.quiet(thresholds.direct_reclaim_pages))
    facts = _facts(recording, signs, seen, parts, tuple(sign for sign, stretches in found.items() if stretches), place)
    return Finding(facts, _severity(recording, found, seen), parts[0][0], parts[-1][1], spans(parts))


def _facts(
    recording: Recording,
    signs: _Signs,
    seen: _Measured,
    parts: list[tuple[int, int]],
    above: tuple[Sign, ...],
    place: Place | None,
) -> Reclaim:
    freed, sampled = growth(recording, "vmstat_pgsteal_direct"), seen.sampled
    sources = {"pressure": _PRESSURE, "probes": _PROBES, "samples": _SAMPLES}
    return Reclaim(
        subject="node",
        signs=above,
        direct_scans_per_s=_rounded(seen.scanned),
        kswapd_scans_per_s=_rounded(seen.kswapd),
        direct_freed_per_s=_rounded(freed.mean(parts) if freed is not None else None),
        kswapd_freed_per_s=_rounded(seen.freed),
        kswapd_freed_ratio=seen.freed / seen.kswapd if seen.freed is not None and seen.kswapd else None,
        direct_source=signs.spent_source,
        direct_ratio=seen.spent,
        kswapd_ratio=sampled.kswapd_ratio if sampled is not None else None,
        asked_ratio=sampled.asked_ratio if sampled is not None else None,
        compaction_ratio=sampled.compaction_ratio if sampled is not None else None,
        compaction_stalls_per_s=_rounded(seen.stalls),
        walk_ratio=sampled.walk_ratio if sampled is not None else None,
        zombies=_zombies(recording),
        waited_ratio=seen.waited,
        available_bytes=_available(recording),
        nothing_reclaimed=seen.nothing,
        cgroup_source=sources[place.by] if place is not None else "",
        limit_cgroup=place.cgroup if place is not None and place.at_limit else "",
        waiting_cgroup=place.cgroup if place is not None and not place.at_limit else "",
        cgroup_waited_ratio=place.ratio if place is not None and place.by == "pressure" else None,
        cgroup_probed_ratio=place.ratio if place is not None and place.by == "probes" else None,
        cgroup_sampled_ratio=place.ratio if place is not None and place.by == "samples" else None,
    )


def _rounded(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def _severity(recording: Recording, found: dict[Sign, list[Stretch]], seen: _Measured) -> Severity:
    """A warning needs a cost: a core's time, or waiting. Where neither could be seen, scanning is sign enough."""
    if found["spent"]:
        return "warning"
    if found["waited"]:
        asked = seen.asked * max(1, recording.node.cpus)
        return "info" if seen.nothing or asked >= _EXPLAINS * (seen.waited or 0.0) else "warning"
    if found["scanned"]:
        return "warning" if seen.waited is None and seen.spent is None else "info"
    # kswapd that frees what it scans only makes room for what is read: a stream through the page cache looks like that.
    return "info" if seen.freed is not None and seen.freed >= _FREES * (seen.kswapd or 0.0) else "warning"


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


def _saturates(reclaim: Finding[Reclaim], core: Finding[CoreSaturated]) -> Judged:
    if core.facts.looked:
        reclaimed, walked = core.facts.work.reclaim_ratio, core.facts.work.memcg_walk_ratio
        if reclaimed >= MOSTLY:
            sure, seen = seen_there(core, reclaimed)
            return min(0.9, sure), f"memory is reclaimed {seen}"
        if reclaimed + walked >= MOSTLY:
            return 0.5, f"reclaim, {walked:.0%} of it in visits to memory cgroups that had nothing to give"
        return None
    if core.facts.offender is not None and core.facts.offender.process.comm.startswith("kswapd"):
        return 0.8, "it is kswapd that keeps this core busy"
    return 0.4, "reclaim is kernel time; no stack was taken to show that it is this core's"


def _starves(reclaim: Finding[Reclaim], napi: Finding[NapiStarved]) -> Judged:
    return held_by(napi, napi.facts.work.reclaim_ratio, "memory was reclaimed on that core", 0.9)


def _locks_up(reclaim: Finding[Reclaim], lockup: Finding[SoftLockup]) -> Judged:
    return in_the_trace(lockup.facts.work.reclaim_ratio, "memory is reclaimed")


def _refaults(reclaim: Finding[Reclaim], storm: Finding[PageFaultStorm]) -> Judged:
    """What is reclaimed and still in use is read again; without pressure, the programs that use the pages drop them."""
    waited = max(reclaim.facts.waited_ratio or 0.0, reclaim.facts.cgroup_waited_ratio or 0.0)
    again = (storm.facts.refaults_per_s or 0) >= 0.5 * max(1, storm.facts.major_faults_per_s or 0)
    if not again or waited < _WAITED:
        return None
    return 0.75, "most pages that are read from disk were reclaimed a moment ago, and tasks wait for memory"


def _culprits(reclaim: Finding[Reclaim], case: Case) -> Iterator[Culprit]:
    if reclaim.facts.limit_cgroup not in ROOT:
        yield Culprit(reclaim.facts.limit_cgroup, reclaim.facts.cgroup_ratio or 1.0)


def _advice(reclaim: Finding[Reclaim], case: Case) -> Iterator[Advice]:
    share = reclaim.facts.direct_ratio or 0.0
    if share >= _DEAR:
        where = reclaim.facts.limit_cgroup or "what allocates most"
        yield Advice(
            f"remove the source: give {where} more memory or less work, and consolidate what is left",
            f"direct reclaim takes {share:.0%} of all cores' time",
            cost="capacity",
        )
    if case.of(CpuThrottled, serious=False):
        yield Advice(
            "changing CPU quotas first",
            "tasks are throttled while they reclaim: with the memory shortage gone their quota may be enough",
            against=True,
        )


def _steps(reclaim: Finding[Reclaim], case: Case) -> Iterator[Step]:
    cgroup, available = reclaim.facts.limit_cgroup, reclaim.facts.available_bytes or 0
    if not cgroup:
        yield Step("free memory or move work away; exhume diagnose -v and systemd-cgtop -m show which cgroup grows")
        return
    spare = f" while the node has {size(available)} to spare" if available >= GIB else ""
    yield Step(
        f"{cgroup} is at its own limit{spare}: raise that limit, or let it do with less; more memory for the node is no help"
    )


KIND = Kind(
    facts=Reclaim,
    detect=detect,
    role="pain",
    title=lambda finding: "passes of memory reclaim",
    rules=(
        Rule(Reclaim, CoreSaturated, _saturates, "a core that is full while nothing is scanned"),
        Rule(Reclaim, NapiStarved, _starves, "late polls while nothing is scanned"),
        Rule(Reclaim, SoftLockup, _locks_up, "a lockup while nothing is scanned"),
        Rule(Reclaim, PageFaultStorm, _refaults, "major faults of pages that were never in memory"),
    ),
    culprits=_culprits,
    steps=_steps,
    advice=_advice,
)
