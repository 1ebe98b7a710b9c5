"""A detector whose findings others ask for, too, is worked out once for a recording, and again only after rows were added."""

from collections.abc import Callable
from functools import wraps
from weakref import WeakKeyDictionary

from exhume.diagnosis.findings.model import Examined
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

Detect = Callable[[Recording, Thresholds], Examined]


def once(detect: Detect) -> Detect:
    last: WeakKeyDictionary[Recording, tuple[object, Examined]] = WeakKeyDictionary()

    @wraps(detect)
    def detected(recording: Recording, thresholds: Thresholds) -> Examined:
        # A table that is only asked for is made empty: it changes nothing.
        state = thresholds, tuple(sorted((name, rows) for name, table in recording.tables.items() if (rows := len(table))))
        known = last.get(recording)
        if known is None or known[0] != state:
            known = last[recording] = (state, detect(recording, thresholds))
        return known[1]

    return detected
