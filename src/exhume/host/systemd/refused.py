"""What systemd will not load although the file can be read, and what takes the machine down with it.

After service_verify() and service_add_extras(), src/core/service.c: such a unit is there, is enabled perhaps, and never starts.
"""

from collections.abc import Iterator
from typing import Final

from exhume.host.systemd import names
from exhume.host.systemd.unit_file import Sections

_TYPES: Final = ("simple", "exec", "forking", "oneshot", "dbus", "notify", "notify-reload", "idle")
MEANS: Final = {
    "StartLimitAction": "when its start limit is hit",
    "FailureAction": "when it fails",
    "SuccessAction": "when it ends cleanly",
    "JobTimeoutAction": "when its start or its stop takes too long",
}
_ANYWHERE: Final = ("StartLimitAction", "FailureAction")
_JOB_TIMEOUTS: Final = ("JobTimeoutSec", "JobRunningTimeoutSec")
_DOWN: Final = ("reboot", "poweroff", "halt", "kexec", "soft-reboot", "exit")


def refused(name: str, sections: Sections) -> str:
    """Why systemd refuses a service with these settings (load state bad-setting); empty if it does not."""
    if names.kind(name) != "service" or sections.broken:
        return ""
    starts = sections.lines("Service", "ExecStart")
    kind = service_type(sections)
    if not starts:
        if not sections.lines("Service", "ExecStop") and not sections.last("Unit", "SuccessAction"):
            return "it has neither ExecStart= nor ExecStop="
        if kind != "oneshot":
            return f"it has no ExecStart=, which Type={kind} needs"
        if not sections.flag("Service", "RemainAfterExit", False) and not sections.last("Unit", "SuccessAction"):
            return "it has no ExecStart=, and no RemainAfterExit=yes"
    if len(starts) > 1 and kind != "oneshot":
        return f"it has {len(starts)} ExecStart=, and only Type=oneshot may have more than one"
    restarts = next((value for value in reversed(sections.all("Service", "Restart")) if value), "")
    if kind == "oneshot" and restarts in ("always", "on-success"):
        return f"a service of Type=oneshot cannot have Restart={restarts}"
    if kind == "oneshot" and sections.last("Service", "ExitType") == "cgroup":
        return "a service of Type=oneshot cannot have ExitType=cgroup"
    if kind == "dbus" and not sections.last("Service", "BusName"):
        return "it is of Type=dbus and has no BusName="
    return ""


def service_type(sections: Sections) -> str:
    """Type=, or what systemd takes where there is none."""
    said = next((value for value in reversed(sections.all("Service", "Type")) if value in _TYPES), "")
    if said:
        return said
    if sections.last("Service", "BusName"):
        return "dbus"
    return "simple" if sections.lines("Service", "ExecStart") else "oneshot"


def actions(sections: Sections, ever: bool = False) -> dict[str, str]:
    """Settings with which the end of one unit is the end of the whole machine (systemd.unit(5)): reboot, poweroff and so on.

    With `ever` also those that a later file takes back.
    """
    found = {}
    for key in MEANS:
        # StartLimitAction= and FailureAction= stood in [Service] before systemd 230 and 236, and are still taken from there.
        places = ("Unit", "Service") if key in _ANYWHERE else ("Unit",)
        if key == "JobTimeoutAction" and not any(map(sections.values.get("Unit", {}).get, _JOB_TIMEOUTS)):
            continue  # no effect without one
        said = [value for section, own, value in sections.assignments if own == key and section in places]
        for action in reversed([value for value in said if value]):
            if action.removesuffix("-force").removesuffix("-immediate") in _DOWN:
                found[key] = action
                break
            if not ever:
                break
    return found


def takes_down(sections: Sections) -> Iterator[str]:
    """The same, a sentence each."""
    for key, action in actions(sections).items():
        yield f"{MEANS[key]} the machine goes down with it ({key}={action})"
