"""Rates of counters over a recording, shared by the detectors that judge them."""

from exhume.recording.recording import Labels, Recording


def rate(recording: Recording, name: str, at: Labels = ()) -> float | None:
    """Growth a second between the first and the last reading; None if there are not two."""
    series = recording.counter(name, at)
    if series is None or len(series.times) < 2 or series.times[-1] <= series.times[0]:
        return None
    return series.delta * 1e9 / float(series.times[-1] - series.times[0])
