"""Which cgroup hierarchy is that of memory: cgroups of the others come and go as well, and pin no memory."""

from exhume.errors import Unreadable
from exhume.host.root import Root


def memory_hierarchy(root: Root) -> int | None:
    """Column 2 of /proc/cgroups, of the row memory; 0 is cgroup v2. None where that cannot be read."""
    try:
        for line in root.read("proc/cgroups", 1 << 16).decode("ascii", "replace").splitlines():
            words = line.split()
            if len(words) >= 2 and words[0] == "memory" and words[1].isdecimal():
                return int(words[1])
    except Unreadable:
        return None
    return 0
