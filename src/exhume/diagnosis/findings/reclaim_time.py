"""How much time went into reclaim, whose it was and for which cgroup: by stack samples, or by the latency probes."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from exhume.diagnosis.findings.kernel_work import COMPACTION, WALK
from exhume.diagnosis.findings.sampled_work import BY_KSWAPD, BY_LIMIT, BY_ORDER, Sampled, sampled
from exhume.diagnosis.findings.stretches import Steps, growth
from exhume.host.quantities import SECOND
from exhume.recording.recording import Recording

PROBES = "latency-reclaim"
# Fewer samples of a group that reclaim do not tell for whom.
_FEWEST = 5
Parts = Iterable[tuple[int, int]]


class _Row(NamedTuple):
    start: int
    end: int
    seconds: float
    cgroup: str
    limit: bool
    """For a cgroup at its limit; otherwise for the node."""


def direct(recording: Recording) -> tuple[Steps, str] | None:
    """Tasks that reclaim for themselves, as a share of all cores' time, and by which source. None where nothing shows it."""
    seen = sampled(recording)
    if seen is not None:
        return seen.steps(seen.direct), "stack samples"
    if not recording.on(PROBES):
        return None
    start, end = recording.window
    edges = np.linspace(start, end, max(1, round((end - start) / SECOND)) + 1).astype(np.int64)
    if edges[-1] <= edges[0]:
        return None
    amount = np.zeros(len(edges) - 1)
    for row in recording.derived("latency", _rows):
        # What a second counted, spread over the steps that it touches.
        parts = np.clip(np.minimum(edges[1:], row.end) - np.maximum(edges[:-1], row.start), 0, None)
        amount += row.seconds * parts / max(1, row.end - row.start)
    per = np.diff(edges) / SECOND * max(1, recording.node.cpus)
    return Steps(edges, amount, per), "latency probes: from its begin to its end, sleep included"


class Shares(NamedTuple):
    """What the stack samples show beside direct reclaim, as shares of all cores' time."""

    kswapd_ratio: float
    asked_ratio: float
    """Reclaim that a program asked for by a write to a file."""
    compaction_ratio: float
    """Tasks wait for it as they wait for reclaim."""
    walk_ratio: float | None
    """Of the samples in reclaim, those that only go from one memory cgroup to the next. None without any."""


def shares(recording: Recording, parts: Parts) -> Shares | None:
    """None without samples."""
    seen = sampled(recording)
    if seen is None:
        return None
    parts = list(parts)
    reclaims = seen.during(parts) & (seen.reclaims > 0)
    count = int(reclaims.sum())
    return Shares(
        seen.steps(seen.reclaims == BY_KSWAPD).mean(parts),
        seen.steps(seen.reclaims == BY_ORDER).mean(parts),
        seen.steps(seen.doing(COMPACTION)).mean(parts),
        int((reclaims & seen.doing(WALK)).sum()) / count if count else None,
    )


class Place(NamedTuple):
    """The cgroup that waits or reclaims most."""

    cgroup: str
    ratio: float
    """By pressure: of the time. By the probes: of the time spent on reclaim. By the samples: of those in reclaim."""
    by: Literal["pressure", "probes", "samples"]
    at_limit: bool = False
    """It was seen that the group is at its own limit. Otherwise it waits for memory that others may have taken."""


def where(recording: Recording, parts: Parts, least: float, quiet: bool) -> Place | None:
    """The cgroup that most of it is for. By pressure on v2; else by the probes; else by whose samples reclaim.

    That it waits does not tell who took the memory, unless it is its own limit that it waits at: either the node reclaims
    nothing meanwhile (`quiet`), or the group's own stacks or the probes show reclaim for a limit.
    """
    parts = list(parts)
    seen = sampled(recording)
    place = _by_pressure(recording, parts, least) or _by_probes(recording, parts) or _by_samples(seen, parts)
    if place is None:
        return None
    sampled_so = seen is not None and _sampled_at_limit(seen, parts, place.cgroup)
    return place._replace(at_limit=quiet or sampled_so or _probed_at_limit(recording, parts, place.cgroup))


def _probed_at_limit(recording: Recording, parts: list[tuple[int, int]], cgroup: str) -> bool:
    spent: Counter[bool] = Counter()
    for row in recording.derived("latency", _rows):
        if _within(cgroup, row.cgroup) and any(row.start <= end and row.end >= start for start, end in parts):
            spent[row.limit] += round(row.seconds * 1e9)
    return spent[True] > spent[False]


def _sampled_at_limit(seen: Sampled, parts: list[tuple[int, int]], cgroup: str) -> bool:
    inside = [thread for thread, who in seen.known.items() if _within(cgroup, who.cgroup)]
    its = seen.during(parts) & seen.direct & np.isin(seen.threads, inside)
    count = int(its.sum())
    return count >= _FEWEST and 2 * int((its & (seen.reclaims == BY_LIMIT)).sum()) >= count


def _within(parent: str, cgroup: str) -> bool:
    return cgroup == parent or cgroup.startswith(parent.rstrip("/") + "/")


def _by_pressure(recording: Recording, parts: list[tuple[int, int]], least: float) -> Place | None:
    """The lowest group that has nearly all of the most pressure: what a group waits for, all above it wait for too."""
    waits = {}
    for at in recording.counters("pressure_us"):
        of = dict(at)
        if of["cgroup"] and (of["resource"], of["kind"]) == ("memory", "some"):
            waited = growth(recording, "pressure_us", at)
            waits[of["cgroup"]] = waited.mean(parts) / 1e6 if waited is not None else 0.0
    most = max(waits.values(), default=0.0)
    found = [cgroup for cgroup, share in waits.items() if share and share >= 0.8 * most]
    cgroup = max(found, key=lambda name: (name.count("/"), waits[name], name), default="")
    if not cgroup or waits[cgroup] < least:
        return None
    return Place(cgroup, waits[cgroup], "pressure")


def _by_probes(recording: Recording, parts: list[tuple[int, int]]) -> Place | None:
    spent: Counter[str] = Counter()
    nanoseconds: Counter[str] = Counter()
    for row in recording.derived("latency", _rows):
        if any(row.start <= end and row.end >= start for start, end in parts):
            nanoseconds[row.cgroup] += round(row.seconds * 1e9)
    total = nanoseconds.total()
    for cgroup, count in nanoseconds.items():
        if cgroup not in ("", "/"):
            spent[cgroup] = count
    if not spent:
        return None
    cgroup = max(spent, key=lambda name: (spent[name], name))
    if spent[cgroup] < total / 2:
        return None
    return Place(cgroup, spent[cgroup] / total, "probes")


def _by_samples(seen: Sampled | None, parts: list[tuple[int, int]]) -> Place | None:
    if seen is None:
        return None
    found = seen.by_cgroup(seen.during(parts) & seen.direct)
    if not found or found[0][1] < 0.5:
        return None
    return Place(*found[0], "samples")


def _rows(recording: Recording) -> list[_Row]:
    """What the probes counted, each for the second that it ended. Where they look only part of the time, as if always."""
    found = []
    for row in recording["latency"].rows():
        if row["what"] == "reclaim" and row["stage"] in ("direct", "memcg"):
            seconds = row["sum"] / 1e9 * 1000 / (row["share"] if 0 < row["share"] <= 1000 else 1000)
            found.append(_Row(row["time"] - SECOND, row["time"], seconds, row["name"], row["stage"] == "memcg"))
    return found
