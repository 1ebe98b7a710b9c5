"""Whether the number of zombies stands still, and, if they were let go, is back to what it was before the leak."""

from itertools import combinations

from exhume.diagnosis.findings.leak_places import zombie_counts
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, duration
from exhume.recording.recording import Recording
from exhume.remedy.criteria import CONFIDENCE, Criterion
from exhume.remedy.criteria_leak import BLOCK_NS, PART, SHORTEST_S, Leaks, heaps, in_window, leaks, silence_s
from exhume.remedy.criteria_statistics import gamma_below, poisson_most

_UNIT = "zombie cgroups"
# A count that is so much less than it was at its most was brought down.
_LET_GO = 0.8
# A recording whose smallest count is this part of its largest saw the leak begin.
_BEGAN = 0.5
# Of all pairs of counts, so many must be in order of time for it to be growth and not a heap or a swing.
_IN_ORDER = 0.75


def zombie_count(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    now = in_window(after)
    then = in_window(before) if before is not None else []
    was = float(then[-1][1]) if then else None
    if not now:
        return Criterion("zombies", "cause", "not-seen", was, None, _UNIT, None, None, f"not counted: {after.why_off('memcg')}")
    seconds, last = (now[-1][0] - now[0][0]) / 1e9, now[-1][1]
    if seconds < SHORTEST_S:
        because = f"counted for {duration(seconds * SECOND)} only"
        return Criterion("zombies", "cause", "too-little", was, last, _UNIT, None, None, because, SHORTEST_S)
    smallest = _smallest(now)
    grown = smallest[-1] - min(smallest)
    a_minute, leaked, heap = _allowed(before, after, thresholds)
    allowed = poisson_most(a_minute * seconds / 60, CONFIDENCE)
    least = min(smallest)
    if grown > allowed and _rising(smallest[smallest.index(least) :]):
        because = f"their number grows: {grown:,} more in {duration(seconds * SECOND)}"
        return Criterion("zombies", "cause", "failed", was, last, _UNIT, least + allowed, CONFIDENCE, because)
    if then and _let_go(before, after, then, now):
        return _back(then, last, was, before is not None and before.node.boot_id != after.node.boot_id, thresholds)
    steady = (
        f"{grown:,} more in {duration(seconds * SECOND)}, which is no growth"
        if grown > 0
        else f"no more in {duration(seconds * SECOND)}"
    )
    needed = silence_s(a_minute, heap=heap)
    if gamma_below(1.0, a_minute * seconds / 60 / heap) < CONFIDENCE:
        because = f"{steady}, but a slow leak may have none in so short a time"
        return Criterion("zombies", "cause", "too-little", was, last, _UNIT, least + allowed, None, because, needed)
    remain = ""
    if many(after, thresholds):
        remain = f"; {last:,} remain, walked by whoever reads or reclaims: exhume zombies purge lets them go"
    # How surely more would have come if it leaked as before. Where nobody knows that rate, nothing is tested.
    sure = gamma_below(grown / heap + 1, leaked * seconds / 60 / heap)
    tested = sure if sure >= CONFIDENCE else None
    return Criterion("zombies", "cause", "passed", was, last, _UNIT, least + allowed, tested, steady + remain)


def _back(then: list[tuple[int, int]], last: int, was: float | None, rebooted: bool, thresholds: Thresholds) -> Criterion:
    """They were let go, by a purge or with a reboot: all of them? After a reboot none can be left, and what is no matter on any
    node is none on this one."""
    first, most = min(count for _, count in then), max(count for _, count in then)
    floor, begun = thresholds.zombies_floor, first + thresholds.zombies_baseline
    began = first <= _BEGAN * most and (not rebooted or begun > floor)
    limit = begun if began else floor
    whence = f"back to the {first:,} that it began with" if began else f"below the {limit:,} that are no matter"
    if last <= limit:
        because = f"they were let go, and are {whence}: {last:,}, once {most:,}"
        return Criterion("zombies", "cause", "passed", was, last, _UNIT, limit, None, because)
    there = f"there are {last:,} since the reboot" if rebooted else f"{last:,} are left of {most:,}"
    because = f"they were let go, but are not {whence}: {there}"
    return Criterion("zombies", "cause", "failed", was, last, _UNIT, limit, None, because)


def _let_go(before: Recording | None, after: Recording, then: list[tuple[int, int]], now: list[tuple[int, int]]) -> bool:
    if before is not None and before.node.boot_id != after.node.boot_id:
        return True
    most = max(count for _, count in then)
    return now[-1][1] < _LET_GO * most


def _allowed(before: Recording | None, after: Recording, thresholds: Thresholds) -> tuple[float, float, float]:
    """A minute: what is harmless, what may be left of the leak, or what came elsewhere while it went on, whichever is most;
    what the leak was at least; and how many came at once."""
    harmless = thresholds.leak_per_minute
    then, _ = leaks(before, after)
    if then is None:
        return harmless, 0.0, 1.0
    places = then.leaking(harmless)
    leaked = then.bounds(then.at(places))[0] if places else 0.0
    return max(harmless, PART * leaked, _elsewhere(then, places)), leaked, heaps(then, places, harmless)


def _elsewhere(then: Leaks, places: list[str]) -> float:
    others = [place for place in then.places if place not in places]
    return then.bounds(then.at(others))[1] if others else 0.0


def _smallest(counts: list[tuple[int, int]]) -> list[int]:
    """Of each few seconds the smallest: what is on its way out is not counted."""
    blocks: dict[int, int] = {}
    for time, zombies in counts:
        block = (time - counts[0][0]) // BLOCK_NS
        blocks[block] = min(zombies, blocks.get(block, zombies))
    return [blocks[block] for block in sorted(blocks)]


def _rising(counts: list[int]) -> bool:
    """Whether later counts are mostly the larger ones (the share of concordant pairs, as Kendall counts them)."""
    step = max(1, len(counts) // 60)
    pairs = list(combinations(counts[::step], 2))
    return bool(pairs) and sum(later > earlier for earlier, later in pairs) >= _IN_ORDER * len(pairs)


def many(recording: Recording, thresholds: Thresholds) -> int:
    """How many zombies there are at last, if that is so many that walks over them take long; else none."""
    counts = zombie_counts(recording)
    if not counts:
        return 0
    _, zombies, live = counts[-1]
    return zombies if thresholds.many_zombies(zombies, live) else 0
