"""Whether a cgroup's unit is one of this node's own systemd. A user's manager and a container's have units of the same names,
and what is done to the node's must never be meant for theirs."""

from exhume.node.owners import foreign, owner, units
from exhume.text import printable

__all__ = ["elsewhere", "not_a_unit", "units"]


def elsewhere(path: str) -> str:
    """Whose the innermost unit of a path is, where it is not this node's systemd's, and what to do there; else nothing."""
    unit, held = foreign(path)
    if not unit:
        return ""
    name = printable(unit, 80)
    user = held.removeprefix("of the user ")
    if user != held:
        return f"{name} is a unit {held}, not of the node: systemctl --user --machine={user}@ disable --now {name}"
    return f"{name} is a unit {held}, not of the node: it has to be switched off there, and in the image that it is made from"


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
