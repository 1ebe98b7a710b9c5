"""Directories that go when we do: what a file of another tool becomes while somebody looks at it."""

import atexit
import signal
import sys
import tempfile
import threading


def scratch(prefix: str) -> str:
    """A new directory, removed at the end, also where that is SIGTERM: by default nothing would be done any more then."""
    place = tempfile.mkdtemp(prefix=prefix)
    atexit.register(_remove, place)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return place


def _remove(place: str) -> None:
    from exhume.recorder.importing import remove

    remove(place)
