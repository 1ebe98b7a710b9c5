"""The last resort. The sentinel file that kured and others look for is a `write-file`; this one reboots now, by logind."""

from exhume.errors import Unreadable
from exhume.remedy import logind
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.steps.files import write_file
from exhume.remedy.steps.kind import AFTERWARDS, State, manager_of

SENTINEL = "/run/reboot-required"
"""What kured (--reboot-sentinel) and unattended-upgrades look for, at its older name /var/run/reboot-required."""


def reboot(reason: str, boot_id: str = "") -> Step:
    """Of the boot with that id and of no later one, if it is known."""
    return Step("reboot", "node", reason, "high", undoable=False, expects=boot_id)


def reboot_by_sentinel(reason: str, path: str = SENTINEL) -> Step:
    """Undo removes the file as long as nobody acted on it; whoever does reboots the node, so it is confirmed as a reboot is."""
    made = write_file(path, b"*** System restart required ***\n", reason, "high")
    return Step(made.kind, made.target, made.reason, made.risk, undoable=False, content=made.content)


class Reboot:
    name = "reboot"
    undoable = False
    undo_rank = AFTERWARDS
    offline = False

    def preview(self, step: Step, node: Node) -> str:
        return logind.PREVIEW + "\n"

    def mark(self, step: Step, node: Node) -> str:
        """By the kernel's boot_id: a plan is for the boot in which it was made."""
        try:
            return _boot_id(node)
        except Unreadable:  # an image, which has not booted
            return ""

    def done(self, step: Step, node: Node) -> bool:
        """Whoever rebooted it since: what the reboot was for is gone."""
        return bool(step.expects) and _boot_id(node) != step.expects

    def before(self, step: Step, node: Node) -> State:
        manager_of(step, node)
        return {"boot_id": _boot_id(node)}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        """A reboot that was asked for before the journal could say that it was is seen by the kernel's boot_id."""
        if _boot_id(node) == before.get("boot_id"):
            manager = manager_of(step, node)
            node.operations.call("reboot", manager.reboot)
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "a reboot cannot be undone"


def _boot_id(node: Node) -> str:
    return node.root.read("proc/sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()
