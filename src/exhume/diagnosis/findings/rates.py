"""Rates of counters over a recording, shared by the detectors that judge them."""

from exhume.diagnosis.findings.stretches import growth
from exhume.recording.recording import Labels, Recording


def rate(recording: Recording, name: str, at: Labels = ()) -> float | None:
    """Growth a second between the first and the last reading; None if there are not two."""
    grown = growth(recording, name, at)
    return grown.mean() if grown is not None else None
