"""logind, which knows who wants to be told before a shutdown (systemd-inhibit(1)) and waits for them."""

import time

from exhume.errors import ExhumeError, Unreadable
from exhume.host.bus import connected
from exhume.host.root import Root
from exhume.text import printable

CALL_S = 25.0
PATH, INTERFACE = "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
PREVIEW = f"busctl call org.freedesktop.login1 {PATH} {INTERFACE} Reboot b false"
# The bus knows no such name; or it is PID 1 itself that answers, where there is no bus.
_ABSENT = ("ServiceUnknown", "NameHasNoOwner", "UnknownObject", "UnknownInterface", "UnknownMethod")


def reboot(root: Root) -> bool:
    """Ask for it, without any question back (interactive is false); False where there is no logind. ExhumeError if it refuses:
    somebody blocks it."""
    try:
        with connected(root, time.monotonic() + CALL_S) as bus:
            reply = bus.call(PATH, INTERFACE, "Reboot", "b", (False,))
    except Unreadable as why:
        raise ExhumeError(f"logind cannot be told to reboot: {why}") from None
    if reply.error and reply.error.removeprefix("org.freedesktop.DBus.Error.") not in _ABSENT:
        said = reply.body if isinstance(reply.body, str) else reply.error
        raise ExhumeError(f"logind refused to reboot: {printable(said)}")
    return not reply.error
