"""Lines of network drivers about late polls and resets, as the detectors of both read them."""

from typing import Final

from exhume.recording.events import Event

# Lines that say that the poll was late. A NETDEV WATCHDOG alone only says that nothing was sent: that is nic-reset's.
LATE_POLLS: Final = ("nic-queue-paused", "nic-tx-not-completed", "nic-tx-lost", "nic-napi-late")


def late(event: Event) -> bool:
    return event.kind == "nic-napi-late" or (event.integer("napi_age_ms") or 0) >= 1000


def interrupt_missing(event: Event) -> bool:
    """A queue that waits while no poll is scheduled was not starved: its interrupt did not come, or it has nothing to do."""
    return event.kind in LATE_POLLS and late(event) and event.fields.get("napi_scheduled") == "0"


def due(event: Event) -> bool:
    """Whether the driver itself says that the poll was scheduled. Older forms of its lines do not tell."""
    return event.kind == "nic-napi-late" or event.fields.get("napi_scheduled") == "1"
