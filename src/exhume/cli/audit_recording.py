"""Crash loops and churn that a recording of the node shows: loops inside a unit are invisible to systemd."""

from exhume.host.quantities import HOUR

# Stacks tell nothing about restarts, and are most of a recording.
_NOT_NEEDED = {"samples", "stacks", "frames", "threads", "latency", "cpu"}


def crash_loops(path: str) -> dict[str, str]:
    """By unit, a sentence each, of the last hour; those with bad ends only, because timers and probes have a rhythm too."""
    from exhume.cli.opening import place
    from exhume.diagnosis.findings import crash_loop
    from exhume.diagnosis.findings.crash_loop import CrashLoop
    from exhume.diagnosis.findings.model import of
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.recording.folder import Folder
    from exhume.recording.schema import TABLES

    folder = Folder(place(path))
    start, end = folder.window
    recording = folder.load(max(start, end - HOUR), end + 1, [name for name in TABLES if name not in _NOT_NEEDED])
    return {
        loop.facts.name: f"a recording shows it in a crash loop: {loop.summary}"
        for loop in of(crash_loop.detect(recording, Thresholds()).findings, CrashLoop)
        if loop.serious
    }
