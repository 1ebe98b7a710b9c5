"""How findings name what they are about, where that is no unit, cgroup or device.

These names are data, not prose: findings of two reports are matched by them, and `exhume fix` takes them.
"""

from typing import Final

from exhume.record import record

NODE: Final = "node"
ALL_CORES: Final = "all cores"
MOST_CORES: Final = "most cores"
KERNEL_LOG: Final = "kernel log"


def core(number: int) -> str:
    return f"core {number}"


def unknown_device(core: int) -> str:
    return f"an unknown device on core {core}"


def device(name: str, netns: int) -> str:
    """A device in a network namespace other than the node's own."""
    return f"{name} of network namespace {netns}"


@record(frozen=True, slots=True)
class Process:
    """A process, or several of one name."""

    comm: str
    """Empty if unknown."""
    pid: int = 0
    """0: another one each time, or none."""
    more: int = 0
    """Further processes of that name."""

    def __str__(self) -> str:
        if self.pid <= 0:
            return self.comm
        pids = f"{self.pid} and {self.more} more" if self.more else str(self.pid)
        return f"{self.comm} [{pids}]" if self.comm else f"PID {pids}"


def program(process: Process, owner: str) -> str:
    """A process with the unit, pod or cgroup that it belongs to."""
    return f"{process} of {owner}" if owner else str(process)
