"""The service manager, told what to do over D-Bus: a few calls, each with a deadline, each with its answer waited for.

What is on the disk is not changed through it (see `files`); it is told to read it again.
"""

import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from exhume.errors import ExhumeError, Refused, Unreadable
from exhume.host.bus import DEADLINE_S, Call, Reply, booted, connected
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.remedy import logind
from exhume.text import printable

CALL_S = 25.0
"""As long as libdbus waits for an answer by default."""
RELOAD_S = 180.0
"""A reload reads every unit file anew and runs the generators; systemctl waits as long, twice DEFAULT_TIMEOUT_USEC."""

INTERFACE = "org.freedesktop.systemd1.Manager"
_PATH = "/org/freedesktop/systemd1"
# The inverse of Requires=, Requisite=, BindsTo= and PartOf=, and PropagatesStopTo= (org.freedesktop.systemd1(5)).
_STOPPED = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
_CGROUPS = {
    kind: f"org.freedesktop.systemd1.{kind.capitalize()}" for kind in ("service", "socket", "scope", "slice", "mount", "swap")
}
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
# systemd.unit(5): letters, digits, ":-_.\\" and "@"; at most 255 characters, with a suffix.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,240}\.(?:service|socket|target|timer|path|mount|automount|swap|slice|scope|device)")


@dataclass(frozen=True, slots=True)
class UnitState:
    active: str
    """ActiveState: active, reloading, inactive, failed, activating, deactivating, maintenance."""
    sub: str
    load: str = "loaded"
    """LoadState: loaded, masked, not-found, bad-setting, error."""

    @property
    def up(self) -> bool:
        """Runs, starts, or is about to be started again: what an undo has to bring back."""
        return self.active in ("active", "reloading", "activating", "refreshing") or "auto-restart" in self.sub

    @property
    def down(self) -> bool:
        return not self.up and self.active in ("inactive", "failed")


class Manager(Protocol):
    def state(self, unit: str) -> UnitState: ...
    def dependents(self, unit: str) -> tuple[str, ...]: ...
    def control_group(self, unit: str) -> str: ...
    def stop(self, unit: str) -> None: ...
    def start(self, unit: str, mode: str = "replace") -> None: ...
    def restart(self, unit: str) -> None: ...
    def reboot(self) -> None: ...
    def reset_failed(self, unit: str) -> None: ...
    def reload(self) -> None: ...


class Systemd:
    """The systemd of a root: over its system bus, or PID 1's own socket."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def state(self, unit: str) -> UnitState:
        """What a unit that is not loaded is told by its file as well: asking for its object loads it (bus_unit_find)."""
        path = f"{_PATH}/unit/{_label(checked(unit))}"
        names = ("ActiveState", "SubState", "LoadState")
        asked = [
            (path, "org.freedesktop.DBus.Properties", "Get", "ss", ("org.freedesktop.systemd1.Unit", name)) for name in names
        ]
        got: list[str] = []
        for reply in self._call(asked):
            if reply.error or not isinstance(reply.body, str):
                raise ExhumeError(f"systemd does not tell the state of {printable(unit)}: {_said(reply)}")
            got.append(reply.body)
        return UnitState(*got)

    def dependents(self, unit: str) -> tuple[str, ...]:
        """What systemd stops with it, of what is loaded: instances that no file names are among them."""
        path = f"{_PATH}/unit/{_label(checked(unit))}"
        asked = [
            (path, "org.freedesktop.DBus.Properties", "Get", "ss", ("org.freedesktop.systemd1.Unit", name)) for name in _STOPPED
        ]
        # A template has no object, and systemd before 249 not the last of them.
        lists = [reply.body for reply in self._call(asked) if not reply.error and isinstance(reply.body, list)]
        return tuple(dict.fromkeys(name for names in lists for name in names if isinstance(name, str)))

    def control_group(self, unit: str) -> str:
        """Where systemd keeps its processes, or, while it has none, would keep them; empty where it has no such place."""
        interface = _CGROUPS.get(unit.rpartition(".")[2])
        if interface is None:
            return ""
        path = f"{_PATH}/unit/{_label(checked(unit))}"
        asked = [
            (path, "org.freedesktop.DBus.Properties", "Get", "ss", (interface, name)) for name in ("ControlGroup", "Slice")
        ]
        here, slice_ = (reply.body if isinstance(reply.body, str) and not reply.error else "" for reply in self._call(asked))
        return here or (f"{slice_path(slice_)}/{unit}" if slice_ else "")

    def stop(self, unit: str) -> None:
        self._manage("StopUnit", "ss", (checked(unit), "replace"), unless=_NO_SUCH_UNIT)

    def start(self, unit: str, mode: str = "replace") -> None:
        self._manage("StartUnit", "ss", (checked(unit), mode))

    def restart(self, unit: str) -> None:
        """With whatever stops with it, which is started again by systemd itself."""
        self._manage("RestartUnit", "ss", (checked(unit), "replace"))

    def reboot(self) -> None:
        """By logind, as systemctl(1) does it: whoever delays a shutdown (the kubelet, to end its pods) is told. Without logind
        there is nobody to ask."""
        if not logind.reboot(self._root):
            self.start("reboot.target", "replace-irreversibly")

    def reset_failed(self, unit: str) -> None:
        self._manage("ResetFailedUnit", "s", (checked(unit),), unless=_NO_SUCH_UNIT)

    def reload(self) -> None:
        self._manage("Reload", "", (), deadline_s=RELOAD_S)

    def _manage(
        self, member: str, signature: str, body: tuple[object, ...], unless: str = "", deadline_s: float = CALL_S
    ) -> None:
        (reply,) = self._call([(_PATH, INTERFACE, member, signature, body)], deadline_s)
        if reply.error and reply.error != unless:
            named = f"{member} {printable(str(body[0]))}" if body else member
            raise ExhumeError(f"systemd refused {named}: {_said(reply)}")

    def _call(self, calls: Sequence[Call], deadline_s: float = CALL_S) -> list[Reply]:
        """One connection for what belongs together and no longer: systemd drops its own when it is re-executed."""
        member = calls[0][2]
        try:
            with connected(self._root, time.monotonic() + deadline_s) as bus:
                try:
                    return [bus.call(*call) for call in calls]
                except TimeoutError:
                    raise ExhumeError(f"systemd did not answer {member} within {duration(deadline_s * SECOND)}") from None
        except Unreadable as why:
            raise ExhumeError(f"systemd cannot be told {member}: {why}") from None


def slice_path(name: str) -> str:
    """The cgroup of a slice: a-b.slice is in a.slice, and -.slice is the root (systemd.slice(5))."""
    words = name.removesuffix(".slice").split("-")
    return "".join(f"/{'-'.join(words[: place + 1])}.slice" for place in range(len(words))) if all(words) else ""


def checked(unit: str) -> str:
    """A unit's name, so far as systemd itself would take it for one."""
    if not _UNIT.fullmatch(unit):
        raise Refused(f"{printable(unit)} is not the name of a unit")
    return unit


def running(root: Root) -> Systemd | None:
    """The manager of a root, None if none runs there: a tree or an image that is not booted.

    Of this machine's own root sd_booted(3) tells. Another root with that directory may be a container, or a copy of a live
    node's files, and only one of them answers. An image that is built in a chroot has the /proc and /run of the machine that
    builds it, whose manager is not the image's.
    """
    if not booted(root) or _lent(root):
        return None
    if not root.same_kernel():
        try:
            with connected(root, time.monotonic() + DEADLINE_S):
                pass
        except Unreadable:
            return None
    return Systemd(root)


def _lent(root: Root) -> bool:
    """Whether what is at /proc of another root is of an init that has yet another root. False where that cannot be seen."""
    if root.own:
        return False
    try:
        init, here = os.stat(root.at("proc/1/root/")), os.stat(root.path)
    except OSError:
        return False
    return (init.st_dev, init.st_ino) != (here.st_dev, here.st_ino)


def as_command(member: str, *arguments: str) -> str:
    """A call, as busctl(1) would make it. For previews."""
    signature = ["s" * len(arguments)] if arguments else []
    return " ".join(
        ["busctl call org.freedesktop.systemd1", _PATH, INTERFACE, member, *signature, *map(shlex.quote, arguments)]
    )


def _label(name: str) -> str:
    """A unit's name as the last part of its object's path (bus_label_escape in src/basic/bus-label.c)."""
    kept = (c if c.isascii() and (c.isalpha() or (c.isdigit() and i)) else f"_{ord(c):02x}" for i, c in enumerate(name))
    return "".join(kept)


def _said(reply: Reply) -> str:
    return printable(reply.body if reply.error and isinstance(reply.body, str) else reply.error or "an answer of another form")
