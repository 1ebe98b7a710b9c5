"""Whether a cgroup's unit is one of this node's own systemd. A user's manager and a container's have units of the same names,
and what is done to the node's must never be meant for theirs."""

import re

from exhume.node.owners import owner
from exhume.text import printable

# user@.service(5): the manager of a user, and everything that it starts.
_USER = re.compile(r"user@(\d{1,10})\.service")
_HOLDS = (".service", ".scope")


def elsewhere(path: str) -> str:
    """Whose the innermost unit of a path is, where it is not this node's systemd's, and what to do there; else nothing."""
    held = ""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if not part.endswith((*_HOLDS, ".socket", ".mount", ".swap")) or _is_container(part):
            held = f"inside {owner('/'.join(parts[: place + 1]))}" if _is_container(part) else held
            continue
        if held:
            return _theirs(held, part)
        if part.endswith(_HOLDS):
            user = _USER.fullmatch(part)
            held = f"of the user {user[1]}" if user else f"inside {printable(part, 80)}"
    return ""


def not_a_unit(subject: str, unit: str) -> str:
    """What to say of a subject that has no unit; nothing where it has one. Who starts it is named as far as its path tells."""
    if unit:
        return ""
    whose, name = owner(subject), printable(subject)
    if whose.pod:
        return f"{name} is of the pod {whose.pod}: what starts it is its workload in the cluster, which has to be changed there"
    if whose.container:
        runtime = whose.runtime or "its runtime"
        return f"{name} is a container, which {runtime} starts for somebody: it has to be stopped where that is configured"
    return f"{name} is no unit: what starts it (a unit, cron, a program) must be told to stop where it is configured"


def units(path: str) -> tuple[str, ...]:
    """Every unit that a path leads through, the node's own first."""
    return tuple(part for part in path.split("/") if part.endswith((*_HOLDS, ".socket", ".mount", ".swap")))


def _is_container(part: str) -> bool:
    whose = owner(f"/{part}")
    return bool(whose.container or whose.pod)


def _theirs(held: str, unit: str) -> str:
    name = printable(unit, 80)
    user = held.removeprefix("of the user ")
    if user != held:
        return f"{name} is a unit {held}, not of the node: systemctl --user --machine={user}@ disable --now {name}"
    return f"{name} is a unit {held}, not of the node: it has to be switched off there, and in the image that it is made from"
