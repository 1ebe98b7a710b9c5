"""Wait for a condition instead of sleeping."""

import time
from collections.abc import Callable


def wait_for(what: Callable[[], object], seconds: float = 120) -> None:
    """Until it is so. The limit only ends a test that has failed."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"it did not come to pass within {seconds:.0f} s"
        time.sleep(0.005)
