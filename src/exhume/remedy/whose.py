"""Whether a cgroup's unit is one of this node's own systemd. A user's manager and a container's have units of the same names,
and what is done to the node's must never be meant for theirs."""

import re

from exhume.host.owners import foreign, own_unit, owner, units
from exhume.remedy.manager import Manager
from exhume.text import printable

__all__ = ["elsewhere", "mounted", "not_a_unit", "units"]

_MOUNTED = "/sys/fs/cgroup"
# What a hierarchy of v1 is mounted by: its controllers, or its name (cgroups(7)).
_CONTROLLER = r"(?:cpuset|cpu|cpuacct|blkio|memory|devices|freezer|net_cls|net_prio|perf_event|hugetlb|pids|rdma|misc)"
_HIERARCHY = re.compile(rf"/(?:systemd|unified|{_CONTROLLER}(?:,{_CONTROLLER})*)(?=/)")


def mounted(path: str) -> str:
    """The cgroup of a directory below /sys/fs/cgroup, whichever hierarchy it is in; any other path as it is."""
    inner = path.removeprefix(_MOUNTED)
    return _HIERARCHY.sub("", inner, count=1) if inner != path and _HIERARCHY.match(inner) else inner


def elsewhere(path: str, manager: Manager | None = None) -> str:
    """Whose the innermost unit of a path is, where it is not this node's systemd's, and what to do there; else nothing.

    A running manager is asked where it keeps the unit: a group of that name in another place is somebody else's.
    """
    found = foreign(path)
    if found is None:
        own, group = own_unit(path)
        kept = manager.control_group(own) if own and manager is not None and "*" not in own else ""
        if not kept or kept == group:
            return ""
        return f"{printable(own, 80)} has its processes in {printable(kept)}, not in {printable(group)}: that is another's"
    name, user = printable(found.unit, 80), found.user
    if user:
        return f"{name} is a unit of the user {user}, not of the node: systemctl --user --machine={user}@ disable --now {name}"
    there = f"{name} is a unit inside {found.tenant}, not of the node"
    return f"{there}: it has to be switched off there, and in the image that it is made from"


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
