"""Loops by the journal: what systemd wrote when it started a unit again, and how the run before had ended."""

from collections import Counter
from itertools import pairwise
from statistics import median

from exhume.diagnosis.findings.loops import JournalRestarts, Loop
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.events import Event, events
from exhume.recording.recording import Recording

KINDS = ("unit-restart", "unit-exited", "unit-failed")
SOURCE = "journal, MESSAGE_ID of systemd"


def by_journal(recording: Recording, thresholds: Thresholds) -> list[Loop]:
    """What is older than `recent_s` is history."""
    by_unit: dict[str, list[Event]] = {}
    for event in events(recording, *KINDS):
        if event.age_s <= thresholds.recent_s:
            by_unit.setdefault(event.subject, []).append(event)
    found = []
    for unit, told in by_unit.items():
        restarts = [event for event in told if event.kind == "unit-restart"]
        total = max((event.integer("restarts") or 0 for event in restarts), default=0)
        if not restarts or max(total, len(restarts)) < thresholds.crash_restarts:
            continue
        ends = Counter(_end(event) for event in told if event.kind != "unit-restart")
        bad = sum(count for end, count in ends.items() if end)
        times = [event.time for event in restarts]
        pauses = [after - before for before, after in pairwise(times)]
        worst = max(ends.items(), key=lambda item: (bool(item[0]), item[1], item[0]), default=("", 0))[0]
        found.append(
            Loop(
                unit,
                "journal",
                len(restarts),
                bad > 0,
                times[0],
                times[-1],
                JournalRestarts(len(restarts), worst),
                total=total or -1,
                period_ns=int(median(pauses)) if pauses else -1,
                unit=unit,
                bad_ends=bad,
                bad_ends_source=SOURCE,
                ended_with=worst,
            )
        )
    return found


def _end(event: Event) -> str:
    """How a run ended, in words; "" if well."""
    if event.kind == "unit-failed":
        result = event.fields.get("result", "")
        return "" if result in ("", "success") else f"result {result}"
    code, status = event.fields.get("code", ""), event.fields.get("status", "")
    if code == "exited":
        return "" if status in ("", "0") else f"exit status {status}"
    return f"signal {status}" if code in ("killed", "dumped") else ""
