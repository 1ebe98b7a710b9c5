"""Effects that are rare: a reset in a day, a dead job in a week. That they do not happen for ten minutes proves nothing, so
they neither pass nor fail, unless they happen; what is told is how long a silence would have to be."""

import math

from exhume.diagnosis.findings.events import events
from exhume.host.quantities import HOUR, compared, duration
from exhume.recording.recording import Recording
from exhume.remedy.criteria import CONFIDENCE, Rare, RareId, Status
from exhume.text import printable

# Kinds of events, and the sources that would have told of them.
_EFFECTS: dict[RareId, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "nic-resets": (("nic-reset-done", "nic-reset-failed", "nic-tx-timeout", "xmit-timeout"), ("kernel-log",)),
    "soft-lockups": (("soft-lockup",), ("kernel-log",)),
    "dead-jobs": (("job-failed", "job-died"), ("jobs",)),
}
# Lines of one device that are closer than this are about one reset.
_ONE_NS = 60 * 10**9
# -ln(0.05): so many would have been expected in a silence that is no chance.
_EXPECTED = -math.log(1 - CONFIDENCE)


def rare(before: Recording | None, after: Recording) -> tuple[Rare, ...]:
    found = (_rare(id_, kinds, sources, before, after) for id_, (kinds, sources) in _EFFECTS.items())
    return tuple(one for one in found if one.status != "not-seen" or one.id != "dead-jobs")


def _rare(id_: RareId, kinds: tuple[str, ...], sources: tuple[str, ...], before: Recording | None, after: Recording) -> Rare:
    now, hours = _happened(after, kinds)
    seen = bool(now) or any(after.on(source) for source in sources)
    then = _happened(before, kinds) if before is not None and any(before.on(source) for source in sources) else None
    was, span = (len(then[0]), then[1]) if then is not None else (None, None)
    needed = _EXPECTED * span / was if was and span else None
    status: Status
    if not seen:
        why = after.why_off(sources[0])
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


def _happened(recording: Recording, kinds: tuple[str, ...]) -> tuple[list[str], float]:
    """What happened, each once, and in how many hours. What the kernel's log still had of the time before is not counted."""
    start, end = recording.window
    last: dict[str, int] = {}
    told = []
    for event in events(recording, *kinds):
        if start <= event.time <= end:
            about = event.fields.get("pci") or event.subject
            if event.kind.startswith("job-") or event.time - last.get(about, -_ONE_NS - 1) > _ONE_NS:
                told.append(event.message)
            last[about] = event.time
    return told, (end - start) / 3600e9
