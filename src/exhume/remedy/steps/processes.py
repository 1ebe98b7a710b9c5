"""Tell a process that children of it ended: SIGCHLD, which the kernel ignores where the process has no handler for it."""

import os
import signal

from exhume.errors import ExhumeError, Refused
from exhume.node.owners import owner
from exhume.node.processes import Stat, parse_cgroup, parse_stat
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.protected import protected
from exhume.remedy.steps.kind import AFTERWARDS, State
from exhume.text import printable


def signal_parent(pid: int, start: int, reason: str) -> Step:
    """The process is told by its PID and when it was started: another one of that PID is left alone."""
    return Step("signal-parent", f"{pid}:{start}", reason, "low", undoable=False)


class SignalParent:
    name = "signal-parent"
    undoable = False
    undo_rank = AFTERWARDS
    offline = True

    def preview(self, step: Step, node: Node) -> str:
        return f"kill -CHLD {_named(step)[0]}\n"

    def mark(self, step: Step, node: Node) -> str:
        return ""

    def done(self, step: Step, node: Node) -> bool:
        return False

    def before(self, step: Step, node: Node) -> State:
        if not node.root.same_kernel() or not node.root.own:
            raise Refused("only processes of the node that we run on are told anything")
        _known(step, node)
        return {}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        pid = _named(step)[0]
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            raise ExhumeError(f"process {pid} cannot be told: {error.strerror}") from None
        try:
            _known(step, node)  # after the handle was taken: from here on it is the one that was meant
            node.operations.call("SIGCHLD", lambda: signal.pidfd_send_signal(handle, signal.SIGCHLD))
        finally:
            os.close(handle)
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "a signal cannot be taken back"


def _named(step: Step) -> tuple[int, int]:
    pid, _, start = step.target.partition(":")
    if not (pid.isascii() and pid.isdigit() and start.isascii() and start.isdigit() and 1 < int(pid) < 1 << 22):
        raise Refused("a process is named by its PID and its start, as in 4711:12345, and it is not PID 1")
    return int(pid), int(start)


def _known(step: Step, node: Node) -> Stat:
    pid, start = _named(step)
    stat = parse_stat(node.root.read(f"proc/{pid}/stat", 4096)) if node.root.exists(f"proc/{pid}/stat") else None
    if stat is None or stat.start != start:
        raise Refused(f"process {pid} is not there any more")
    unit = owner(parse_cgroup(node.root.read(f"proc/{pid}/cgroup", 1 << 16))).unit
    if unit and protected(unit):
        raise Refused(f"process {pid} is left alone: it is {printable(unit)}'s, which is protected")
    return stat
