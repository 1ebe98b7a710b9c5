"""What every kind of step can do. A kind holds no state: what was there before is handed to the journal and back."""

from typing import Protocol

from exhume.errors import Refused
from exhume.remedy.manager import Manager
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.text import printable

ON_DISK, RELOAD, AFTERWARDS = 0, 1, 2

State = dict[str, object]
"""What was there before, as it is written into the journal."""


class Kind(Protocol):
    name: str
    undoable: bool
    undo_rank: int
    """Files are undone first, then the manager reads them again, then units follow: a masked one cannot be started."""
    offline: bool
    """Whether it can be done to a root in which nothing runs."""

    def preview(self, step: Step, node: Node) -> str:
        """What exactly would change, for people: a unified diff, or the call."""

    def mark(self, step: Step, node: Node) -> str:
        """What is there now, in short, for `Step.expects`; empty where that is not a condition."""

    def done(self, step: Step, node: Node) -> bool:
        """Whether it is so already and nothing is to be done."""

    def before(self, step: Step, node: Node) -> State:
        """What has to be known to undo it. Refused if it cannot be done at all."""

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        """Do it, from any point that a former attempt may have got to; a note for people, or nothing."""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        """Bring back what was, from any point that apply or a former undo may have got to. Refused when others changed it."""


def manager_of(step: Step, node: Node) -> Manager:
    if node.manager is None:
        raise Refused(f"{step.kind} {printable(step.target)}: no systemd runs in this root")
    return node.manager
