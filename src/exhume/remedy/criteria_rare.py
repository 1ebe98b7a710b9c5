"""Effects that are rare: a reset in a day, a dead job in a week. That they do not happen for ten minutes proves nothing, so
they neither pass nor fail, unless they happen; what is told is how long a silence would have to be."""

import math
from collections.abc import Callable

from exhume.host.quantities import HOUR, compared, duration
from exhume.recording.events import events, lockup_episodes, lockups, nic_resets
from exhume.recording.recording import Recording
from exhume.remedy.criteria import CONFIDENCE, Rare, RareId, Status
from exhume.text import printable

Times = list[tuple[int, str]]
"""When something happened, and the line that says so."""


def _resets(recording: Recording) -> Times:
    return [(reset.time, reset.last.message) for reset in nic_resets(recording)]


def _lockups(recording: Recording) -> Times:
    """Of cores; a task that hangs waits for something and holds none."""
    episodes = lockup_episodes(one for one in lockups(recording) if one.kind != "hung-task")
    return sorted((lines[0].event.time, lines[-1].event.message) for lines in episodes)


def _dead_jobs(recording: Recording) -> Times:
    return [(event.time, event.message) for event in events(recording, "job-failed", "job-died")]


# What decodes them, and the source that records them.
_EFFECTS: dict[RareId, tuple[Callable[[Recording], Times], str]] = {
    "nic-resets": (_resets, "kernel-log"),
    "soft-lockups": (_lockups, "kernel-log"),
    "dead-jobs": (_dead_jobs, "jobs"),
}
# -ln(0.05): so many would have been expected in a silence that is no chance.
_EXPECTED = -math.log(1 - CONFIDENCE)


def rare(before: Recording | None, after: Recording) -> tuple[Rare, ...]:
    found = (_rare(id_, decode, source, before, after) for id_, (decode, source) in _EFFECTS.items())
    return tuple(one for one in found if one.status != "not-seen" or one.id != "dead-jobs")


def _rare(id_: RareId, decode: Callable[[Recording], Times], source: str, before: Recording | None, after: Recording) -> Rare:
    now, hours = _happened(after, decode)
    seen = bool(now) or after.on(source)
    then = _happened(before, decode) if before is not None and before.on(source) else None
    was, span = (len(then[0]), then[1]) if then is not None else (None, None)
    needed = _EXPECTED * span / was if was and span else None
    status: Status
    if not seen:
        why = after.why_off(source)
        return Rare(id_, "not-seen", was, span, None, hours, needed, f"not visible: {why}")
    if now:
        return Rare(id_, "failed", was, span, len(now), hours, needed, printable(now[-1]))
    if needed is None:
        because = "none before, none now" if was == 0 else "none; how often it was before is not known"
        return Rare(id_, "too-little", was, span, 0, hours, None, because)
    status = "passed" if hours >= needed else "too-little"
    enough, passed = compared(duration, needed * HOUR, hours * HOUR)
    because = f"{was} in {duration((span or 0) * HOUR)} before; {enough} without one would be no chance, {passed} passed"
    return Rare(id_, status, was, span, 0, hours, needed, because)


def _happened(recording: Recording, decode: Callable[[Recording], Times]) -> tuple[list[str], float]:
    """The line of each in the window, and how many hours that is. What the kernel log still had from before does not count."""
    start, end = recording.window
    return [line for time, line in decode(recording) if start <= time <= end], (end - start) / 3600e9
