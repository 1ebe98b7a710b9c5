"""memcg-leak: where the zombies come from, by name; how fast, since when, and when it will hurt.

One finding for every place that has a notable part of them, the largest first. A leak that is small yet but grows all the
time is told with what it will come to.
"""

from dataclasses import dataclass, replace

from exhume.findings.forecast import PAIN, days_to_pain
from exhume.findings.leak_places import LeakPlace, by_events, counted, named
from exhume.findings.leak_probability import leak
from exhume.findings.leak_restarts import RESTARTS, by_restarts
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.once import once
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "memcg-leak"
# Of what was removed, so much must have stayed for it to be "all": the last ones may be on their way.
_ALL = 0.9
# So many that stayed while we looked are no chance.
_CAUGHT = 5
# Of fewer than these a rate is chance.
_FEWEST = 3
# In less time than this a burst looks like a rate.
_SHORTEST_S = 10.0
_MOST_TOLD = 20
_KINDS = {"file": "page cache", "anon": "shared memory or tmpfs", "swap": "swap", "kernel": "kernel memory"}


@once
def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    places, total = named(recording)
    counts = counted(recording)
    walked, live = recording.counter("memcg_walk_zombies"), recording.counter("memcg_walk_live")
    total = total or (walked.last if walked is not None else counts[-1][1] if counts else 0)
    alive = live.last if live is not None else counts[-1][2] if counts else 0
    many = total >= thresholds.zombies_floor and total >= thresholds.zombies_per_live * alive
    told = [place for place in places if many and _notable(place, total, thresholds)]
    whole = _Whole(total, "of all zombies")
    findings = [_finding(place, whole, thresholds, _severity(place, total, thresholds), recording) for place in told]
    events = by_events(recording)
    if many and not places:
        # Nobody could name the many, but who adds to them now can be seen.
        whole = replace(whole, came=sum(place.unreleased for place in events), of="of those that came while we looked")
        if not any(_fast(place, thresholds) for place in events) and (place := by_restarts(recording, total)) is not None:
            findings.append(_finding(place, _Whole(total, "of all zombies"), thresholds, "warning", recording))
    for place in (*places, *events):
        if _fast(place, thresholds) and not any(known.same(place) for known in told) and len(told) < _MOST_TOLD:
            told.append(place)
            soon = days_to_pain(total, place.growth.per_hour if place.growth is not None else 0.0)
            grave = whole.came or (soon is not None and soon <= 1.0)
            findings.append(_finding(place, whole, thresholds, "warning" if grave else "info", recording))
    return Examined(KIND, tuple(findings)) if findings else _nothing(recording, places, total, many)


@dataclass(frozen=True, slots=True)
class _Whole:
    """What a place has its share of."""

    zombies: int
    of: str
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


def _finding(place: LeakPlace, whole: _Whole, thresholds: Thresholds, severity: Severity, recording: Recording) -> Finding:
    whose = _whose(place)
    total = max(whole.zombies, place.zombies)
    share = place.zombies / max(1, whole.came or total)
    evidence = [
        Evidence("zombies", place.zombies, "cgroups", place.method),
        Evidence("share", round(share, 3), whole.of, place.method),
        Evidence("home", place.home, "", place.method),
        Evidence("path", place.path, "", place.method),
        Evidence("source", place.source, "", place.method),
        *(Evidence(f"pinned by {kind}", size, "bytes", place.method) for kind, size in place.pinned.items() if size),
        *(
            [Evidence("unreaped", place.unreaped, "cgroups", "held by processes that were not reaped")]
            if place.unreaped
            else ()
        ),
        *_growing(place, total, recording),
    ]
    how = str(place.told.get("how", ""))
    owned = {"unit": place.unit, "pod": place.pod, **{key: str(place.told.get(key, "")) for key in _TOLD}}
    evidence.extend(Evidence(what, value, "", "path and runtime state on disk") for what, value in owned.items() if value)
    if (place.unit or place.pod) and "confidence" in place.told:
        evidence.append(Evidence("owner confidence", int(place.told["confidence"]) / 100, "", how))
    if place.maker is not None:
        evidence.extend(place.maker.evidence())
    if place.source != RESTARTS:
        judged = leak(place.zombies, place.siblings, thresholds.zombies_baseline, place.removed, place.unreleased)
        evidence.append(Evidence("leak probability", round(judged.probability, 3), "", judged.because))
    # A pod is told by where it lives: its name is another's tomorrow.
    subject = place.path if place.pod or not whose else whose
    return Finding(KIND, subject, severity, place.start, place.end, _summary(place, whose, total), tuple(evidence))


_TOLD = ("example", "container", "image", "how", "started by", "example pod")


def _whose(place: LeakPlace) -> str:
    """The unit, the pod, or the unit of the one program that makes the groups on its own account."""
    if place.unit or place.pod:
        return place.unit or place.pod
    return place.maker.unit if place.maker is not None and not place.maker.hand else ""


def _growing(place: LeakPlace, total: int, recording: Recording) -> list[Evidence]:
    told = []
    if place.removed:
        told.append(Evidence("removed", place.removed, "cgroups", "cgroup_rmdir, in the window"))
        told.append(Evidence("unreleased", place.unreleased, "cgroups", "cgroup_rmdir without cgroup_release"))
    if (growth := place.growth) is None:
        return told
    told.append(Evidence("growth", growth.count, "cgroups", f"{growth.source}, over {growth.seconds:,.0f} s"))
    if growth.count < _FEWEST:
        return told
    told.append(Evidence("rate", round(growth.per_hour, 1), "cgroups an hour", growth.source))
    age, said = place.zombies * 3600 / growth.per_hour, "zombies over rate: an estimate"
    up = max(recording["anchors"].ints("boot").tolist(), default=0) / 1e9
    if up > 0 and age > up:
        age, said = up, "since boot: at today's rate it would be longer"
    told.append(Evidence("age", round(age), "s", said))
    if (days := days_to_pain(total, growth.per_hour)) is not None:
        told.append(Evidence("days to pain", round(days, 2), "days", f"to {PAIN:,} zombies at this rate"))
    return told


def _summary(place: LeakPlace, whose: str, total: int) -> str:
    said = f"{printable(whose)} leaks memory cgroups" if whose else "memory cgroups leak"
    where = printable(place.path)
    if place.source == RESTARTS:
        return f"{said}: {place.zombies:,} zombies, and it was {place.told['how']}"
    said += f": {place.zombies:,} of {total:,} zombies lived in {where}"
    if place.others:
        said += f" and {place.others:,} other place{'s' if place.others > 1 else ''} of its"
    pinned = max(place.pinned, key=lambda kind: place.pinned[kind], default="")
    if place.unreaped * 2 >= place.zombies:
        said += ", held by unreaped processes"
    elif pinned and place.pinned[pinned]:
        said += f", pinned by {_KINDS[pinned]}"
    if place.growth is not None and place.growth.count >= _FEWEST:
        said += f", {place.growth.per_hour:,.0f} more an hour"
    return said


def _nothing(recording: Recording, places: list[LeakPlace], total: int, many: bool) -> Examined:
    if not many and (total or recording.counter("memcg_walk_zombies") is not None or counted(recording)):
        return Examined(KIND, ruled_out=f"{total:,} zombies in all")
    if not places:
        off = recording.why_off("zombies")
        return Examined(KIND, unseen=f"where they lived is not visible: {off}" if total else off)
    return Examined(KIND, ruled_out=f"no place has more than {places[0].zombies / total:.0%} of the zombies")
