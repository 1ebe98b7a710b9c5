"""zombie-memcgs: memory cgroups whose directory is gone and which the kernel still walks."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.forecast import PAIN, SHORTEST_S, days_to_pain, per_hour, spelled
from exhume.diagnosis.findings.kind import HARDLY, MOSTLY, NEARLY, Advice, Case, Judged, Kind, Remedy, Rule, Step
from exhume.diagnosis.findings.memcg_walk import MemcgWalk
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.nic_reset import NicReset
from exhume.diagnosis.findings.reclaim import Reclaim
from exhume.diagnosis.findings.soft_lockup import SoftLockup, in_the_trace
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.walk_families import CHARGE, REQUESTED_BELOW, RSTAT
from exhume.host.programs import commands
from exhume.record import record
from exhume.recording.recording import Recording, labels

# kswapd visits every memory cgroup, dead ones included, on each pass (shrink_node_memcgs).
_RECLAIMER = "kswapd"
# The share of dead groups from which they are what a walk costs.
_DEAD = 0.5
_DISPROOF = "a core that is as full after the zombies were purged"


@record(frozen=True, slots=True, kw_only=True)
class ZombieMemcgs(Facts):
    kind: ClassVar[str] = "zombie-memcgs"
    counted_in: str
    """The file that was counted by."""
    zombies: Annotated[int, Shown("zombies", "cgroups", ".counted_in")]
    live: Annotated[int, Shown("live", "cgroups", ".counted_in")]
    total: Annotated[int, Shown("total", "cgroups", ".counted_in")]
    exact: bool
    """Otherwise an upper bound: counting was given up."""
    whole_node: bool
    """Otherwise only this container's part of the hierarchy."""
    kernel: Annotated[str, Shown("kernel", source="uname")]
    hierarchy: Annotated[str, Shown("hierarchy", source="/proc/self/mountinfo")]
    growth: Annotated[int, Shown("growth", "cgroups", ".counted_in")]
    """Over the window."""
    growth_per_hour: Annotated[float | None, Shown("growth rate per hour", "cgroups an hour", ".counted_in", digits=1)] = None
    days_to_pain: Annotated[
        float | None, Shown("time left", "days", f"to {PAIN:,} zombies at this rate", digits=2, spelled=spelled)
    ] = None
    parent: Annotated[str, Shown("parent", source="cgroup.stat")] = ""
    """The deepest directory that has nearly all of them below it."""
    percpu_bytes: Annotated[int | None, Shown("per-CPU memory of the node", "bytes", "/proc/meminfo Percpu")] = None
    unreclaimable_slab_bytes: Annotated[
        int | None, Shown("unreclaimable slab of the node", "bytes", "/proc/meminfo SUnreclaim")
    ] = None

    def summary(self) -> str:
        most = "" if self.exact else "at most "
        here = "" if self.whole_node else " in this container's part of the hierarchy"
        where = f", below {self.parent}" if self.parent else ""
        return f"{most}{self.zombies:,} zombie memory cgroups{here} against {self.live:,} live{where}"

    def short(self) -> tuple[str, str]:
        grew = f" · {self.growth:+,} while watched" if self.growth else ""
        return f"{self.zombies:,} zombie memory cgroups", f"{self.live:,} live{grew}"

    @property
    def dead_ratio(self) -> float:
        """Of all memory cgroups."""
        return self.zombies / max(1, self.zombies + self.live)

    @property
    def walked_for_statistics(self) -> bool:
        """Whether reading statistics goes from group to group: on v1 before dd8657b6c1cb (5.8)."""
        release = re.match(r"(\d+)\.(\d+)", self.kernel)
        old = release is None or (int(release[1]), int(release[2])) < (5, 8)
        return old and self.hierarchy != "v2"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    every = list(recording["memcg"].rows())
    rows = [row for row in every if row["path"] == "/"]
    rows.sort(key=lambda row: (row["time"], row["dying"], row["live"]))
    if not rows:
        return Examined(ZombieMemcgs.kind, unseen=recording.why_off("memcg"))
    first, last = rows[0], rows[-1]
    live, dying, total = last["live"], last["dying"], last["total"]
    if dying < 0:
        return Examined(
            ZombieMemcgs.kind,
            unseen=f"{total:,} memory cgroups on the node, live and dying together: {recording.why_off('memcg')}",
        )
    if dying == 0:
        return Examined(ZombieMemcgs.kind, ruled_out=f"0 zombie memory cgroups, {live:,} live")
    exact = bool(last["complete"])
    many = thresholds.many_zombies(dying, live)
    # A bound that came of giving up counting accuses nobody.
    severity: Severity = "warning" if many and exact else "info"
    parents = {row["path"]: row["dying"] for row in every if row["path"] != "/" and row["time"] == last["time"]}
    parent = _deepest(parents, dying)
    growth, per_hour_, days = _growth(rows)
    facts = ZombieMemcgs(
        subject=parent or "/",
        counted_in=last["method"],
        zombies=dying,
        live=live,
        total=total,
        exact=exact,
        whole_node=last["scope"] == "node",
        kernel=recording.node.kernel,
        hierarchy=recording.node.cgroups,
        growth=growth,
        growth_per_hour=per_hour_,
        days_to_pain=days,
        parent=parent,
        percpu_bytes=_meminfo(recording, "Percpu"),
        unreclaimable_slab_bytes=_meminfo(recording, "SUnreclaim"),
    )
    return Examined(ZombieMemcgs.kind, (Finding(facts, severity, first["time"], last["time"]),))


def _meminfo(recording: Recording, field: str) -> int | None:
    series = recording.counter("meminfo_bytes", labels(field=field))
    return series.last if series is not None else None


def _growth(rows: list[dict[str, Any]]) -> tuple[int, float | None, float | None]:
    """From the first count to the last, by the hour, and the days to pain; the latter if they are far enough apart to say."""
    known = [row for row in rows if row["dying"] >= 0 and row["complete"]] or rows[-1:]
    first, last = known[0], known[-1]
    growth, seconds = last["dying"] - first["dying"], (last["time"] - first["time"]) / 1e9
    if seconds < SHORTEST_S:
        return growth, None, None
    rate = per_hour(growth, seconds)
    return growth, rate, days_to_pain(last["dying"], rate)


def _deepest(parents: dict[str, int], dying: int) -> str:
    """The lowest directory that has at least four fifths of them below it."""
    candidates = [path for path, count in parents.items() if count * 5 >= dying * 4]
    return max(candidates, key=lambda path: (path.count("/"), path), default="")


def _are_walked(zombies: Finding[ZombieMemcgs], walk: Finding[MemcgWalk]) -> Judged:
    if not zombies.serious:
        return None
    facts, share = zombies.facts, zombies.facts.dead_ratio
    dead = f"{facts.zombies:,} of the {facts.zombies + facts.live:,} groups are dead"
    if share < _DEAD:
        return 0.3, f"only {dead}"
    if walk.facts.family == CHARGE:
        return 0.4, f"{dead}; but a walk at a group's own limit visits only what is below that group"
    if walk.facts.through in REQUESTED_BELOW:
        return 0.85, f"{dead}; a walk visits what is below the group that it was asked of, which the stack does not tell"
    if walk.facts.family == RSTAT:
        return 0.6, f"{dead}; a flush passes by those that have not changed, as most of the dead have not"
    return (0.99 if share >= NEARLY else 0.95), f"a walk visits every group below where it begins, and {dead}"


def _saturate(zombies: Finding[ZombieMemcgs], core: Finding[CoreSaturated]) -> Judged:
    if not zombies.serious:
        return None
    if core.facts.looked:
        # The walk is a finding of its own, with the place where it began; without it, both are there, and little more.
        walked = core.facts.walk_ratio
        return (
            (0.4, f"memory cgroups are walked in {walked:.0%} of the stack samples of this core") if walked >= HARDLY else None
        )
    comm = core.facts.offender.process.comm if core.facts.offender is not None else ""
    if comm.startswith(_RECLAIMER):
        return 0.55, f"{comm} visits every memory cgroup on each pass, dead ones included; no stack was taken to see it"
    # On v1 before 5.8 libcontainer's memory.numa_stat made the kernel walk every group, dead ones included, for whoever read it
    # (dd8657b6c1cb).
    if zombies.facts.walked_for_statistics and comm in commands("reads-cgroup-statistics"):
        return (
            0.6,
            f"{comm} reads memory-cgroup statistics, which on this kernel walks the dead too; no stack was taken to see it",
        )
    return 0.3, "both are there at once; no stack was taken to show that this core walks them"


def _starve(zombies: Finding[ZombieMemcgs], napi: Finding[NapiStarved]) -> Judged:
    if not zombies.serious:
        return None
    who = napi.facts.offender.process if napi.facts.offender is not None else "the core"
    work = napi.facts.work
    walked = held_by(napi, work.memcg_walk_ratio, f"{who} walked memory cgroups, dead ones included,", 0.75)
    return walked or held_by(napi, work.rstat_flush_ratio, f"{who} summed up statistics of memory cgroups", 0.6)


def _make_reclaim_dear(zombies: Finding[ZombieMemcgs], reclaim: Finding[Reclaim]) -> Judged:
    share = reclaim.facts.walk_ratio or 0.0
    if not zombies.serious or share < MOSTLY or zombies.facts.dead_ratio < _DEAD:
        return None
    return 0.85, f"{share:.0%} of the samples in reclaim only go from group to group, and most groups are dead"


def _lock_up(zombies: Finding[ZombieMemcgs], lockup: Finding[SoftLockup]) -> Judged:
    if not zombies.serious:
        return None
    limits = ("try_charge", "try_to_free_mem_cgroup_pages")
    below = any(name in function for function in lockup.facts.stack for name in limits)
    said = "memory cgroups are walked, dead ones included,"
    return in_the_trace(lockup.facts.work.memcg_walk_ratio, said, 0.5 if below else 0.9)


def _advice(zombies: Finding[ZombieMemcgs], case: Case) -> Iterator[Advice]:
    if not case.has(CoreSaturated, NapiStarved, NicReset, SoftLockup):
        return
    core = case.linked(CoreSaturated)
    if core is not None and core.facts.looked and (faults := core.facts.work.page_fault_ratio) < HARDLY:
        yield Advice(
            "huge pages or another allocator",
            f"page faults are served in {faults:.0%} of the samples of that core: they are not what it is busy with",
            against=True,
        )
    yield Advice(
        "pinning programs or interrupts to other cores",
        "the walk is as long wherever it runs: it moves the stall and does not shorten it",
        against=True,
    )


def _steps(zombies: Finding[ZombieMemcgs], case: Case) -> Iterator[Step]:
    from exhume.diagnosis.findings.defunct_processes import DefunctProcesses  # late: causes import their effects

    if case.has(DefunctProcesses):
        yield Step("exhume zombies    # what holds them")
    else:
        yield Step("exhume zombies names them; exhume zombies purge --dry-run says what can be let go without a reboot")


def _remedies(zombies: Finding[ZombieMemcgs], case: Case) -> Iterator[Remedy]:
    from exhume.diagnosis.findings.memcg_leak import remedies  # late: causes import their effects

    yield from remedies(zombies, case)


KIND = Kind(
    facts=ZombieMemcgs,
    detect=detect,
    role="condition",
    title=lambda finding: f"{finding.facts.zombies:,} zombie memory cgroups",
    rules=(
        Rule(ZombieMemcgs, MemcgWalk, _are_walked, "a walk that is as long after the zombies were purged"),
        Rule(ZombieMemcgs, Reclaim, _make_reclaim_dear, "reclaim that is as dear after the zombies were purged"),
        Rule(ZombieMemcgs, CoreSaturated, _saturate, _DISPROOF),
        # Where the core was not full for long enough to be a finding, the stalls' own stacks show it.
        Rule(ZombieMemcgs, NapiStarved, _starve, "stalls that go on after the zombies were purged"),
        Rule(ZombieMemcgs, SoftLockup, _lock_up, "a lockup after the zombies were purged"),
    ),
    steps=_steps,
    advice=_advice,
    remedies=_remedies,
)
