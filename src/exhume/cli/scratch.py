"""Scratch directories that last until the process ends: what a file of another tool becomes while it is looked at."""

import atexit
import signal
import sys
import threading
from contextlib import ExitStack

from exhume.scratch import Kind, scratch

_places: list[ExitStack] = []


def until_exit(kind: Kind) -> str:
    """A new directory, removed at the end, also where that is SIGTERM: by default nothing would be done any more then."""
    stack = ExitStack()
    place = stack.enter_context(scratch(kind))
    if not _places:
        atexit.register(remove_all)
    _places.append(stack)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return place


def remove_all() -> None:
    while _places:
        _places.pop().close()
