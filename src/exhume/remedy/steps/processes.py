"""Tell a process that children of it ended: SIGCHLD, which the kernel ignores where the process has no handler for it."""

import os
import signal
import time

from exhume.errors import ExhumeError, Refused, Unreadable
from exhume.host.owners import innermost
from exhume.host.programs import protected_unit
from exhume.host.root import Root
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.steps.kind import AFTERWARDS, State
from exhume.sources.processes import Stat, cgroup_of, parse_stat, stats
from exhume.text import printable

HEARS_S = 2.0
"""A process that collects its children when it is told does so at once; one that is busy gets a moment."""
_POLL_S = 0.05


def lives(root: Root, pid: int, start: int) -> bool:
    """Whether it is there, and still the same process."""
    try:
        stat = parse_stat(root.read(f"proc/{pid}/stat", 4096))
    except Unreadable:
        return False
    return stat is not None and stat.start == start


def uncollected(root: Root, pid: int, start: int) -> int:
    """How many dead children a process has; none where it is gone, for they go to another parent then."""
    return sum(stat.state == "Z" and stat.ppid == pid for _, stat in stats(root)) if lives(root, pid, start) else 0


def parent_of(text: str) -> tuple[int, int]:
    """PID and start, as a step names a process."""
    pid, _, start = text.partition(":")
    if not (pid.isascii() and pid.isdigit() and start.isascii() and start.isdigit() and 1 < int(pid) < 1 << 22):
        raise Refused("a process is named by its PID and its start, as in 4711:12345, and it is not PID 1")
    return int(pid), int(start)


def signal_parent(pid: int, start: int, reason: str) -> Step:
    """The process is told by its PID and when it was started: another one of that PID is left alone."""
    return Step("signal-parent", f"{pid}:{start}", reason, "low", undoable=False)


class SignalParent:
    name = "signal-parent"
    undoable = False
    undo_rank = AFTERWARDS
    offline = True

    def preview(self, step: Step, node: Node) -> str:
        return f"kill -CHLD {parent_of(step.target)[0]}\n"

    def mark(self, step: Step, node: Node) -> str:
        return ""

    def done(self, step: Step, node: Node) -> bool:
        return not uncollected(node.root, *parent_of(step.target))

    def before(self, step: Step, node: Node) -> State:
        if not node.root.same_kernel() or not node.root.own:
            raise Refused("only processes of the node that we run on are told anything")
        _known(step, node)
        return {}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        pid, start = parent_of(step.target)
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            raise ExhumeError(f"process {pid} cannot be told: {error.strerror}") from None
        try:
            _known(step, node)  # after the handle was taken: from here on it is the one that was meant
            node.operations.call("SIGCHLD", lambda: signal.pidfd_send_signal(handle, signal.SIGCHLD))
        finally:
            os.close(handle)
        end = time.monotonic() + HEARS_S
        while (left := uncollected(node.root, pid, start)) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return f"{left:,} of its children are left" if left else "its children are collected"

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "a signal cannot be taken back"


def _known(step: Step, node: Node) -> Stat:
    pid, start = parent_of(step.target)
    stat = parse_stat(node.root.read(f"proc/{pid}/stat", 4096)) if node.root.exists(f"proc/{pid}/stat") else None
    if stat is None or stat.start != start:
        raise Refused(f"process {pid} is not there any more")
    unit = innermost(cgroup_of(node.root, pid))
    if unit and protected_unit(unit):
        raise Refused(f"process {pid} is left alone: it is {printable(unit)}'s, which is protected")
    return stat
