"""What shows beside the causes: things that are started again and again, throttling, reclaim, late polls of the network.

A loop is a cause: whoever still crashes will leak again. The others are signs, told with their numbers: a node has them for
many reasons, and a leak that is over does not fail because somebody else's quota is small.
"""

import numpy as np

from exhume.diagnosis.findings import cpu_throttled, crash_loop, reclaim
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.model import Examined, Facts, Finding, of
from exhume.diagnosis.findings.rates import rate
from exhume.diagnosis.findings.stretches import growth
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, duration, milliseconds
from exhume.recording.events import stalls
from exhume.recording.recording import Recording
from exhume.remedy.criteria import CONFIDENCE, Criterion, Status
from exhume.remedy.criteria_looked import recorded
from exhume.remedy.criteria_statistics import poisson_lower, ranked_lower, rarer, share_bounds
from exhume.text import printable

# A poll that comes so late is late, us: from here on a bucket of the histogram of powers of two begins.
LATE_US = 1 << 13
_LATE_BUCKET = LATE_US.bit_length()
# Of polls that come late, so many are no matter.
LATE_SHARE = 0.001
# A loop that went on would show itself three times in so many of its periods with 95 %.
_PERIODS = 3.0
# systemd is asked every ten seconds: the last answer of a loop that goes on may be as old, and a little more.
_QUIET_NS = 20_000_000_000


def restarts(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    unit = "loops"
    now = crash_loop.detect(after, thresholds)
    then = _loops(crash_loop.detect(before, thresholds)) if before is not None else []
    was = float(len(then)) if before is not None else None
    if now.unseen:
        return Criterion("restarts", "cause", "not-seen", was, None, unit, 0, None, now.unseen)
    start, end = after.window
    found = _loops(now)
    known = {loop.subject: _period_s(loop) for loop in then}
    periods = [_period_s(loop) or known.get(loop.subject, 0.0) for loop in found]
    loops = [loop for loop, period in zip(found, periods, strict=True) if loop.end >= max(start, end - _still_ns(period))]
    if loops:
        again = {loop.subject for loop in then}
        said = (f"{printable(loop.summary, 200)}{'' if loop.subject in again or not then else ' (new)'}" for loop in loops)
        return Criterion("restarts", "cause", "failed", was, len(loops), unit, 0, None, "; ".join(said))
    seconds = recorded(after).ns / 1e9
    slowest = max((_period_s(loop) or _at_least_s(loop, before) for loop in then if before is not None), default=0.0)
    if seconds < _PERIODS * slowest:
        had = "had" if slowest in known.values() else "may have had"
        because = (
            f"the loop of before {had} a period of {duration(slowest * SECOND)}, and this was {duration(seconds * SECOND)}"
        )
        return Criterion("restarts", "cause", "too-little", was, 0, unit, 0, None, because, _PERIODS * slowest)
    if once := [loop for loop, period in zip(found, periods, strict=True) if not period and loop.end >= start]:
        because = f"{printable(once[0].summary, 200)}: how long its period is nobody knows, look again"
        return Criterion("restarts", "cause", "too-little", was, 0, unit, 0, None, because)
    because = f"{printable(then[0].subject)} is not started again" if then else now.ruled_out or "nothing crashes in a loop"
    if over := [loop.subject for loop in found if loop.end >= start]:
        because += f"; a loop of {printable(over[0], 80)} came and went"
    sure = CONFIDENCE if then and all(known.values()) else None
    return Criterion("restarts", "cause", "passed", was, 0, unit, 0, sure, because)


def _still_ns(period_s: float) -> int:
    """How long ago a loop may have been seen last and still go on."""
    return max(_QUIET_NS, round(_PERIODS * period_s * 1e9))


def _grave(examined: Examined) -> list[Finding[Facts]]:
    return [finding for finding in examined.findings if finding.serious]


def _loops(examined: Examined) -> list[Finding[CrashLoop]]:
    return of(_grave(examined), CrashLoop)


def _period_s(loop: Finding[CrashLoop]) -> float:
    """0 if it was restarted only once, which shows no period."""
    return loop.facts.period_s or 0.0


def _at_least_s(loop: Finding[CrashLoop], recording: Recording) -> float:
    """What to take for the period of such a loop: it may be longer still, so that nothing is sure by it."""
    return recorded(recording).ns / 1e9 / max(1, loop.facts.restarts_in_window)


def throttling(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    """By the group that is held back most."""
    unit, limit = "of a group's periods", thresholds.throttled_warning_ratio
    was = _worst_share(before)[0] if before is not None and before.on("throttling") else None
    examined = cpu_throttled.detect(after, thresholds)
    if examined.unseen:
        return Criterion("throttling", "sign", "not-seen", was, None, unit, limit, None, examined.unseen)
    share, throttled, periods, group = _worst_share(after)
    grave = _grave(examined)
    if grave:
        return Criterion("throttling", "sign", "failed", was, share, unit, limit, None, grave[0].summary)
    if not periods:
        return Criterion("throttling", "sign", "passed", was, 0.0, unit, limit, None, "no group with a quota ran")
    _, high = share_bounds(throttled, periods, CONFIDENCE)
    because = f"{throttled:,} of {periods:,} periods of {printable(group, 60)}, surely no more than {high:.0%}"
    if high > limit:
        return Criterion("throttling", "sign", "too-little", was, share, unit, limit, None, because)
    return Criterion("throttling", "sign", "passed", was, share, unit, limit, CONFIDENCE, because)


def _worst_share(recording: Recording) -> tuple[float, int, int, str]:
    """Share, throttled periods, periods, and which group."""
    found = (0.0, 0, 0, "")
    for at in recording.counters("cpu_periods"):
        periods, throttled = growth(recording, "cpu_periods", at), growth(recording, "cpu_throttled_periods", at)
        if periods is None or throttled is None or periods.amount.sum() <= 0:
            continue
        all_, some = round(periods.amount.sum()), round(throttled.amount.sum())
        found = max(found, (some / all_, min(some, all_), all_, dict(at).get("cgroup", "")))
    return found


def reclaims(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    unit, limit = "pages a second", float(thresholds.direct_reclaim_pages)
    counter = "vmstat_pgscan_direct"
    was = rate(before, counter) if before is not None else None
    examined, now = reclaim.detect(after, thresholds), rate(after, counter)
    if examined.unseen or now is None:
        why = examined.unseen or "nothing counted it twice"
        return Criterion("reclaim", "sign", "not-seen", was, now, unit, limit, None, why)
    grave = _grave(examined)
    if grave:
        return Criterion("reclaim", "sign", "failed", was, now, unit, limit, None, grave[0].summary)
    chance = 1.0
    if before is not None and (then := growth(before, counter)) is not None and (steps := growth(after, counter)) is not None:
        chance = ranked_lower(*(np.divide(one.amount, one.per, where=one.per > 0, out=one.amount * 0) for one in (steps, then)))
    if now > limit:
        because = "more than is told, though nobody is seen to wait for it"
        return Criterion("reclaim", "sign", "failed", was, now, unit, limit, None, because)
    fell = was is not None and was > limit and chance <= 1 - CONFIDENCE
    because = "it fell for sure" if fell else examined.ruled_out or "less than is told"
    return Criterion("reclaim", "sign", "passed", was, now, unit, limit, 1 - chance if fell else None, because)


def late_polls(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    """Of the polls of network devices that were measured, those that came late: exact counts, from the histograms."""
    unit = "of the polls"
    then = _late(before) if before is not None else (0, 0)
    late, polls = _late(after)
    was = then[0] / then[1] if then[1] else None
    if not polls:
        why = "no poll was measured" if after.on("latency") else after.why_off("latency")
        return Criterion("late-polls", "sign", "not-seen", was, None, unit, LATE_SHARE, None, why)
    low, high = share_bounds(late, polls, CONFIDENCE)
    said = f"{late:,} of {polls:,} came more than {milliseconds(LATE_US / 1000)} late"
    status: Status = "failed" if low > LATE_SHARE else "passed" if high <= LATE_SHARE else "too-little"
    sure = None if status == "too-little" else CONFIDENCE
    return Criterion("late-polls", "sign", status, was, late / polls, unit, LATE_SHARE, sure, said)


def _late(recording: Recording) -> tuple[int, int]:
    table = recording["latency"]
    late = polls = 0
    for what, stage, histogram in zip(table.texts("what"), table.texts("stage"), table.lists("histogram"), strict=True):
        if what == "napi" and stage == "wait":
            late += sum(histogram[_LATE_BUCKET:])
            polls += sum(histogram)
    return late, polls


def network_stalls(before: Recording | None, after: Recording, thresholds: Thresholds) -> Criterion:
    """Polls that were not made for so long that they are told; they are found at all times."""
    unit = "a minute"
    start, end = after.window
    minutes = max((end - start) / 60e9, 1e-9)
    was, chance = None, 1.0
    now = _stalled(after, thresholds)
    if before is not None and before.on("latency"):
        first, last = before.window
        then = _stalled(before, thresholds)
        was = len(then) / max((last - first) / 60e9, 1e-9)
        chance = rarer(len(then), (last - first) / 1e9, len(now), (end - start) / 1e9)
    if not after.on("latency"):
        return Criterion("stalls", "sign", "not-seen", was, None, unit, None, None, after.why_off("latency"))
    limit = thresholds.napi_stalls / 10
    longest = max(now, default=0)
    said = f"{len(now):,} of {milliseconds(thresholds.napi_stall_ms)} or more" + (
        f", the longest {milliseconds(longest)}" if now else ""
    )
    often = poisson_lower(len(now), CONFIDENCE) / minutes > limit
    if often or longest >= thresholds.napi_stall_warning_ms:
        return Criterion("stalls", "sign", "failed", was, len(now) / minutes, unit, limit, CONFIDENCE if often else None, said)
    fell = was is not None and was > limit
    if fell and chance > 1 - CONFIDENCE:
        because = f"{said}: that may be chance"
        return Criterion("stalls", "sign", "too-little", was, len(now) / minutes, unit, limit, None, because)
    sure = 1 - chance if fell else None
    return Criterion("stalls", "sign", "passed", was, len(now) / minutes, unit, limit, sure, said)


def _stalled(recording: Recording, thresholds: Thresholds) -> list[int]:
    """Their lengths, ms."""
    start, end = recording.window
    return [
        stall.ms
        for stall in stalls(recording)
        if stall.what == "napi" and stall.ms >= thresholds.napi_stall_ms and start <= stall.end <= end
    ]
