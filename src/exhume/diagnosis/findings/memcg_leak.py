"""memcg-leak: where the zombies come from, by name; how fast, since when, and when it will hurt.

One finding for every place that has a notable part of them, the largest first. A leak that is small yet but grows all the
time is told with what it will come to.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from exhume.diagnosis.findings import leak_probability
from exhume.diagnosis.findings.forecast import PAIN, days_to_pain, spelled
from exhume.diagnosis.findings.kind import MOSTLY, NEARLY, Advice, Case, Culprit, Judged, Kind, Remedy, Rule, Step
from exhume.diagnosis.findings.leak_places import (
    KnownBy,
    LeakPlace,
    Pinned,
    PlaceOwner,
    by_events,
    named,
    spelled_source,
    zombie_counts,
)
from exhume.diagnosis.findings.leak_restarts import RESTARTS, by_restarts
from exhume.diagnosis.findings.makers import Maker
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown, is_of, unit_of
from exhume.diagnosis.findings.once import once
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.unit_fix import fix_unit, fixable
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.host.quantities import HOUR, SECOND, counted, duration
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

# Of what was removed, so much must have stayed for it to be "all": the last ones may be on their way.
_ALL = 0.9
# So many that stayed while we looked are no chance.
_CAUGHT = 5
# Of fewer than these a rate is chance.
_FEWEST = 3
# In less time than this a burst looks like a rate.
_SHORTEST_S = 10.0
_MOST_TOLD = 20


@record(frozen=True, slots=True, kw_only=True)
class MemcgLeak(Facts):
    kind: ClassVar[str] = "memcg-leak"
    method: str
    """How the zombies were counted."""
    zombies: Annotated[int, Shown("zombies", "cgroups", ".method")]
    total_zombies: int
    """Of the node."""
    of_all_ratio: Annotated[float | None, Shown("share", "of all zombies", ".method", digits=3)] = None
    of_recent_ratio: Annotated[float | None, Shown("share", "of those that came while we looked", ".method", digits=3)] = None
    """Instead of `of_all_ratio` where the place of the older zombies is unknown."""
    home: Annotated[str, Shown("home", source=".method")]
    """The deepest directory that still exists."""
    path: Annotated[str, Shown("path", source=".method")]
    """Where they lived, without generated parts of names."""
    other_places: int = 0
    """Further places of the same unit that are counted here."""
    known_by: Annotated[KnownBy, Shown("source", source=".method", spelled=spelled_source)]
    pinned: Annotated[Pinned, Shown(source=".method")]
    unreaped: Annotated[int, Shown("unreaped", "cgroups", "held by processes that were not reaped", zero=False)] = 0
    removed: Annotated[int, Shown("removed", "cgroups", "cgroup_rmdir, in the window", zero=False)] = 0
    unreleased: Annotated[int | None, Shown("unreleased", "cgroups", "cgroup_rmdir without cgroup_release")] = None
    """Of the removed ones."""
    growth: Annotated[int | None, Shown("growth", "cgroups", ".growth_source")] = None
    growth_over_s: float = 0.0
    growth_counted_in: str = ""
    growth_per_hour: Annotated[float | None, Shown("rate", "cgroups an hour", ".growth_counted_in", digits=1)] = None
    age_s: Annotated[int | None, Shown("age", "s", ".age_source")] = None
    age_since_boot: bool = False
    """Otherwise estimated by the rate."""
    days_to_pain: Annotated[
        float | None, Shown("time left", "days", f"to {PAIN:,} zombies at this rate", digits=2, spelled=spelled)
    ] = None
    owner: Annotated[PlaceOwner, Shown(source="path and runtime state on disk")]
    maker: Annotated[Maker | None, Shown()] = None
    leak_probability: Annotated[float | None, Shown("leak probability", source=".leak_reason", digits=3)] = None
    leak_reason: str = ""

    def summary(self) -> str:
        whose = self.owner.name or self.maker_unit
        said = f"{printable(whose)} leaks memory cgroups" if whose else "memory cgroups leak"
        if self.known_by == RESTARTS:
            return f"{said}: {self.zombies:,} zombies, and it was {self.owner.found_by}"
        said += f": {self.zombies:,} of {self.total_zombies:,} zombies lived in {printable(self.path)}"
        if self.other_places:
            said += f" and {counted(self.other_places, 'other place')} of its"
        if self.mostly_unreaped:
            said += ", held by unreaped processes"
        elif self.pinned.mostly:
            said += f", pinned by {self.pinned.mostly}"
        if self.growth_per_hour is not None:
            said += f", {self.growth_per_hour:,.0f} more an hour"
        return said

    def short(self) -> tuple[str, str]:
        whose = self.subject if self.subject and self.subject != "/" else "somebody"
        return f"{whose} leaks memory cgroups", f"{self.zombies:,} zombies · {self.share_text}"

    @property
    def share_text(self) -> str:
        return f"{self.share_ratio:.0%} of {'all' if self.of_all_ratio is not None else 'the recent'} zombies"

    @property
    def share_ratio(self) -> float:
        """Of all zombies, or of the recent ones where only their places are known."""
        return self.of_all_ratio if self.of_all_ratio is not None else self.of_recent_ratio or 0.0

    @property
    def mostly_unreaped(self) -> bool:
        """Unreaped processes hold most of its zombies: then the maker of the cgroups is not what has to be stopped."""
        return self.unreaped >= MOSTLY * max(1, self.zombies)

    @property
    def maker_unit(self) -> str:
        """The unit of the program that makes the cgroups on its own account."""
        return self.maker.unit if self.maker is not None else ""

    @property
    def growth_source(self) -> str:
        return f"{self.growth_counted_in}, over {duration(self.growth_over_s * SECOND)}"

    @property
    def age_source(self) -> str:
        return "since boot: at today's rate it would be longer" if self.age_since_boot else "zombies over rate: an estimate"

    @property
    def unit(self) -> str:
        return self.owner.unit or self.maker_unit or unit_of(self.subject)

    @property
    def cgroup_paths(self) -> tuple[str, ...]:
        maker = self.maker.cgroup if self.maker is not None else ""
        return tuple(path for path in (self.owner.example, self.path, self.home, maker) if path)


@once
def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    places, total = named(recording)
    counts = zombie_counts(recording)
    walked, live = recording.counter("memcg_walk_zombies"), recording.counter("memcg_walk_live")
    total = total or (walked.last if walked is not None else counts[-1][1] if counts else 0)
    alive = live.last if live is not None else counts[-1][2] if counts else 0
    many = thresholds.many_zombies(total, alive)
    told = [place for place in places if many and _notable(place, total, thresholds)]
    whole = _Whole(total)
    findings = [_finding(place, whole, thresholds, _severity(place, total, thresholds), recording) for place in told]
    events = by_events(recording)
    if many and not places:
        # Nobody could name the many, but who adds to them now can be seen.
        whole = replace(whole, came=sum(place.unreleased for place in events))
        if not any(_fast(place, thresholds) for place in events) and (place := by_restarts(recording, total)) is not None:
            findings.append(_finding(place, _Whole(total), thresholds, "warning", recording))
    for place in (*places, *events):
        if _fast(place, thresholds) and not any(known.same(place) for known in told) and len(told) < _MOST_TOLD:
            told.append(place)
            soon = days_to_pain(total, place.growth.per_hour if place.growth is not None else 0.0)
            grave = whole.came or (soon is not None and soon <= 1.0)
            findings.append(_finding(place, whole, thresholds, "warning" if grave else "info", recording))
    return Examined(MemcgLeak.kind, tuple(findings)) if findings else _nothing(recording, places, total, many)


@dataclass(frozen=True, slots=True)
class _Whole:
    """What a place has its share of."""

    zombies: int
    came: int = 0
    """Those that came while we looked, where no others have a name."""


def _notable(place: LeakPlace, total: int, thresholds: Thresholds) -> bool:
    return place.zombies >= thresholds.leak_share * total and place.zombies * 10 >= thresholds.zombies_floor


def _severity(place: LeakPlace, total: int, thresholds: Thresholds) -> Severity:
    """Many small places are no leak of anybody's, unless one was caught in the act."""
    large = place.zombies >= thresholds.leak_warning_share * total or place.zombies >= thresholds.zombies_floor
    caught = place.steady and place.unreleased >= max(_CAUGHT, _ALL * place.removed)
    return "warning" if large or caught else "info"


def _fast(place: LeakPlace, thresholds: Thresholds) -> bool:
    """It grows all the time, and nothing of what is removed there is let go."""
    growth = place.growth
    if growth is None or growth.seconds < _SHORTEST_S or growth.count < thresholds.leak_fewest:
        return False
    if growth.per_hour < 60 * thresholds.leak_per_minute:
        return False
    return not place.removed or (place.unreleased >= _ALL * place.removed and place.steady)


def _finding(
    place: LeakPlace, whole: _Whole, thresholds: Thresholds, severity: Severity, recording: Recording
) -> Finding[MemcgLeak]:
    maker = place.maker
    whose = place.owner.name or (maker.unit if maker is not None else "")
    total = max(whole.zombies, place.zombies)
    share = place.zombies / max(1, whole.came or total)
    growth = place.growth
    rate = growth.per_hour if growth is not None and growth.count >= _FEWEST else None
    age_s, since_boot = _age(place, rate, recording) if rate is not None else (None, False)
    judged = None
    if place.source != RESTARTS:
        judged = leak_probability.leak(
            place.zombies, place.siblings, thresholds.zombies_baseline, place.removed, place.unreleased
        )
    facts = MemcgLeak(
        # A pod is named by its place: another pod has its name tomorrow.
        subject=place.path if place.pod or not whose else whose,
        method=place.method,
        zombies=place.zombies,
        total_zombies=total,
        of_all_ratio=None if whole.came else share,
        of_recent_ratio=share if whole.came else None,
        home=place.home,
        path=place.path,
        other_places=place.others,
        known_by=place.source,
        pinned=place.pinned,
        unreaped=place.unreaped,
        removed=place.removed,
        unreleased=place.unreleased if place.removed else None,
        growth=growth.count if growth is not None else None,
        growth_over_s=growth.seconds if growth is not None else 0.0,
        growth_counted_in=growth.source if growth is not None else "",
        growth_per_hour=rate,
        age_s=age_s,
        age_since_boot=since_boot,
        days_to_pain=days_to_pain(total, rate) if rate is not None else None,
        owner=place.owner,
        maker=maker,
        leak_probability=judged.probability if judged is not None else None,
        leak_reason=judged.because if judged is not None else "",
    )
    return Finding(facts, severity, place.start, place.end)


def _age(place: LeakPlace, rate: float, recording: Recording) -> tuple[int, bool]:
    """For how many seconds it has leaked at this rate, and whether that is cut at the boot."""
    age = place.zombies * 3600 / rate
    up = max(recording["anchors"].ints("boot").tolist(), default=0) / 1e9
    return (round(up), True) if 0 < up < age else (round(age), False)


def _nothing(recording: Recording, places: list[LeakPlace], total: int, many: bool) -> Examined:
    if not many and (total or recording.counter("memcg_walk_zombies") is not None or zombie_counts(recording)):
        return Examined(MemcgLeak.kind, ruled_out=f"{total:,} zombies in all")
    if not places:
        off = recording.why_off("zombies")
        return Examined(MemcgLeak.kind, unseen=f"where they lived is not visible: {off}" if total else off)
    return Examined(MemcgLeak.kind, ruled_out=f"no place has more than {places[0].zombies / total:.0%} of the zombies")


def owner(leak: Finding[MemcgLeak]) -> str:
    """The unit, else the program that makes the groups where it does so on its own account, else the place."""
    facts = leak.facts
    return facts.owner.unit or facts.maker_unit or facts.owner.pod or facts.subject


def _makes_zombies(leak: Finding[MemcgLeak], zombies: Finding[ZombieMemcgs]) -> Judged:
    share = leak.facts.share_ratio
    if leak.facts.mostly_unreaped:
        return 0.45, f"{leak.facts.share_text} were found there; but processes that were not reaped hold them"
    return (0.99 if share >= NEARLY else 0.97), f"{leak.facts.share_text} were found there, by name"


def culprits(finding: Finding[Facts], case: Case) -> Iterator[Culprit]:
    """Every place that leaks has its share, the largest first."""
    for leak in sorted(case.of(MemcgLeak), key=lambda one: -one.facts.share_ratio):
        yield Culprit(owner(leak), leak.facts.share_ratio)


def _advice(leak: Finding[MemcgLeak], case: Case) -> Iterator[Advice]:
    from exhume.diagnosis.findings.unused_agent import UnusedAgent  # late: it looks for leaks

    whose = owner(leak)
    unused = [agent.subject for agent in case.of(UnusedAgent, serious=False)]
    if whose in unused and fixable(leak.facts, whose):
        yield Advice(f"disable {whose}: exhume fix {whose}", "it leaks, and nothing on this node needs it")
    rate, count = leak.facts.growth_per_hour or 0.0, leak.facts.zombies
    if rate > 0 and count / rate >= 1:
        yield Advice(
            "a reboot before the leak is stopped",
            f"at {rate:,.0f} an hour the same number is back {duration(count / rate * HOUR)} after a reboot; "
            "a purge needs none",
            cost="reboot",
            against=True,
        )
    if case.node.cgroups == "v1":
        yield Advice(
            "move to cgroup v2, and to a kernel that releases dead groups",
            "v2 counts them by directory (cgroup.stat) and can be told where to reclaim (memory.reclaim, 5.19); v1 neither",
            cost="upgrade",
        )


def _steps(leak: Finding[MemcgLeak], case: Case) -> Iterator[Step]:
    if leak.facts.mostly_unreaped:
        yield Step("exhume zombies    # what holds them")
        return
    if not leak.facts.growth_per_hour:
        yield Step("exhume zombies --follow 30s shows the leak's rate")
    whose = owner(leak)
    others = {owner(each): fixable(each.facts, owner(each)) for each in case.of(MemcgLeak) if owner(each) != whose}
    if fixable(leak.facts, whose):
        yield Step(f"exhume fix {whose} says how it is stopped and disabled, if nothing needs it", fix=whose)
    else:
        yield Step("stop and disable what makes them if nothing needs it")
    for other, offered in others.items():
        yield Step(f"the same for {other}", fix=other if offered else "")


def remedies(finding: Finding[Facts], case: Case) -> Iterator[Remedy]:
    """For every place that leaks, not only the first: stop the source, then purge what was leaked."""
    yield from dict.fromkeys(one for leak in case.of(MemcgLeak) for one in fix_unit(leak.facts, owner(leak), leaks=True))
    yield from purges(finding, case)


def purges(finding: Finding[Facts], case: Case) -> Iterator[Remedy]:
    homes = [leak.facts.home or "/" for leak in case.of(MemcgLeak)]
    if not homes:
        homes = [(finding.facts.parent if is_of(finding, ZombieMemcgs) else "") or "/"]
    for home in dict.fromkeys(homes):
        command = f"exhume zombies purge --under {home}"
        yield Remedy("purge-zombies", home, command, "lets them go without a reboot; --dry-run first says how many")


KIND = Kind(
    facts=MemcgLeak,
    detect=detect,
    role="condition",
    title=lambda finding: f"the zombie memory cgroups of {owner(finding)}",
    rules=(
        Rule(
            MemcgLeak,
            ZombieMemcgs,
            _makes_zombies,
            "zombies that stay the same in number while the groups there come and go",
        ),
    ),
    culprits=culprits,
    steps=_steps,
    advice=_advice,
    remedies=remedies,
)
